//! Traefik: the static file's entry points, the dynamic file's routers, middlewares and services, and Compose labels.

mod flags;
mod labels;
mod middlewares;
mod rule;
mod services;
mod streams;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::cond::Cond;
use crate::draft::{Import, Route, To, set, with_facet};
use crate::error::Failure;
use crate::ports::{Port, Ports};
use crate::text;
use crate::tree::{self, Node};
use crate::unread;
use middlewares::Made;

/// Keys that say nothing about traffic.
const SILENT: &[&str] =
    &["asDefault", "ruleSyntax", "observability", "certResolver", "http.tls.domains", "router.tls.domains"];

/// An import under way.
struct Traefik<'o> {
    out: &'o mut Import,
    middlewares: HashMap<String, Node>,
    services: HashMap<String, Node>,
    /// Upstreams by service.
    made: HashMap<String, Option<Backend>>,
    entry_points: Vec<EntryPoint>,
    /// The ports of those that serve HTTP.
    ports: Ports,
    /// Middlewares that an entry point puts before its routers.
    of_entry: HashMap<String, Vec<String>>,
    transports: HashMap<String, Node>,
    accounts: usize,
    /// The static settings are not known, and may guard.
    is_closed: bool,
}

/// Where Traefik listens.
struct EntryPoint {
    name: String,
    number: u16,
    /// `None` where it is for streams only.
    port: Option<Port>,
}

/// Static settings that say nothing about traffic.
const OF_PROCESS: &[&str] = &[
    "providers",
    "api",
    "log",
    "global",
    "ping",
    "serversTransport",
    "certificatesResolvers",
    "experimental",
    "hub",
    "core",
    "metrics",
    "tracing",
    "accessLog",
];

/// Where a service's requests go.
#[derive(Debug, Clone)]
struct Backend {
    to: To,
    settings: Map<String, Value>,
}

/// Imports static and dynamic files and Compose files.
///
/// # Errors
/// When none of them says anything about routers.
pub(crate) fn import(out: &mut Import, sources: &[(String, String)]) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for (name, text) in sources {
        let file = out.report.file(name);
        let read = match name.ends_with(".toml") {
            true => vec![crate::toml::read(name, file, text)?],
            false => tree::all(name, file, text)?,
        };
        for document in read {
            let is_compose = document.get("services").is_some() && document.get("http").is_none();
            documents.push((is_compose, document));
        }
    }
    let (documents, is_closed) = flags::resolved(out, documents);
    let routers = |kind: &str| documents.iter().any(|it| it.path(&[kind, "routers"]).is_some());
    if !routers("http") && !routers("tcp") && !routers("udp") {
        let name = sources.first().map_or("", |(name, _)| name.as_str());
        return Err(Failure::new(name, 1, "there are no routers in it; give the dynamic file, too"));
    }
    let mut this = Traefik {
        out,
        middlewares: HashMap::new(),
        services: HashMap::new(),
        made: HashMap::new(),
        entry_points: Vec::new(),
        ports: Ports::default(),
        of_entry: HashMap::new(),
        transports: HashMap::new(),
        accounts: 0,
        is_closed,
    };
    this.entry_points(&documents);
    for document in &documents {
        this.fixed(document);
        for (kind, map) in [("middlewares", 0), ("services", 1), ("serversTransports", 2)] {
            for (name, node) in document.path(&["http", kind]).map_or(&[][..], Node::entries) {
                let map = match map {
                    0 => &mut this.middlewares,
                    1 => &mut this.services,
                    _ => &mut this.transports,
                };
                map.insert(name.clone(), node.clone());
            }
        }
    }
    for document in &documents {
        for (name, router) in document.path(&["http", "routers"]).map_or(&[][..], Node::entries) {
            this.router(name, router);
        }
        if !is_closed {
            this.streams(document);
        }
        this.certificates(document);
    }
    this.unused();
    for document in &documents {
        unread::name(out, "", document, SILENT);
    }
    Ok(())
}

