//! Kong's routes: each path is a proxy.

use serde_json::{Map, Value};

use super::order::Rank;
use super::{Kong, list, name, reference, some, texts};
use crate::cond::Cond;
use crate::draft::{
    Import, Match, Matcher, Plug, Proxy, Redirect, RequestTermination, Tls, draft, without_target,
};
use crate::text;
use crate::tree::{Node, NodeValue};

/// What of a route is looked at.
pub(super) const KNOWN: &[&str] = &[
    "hosts",
    "headers",
    "snis",
    "methods",
    "paths",
    "strip_path",
    "preserve_host",
    "protocols",
    "plugins",
    "service",
    "regex_priority",
    "path_handling",
    "https_redirect_status_code",
    "request_buffering",
    "response_buffering",
    "filter_chains",
];

/// By how much a route that asks for one thing more goes before another.
pub(super) const MORE: i64 = 100_000_000;
/// The same for hosts without a `*`, among those that ask for equally many things.
const PLAIN_HOSTS: i64 = 40_000_000;
/// The same for a header more, among those.
const HEADER: i64 = 2_500_000;
/// The same for a regex, and for a place among the priorities of regexes.
const REGEX: i64 = 1_250_000;
const REGEX_RANK: i64 = 1_000;

/// Why something is closed.
pub(super) const NOT_TRANSLATED: &str =
    "which requests are meant can't be converted; all that it may take is closed";

/// What the proxies of a route have in common.
struct RouteDemands {
    strips: bool,
    hosts: Vec<Hosts>,
    weight: i64,
    /// Plugins that refuse some of its requests, with when.
    refusals: Vec<Plug>,
    /// What it may take is closed: which requests it asks for can't be converted.
    is_closed: bool,
}

/// A path that one proxy is for; `None` is all of them.
struct RoutePath {
    path: Option<String>,
    is_closed: bool,
}

/// Hosts that one proxy is for.
enum Hosts {
    Any,
    /// Any as well: which ones are meant can't be converted.
    Unknown,
    Names(Vec<String>),
    /// Conditions of which any holds.
    Patterns(Vec<Match>),
}

impl Kong {
    pub(super) fn lone_route(&mut self, route: &Node) {
        match reference(route, "service") {
            Some(service) => self.route(route, &service),
            None => {
                // Its plugins may answer, such as those that refuse.
                let mut backend = Proxy::default();
                without_target(&mut backend);
                self.services.insert(String::new(), backend);
                let why = "it leads to no service: what no plugin answers is 502";
                self.out.partial(route.at, format_args!("route {}", name(route)), why, "give it a service");
                self.route(route, "");
            }
        }
    }

    pub(super) fn route(&mut self, route: &Node, service: &str) {
        let called = name(route);
        self.out.here = route.at;
        let place = format!("route {called}");
        let Some(backend) = self.services.get(service).cloned() else {
            self.out.not_converted_here(&place, format_args!("its service `{service}` is not converted"));
            return;
        };
        let scheme = backend.get("backend_scheme").and_then(Value::as_str);
        let is_stream = matches!(scheme, Some("tcp" | "tcps" | "udp"));
        let mut common = backend;
        if is_stream {
            self.stream_route(&place, route, common, service);
            return;
        }
        if route.text_of("expression").is_some_and(|it| !it.is_empty()) {
            return self.expression_route(&place, route, &common, service);
        }
        let Some(asked) = self.asked(&place, route, &mut common) else { return };
        let base = if called == "unnamed" { format!("{service}-route") } else { called.clone() };
        for hosts in &asked.hosts {
            for path in self.paths(&place, route) {
                let at = self.out.proxies.len();
                self.one(&place, &base, route, &asked, hosts, path, &common);
                self.of_route.entry(called.clone()).or_default().push(at);
                self.of_service.entry(service.to_owned()).or_default().push(at);
            }
        }
        self.report_object(&place, route, KNOWN);
        let proxies = self.of_route.get(&called).cloned().unwrap_or_default();
        for plugin in list(route, "plugins") {
            self.later(Rank::Route, &place, plugin, Some(&proxies));
        }
        if let Some(chains) = route.get("filter_chains") {
            self.chains(&place, chains, &proxies);
        }
    }

