//! Traefik's entry points: where it listens, what it does with all that comes there, and which of them a router is on.

use std::collections::HashSet;

use serde_json::Value;

use super::{Traefik, middlewares, switched};
use crate::cond::Cond;
use crate::draft::{Match, Redirect, Route, To, draft};
use crate::ports::Port;
use crate::text;
use crate::tree::Node;

/// Where Traefik listens.
pub(super) struct EntryPoint {
    pub(super) name: String,
    pub(super) number: u16,
    /// `None` where it is for streams only.
    pub(super) port: Option<Port>,
    /// All its routers are for TLS.
    has_tls: bool,
    /// The TLS options of its routers that say nothing of TLS.
    pub(super) tls_options: Option<Node>,
    /// What its routers have that say nothing of TLS.
    pub(super) tls: Option<Node>,
    /// Routers that name none are on it; where none is so, they are on all.
    is_default: bool,
}

impl Traefik<'_> {
    /// Finds out which entry points serve HTTP, and gives the gateway their ports.
    pub(super) fn entry_points(&mut self, documents: &[Node]) {
        let routers = |kind: &'static str| {
            let of = move |document: &'_ Node| {
                document.path(&[kind, "routers"]).map_or(&[][..], Node::entries).to_vec()
            };
            documents.iter().flat_map(of).map(|(_, router)| router.texts("entryPoints")).collect::<Vec<_>>()
        };
        let (http, streams) = (routers("http"), [routers("tcp"), routers("udp")].concat());
        let (http, streams): (HashSet<&String>, HashSet<&String>) =
            (http.iter().flatten().collect(), streams.iter().flatten().collect());
        let points: Vec<&(String, Node)> =
            documents.iter().filter_map(|it| it.get("entryPoints")).flat_map(Node::entries).collect();
        for (name, point) in &points {
            let address = point.text_of("address").unwrap_or(":80");
            let text = address.split('/').next().unwrap_or(address);
            let (host, number) = text.rsplit_once(':').unwrap_or(("", text));
            let Ok(number) = number.parse::<u16>() else { continue };
            let has_tls = switched(point.path(&["http", "tls"])).is_some();
            let is_tls = number == 443 || has_tls || name.contains("secure") || name == "https";
            // A router that names none is on all of them.
            let serves = http.contains(name) || !streams.contains(name);
            let port = (serves && !address.ends_with("/udp")).then(|| {
                self.ports.add(is_tls, number, host);
                Port::new(is_tls, number, host)
            });
            let is_default = switched(point.get("asDefault")).is_some();
            let tls_options = point.path(&["http", "tls", "options"]).cloned().filter(|_| has_tls);
            let name = name.clone();
            let tls = point.path(&["http", "tls"]).cloned().filter(|_| has_tls);
            let point = EntryPoint { name, number, port, has_tls, tls_options, tls, is_default };
            self.entry_places.entry(point.name.clone()).or_insert(self.entry_points.len());
            self.entry_points.push(point);
        }
        if !self.entry_points.is_empty() {
            self.ports.listen(&mut self.out.gateway);
        }
        self.proxy_protocol(&points);
    }

    /// Whether another proxy in front says clients' addresses by the PROXY protocol.
    fn proxy_protocol(&mut self, points: &[&(String, Node)]) {
        let is_http = |name: &str| self.entry(name).is_some_and(|it| it.port.is_some());
        let (with, without): (Vec<&Node>, Vec<&Node>) = points
            .iter()
            .filter(|(name, _)| is_http(name))
            .map(|(_, point)| point)
            .partition(|point| point.get("proxyProtocol").is_some_and(|it| !it.is_empty()));
        let Some(first) = with.first().and_then(|point| point.get("proxyProtocol")) else { return };
        let networks: Vec<String> = with
            .iter()
            .filter_map(|point| point.path(&["proxyProtocol", "trustedIPs"]))
            .flat_map(|list| list.items().iter().filter_map(Node::plain))
            .filter(|it| text::is_network(it))
            .collect();
        if without.is_empty() && !networks.is_empty() {
            self.has_proxy_protocol = true;
            self.out.gateway.accept_proxy_protocol(true);
            self.trusted(networks);
            let why = "connections without its header are closed";
            return self.out.partial(first.at, "entryPoints: proxyProtocol", why, "");
        }
        self.has_unknown_clients = true;
        let why = "here it is for all ports or for none, and from named networks; it is off, and clients' addresses are not known";
        let todo = "set gateway.accept_proxy_protocol and gateway.trusted_proxies";
        self.out.not_converted(first.at, "entryPoints: proxyProtocol", why, todo);
    }

    /// The entry point of this name.
    pub(super) fn entry(&self, name: &str) -> Option<&EntryPoint> {
        self.entry_points.get(*self.entry_places.get(name)?)
    }

    /// Trusts these networks besides those of other entry points.
    fn trusted(&mut self, networks: impl IntoIterator<Item = String>) {
        let known = self.out.gateway.get("trusted_proxies").and_then(Value::as_array);
        let mut known: Vec<String> =
            known.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        for network in networks {
            if !known.contains(&network) {
                known.push(network);
            }
        }
        self.out.gateway.trusted_proxies(known);
    }

    pub(super) fn entry_point(&mut self, name: &str, point: &Node) {
        let what = format!("entryPoints.{name}");
        if self.entry(name).is_none() {
            self.out.not_converted(point.at, what, "its port is not known", "");
            return;
        }
        self.out.converted(point.at, &what);
        self.redirection(name, point);
        let before = point
            .path(&["http", "middlewares"])
            .map_or_else(Vec::new, |it| it.items().iter().filter_map(Node::plain).collect());
        self.of_entry.insert(name.to_owned(), before);
        if let Some(list) = point.path(&["forwardedHeaders", "trustedIPs"]) {
            let list = list.items().iter().filter_map(Node::plain).filter(|it| text::is_network(it));
            self.trusted(list.collect::<Vec<String>>());
        }
    }

    /// The redirection of an entry point to another one, by its name or port.
    fn redirection(&mut self, name: &str, point: &Node) {
        let Some(entry) = point.path(&["http", "redirections", "entryPoint"]) else { return };
        let to = entry.text_of("to").unwrap_or_default();
        let scheme = entry.text_of("scheme").unwrap_or("https");
        let known = self.entry(to).map(|it| it.number);
        let number = known.or_else(|| to.rsplit(':').next().and_then(|it| it.parse::<u16>().ok()));
        let what = format!("entryPoints.{name}.http.redirections");
        if number.is_none() {
            let why = "its port is not known; clients are sent to the usual one";
            self.out.partial(entry.at, what, why, "use the plugin `redirect`");
        }
        let port = match (scheme, number) {
            ("https", None | Some(443)) | ("http", None | Some(80)) => String::new(),
            (_, Some(number)) => format!(":{number}"),
            (_, None) => String::new(),
        };
        let is_permanent = entry.get("permanent").and_then(Node::bool) != Some(false);
        let (get, others) = middlewares::paths::statuses(is_permanent);
        let scheme = if scheme == "http" { "http" } else { "https" };
        let location = format!("{scheme}://${{request.host}}{port}${{request.target}}");
        let from = self.entry(name).and_then(|it| it.port.as_ref());
        let facet = from.map_or_else(|| draft!(Match { scheme: "http" }), |port| self.ports.facet(port));
        for (status, cond, priority) in
            [(get, Cond::methods(&["GET"]), 2_000_000_000), (others, Cond::Always, 1_999_999_999)]
        {
            let to =
                To::Redirect(draft!(Redirect { status_code: status, location: &location, query: "drop" }));
            let mut route = Route::new(format!("{name}-to-{scheme}"), to);
            route.matches.push(cond.with_path("/").with_facet(&facet));
            route.priority = Some(priority);
            self.out.route(route);
        }
    }

    /// The entry points that a router is on.
    pub(super) fn points(&self, entries: &[String]) -> Vec<String> {
        if !entries.is_empty() {
            return entries.to_vec();
        }
        let has_default = self.entry_points.iter().any(|it| it.is_default);
        let all = self.entry_points.iter().filter(|it| it.is_default || !has_default);
        all.map(|it| it.name.clone()).collect()
    }

    /// What a router's requests have besides its rule: the ports of its entry points. `None` where none of them is served.
    pub(super) fn facets(&mut self, what: &str, router: &Node, entries: &[String]) -> Option<Vec<Match>> {
        let is_tls = switched(router.get("tls")).is_some();
        let scheme = |is_tls: bool| draft!(Match { scheme: if is_tls { "https" } else { "http" } });
        let known = |entry: &String| self.entry(entry);
        if self.entry_points.is_empty()
            || !entries.is_empty() && !entries.iter().any(|entry| known(entry).is_some())
        {
            // The static file is not here.
            let guessed = |wanted: bool| entries.iter().all(|entry| entry.contains("secure") == wanted);
            return Some(match entries {
                _ if is_tls => vec![scheme(true)],
                [] => vec![Match::default()],
                _ if guessed(true) => vec![scheme(true)],
                _ if guessed(false) => vec![scheme(false)],
                _ => vec![Match::default()],
            });
        }
        let on: HashSet<String> = self.points(entries).into_iter().collect();
        let served: Vec<(&Port, bool)> = self
            .entry_points
            .iter()
            .filter(|it| on.contains(&it.name))
            .filter_map(|it| Some((it.port.as_ref()?, it.has_tls)))
            .collect();
        if served.is_empty() {
            let why = "its entry points are for streams; it is left out";
            self.out.not_converted(router.at, what, why, "");
            return None;
        }
        // A router for TLS, which its entry point may say, too, is for nothing else.
        let is_mine = |(port, has_tls): &(&Port, bool)| match is_tls || *has_tls {
            true => port.is_tls,
            false => !entries.is_empty() || !port.is_tls,
        };
        let mine: Vec<&Port> = served.into_iter().filter(is_mine).map(|(port, _)| port).collect();
        Some(match mine.as_slice() {
            [] => vec![scheme(is_tls)],
            mine if mine.len() == self.ports.count() => vec![Match::default()],
            mine => mine.iter().map(|port| self.ports.facet(port)).collect(),
        })
    }
}
