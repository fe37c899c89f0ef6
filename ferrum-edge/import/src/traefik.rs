//! Traefik: the static file's entry points, the dynamic file's routers, middlewares and services, and Compose labels.

mod certificates;
mod entries;
mod flags;
mod labels;
mod middlewares;
mod order;
mod rule;
mod services;
mod streams;
mod tls;

use std::collections::HashMap;

use serde_json::Value;

use crate::cond::Cond;
use crate::draft::{Import, Matcher, Proxy, Route, To};
use crate::error::Failure;
use crate::from_ca::FromCa;
use crate::ports::Ports;
use crate::steps::MAX_PLUGINS;
use crate::tree::{self, Node};
use crate::unread;
use entries::EntryPoint;
use middlewares::Made;

/// Entry points that an original may have: a router that names none is on each of them.
const MAX_ENTRY_POINTS: usize = 2000;

/// Keys that say nothing about traffic.
const SILENT: &[&str] = &["asDefault", "ruleSyntax", "observability"];

/// Whether files have routers, and no more entry points than they may.
fn check(name: &str, documents: &[Node]) -> Result<(), Failure> {
    let points = documents.iter().filter_map(|it| it.get("entryPoints")).map(|it| it.all_entries().len());
    if points.sum::<usize>() > MAX_ENTRY_POINTS {
        return Err(Failure::new(name, 0, format!("more than {MAX_ENTRY_POINTS} entry points")));
    }
    let routers = |kind: &str| documents.iter().any(|it| it.path(&[kind, "routers"]).is_some());
    if !routers("http") && !routers("tcp") && !routers("udp") {
        return Err(Failure::new(name, 1, "there are no routers in it; give the dynamic file, too"));
    }
    Ok(())
}

/// An import under way.
struct Traefik<'o> {
    out: &'o mut Import,
    middlewares: HashMap<String, Node>,
    services: HashMap<String, Node>,
    /// Upstreams by service.
    made: HashMap<String, Option<Backend>>,
    /// Where each entry point is in the list, by its name.
    entry_places: HashMap<String, usize>,
    entry_points: Vec<EntryPoint>,
    /// The ports of those that serve HTTP.
    ports: Ports,
    /// Middlewares that an entry point puts before its routers.
    of_entry: HashMap<String, Vec<String>>,
    transports: HashMap<String, Node>,
    accounts: usize,
    /// The static settings are not known, and may guard.
    is_closed: bool,
    /// Clients' addresses come by the PROXY protocol.
    has_proxy_protocol: bool,
    /// They do so on some ports only, and are not known.
    has_unknown_clients: bool,
    /// Whether sets of TLS options ask for clients' certificates.
    tls_options: HashMap<String, bool>,
    /// Certificates in files.
    certificates: Vec<Value>,
    /// Those of the CA that [`Self::resolver`] names.
    from_ca: FromCa,
    /// The resolver of certificates that is converted.
    resolver: Option<String>,
}

/// Static settings that say nothing about traffic.
const OF_PROCESS: &[&str] = &["api", "ping", "experimental", "hub", "metrics", "tracing", "accessLog"];
/// Those of them that need no counterpart.
const NOT_NEEDED: &[&str] = &["providers", "log", "global", "core"];

/// What a key says, unless it says no: labels and flags have switches as text.
fn switched(node: Option<&Node>) -> Option<&Node> {
    node.filter(|it| it.plain().as_deref() != Some("false"))
}