    /// The proxy of a route for one of its paths.
    #[expect(clippy::too_many_arguments, reason = "what one proxy is made of")]
    fn one(
        &mut self,
        place: &str,
        base: &str,
        route: &Node,
        asked: &RouteDemands,
        hosts: &Hosts,
        RoutePath { path, is_closed }: RoutePath,
        common: &Proxy,
    ) {
        let id = self.out.id("proxy", base);
        let mut proxy = draft!(Proxy { id: &id });
        let is_named = matches!(hosts, Hosts::Names(_));
        // All paths of certain hosts: said so, it may stand beside one for all hosts.
        let path = path.or_else(|| Some("/".to_owned())).filter(|path| path != "/" || !is_named);
        let only_below =
            path.clone().filter(|path| path.len() > 1 && path.ends_with('/') && !path.starts_with('~'));
        let is_regex = path.as_deref().is_some_and(|path| path.starts_with('~'));
        if let Some(path) = path {
            proxy.listen_path(self.path(place, &path, asked.strips));
        }
        proxy.append(&mut common.clone());
        match hosts {
            Hosts::Any | Hosts::Unknown => {}
            Hosts::Names(names) => proxy.hosts(names),
            Hosts::Patterns(patterns) => with_any(&mut proxy, patterns),
        }
        if let Some(path) = only_below {
            not_itself(&mut proxy, path.trim_end_matches('/'));
        }
        // Kong goes by how much a route asks for, then takes regexes before prefixes.
        let said = route.get("regex_priority").and_then(Node::int).unwrap_or(0);
        let rank = self.regex_priorities.binary_search(&said).unwrap_or(0).min(1000);
        let regex = if is_regex { REGEX + i64::try_from(rank).unwrap_or(0) * REGEX_RANK } else { 0 };
        proxy.priority(asked.weight + regex);
        self.out.proxies.push(proxy.into());
        if is_closed || asked.is_closed || matches!(hosts, Hosts::Unknown) {
            return self.close_route(&id);
        }
        for plug in &asked.refusals {
            self.out.plugin_when(&id, plug.name, (*plug.config).clone(), plug.when.as_deref());
        }
    }

    /// Answers 503 to all that a proxy takes.
    pub(super) fn close_route(&mut self, id: &str) {
        self.out.plugin(id, "request_termination", RequestTermination::of_closed_route().into());
    }

    /// What all paths of a route have in common. `None` leaves it out, where what can't be said is not to be closed.
    fn asked(&mut self, place: &str, route: &Node, common: &mut Proxy) -> Option<RouteDemands> {
        let narrower = narrower(route, &["sources", "destinations"]);
        if let Some(key) = narrower {
            self.out.guard_not_converted(
                route.at,
                format_args!("{place}.{key}"),
                NOT_TRANSLATED,
                "write it with `matches`",
            );
        }
        let mut is_closed = narrower.is_some();
        let strips = rules(route, common);
        let hosts = self.hosts(place, route);
        if conditions(route, common).is_none() {
            let why = format!("a regex that looks around or refers back is none here; {NOT_TRANSLATED}");
            self.out.guard_not_converted(
                route.at,
                format_args!("{place}.headers"),
                why,
                "write it otherwise",
            );
            common.matches(some(texts(route, "methods")).map(|methods| vec![draft!(Match { methods })]));
            is_closed = true;
        }
        let demands =
            RouteDemands { strips, hosts, weight: weight(route), refusals: refusals(route), is_closed };
        Some(demands).filter(|demands| !(demands.is_closed && self.out.is_open()))
    }

    /// The paths of a route. Of one that is none here, what it begins with is closed.
    fn paths(&mut self, place: &str, route: &Node) -> Vec<RoutePath> {
        let written = texts(route, "paths");
        if written.is_empty() {
            return vec![RoutePath { path: None, is_closed: false }];
        }
        let mut paths = Vec::new();
        for path in written {
            let Some(regex) = path.strip_prefix('~').filter(|regex| !text::is_regex(regex)) else {
                paths.push(RoutePath { path: Some(path), is_closed: false });
                continue;
            };
            let what = format!("{place}.paths `{path}`");
            let why = format!("it looks around, refers back, or is too large; {NOT_TRANSLATED}");
            if self.out.guard_not_converted(route.at, what, why, "write it otherwise") {
                paths.push(RoutePath { path: Some(beginning(regex)), is_closed: true });
            }
        }
        paths
    }

