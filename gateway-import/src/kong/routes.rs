//! Kong's routes: each path is a proxy.

use serde_json::{Map, Value, json};

use super::order::Rank;
use super::{Kong, list, name, ours, reference, texts};
use crate::draft::{Import, set, with_facet};
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
/// The same for a header more, among those that ask for equally many things.
const HEADER: i64 = 5_000_000;
/// The same for a regex.
const REGEX: i64 = 2_500_000;

/// What the proxies of a route have in common.
struct RouteDemands {
    strips: bool,
    hosts: Vec<Hosts>,
    weight: i64,
    /// Plugins that refuse some of its requests, with when.
    refusals: Vec<(&'static str, Value, Value)>,
}

/// Hosts that one proxy is for.
enum Hosts {
    Any,
    Names(Vec<String>),
    /// Conditions of which any holds.
    Patterns(Vec<Value>),
}

impl Kong {
    pub(super) fn lone_route(&mut self, route: &Node) {
        match reference(route, "service") {
            Some(service) => self.route(route, &service),
            None => self.out.miss(format_args!("route {}", name(route)), "it leads to no service"),
        }
    }

    pub(super) fn route(&mut self, route: &Node, service: &str) {
        let called = name(route);
        self.out.here = route.at;
        let place = format!("route {called}");
        let Some(backend) = self.services.get(service).cloned() else {
            self.out.miss(&place, format_args!("its service `{service}` is not translated"));
            return;
        };
        let is_stream =
            matches!(ours(&Value::Object(backend.clone()), "backend_scheme"), Some("tcp" | "tcps" | "udp"));
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
        let mut paths: Vec<Option<String>> = texts(route, "paths").into_iter().map(Some).collect();
        if paths.is_empty() {
            paths.push(None);
        }
        for hosts in &asked.hosts {
            for path in &paths {
                if path.as_deref().is_none_or(|path| self.is_known(&place, route, path)) {
                    let at = self.out.proxies.len();
                    self.one(&place, &base, route, &asked, hosts, path.clone(), &common);
                    self.of_route.entry(called.clone()).or_default().push(at);
                    self.of_service.entry(service.to_owned()).or_default().push(at);
                }
            }
        }
        self.leftovers(&place, route, KNOWN);
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
        path: Option<String>,
        common: &Map<String, Value>,
    ) {
        let id = self.out.id("proxy", base);
        let mut proxy = Map::from_iter([("id".to_owned(), json!(id))]);
        let is_named = matches!(hosts, Hosts::Names(_));
        // All paths of certain hosts: said so, it may stand beside one for all hosts.
        let path = path.or_else(|| Some("/".to_owned())).filter(|path| path != "/" || !is_named);
        let only_below =
            path.clone().filter(|path| path.len() > 1 && path.ends_with('/') && !path.starts_with('~'));
        let is_regex = path.as_deref().is_some_and(|path| path.starts_with('~'));
        if let Some(path) = path {
            set(&mut proxy, "listen_path", self.path(place, &path, asked.strips));
        }
        proxy.extend(common.clone());
        match hosts {
            Hosts::Any => {}
            Hosts::Names(names) => set(&mut proxy, "hosts", names.clone()),
            Hosts::Patterns(patterns) => with_any(&mut proxy, patterns),
        }
        if let Some(path) = only_below {
            not_itself(&mut proxy, path.trim_end_matches('/'));
        }
        // Kong goes by how much a route asks for, then takes regexes before prefixes.
        let by_regex = route.get("regex_priority").and_then(Node::int).unwrap_or(0).clamp(0, 2000);
        let regex = if is_regex { REGEX + by_regex * 1000 } else { 0 };
        set(&mut proxy, "priority", asked.weight + regex);
        self.out.proxies.push(Value::Object(proxy));
        for (plugin, config, when) in &asked.refusals {
            self.out.plugin_when(&id, plugin, config.clone(), Some(when));
        }
    }

    /// Whether a route asks for something that is not translated: without it, it would take requests that are not its own.
    /// Such a route is left out.
    pub(super) fn is_narrower(&mut self, place: &str, route: &Node, keys: &[&str]) -> bool {
        let asks = |key: &&&str| {
            route.get(key).is_some_and(|value| value.value != NodeValue::Null && !is_empty(value))
        };
        let Some(key) = keys.iter().find(asks) else { return false };
        let why = "which requests are meant can't be translated; the route is left out";
        self.out.closed(route.at, format_args!("{place}.{key}"), why, "write it with `matches`");
        true
    }

