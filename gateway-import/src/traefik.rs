//! Traefik: the static file's entry points, the dynamic file's routers, middlewares and services, and Compose labels.

mod labels;
mod middlewares;
mod rule;
mod services;
mod streams;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::cond::Cond;
use crate::draft::{Import, Plug, Route, To, set};
use crate::error::Failure;
use crate::text;
use crate::tree::{self, Node};

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
        if name.ends_with(".toml") {
            return Err(Failure::new(name, 0, "TOML is not read; write it as YAML"));
        }
        let file = out.report.file(name);
        for document in tree::all(name, file, text)? {
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
    Ok(())
}

impl Traefik<'_> {
    /// The static settings: entry points.
    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn fixed(&mut self, document: &Node) {
        let mut taken: [Option<u16>; 2] = [None, None];
        for (name, point) in document.get("entryPoints").map_or(&[][..], Node::entries) {
            let what = format!("entryPoints.{name}");
            let address = point.text_of("address").unwrap_or(":80");
            let is_udp = address.ends_with("/udp");
            let port = address
                .split('/')
                .next()
                .and_then(|it| it.rsplit(':').next())
                .and_then(|it| it.parse::<u16>().ok());
            let Some(port) = port else {
                self.out.lost(point.at, what, "its port is not known", "");
                continue;
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
                self.out.partial(
                    point.at,
                    &what,
                    "it is for streams only: the gateway has one port for http and one for https",
                    "run a second gateway for the other port",
                );
            }
            self.entry_points.push((name.clone(), is_main.then_some(is_tls), port));
            let to = point.path(&["http", "redirections", "entryPoint", "to"]).and_then(Node::str);
            if to.is_some_and(|to| to.contains("secure") || to.ends_with("443")) {
                let mut route = Route::new(
                    format!("{name}-to-https"),
                    To::Redirect(json!({
                        "status_code": if point.path(&["http", "redirections", "entryPoint", "permanent"]).and_then(Node::bool) == Some(false) { 302 } else { 301 },
                        "location": "https://${request.host}${request.target}", "query": "drop",
                    })),
                );
                route.matches.push(json!({ "path": "/", "scheme": "http" }));
                route.priority = Some(2_000_000_000);
                self.out.route(route);
            }
            let before = point
                .path(&["http", "middlewares"])
                .map_or_else(Vec::new, |it| it.items().iter().filter_map(Node::plain).collect());
            self.of_entry.insert(name.clone(), before);
            if let Some(list) = point.path(&["forwardedHeaders", "trustedIPs"]) {
                let list: Vec<String> =
                    list.items().iter().filter_map(Node::plain).filter(|it| text::is_network(it)).collect();
                set(&mut self.out.gateway, "trusted_proxies", list);
            }
        }
        for (key, value) in document.entries() {
            match key.as_str() {
                "entryPoints" | "http" | "tcp" | "udp" | "tls" => {}
                "providers"
                | "api"
                | "log"
                | "global"
                | "ping"
                | "serversTransport"
                | "certificatesResolvers"
                | "experimental"
                | "hub"
                | "core"
                | "metrics"
                | "tracing"
                | "accessLog" => {
                    self.out.lost(
                        value.at,
                        key,
                        "it is about Traefik's own process",
                        "see `ferrum-edge settings`",
                    );
                }
                _ => self.out.lost(value.at, key, "the gateway does not support this", ""),
            }
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn router(&mut self, name: &str, router: &Node) {
        let what = format!("router {name}");
        let rule = router.text_of("rule").unwrap_or_default();
        let internal = router.text_of("service").is_some_and(|it| it.ends_with("@internal"));
        if internal {
            self.out.lost(
                router.at,
                &what,
                "Traefik's own services are not there; it answers 503",
                "see /metrics of the admin port",
            );
        }
        let cond = rule::parse(rule);
        let mut is_closed = internal;
        let length = i64::try_from(rule.len()).unwrap_or(0);
        let said = router.get("priority").and_then(Node::plain).and_then(|it| it.parse::<i64>().ok());
        let priority = said.filter(|it| *it != 0).unwrap_or(length).clamp(-1_000_000_000, 1_000_000_000);
        let cond = cond.unwrap_or_else(|| {
            // Which requests it takes is not known, so that any may be its.
            is_closed |= self.out.guard(
                router.at,
                format_args!("{what}: {rule}"),
                "this rule can't be translated; all that it may take is closed",
                "write it with `matches`",
            );
            if is_closed { Cond::Always } else { Cond::Never }
        });
        if cond == Cond::Never {
            return;
        }
        let entries = router.texts("entryPoints");
        let mut names: Vec<String> = Vec::new();
        for entry in &entries {
            names.extend(self.of_entry.get(entry).cloned().unwrap_or_default());
        }
        if entries.is_empty() {
            names.extend(self.of_entry.values().flatten().cloned());
        }
        names.extend(router.texts("middlewares"));
        let (mut plugins, mut retry) = (Vec::<Plug>::new(), None);
        for middleware in &names {
            match self.middleware(middleware, 0) {
                Some(made) => {
                    plugins.extend(made.plugins);
                    is_closed |= made.is_closed;
                    retry = retry.or(made.retry);
                }
                None => {
                    let why = "there is no such middleware in the files, and it may guard";
                    is_closed |= self.out.guard(
                        router.at,
                        format_args!("{what}: middleware {middleware}"),
                        why,
                        "give the file it is in",
                    );
                }
            }
        }
        if let Some(options) = router.path(&["tls", "options"]) {
            let why = "it may ask for clients' certificates";
            is_closed |= self.out.guard(
                options.at,
                format_args!("{what}: tls.options"),
                why,
                "set gateway.tls.client_ca_path",
            );
        }
        let service = router.text_of("service").unwrap_or(name).to_owned();
        let backend = if is_closed { None } else { self.backend(&what, router, &service) };
        let mut route = match backend {
            Some(backend) => Route { settings: backend.settings, ..Route::new(name, backend.to) },
            None => Route::new(name, To::Closed),
        };
        if let Some(tries) = retry {
            set(&mut route.settings, "retry", json!({ "max_retries": tries.saturating_sub(1).min(100) }));
        }
        let mut one = cond.with_path(&json!({ "prefix": "/" }));
        let schemes: Vec<Option<bool>> = entries
            .iter()
            .map(|entry| {
                self.entry_points
                    .iter()
                    .find(|(known, ..)| known == entry)
                    .map_or_else(|| Some(entry.contains("secure")), |it| it.1)
            })
            .collect();
        let is_tls = router.get("tls").is_some();
        let scheme = match (is_tls, schemes.as_slice()) {
            (true, _) => Some("https"),
            (false, []) => Some("http").filter(|_| !self.entry_points.is_empty()),
            (false, list) if list.iter().all(|it| *it == Some(true)) => Some("https"),
            (false, list) if list.iter().all(|it| *it == Some(false)) => Some("http"),
            _ => None,
        };
        if !schemes.is_empty() && schemes.iter().all(Option::is_none) {
            let why = "its entry point is on another port; it is left out";
            self.out.lost(router.at, &what, why, "run a second gateway for the other port");
            return;
        }
        if let Some(scheme) = scheme {
            if one.get("scheme").is_some() {
                one = json!({ "path": "/", "all": [one, { "scheme": scheme }] });
            } else {
                one["scheme"] = json!(scheme);
            }
        }
        route.matches.push(one);
        route.priority = Some(priority + 1);
        // Two rules of one length would tie: the one that comes first in the alphabet goes first.
        while self.out.proxies.iter().any(|proxy| proxy["priority"] == json!(route.priority)) {
            route.priority = route.priority.map(|it| it + 1);
            if route.priority > Some(priority + 100_000) {
                break;
            }
        }
        route.plugins = plugins;
        self.out.done(router.at, what);
        self.out.route(route);
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