    /// The hosts of a route: names, what only a pattern says, and those that can't be said.
    fn hosts(&mut self, place: &str, route: &Node) -> Vec<Hosts> {
        let asked = texts(route, "hosts");
        if asked.is_empty() {
            return vec![Hosts::Any];
        }
        let (names, others): (Vec<String>, Vec<String>) = asked.into_iter().partition(|host| {
            let rest = host.strip_prefix("*.").unwrap_or(host);
            !rest.contains('*') && !rest.contains(':')
        });
        let (mut made, mut patterns, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for host in others {
            match host_pattern(&host) {
                Some(some) => patterns.extend(some),
                None => {
                    let what = format!("{place}.hosts `{host}`");
                    if self.out.guard_not_converted(route.at, what, NOT_TRANSLATED, "write other hosts") {
                        unknown = vec![Hosts::Unknown];
                    }
                }
            }
        }
        if !names.is_empty() {
            made.push(Hosts::Names(names));
        }
        if !patterns.is_empty() {
            made.push(Hosts::Patterns(patterns));
        }
        made.append(&mut unknown);
        made
    }

    /// A path that means the same here.
    fn path(&mut self, place: &str, path: &str, strips: bool) -> String {
        let Some(regex) = path.strip_prefix('~') else {
            // What goes on within a segment has a proxy of its own (`within.rs`).
            return if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path.to_owned() };
        };
        if strips {
            self.out.not_converted_here(
                format_args!("{place}.paths"),
                format_args!(
                    "`{path}`: what a regex leaves of the path is stripped as well; see strip_listen_path"
                ),
            );
        }
        match regex.strip_suffix('$') {
            Some(whole) => format!("~{whole}"),
            None => format!("~{regex}.*"),
        }
    }
}

/// The first of these keys that a route asks for something with, which is not converted: without it, it would take requests
/// that are not its own.
pub(super) fn narrower<'k>(route: &Node, keys: &[&'k str]) -> Option<&'k str> {
    let asks =
        |key: &str| route.get(key).is_some_and(|value| value.value != NodeValue::Null && !is_empty(value));
    keys.iter().find(|key| asks(key)).copied()
}

/// A path with which everything begins that this regex may take.
fn beginning(regex: &str) -> String {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '~' | '%');
    let end = regex.find(|c| !is_plain(c)).unwrap_or(regex.len());
    let (mut plain, rest) = regex.split_at(end);
    // What is there any number of times need not be there.
    if rest.starts_with(['?', '*', '{']) {
        plain = plain.get(..plain.len().saturating_sub(1)).unwrap_or_default();
    }
    if regex.contains('|') || !plain.starts_with('/') { "/".to_owned() } else { plain.to_owned() }
}

fn is_empty(value: &Node) -> bool {
    value.items().is_empty() && value.entries().is_empty() && value.plain().is_none_or(|text| text.is_empty())
}

/// What is sent to the target; says whether the path is stripped.
pub(super) fn rules(route: &Node, common: &mut Proxy) -> bool {
    let speaks = texts(route, "protocols");
    let is_grpc = speaks.iter().any(|protocol| protocol.starts_with("grpc"))
        || common.get("backend_http_version").is_some_and(|version| version == "2");
    // A call's path is its method: Kong refuses to strip it.
    let strips = route.get("strip_path").and_then(Node::bool).unwrap_or(true) && !is_grpc;
    common.strip_listen_path(strips);
    if route.get("preserve_host").and_then(Node::bool).unwrap_or(false) {
        common.preserve_host_header(true);
    }
    strips
}

/// What a route asks for besides hosts and paths, as one match. `None` where a regex is none here.
fn conditions(route: &Node, common: &mut Proxy) -> Option<()> {
    let mut condition = draft!(Match { methods: some(texts(route, "methods")) });
    let headers = route.get("headers").map_or(&[][..], Node::entries);
    let headers: Map<String, Value> = headers
        .iter()
        .map(|(name, values)| {
            let values: Vec<&str> = values.items().iter().filter_map(Node::str).collect();
            let how = match values.as_slice() {
                [one] if one.starts_with("~*") => {
                    let regex = format!("(?i){}", one.trim_start_matches("~*"));
                    Matcher::one_field(&regex).unwrap_or_else(|| Matcher::regex(regex))
                }
                // One of several fields of the name is enough.
                _ => {
                    let any: Vec<String> = values.iter().map(|value| text::literal(value)).collect();
                    Matcher::regex(format!("(?i)(?:.*, )?(?:{})(?:, .*)?", any.join("|")))
                }
            };
            let is_good = how.get("regex").and_then(Value::as_str).is_none_or(text::is_regex);
            is_good.then(|| (name.clone(), how.into()))
        })
        .collect::<Option<_>>()?;
    condition.headers((!headers.is_empty()).then_some(headers));
    let names: Vec<String> =
        texts(route, "snis").iter().map(|name| name.trim_end_matches('.').to_owned()).collect();
    if !names.is_empty() {
        // Without TLS there is no name, and Kong does not ask for it.
        let named = draft!(Tls { server_names: names });
        condition.any([draft!(Match { scheme: "http" }), draft!(Match { tls: named })]);
    }
    if !condition.is_empty() {
        common.matches([condition]);
    }
    Some(())
}