/// Where a service's requests go.
#[derive(Debug, Clone)]
struct Backend {
    to: To,
    settings: Proxy,
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
    let name = sources.first().map_or("", |(name, _)| name.as_str());
    check(name, &documents)?;
    let mut this = Traefik {
        out,
        middlewares: HashMap::new(),
        services: HashMap::new(),
        made: HashMap::new(),
        entry_places: HashMap::new(),
        entry_points: Vec::new(),
        ports: Ports::default(),
        of_entry: HashMap::new(),
        transports: HashMap::new(),
        accounts: 0,
        is_closed,
        has_proxy_protocol: false,
        has_unknown_clients: false,
        tls_options: tls::options(&documents),
        certificates: Vec::new(),
        from_ca: FromCa::default(),
        resolver: None,
    };
    this.resolvers(&documents);
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
    let mut priorities = order::priorities(&documents).into_iter();
    for document in &documents {
        for (name, router) in order::routers(document) {
            if this.out.is_too_large() {
                return Ok(());
            }
            this.router(name, router, priorities.next().unwrap_or_default());
        }
        if !is_closed {
            this.streams(document);
        }
        this.files(document);
    }
    let (from_ca, files) = (std::mem::take(&mut this.from_ca), std::mem::take(&mut this.certificates));
    from_ca.write(this.out, files, "Traefik");
    this.default_options(&documents);
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
                "entryPoints" | "http" | "tcp" | "udp" | "tls" | "certificatesResolvers" => {}
                "serversTransport" => drop(self.transports.insert(String::new(), value.clone())),
                key if NOT_NEEDED.contains(&key) => {
                    self.out.not_needed(value.at, key, "it is about Traefik's own process");
                    value.see_all();
                }
                key if OF_PROCESS.contains(&key) => {
                    let why = "it is about Traefik's own process";
                    self.out.not_converted(value.at, key, why, "see `ferrum-edge settings`");
                }
                _ => self.out.not_converted(value.at, key, "the gateway does not support this", ""),
            }
        }
    }

    fn router(&mut self, name: &str, router: &Node, priority: i64) {
        let what = format!("router {name}");
        let mut is_closed = router.text_of("service").is_some_and(|it| it.ends_with("@internal"));
        if is_closed {
            let why = "Traefik's own services are not there; it answers 503";
            self.out.not_converted(router.at, &what, why, "see /metrics of the admin port");
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
        made.is_closed |= self.asks_for_certificates(&what, router, &entries);
        self.get_certificate(&what, router, &rule::asked_hosts(rule), &entries);
        let service = router.text_of("service").unwrap_or(name).to_owned();
        let backend = if made.is_closed { None } else { self.backend(&what, router, &service) };
        let mut route = match backend {
            Some(mut backend) => {
                backend.settings.retry(made.retry);
                backend.settings.circuit_breaker(made.breaker);
                Route { settings: backend.settings, ..Route::new(name, backend.to) }
            }
            None => Route::new(name, To::Closed),
        };
        let one = cond.with_path(Matcher::prefix("/"));
        route.matches.extend(facets.iter().map(|facet| one.clone().with_facet(facet)));
        route.priority = Some(priority);
        route.plugins = made.plugins;
        self.out.converted(router.at, what);
        self.out.route(route);
    }

    /// Which requests a rule means. Where that is not known, any may be its.
    fn rule(&mut self, what: &str, router: &Node, rule: &str, is_closed: &mut bool) -> Cond {
        if let Some(cond) = rule::parse(rule) {
            *is_closed |= self.asks_for_clients(what, router, &cond);
            return cond;
        }
        let why = "this rule can't be converted; all that it may take is closed";
        let closes = self.out.guard_not_converted(
            router.at,
            format_args!("{what}: {rule}"),
            why,
            "write it with `matches`",
        );
        *is_closed |= closes;
        if closes { Cond::Always } else { Cond::Never }
    }

    /// The middlewares of a router, and those that its entry points put before.
    fn middlewares_of(&mut self, what: &str, router: &Node, entries: &[String]) -> Made {
        let mut names: Vec<String> = Vec::new();
        for entry in self.points(entries) {
            names.extend(self.of_entry.get(&entry).cloned().unwrap_or_default());
        }
        names.extend(router.texts("middlewares"));
        let mut all = Made::default();
        for middleware in &names {
            if all.plugins.len() > MAX_PLUGINS {
                self.out.has_too_many_plugins = true;
                break;
            }
            match self.middleware(middleware, 0) {
                Some(made) => all.take(made),
                None => {
                    let what = format!("{what}: middleware {middleware}");
                    let why = "there is no such middleware in the files, and it may guard";
                    all.is_closed |=
                        self.out.guard_not_converted(router.at, what, why, "give the file it is in");
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

    /// Names middlewares and services that no router uses.
    fn unused(&mut self) {
        for (kind, map) in [("middleware", &self.middlewares), ("service", &self.services)] {
            for (name, node) in map {
                if !node.all_entries().iter().any(|(_, it)| it.is_seen()) {
                    self.out.not_needed(node.at, format_args!("{kind} {name}"), "no router uses it");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
