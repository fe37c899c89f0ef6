//! Kong's routes: each path is a proxy.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{Kong, list, name, ours, plugins, reference, texts};
use crate::draft::set;
use crate::text;
use crate::tree::{Node, NodeValue};

/// What of a route is looked at.
const KNOWN: &[&str] = &[
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
];

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
        let Some((strips, weight)) = self.asked(&place, route, &mut common) else { return };
        let mut paths: Vec<Option<String>> = texts(route, "paths").into_iter().map(Some).collect();
        if paths.is_empty() {
            paths.push(if hosts_given(&common) { None } else { Some("/".to_owned()) });
        }
        let base = if called == "unnamed" { format!("{service}-route") } else { called.clone() };
        for path in paths {
            if !path.as_deref().is_none_or(|path| self.is_known(&place, route, path)) {
                continue;
            }
            let mut proxy = Map::from_iter([("id".to_owned(), json!(self.out.id("proxy", &base)))]);
            // All paths of certain hosts: said so, it may stand beside one for all hosts.
            let path = path.filter(|path| path != "/" || !hosts_given(&common));
            let only_below =
                path.clone().filter(|path| path.len() > 1 && path.ends_with('/') && !path.starts_with('~'));
            if let Some(path) = path {
                set(&mut proxy, "listen_path", self.path(&place, &path, strips));
            }
            proxy.extend(common.clone());
            if let Some(path) = only_below {
                not_itself(&mut proxy, path.trim_end_matches('/'));
            }
            let is_regex =
                ours(&Value::Object(proxy.clone()), "listen_path").is_some_and(|p| p.starts_with('~'));
            // Kong goes by how much a route asks for, then takes regexes before prefixes.
            let by_regex = route.get("regex_priority").and_then(Node::int).unwrap_or(0).clamp(0, 400);
            match weight * 1000 + if is_regex { 500 + by_regex } else { 0 } {
                0 => {}
                priority => set(&mut proxy, "priority", priority),
            }
            let at = self.out.proxies.len();
            self.out.proxies.push(Value::Object(proxy));
            self.of_route.entry(called.clone()).or_default().push(at);
            self.of_service.entry(service.to_owned()).or_default().push(at);
        }
        self.leftovers(&place, route, KNOWN);
        let proxies = self.of_route.get(&called).cloned().unwrap_or_default();
        for plugin in list(route, "plugins") {
            self.plugin(&place, plugin, plugins::Where::Proxies(&proxies));
        }
    }

    /// Whether a route asks for something that is not translated: without it, it would take requests that are not its own.
    /// Such a route is left out.
    fn is_narrower(&mut self, place: &str, route: &Node, keys: &[&str]) -> bool {
        let asks = |key: &&&str| {
            route.get(key).is_some_and(|value| value.value != NodeValue::Null && !is_empty(value))
        };
        let Some(key) = keys.iter().find(asks) else { return false };
        let why = "which requests are meant can't be translated; the route is left out";
        self.out.closed(route.at, format_args!("{place}.{key}"), why, "write it with `matches`");
        true
    }

    /// What all paths of a route have in common; says whether the path is stripped, and how much the route asks for. `None`
    /// leaves it out.
    fn asked(&mut self, place: &str, route: &Node, common: &mut Map<String, Value>) -> Option<(bool, i64)> {
        if self.is_narrower(place, route, &["expression", "sources", "destinations"]) {
            return None;
        }
        let strips = self.rules(place, route, common)?;
        let weight = conditions(route, common);
        if weight.is_none() {
            let why = "a regex of its headers looks around or refers back: none here; the route is left out";
            self.out.closed(route.at, format_args!("{place}.headers"), why, "write it otherwise");
        }
        Some((strips, weight?))
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

    /// Its hosts, and what is sent to the target; says whether the path is stripped. `None` leaves the route out.
    fn rules(&mut self, place: &str, route: &Node, common: &mut Map<String, Value>) -> Option<bool> {
        let asked = texts(route, "hosts");
        let has_hosts = !asked.is_empty();
        let hosts = self.hosts(place, asked);
        if has_hosts && hosts.is_empty() {
            let why = "none of its hosts can be translated; the route is left out";
            self.out.closed(route.at, format_args!("{place}.hosts"), why, "write other hosts");
            return None;
        }
        if !hosts.is_empty() {
            set(common, "hosts", hosts);
        }
        let speaks = texts(route, "protocols");
        let is_grpc = speaks.iter().any(|protocol| protocol.starts_with("grpc"))
            || common.get("backend_http_version").is_some_and(|version| version == "2");
        // A call's path is its method: Kong refuses to strip it.
        let strips = route.get("strip_path").and_then(Node::bool).unwrap_or(true) && !is_grpc;
        set(common, "strip_listen_path", strips);
        if route.get("preserve_host").and_then(Node::bool).unwrap_or(false) {
            set(common, "preserve_host_header", true);
        }
        Some(strips)
    }

    fn stream_route(&mut self, place: &str, route: &Node, common: Map<String, Value>, service: &str) {
        if self.is_narrower(place, route, &["snis", "expression", "hosts", "paths", "methods", "headers"]) {
            return;
        }
        let by_address = |to: &Node| to.get("ip").is_some() || to.get("port").is_none();
        let sources: Option<Vec<String>> = list(route, "sources")
            .map(|from| {
                let ip = from.get("ip").and_then(Node::plain).filter(|ip| text::is_network(ip));
                ip.filter(|_| from.get("port").is_none())
            })
            .collect();
        let Some(sources) = sources.filter(|_| !list(route, "destinations").any(by_address)) else {
            let what = format!("{place}: sources and destinations");
            let why = "only clients' networks and the gateway's ports are known here; the route is left out";
            return self.out.closed(route.at, what, why, "");
        };
        let ports: HashSet<u64> =
            list(route, "destinations").filter_map(|to| to.get("port").and_then(Node::uint)).collect();
        if ports.is_empty() {
            self.out.miss(place, "a stream has to say its port under `destinations`");
        }
        for port in ports {
            let called = format!("{}-{port}", name(route));
            let mut proxy = Map::from_iter([("id".to_owned(), json!(self.out.id("proxy", &called)))]);
            set(&mut proxy, "listen_port", port);
            proxy.extend(common.clone());
            if !sources.is_empty()
                && let Some(id) = proxy["id"].as_str().map(str::to_owned)
            {
                self.out.plugin(&id, "ip_restriction", json!({ "allow": sources }));
            }
            let at = self.out.proxies.len();
            self.out.proxies.push(Value::Object(proxy));
            self.of_route.entry(name(route)).or_default().push(at);
            self.of_service.entry(service.to_owned()).or_default().push(at);
        }
        self.leftovers(
            place,
            route,
            &["sources", "destinations", "protocols", "service", "plugins", "strip_path", "preserve_host"],
        );
    }

    /// Hosts that mean the same here.
    fn hosts(&mut self, place: &str, hosts: Vec<String>) -> Vec<String> {
        let (good, bad): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| {
            let rest = host.strip_prefix("*.").unwrap_or(host);
            !rest.contains('*') && !rest.contains(':')
        });
        for host in bad {
            self.out.miss(
                format_args!("{place}.hosts"),
                format_args!("`{host}`: only `*.` in front is known, and no port"),
            );
        }
        good
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

/// What a route asks for besides hosts and paths, as one match; says how much it is. `None` where a regex is none here.
fn conditions(route: &Node, common: &mut Map<String, Value>) -> Option<i64> {
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
    let names = texts(route, "snis");
    if !names.is_empty() {
        set(&mut condition, "tls", json!({ "server_names": names }));
    }
    let weight = i64::try_from(condition.len()).unwrap_or(0);
    let speaks = texts(route, "protocols");
    if !speaks.is_empty()
        && speaks.iter().all(|protocol| matches!(protocol.as_str(), "https" | "grpcs" | "wss"))
    {
        set(&mut condition, "scheme", "https");
    }
    if !condition.is_empty() {
        set(common, "matches", vec![Value::Object(condition)]);
    }
    Some(weight)
}

/// Leaves out the path of a prefix that ends with a slash, without it.
fn not_itself(proxy: &mut Map<String, Value>, path: &str) {
    let not = json!({ "path": { "exact": path } });
    match proxy.get_mut("matches").and_then(Value::as_array_mut) {
        Some(matches) => matches.iter_mut().for_each(|one| one["not"] = not.clone()),
        None => set(proxy, "matches", json!([{ "not": not }])),
    }
}

fn hosts_given(proxy: &Map<String, Value>) -> bool {
    proxy.contains_key("hosts")
}