    /// What all paths of a route have in common. `None` leaves it out.
    fn asked(&mut self, place: &str, route: &Node, common: &mut Map<String, Value>) -> Option<RouteDemands> {
        if self.is_narrower(place, route, &["sources", "destinations"]) {
            return None;
        }
        let strips = rules(route, common);
        let hosts = self.hosts(place, route)?;
        if conditions(route, common).is_none() {
            let why = "a regex of its headers looks around or refers back: none here; the route is left out";
            self.out.closed(route.at, format_args!("{place}.headers"), why, "write it otherwise");
            return None;
        }
        Some(RouteDemands { strips, hosts, weight: weight(route), refusals: refusals(route) })
    }

    /// Whether a path is one here, too; one that is not is left out.
    fn is_known(&mut self, place: &str, route: &Node, path: &str) -> bool {
        let is_known = path.strip_prefix('~').is_none_or(text::is_regex);
        if !is_known {
            let what = format!("{place}.paths `{path}`");
            let why = "it looks around, refers back, or is too large: none here; the path is left out";
            self.out.closed(route.at, what, why, "write it otherwise");
        }
        is_known
    }

    /// The hosts of a route: names, and what only a pattern says. `None` where one of them is neither, and no other is left.
    fn hosts(&mut self, place: &str, route: &Node) -> Option<Vec<Hosts>> {
        let asked = texts(route, "hosts");
        if asked.is_empty() {
            return Some(vec![Hosts::Any]);
        }
        let (names, others): (Vec<String>, Vec<String>) = asked.into_iter().partition(|host| {
            let rest = host.strip_prefix("*.").unwrap_or(host);
            !rest.contains('*') && !rest.contains(':')
        });
        let (mut made, mut patterns) = (Vec::new(), Vec::new());
        for host in others {
            match host_pattern(&host) {
                Some(some) => patterns.extend(some),
                None => {
                    let what = format!("{place}.hosts `{host}`");
                    let why = "which hosts are meant can't be translated; it is left out";
                    self.out.closed(route.at, what, why, "write other hosts");
                }
            }
        }
        if !names.is_empty() {
            made.push(Hosts::Names(names));
        }
        if !patterns.is_empty() {
            made.push(Hosts::Patterns(patterns));
        }
        (!made.is_empty()).then_some(made)
    }

