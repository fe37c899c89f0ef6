//! Traefik: the static file's entry points, the dynamic file's routers, middlewares and services, and Compose labels.

mod labels;
mod middlewares;
mod rule;
mod services;
mod streams;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::cond::Cond;
use crate::draft::{Import, Route, To, set};
use crate::error::Failure;
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
    /// Which scheme an entry point has: TLS or not. `None` for those of other ports.
    entry_points: Vec<(String, Option<bool>, u16)>,
    /// Middlewares that an entry point puts before its routers.
    of_entry: HashMap<String, Vec<String>>,
    transports: HashMap<String, Node>,
    accounts: usize,
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
            documents.push(if is_compose {
                // Its command line may have the static settings.
                labels::dynamic(out, &document)
            } else {
                document
            });
        }
    }
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
        of_entry: HashMap::new(),
        transports: HashMap::new(),
        accounts: 0,
    };
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
        this.streams(document);
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
        let mut taken: [Option<u16>; 2] = [None, None];
        for (name, point) in document.get("entryPoints").map_or(&[][..], Node::entries) {
            self.entry_point(name, point, &mut taken);
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

    fn entry_point(&mut self, name: &str, point: &Node, taken: &mut [Option<u16>; 2]) {
        let what = format!("entryPoints.{name}");
        let address = point.text_of("address").unwrap_or(":80");
        let is_udp = address.ends_with("/udp");
        let port = address.split('/').next().and_then(|it| it.rsplit(':').next());
        let Some(port) = port.and_then(|it| it.parse::<u16>().ok()) else {
            self.out.lost(point.at, what, "its port is not known", "");
            return;
        };
        let is_tls = port == 443 || point.path(&["http", "tls"]).is_some() || name.contains("secure");
        let slot = &mut taken[usize::from(is_tls)];
        let usual = if is_tls { 443 } else { 80 };
        let is_main = !is_udp && (slot.is_none() || port == usual);
        if is_main {
            *slot = Some(port);
            let key = if is_tls { "https" } else { "http" };
            set(&mut self.out.gateway, key, format!("0.0.0.0:{port}"));
            for (_, known, _) in &mut self.entry_points {
                if *known == Some(is_tls) {
                    *known = None;
                }
            }
            self.out.done(point.at, &what);
        } else {
            let why = "it is for streams only: the gateway has one port for http and one for https";
            self.out.partial(point.at, &what, why, "run a second gateway for the other port");
        }
        self.entry_points.push((name.to_owned(), is_main.then_some(is_tls), port));
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
        let status = if entry.get("permanent").and_then(Node::bool) == Some(false) { 302 } else { 301 };
        let location = "https://${request.host}${request.target}";
        let to = To::Redirect(json!({ "status_code": status, "location": location, "query": "drop" }));
        let mut route = Route::new(format!("{name}-to-https"), to);
        route.matches.push(json!({ "path": "/", "scheme": "http" }));
        route.priority = Some(2_000_000_000);
        self.out.route(route);
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
        let Some(scheme) = self.scheme(&what, router, &entries) else { return };
        let mut made = self.middlewares_of(&what, router, &entries);
        made.is_closed |= is_closed;
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
        let mut one = cond.with_path(&json!({ "prefix": "/" }));
        if let Some(scheme) = scheme {
            if one.get("scheme").is_some() {
                one = json!({ "path": "/", "all": [one, { "scheme": scheme }] });
            } else {
                one["scheme"] = json!(scheme);
            }
        }
        route.matches.push(one);
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
        all
    }

    /// The scheme that a router's requests have; `None` where its entry points are not served.
    fn scheme(&mut self, what: &str, router: &Node, entries: &[String]) -> Option<Option<&'static str>> {
        let of_entry = |entry: &String| {
            let known = self.entry_points.iter().find(|(known, ..)| known == entry);
            known.map_or_else(|| Some(entry.contains("secure")), |it| it.1)
        };
        let schemes: Vec<Option<bool>> = entries.iter().map(of_entry).collect();
        if !schemes.is_empty() && schemes.iter().all(Option::is_none) {
            let why = "its entry point is on another port; it is left out";
            self.out.lost(router.at, what, why, "run a second gateway for the other port");
            return None;
        }
        Some(match (router.get("tls").is_some(), schemes.as_slice()) {
            (true, _) => Some("https"),
            (false, []) => Some("http").filter(|_| !self.entry_points.is_empty()),
            (false, list) if list.iter().all(|it| *it == Some(true)) => Some("https"),
            (false, list) if list.iter().all(|it| *it == Some(false)) => Some("http"),
            _ => None,
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