impl Traefik<'_> {
    /// The static settings: entry points.
    fn fixed(&mut self, document: &Node) {
        for (name, point) in document.get("entryPoints").map_or(&[][..], Node::entries) {
            self.entry_point(name, point);
        }
        for (key, value) in document.entries() {
            match key.as_str() {
                "entryPoints" | "http" | "tcp" | "udp" | "tls" => {}
                key if OF_PROCESS.contains(&key) => {
                    let why = "it is about Traefik's own process";
                    self.out.lost(value.at, key, why, "see `ferrum-edge settings`");
                }
                _ => self.out.lost(value.at, key, "the gateway does not support this", ""),
            }
        }
    }

    /// Finds out which entry points serve HTTP, and gives the gateway their ports.
    fn entry_points(&mut self, documents: &[Node]) {
        let routers = |kind: &'static str| {
            let of = move |document: &'_ Node| {
                document.path(&[kind, "routers"]).map_or(&[][..], Node::entries).to_vec()
            };
            documents.iter().flat_map(of).map(|(_, router)| router.texts("entryPoints")).collect::<Vec<_>>()
        };
        let (http, streams) = (routers("http"), [routers("tcp"), routers("udp")].concat());
        let named = |lists: &[Vec<String>], name: &str| lists.iter().flatten().any(|entry| entry == name);
        let points = documents.iter().filter_map(|it| it.get("entryPoints")).flat_map(Node::entries);
        for (name, point) in points {
            let address = point.text_of("address").unwrap_or(":80");
            let text = address.split('/').next().unwrap_or(address);
            let (host, number) = text.rsplit_once(':').unwrap_or(("", text));
            let Ok(number) = number.parse::<u16>() else { continue };
            let is_tls = number == 443 || point.path(&["http", "tls"]).is_some() || name.contains("secure");
            // A router that names none is on all of them.
            let serves = named(&http, name) || !named(&streams, name);
            let port = (serves && !address.ends_with("/udp")).then(|| {
                self.ports.add(is_tls, number, host);
                Port::new(is_tls, number, host)
            });
            self.entry_points.push(EntryPoint { name: name.clone(), number, port });
        }
        if !self.entry_points.is_empty() {
            self.ports.listen(&mut self.out.gateway);
        }
    }

    fn entry_point(&mut self, name: &str, point: &Node) {
        let what = format!("entryPoints.{name}");
        if !self.entry_points.iter().any(|it| it.name == name) {
            self.out.lost(point.at, what, "its port is not known", "");
            return;
        }
        self.out.done(point.at, &what);
        self.redirection(name, point);
        let before = point
            .path(&["http", "middlewares"])
            .map_or_else(Vec::new, |it| it.items().iter().filter_map(Node::plain).collect());
        self.of_entry.insert(name.to_owned(), before);
        if let Some(list) = point.path(&["forwardedHeaders", "trustedIPs"]) {
            let list = list.items().iter().filter_map(Node::plain).filter(|it| text::is_network(it));
            set(&mut self.out.gateway, "trusted_proxies", list.collect::<Vec<String>>());
        }
    }

    /// The redirection of an entry point.
    fn redirection(&mut self, name: &str, point: &Node) {
        let Some(entry) = point.path(&["http", "redirections", "entryPoint"]) else { return };
        let to = entry.text_of("to");
        let is_https = entry.text_of("scheme").is_none_or(|it| it == "https");
        if !is_https || !to.is_some_and(|to| to.contains("secure") || to.ends_with("443")) {
            let what = format!("entryPoints.{name}.http.redirections");
            self.out.lost(
                entry.at,
                what,
                "it leads to another port than that for https",
                "use the plugin `redirect`",
            );
            return;
        }
        let is_permanent = entry.get("permanent").and_then(Node::bool) != Some(false);
        let (get, others) = middlewares::paths::statuses(is_permanent);
        let location = "https://${request.host}${request.target}";
        let port = self.entry_points.iter().find(|it| it.name == name).and_then(|it| it.port.as_ref());
        let facet = port.map_or_else(|| json!({ "scheme": "http" }), |port| self.ports.facet(port));
        for (status, cond, priority) in
            [(get, Cond::methods(&["GET"]), 2_000_000_000), (others, Cond::Always, 1_999_999_999)]
        {
            let to = To::Redirect(json!({ "status_code": status, "location": location, "query": "drop" }));
            let mut route = Route::new(format!("{name}-to-https"), to);
            route.matches.push(with_facet(cond.with_path(&json!("/")), &facet));
            route.priority = Some(priority);
            self.out.route(route);
        }
    }

    fn router(&mut self, name: &str, router: &Node) {
        let what = format!("router {name}");
        let mut is_closed = router.text_of("service").is_some_and(|it| it.ends_with("@internal"));
        if is_closed {
            let why = "Traefik's own services are not there; it answers 503";
            self.out.lost(router.at, &what, why, "see /metrics of the admin port");
        }
        let rule = router.text_of("rule").unwrap_or_default();
        let cond = self.rule(&what, router, rule, &mut is_closed);
        if cond == Cond::Never {
            return;
        }
        let entries = router.texts("entryPoints");
        let Some(facets) = self.facets(&what, router, &entries) else { return };
        let mut made = self.middlewares_of(&what, router, &entries);
        made.is_closed |= is_closed || self.is_closed;
        if let Some(options) = router.path(&["tls", "options"]) {
            let what = format!("{what}: tls.options");
            let why = "it may ask for clients' certificates";
            made.is_closed |= self.out.guard(options.at, what, why, "set gateway.tls.client_ca_path");
        }
        let service = router.text_of("service").unwrap_or(name).to_owned();
        let backend = if made.is_closed { None } else { self.backend(&what, router, &service) };
        let mut route = match backend {
            Some(backend) => Route { settings: backend.settings, ..Route::new(name, backend.to) },
            None => Route::new(name, To::Closed),
        };
        for (key, value) in [("retry", made.retry), ("circuit_breaker", made.breaker)] {
            if let Some(value) = value {
                set(&mut route.settings, key, value);
            }
        }
        let one = cond.with_path(&json!({ "prefix": "/" }));
        route.matches.extend(facets.iter().map(|facet| with_facet(one.clone(), facet)));
        route.priority = Some(self.priority(router, rule));
        route.plugins = made.plugins;
        self.out.done(router.at, what);
        self.out.route(route);
    }

    /// Which requests a rule means. Where that is not known, any may be its.
    fn rule(&mut self, what: &str, router: &Node, rule: &str, is_closed: &mut bool) -> Cond {
        if let Some(cond) = rule::parse(rule) {
            return cond;
        }
        let why = "this rule can't be translated; all that it may take is closed";
        let closes =
            self.out.guard(router.at, format_args!("{what}: {rule}"), why, "write it with `matches`");
        *is_closed |= closes;
        if closes { Cond::Always } else { Cond::Never }
    }

    /// The middlewares of a router, and those that its entry points put before.
    fn middlewares_of(&mut self, what: &str, router: &Node, entries: &[String]) -> Made {
        let mut names: Vec<String> = Vec::new();
        for entry in entries {
            names.extend(self.of_entry.get(entry).cloned().unwrap_or_default());
        }
        if entries.is_empty() {
            names.extend(self.of_entry.values().flatten().cloned());
        }
        names.extend(router.texts("middlewares"));
        let mut all = Made::default();
        for middleware in &names {
            match self.middleware(middleware, 0) {
                Some(made) => all.take(made),
                None => {
                    let what = format!("{what}: middleware {middleware}");
                    let why = "there is no such middleware in the files, and it may guard";
                    all.is_closed |= self.out.guard(router.at, what, why, "give the file it is in");
                }
            }
        }
        let turn = |name: &str| all.plugins.iter().position(|plug| plug.name == name);
        if let (Some(rewrite), Some(asked)) = (turn("rewrite"), turn("forward_auth"))
            && rewrite < asked
        {
            let what = format!("{what}: middlewares");
            let why = "the authentication server is told the path that the client sent, not the changed one";
            self.out.partial(router.at, what, why, "");
        }
        all
    }

    /// What a router's requests have besides its rule: the ports of its entry points. `None` where none of them is served.
    fn facets(&mut self, what: &str, router: &Node, entries: &[String]) -> Option<Vec<Value>> {
        let is_tls = router.get("tls").is_some();
        let scheme = |is_tls: bool| json!({ "scheme": if is_tls { "https" } else { "http" } });
        let known = |entry: &String| self.entry_points.iter().find(|it| it.name == *entry);
        if self.entry_points.is_empty()
            || !entries.is_empty() && !entries.iter().any(|entry| known(entry).is_some())
        {
            // The static file is not here.
            let guessed = |wanted: bool| entries.iter().all(|entry| entry.contains("secure") == wanted);
            return Some(match entries {
                _ if is_tls => vec![scheme(true)],
                [] => vec![json!({})],
                _ if guessed(true) => vec![scheme(true)],
                _ if guessed(false) => vec![scheme(false)],
                _ => vec![json!({})],
            });
        }
        let all = self.entry_points.iter().filter(|it| entries.is_empty() || entries.contains(&it.name));
        let mut mine: Vec<&Port> = all.filter_map(|it| it.port.as_ref()).collect();
        if mine.is_empty() {
            let why = "its entry points are for streams; it is left out";
            self.out.lost(router.at, what, why, "");
            return None;
        }
        if is_tls {
            mine.retain(|port| port.is_tls);
        } else if entries.is_empty() {
            mine.retain(|port| !port.is_tls);
        }
        Some(match mine.as_slice() {
            [] => vec![scheme(is_tls)],
            mine if mine.len() == self.ports.all().count() => vec![json!({})],
            mine => mine.iter().map(|port| self.ports.facet(port)).collect(),
        })
    }

    /// The longer rule goes first. Two of one length would tie: the one that comes first in the files goes first.
    fn priority(&self, router: &Node, rule: &str) -> i64 {
        let length = i64::try_from(rule.len()).unwrap_or(0);
        let said = router.get("priority").and_then(Node::plain).and_then(|it| it.parse::<i64>().ok());
        let said = said.filter(|it| *it != 0).unwrap_or(length).clamp(-1_000_000_000, 1_000_000_000);
        let is_taken =
            |priority: &i64| self.out.proxies.iter().any(|proxy| proxy["priority"] == json!(priority));
        (said + 1..said + 100_000).find(|priority| !is_taken(priority)).unwrap_or(said + 100_000)
    }

    /// Names middlewares and services that no router uses.
    fn unused(&mut self) {
        for (kind, map) in [("middleware", &self.middlewares), ("service", &self.services)] {
            for (name, node) in map {
                if !node.all_entries().iter().any(|(_, it)| it.is_seen()) {
                    self.out.needless(node.at, format_args!("{kind} {name}"), "no router uses it");
                }
            }
        }
    }

    fn certificates(&mut self, document: &Node) {
        let mut list = Vec::new();
        for pair in document.path(&["tls", "certificates"]).map_or(&[][..], Node::items) {
            if let (Some(certificate), Some(key)) = (pair.text_of("certFile"), pair.text_of("keyFile")) {
                list.push(json!({ "cert_path": certificate, "key_path": key }));
            }
        }
        if !list.is_empty() {
            set(&mut self.out.gateway, "tls", json!({ "certificates": list }));
        }
        if let Some(options) = document.path(&["tls", "options"]) {
            let asks = options.entries().iter().any(|(_, it)| it.get("clientAuth").is_some());
            if asks
                && self.out.guard(
                    options.at,
                    "tls.options: clientAuth",
                    "clients' certificates are asked for by the whole gateway; everything over TLS is closed",
                    "set gateway.tls.client_ca_path",
                )
            {
                self.out.plugin_configs.push(json!({
                    "id": "closed-for-want-of-certificates", "plugin_name": "request_termination", "scope": "global",
                    "config": { "status_code": 503, "content_type": "text/plain", "body": crate::draft::CLOSED },
                    "when": { "scheme": "https" },
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