    /// A path that means the same here.
    fn path(&mut self, place: &str, path: &str, strips: bool) -> String {
        let Some(regex) = path.strip_prefix('~') else {
            // What goes on within a segment has a proxy of its own (`within.rs`).
            return if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path.to_owned() };
        };
        if strips {
            self.out.miss(
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

fn is_empty(value: &Node) -> bool {
    value.items().is_empty() && value.entries().is_empty() && value.plain().is_none_or(|text| text.is_empty())
}

/// What is sent to the target; says whether the path is stripped.
pub(super) fn rules(route: &Node, common: &mut Map<String, Value>) -> bool {
    let speaks = texts(route, "protocols");
    let is_grpc = speaks.iter().any(|protocol| protocol.starts_with("grpc"))
        || common.get("backend_http_version").is_some_and(|version| version == "2");
    // A call's path is its method: Kong refuses to strip it.
    let strips = route.get("strip_path").and_then(Node::bool).unwrap_or(true) && !is_grpc;
    set(common, "strip_listen_path", strips);
    if route.get("preserve_host").and_then(Node::bool).unwrap_or(false) {
        set(common, "preserve_host_header", true);
    }
    strips
}

/// What a route asks for besides hosts and paths, as one match. `None` where a regex is none here.
fn conditions(route: &Node, common: &mut Map<String, Value>) -> Option<()> {
    let mut condition = Map::new();
    let methods = texts(route, "methods");
    if !methods.is_empty() {
        set(&mut condition, "methods", methods);
    }
    let headers = route.get("headers").map_or(&[][..], Node::entries);
    let headers: Map<String, Value> = headers
        .iter()
        .map(|(name, values)| {
            let values: Vec<&str> = values.items().iter().filter_map(Node::str).collect();
            let how = match values.as_slice() {
                [one] if one.starts_with("~*") => {
                    let regex = format!("(?i){}", one.trim_start_matches("~*"));
                    text::one_field(&regex).unwrap_or_else(|| json!({ "regex": regex }))
                }
                // One of several fields of the name is enough.
                _ => {
                    let any: Vec<String> = values.iter().map(|value| text::literal(value)).collect();
                    json!({ "regex": format!("(?i)(?:.*, )?(?:{})(?:, .*)?", any.join("|")) })
                }
            };
            let regex = how.get("regex").and_then(Value::as_str);
            regex.is_none_or(text::is_regex).then(|| (name.clone(), how.clone()))
        })
        .collect::<Option<_>>()?;
    if !headers.is_empty() {
        set(&mut condition, "headers", headers);
    }
    let names: Vec<String> =
        texts(route, "snis").iter().map(|name| name.trim_end_matches('.').to_owned()).collect();
    if !names.is_empty() {
        // Without TLS there is no name, and Kong does not ask for it.
        let any = json!([{ "scheme": "http" }, { "tls": { "server_names": names } }]);
        set(&mut condition, "any", any);
    }
    if !condition.is_empty() {
        set(common, "matches", vec![Value::Object(condition)]);
    }
    Some(())
}

/// How much a route asks for, by which Kong orders routes.
fn weight(route: &Node) -> i64 {
    let says = |key: &&&str| route.get(key).is_some_and(|value| !is_empty(value));
    let count = ["hosts", "paths", "methods", "headers", "snis"].iter().filter(says).count();
    let headers = route.get("headers").map_or(0, |it| it.entries().len()).min(15);
    let of = |number: usize| i64::try_from(number).unwrap_or(0);
    of(count) * MORE + of(headers) * HEADER
}

/// What is answered to requests that a route takes, but does not serve.
pub(super) fn refusals(route: &Node) -> Vec<(&'static str, Value, Value)> {
    let speaks = texts(route, "protocols");
    let mut made = Vec::new();
    let is_tls = |protocol: &String| matches!(protocol.as_str(), "https" | "grpcs" | "wss");
    if !speaks.is_empty() && speaks.iter().all(is_tls) {
        let status = route.get("https_redirect_status_code").and_then(Node::uint);
        let plain = json!({ "scheme": "http" });
        made.push(match status.filter(|status| *status != 426) {
            Some(status) => ("redirect", json!({ "scheme": "https", "status_code": status }), plain),
            None => {
                let config = json!({ "status_code": 426, "message": "Please use HTTPS protocol" });
                ("request_termination", config, plain)
            }
        });
    }
    if speaks.iter().any(|protocol| protocol.starts_with("grpc")) {
        let config = json!({ "status_code": 415, "message": "Non-gRPC request matched gRPC route" });
        let grpc = json!({ "headers": { "content-type": { "prefix": "application/grpc" } } });
        made.push(("request_termination", config, json!({ "not": grpc })));
    }
    made
}

/// A host with a port, or with `*` at one end, as conditions of which any may hold.
fn host_pattern(host: &str) -> Option<Vec<Value>> {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port.parse::<u16>().ok()?)),
        None => (host, None),
    };
    let literal = match (name.strip_prefix('*'), name.strip_suffix('*')) {
        (Some(end), _) => format!("[^:]+{}", text::literal(end)),
        (None, Some(start)) => format!("{}[^:]+", text::literal(start)),
        (None, None) => text::literal(name),
    };
    let with = |end: &str| json!({ "regex": format!("(?i){literal}{end}") });
    (!name.trim_matches('*').is_empty() && !name.trim_matches('*').contains('*')).then(|| match port {
        None => vec![json!({ "authority": with("(?::[0-9]+)?") })],
        // Kong goes by the port that the client says, or else by its own.
        Some(port) => vec![
            json!({ "authority": with(&format!(":{port}")) }),
            json!({ "authority": with(""), "ports": [port] }),
        ],
    })
}

/// Has a proxy take what it asks for with any of these conditions.
fn with_any(proxy: &mut Map<String, Value>, patterns: &[Value]) {
    let any = match patterns {
        [one] => one.clone(),
        patterns => json!({ "any": patterns }),
    };
    let asked = proxy.get("matches").and_then(Value::as_array).cloned().unwrap_or_else(|| vec![json!({})]);
    let matches: Vec<Value> = asked.into_iter().map(|one| with_facet(one, &any)).collect();
    set(proxy, "matches", matches);
}

/// Takes off what all proxies have in their priorities, so that it stands only where it says something.
pub(super) fn level(out: &mut Import) {
    let least = out.proxies.iter().filter_map(|proxy| proxy.get("priority")?.as_i64()).min().unwrap_or(0);
    for proxy in out.proxies.iter_mut().filter_map(Value::as_object_mut) {
        let Some(priority) = proxy.get("priority").and_then(Value::as_i64) else { continue };
        match priority - least {
            0 => drop(proxy.shift_remove("priority")),
            rest => set(proxy, "priority", rest),
        }
    }
}

/// Leaves out the path of a prefix that ends with a slash, without it.
fn not_itself(proxy: &mut Map<String, Value>, path: &str) {
    let not = json!({ "path": { "exact": path } });
    match proxy.get_mut("matches").and_then(Value::as_array_mut) {
        Some(matches) => matches.iter_mut().for_each(|one| one["not"] = not.clone()),
        None => set(proxy, "matches", json!([{ "not": not }])),
    }
}