/// How much a route asks for, by which Kong orders routes.
fn weight(route: &Node) -> i64 {
    let says = |key: &&&str| route.get(key).is_some_and(|value| !is_empty(value));
    let count = ["hosts", "paths", "methods", "headers", "snis"].iter().filter(says).count();
    let headers = route.get("headers").map_or(0, |it| it.entries().len()).min(15);
    let of = |number: usize| i64::try_from(number).unwrap_or(0);
    let hosts = texts(route, "hosts");
    let is_plain = !hosts.is_empty() && !hosts.iter().any(|host| host.contains('*'));
    of(count) * MORE + i64::from(is_plain) * PLAIN_HOSTS + of(headers) * HEADER
}

/// What is answered to requests that a route takes, but does not serve.
pub(super) fn refusals(route: &Node) -> Vec<Plug> {
    let speaks = texts(route, "protocols");
    let mut made = Vec::new();
    let is_tls = |protocol: &String| matches!(protocol.as_str(), "https" | "grpcs" | "wss");
    if !speaks.is_empty() && speaks.iter().all(is_tls) {
        let status = route.get("https_redirect_status_code").and_then(Node::uint);
        let plug = match status.filter(|status| *status != 426) {
            Some(status) => Plug::of(draft!(Redirect { scheme: "https", status_code: status })),
            None => Plug::of(draft!(RequestTermination {
                status_code: 426,
                message: "Please use HTTPS protocol",
            })),
        };
        made.push(plug.when(Cond::scheme("http").when()));
    }
    if speaks.iter().any(|protocol| protocol.starts_with("grpc")) {
        let message = "Non-gRPC request matched gRPC route";
        let grpc = Cond::header("content-type", Matcher::prefix("application/grpc"));
        let plug = Plug::of(draft!(RequestTermination { status_code: 415, message }));
        made.push(plug.when(grpc.negate().when()));
    }
    made
}

/// A host with a port, or with `*` at one end, as conditions of which any may hold.
fn host_pattern(host: &str) -> Option<Vec<Match>> {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port.parse::<u16>().ok()?)),
        None => (host, None),
    };
    let literal = match (name.strip_prefix('*'), name.strip_suffix('*')) {
        (Some(end), _) => format!("[^:]+{}", text::literal(end)),
        (None, Some(start)) => format!("{}[^:]+", text::literal(start)),
        (None, None) => text::literal(name),
    };
    let with = |end: &str| draft!(Match { authority: Matcher::regex(format!("(?i){literal}{end}")) });
    (!name.trim_matches('*').is_empty() && !name.trim_matches('*').contains('*')).then(|| match port {
        None => vec![with("(?::[0-9]+)?")],
        // Kong goes by the port that the client says, or else by its own.
        Some(port) => {
            let mut of_own = with("");
            of_own.ports([port]);
            vec![with(&format!(":{port}")), of_own]
        }
    })
}

/// Has a proxy take what it asks for with any of these conditions.
fn with_any(proxy: &mut Proxy, patterns: &[Match]) {
    let any = match patterns {
        [one] => one.clone(),
        patterns => draft!(Match { any: patterns.to_vec() }),
    };
    let asked = proxy.get("matches").and_then(Value::as_array).cloned();
    let asked = asked.unwrap_or_else(|| vec![Match::default().into()]);
    proxy.matches(
        asked.into_iter().map(|one| Match::of_condition(one).with_facet(&any)).collect::<Vec<Match>>(),
    );
}

/// Takes off what all proxies have in their priorities, so that it stands only where it says something.
pub(super) fn level(out: &mut Import) {
    let least = out.proxies.iter().filter_map(|proxy| proxy.get("priority")?.as_i64()).min().unwrap_or(0);
    for proxy in out.proxies.iter_mut().filter_map(Value::as_object_mut) {
        let Some(priority) = proxy.get("priority").and_then(Value::as_i64) else { continue };
        match priority - least {
            0 => drop(proxy.shift_remove("priority")),
            rest => drop(proxy.insert("priority".to_owned(), rest.into())),
        }
    }
}

/// Leaves out the path of a prefix that ends with a slash, without it.
fn not_itself(proxy: &mut Proxy, path: &str) {
    let not = Value::from(draft!(Match { path: Matcher::exact(path) }));
    match proxy.get_mut("matches").and_then(Value::as_array_mut) {
        Some(matches) => matches.iter_mut().for_each(|one| one["not"] = not.clone()),
        None => proxy.matches([draft!(Match { not })]),
    }
}
