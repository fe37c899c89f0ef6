//! Envoy: a bootstrap's static resources. Listeners with the HTTP connection manager or the TCP proxy, and clusters.

mod clusters;
mod domains;
mod filters;
mod forwarding;
mod jwt;
mod matching;
mod per_route;
mod rbac;
mod routes;

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::draft::{CertificateFile, GatewayTls, Import, Match, Plug, Proxy, To, draft};
use crate::error::Failure;
use crate::ports::{Port, Ports};
use crate::tree::{self, Node};
use crate::unread;

/// Keys that say nothing about traffic.
const SILENT: &[&str] = &[
    "@type",
    "stat_prefix",
    "alt_stat_name",
    "name",
    "codec_type",
    "cluster_name",
    "type",
    "dns_lookup_family",
    "metadata",
    "generate_request_id",
    "node",
    "admin",
    "drain_type",
    "traffic_direction",
    "use_remote_address",
    "normalize_path",
    "merge_slashes",
];

/// An import under way.
struct Envoy<'o> {
    out: &'o mut Import,
    clusters: HashMap<String, Node>,
    /// Upstreams by cluster.
    made: HashMap<String, Option<Backend>>,
    /// Clusters that something else than a route names.
    named: HashSet<String>,
    /// The ports that serve HTTP.
    ports: Ports,
    certificates: Vec<Value>,
    /// What other proxies say of clients' addresses is not looked at.
    knows_clients: bool,
    /// There are several connection managers, of which each has hosts of its own, or hosts with ports.
    has_several: bool,
    /// How many hosts with ports there were.
    with_ports: i64,
}

/// Where a cluster's requests go.
#[derive(Debug, Clone)]
struct Backend {
    to: To,
    settings: Proxy,
}

/// What a listener says for all its routes.
#[derive(Debug, Clone, Default)]
struct Listener {
    /// What its requests have besides their routes' rules.
    facet: Match,
    /// Names of TLS that another filter chain of the listener is for.
    others: Vec<String>,
    /// The domains of all its virtual hosts, in lower case.
    domains: BTreeSet<String>,
    plugins: Vec<Plug>,
    /// Plugins that come behind those of a route.
    last: Vec<Plug>,
    is_closed: bool,
}

/// Imports a bootstrap.
///
/// # Errors
/// When it has no static listeners.
pub(crate) fn import(out: &mut Import, name: &str, source: &str) -> Result<(), Failure> {
    let file = out.report.file(name);
    let document = tree::one(name, file, source)?;
    let Some(resources) = document.get("static_resources") else {
        return Err(Failure::new(
            name,
            1,
            "it has no static_resources, so it is no bootstrap that can be imported",
        ));
    };
    for (key, value) in document.entries() {
        match key.as_str() {
            "static_resources" => {}
            "dynamic_resources" => out.not_converted(
                value.at,
                key,
                "what an xDS server says is not known here",
                "dump the configuration, and import that",
            ),
            "admin" | "node" | "stats_config" | "layered_runtime" | "overload_manager" | "stats_sinks" => {
                out.not_needed(value.at, key, "it is about Envoy's process");
            }
            _ => out.not_converted(value.at, key, "the gateway does not support this", ""),
        }
    }
    let clusters =
        resources.each("clusters").iter().filter_map(|it| Some((it.text_of("name")?.to_owned(), it.clone())));
    let mut envoy = Envoy {
        clusters: clusters.collect(),
        out,
        made: HashMap::new(),
        named: HashSet::new(),
        ports: Ports::default(),
        certificates: Vec::new(),
        knows_clients: false,
        has_several: false,
        with_ports: 0,
    };
    let listeners = resources.each("listeners");
    if listeners.is_empty() {
        return Err(Failure::new(name, 1, "there is no listener in it"));
    }
    let ports: Vec<_> = listeners.iter().flat_map(http_ports).collect();
    for (is_tls, number, host) in &ports {
        envoy.ports.add(*is_tls, *number, host);
    }
    envoy.ports.listen(&mut envoy.out.gateway);
    if ports.len() > 1 || listeners.iter().any(has_domains_with_ports) {
        // A host of one listener, or with one port, is any other host to another one.
        envoy.has_several = true;
        envoy.out.gateway.host_fallthrough(true);
    }
    for listener in listeners {
        envoy.listener(listener);
    }
    for (name, cluster) in envoy
        .clusters
        .iter()
        .filter(|(name, _)| !envoy.made.contains_key(*name) && !envoy.named.contains(*name))
    {
        envoy.out.not_needed(cluster.at, format_args!("cluster {name}"), "no route leads to it");
        cluster.see_all();
    }
    if !envoy.certificates.is_empty() {
        let certificates = std::mem::take(&mut envoy.certificates);
        envoy.out.gateway.tls(draft!(GatewayTls { certificates }));
    }
    unread::name(out, "", &document, SILENT);
    Ok(())
}

/// The ports on which a listener serves HTTP: whether by TLS, number and address.
fn http_ports(listener: &Node) -> Vec<(bool, u16, String)> {
    let socket = listener.path(&["address", "socket_address"]);
    let address = socket.and_then(|it| it.text_of("address")).unwrap_or_default();
    let number = socket.and_then(|it| it.get("port_value")).and_then(Node::uint);
    let Some(number) = number.and_then(|it| u16::try_from(it).ok()) else { return Vec::new() };
    let chains = listener.each("filter_chains").iter();
    let serving = chains.filter(|chain| chain.each("filters").iter().any(is_manager));
    serving.map(|chain| (chain.get("transport_socket").is_some(), number, address.to_owned())).collect()
}

/// Whether a filter of a connection is the one that serves HTTP.
fn is_manager(filter: &Node) -> bool {
    matches!(filters::kind(filter).as_str(), "HttpConnectionManager" | "http_connection_manager")
}

/// Whether a listener has a virtual host for a name with a port.
fn has_domains_with_ports(listener: &Node) -> bool {
    let filters = listener.each("filter_chains").iter().flat_map(|chain| chain.each("filters"));
    let mut hosts = filters.flat_map(|filter| {
        filters::config(filter).path(&["route_config", "virtual_hosts"]).map_or(&[][..], Node::items)
    });
    hosts.any(|host| host.texts("domains").iter().any(|domain| domains::has_number(domain)))
}

/// The names of other filter chains of a listener that go before those of this one: all where it names none, those below its
/// own `*.` else.
fn names_of_others(listener: &Node, chain: &Node) -> Vec<String> {
    let names =
        |chain: &Node| chain.get("filter_chain_match").map_or_else(Vec::new, |it| it.texts("server_names"));
    let own = names(chain);
    let is_below = |name: &String| {
        let mut wild = own.iter().filter_map(|own| own.strip_prefix('*'));
        own.is_empty() || !own.contains(name) && wild.any(|end| name.ends_with(end))
    };
    let all = listener.each("filter_chains").iter().flat_map(names);
    let mut made: Vec<String> = all.filter(is_below).collect();
    made.sort();
    made.dedup();
    made
}

/// Where a stream comes in.
struct StreamPlace<'a> {
    port: u64,
    is_tls: bool,
    /// The server names that it is for; none is all.
    names: &'a [String],
}

impl Envoy<'_> {
    fn listener(&mut self, listener: &Node) {
        let name = listener.text_of("name").unwrap_or("listener").to_owned();
        let what = format!("listener {name}");
        let socket = listener.path(&["address", "socket_address"]);
        let address = socket.and_then(|it| it.text_of("address")).unwrap_or("0.0.0.0").to_owned();
        let Some(port) = socket.and_then(|it| it.get("port_value")).and_then(Node::uint) else {
            self.out.not_converted(listener.at, what, "its address has no port", "");
            return;
        };
        for filter in listener.each("listener_filters") {
            self.listener_filter(&what, filter);
        }
        for chain in listener.each("filter_chains") {
            let others = names_of_others(listener, chain);
            self.chain(&what, chain, &address, port, others);
        }
        self.out.converted(listener.at, what);
    }

    fn listener_filter(&mut self, what: &str, filter: &Node) {
        let kind = filters::kind(filter);
        let what = format!("{what}: {kind}");
        match kind.as_str() {
            "tls_inspector" | "original_dst" | "http_inspector" | "TlsInspector" | "HttpInspector" => {
                self.out.not_needed(filter.at, what, "the gateway looks at the first bytes anyway");
            }
            "proxy_protocol" | "ProxyProtocol" => {
                self.out.gateway.accept_proxy_protocol(true);
                let why = "it is taken from trusted proxies only, on all ports";
                self.out.partial(filter.at, what, why, "set gateway.trusted_proxies");
            }
            _ => self.out.not_converted(filter.at, what, "the gateway does not support this", ""),
        }
    }

    /// The filters of a chain, for the names it is for.
    fn chain(&mut self, what: &str, chain: &Node, address: &str, port: u64, other_names: Vec<String>) {
        let tls = chain.get("transport_socket");
        let matches = chain.get("filter_chain_match");
        let names = matches.map_or_else(Vec::new, |it| it.texts("server_names"));
        let known = ["server_names", "transport_protocol", "application_protocols"];
        let others =
            matches.is_some_and(|it| it.entries().iter().any(|(key, _)| !known.contains(&key.as_str())));
        let filters = chain.each("filters");
        let is_stream = !filters.iter().any(is_manager);
        let mut is_closed = false;
        for filter in filters {
            let kind = filters::kind(filter);
            let config = filters::config(filter);
            match kind.as_str() {
                "HttpConnectionManager" | "http_connection_manager" => {
                    let mut made = Listener { others: other_names.clone(), is_closed, ..Listener::default() };
                    if others {
                        let what = format!("{what}: filter_chain_match");
                        let why = "only server names can be converted";
                        made.is_closed |= self.out.guard_not_converted(chain.at, what, why, "");
                    }
                    let number = u16::try_from(port).unwrap_or_default();
                    made.facet = self.ports.facet(&Port::new(tls.is_some(), number, address));
                    if let Some(tls) = tls {
                        self.tls(what, tls, &mut made);
                    }
                    self.manager(what, config, &names, made);
                }
                "TcpProxy" | "tcp_proxy" => {
                    let mut made = Listener::default();
                    if let Some(tls) = tls {
                        self.tls(what, tls, &mut made);
                    }
                    let alone = filters.len() == 1 && !others && !made.is_closed;
                    let place = StreamPlace { port, is_tls: tls.is_some(), names: &names };
                    self.stream(what, filter, config, place, alone);
                }
                // Those of a stream that come before its proxy make it closed there.
                _ if is_stream => {
                    let why = "this filter may guard; the port is not opened for streams";
                    self.out.route_closed(filter.at, format_args!("{what}: {kind}"), why, "");
                }
                _ => {
                    let why = "this filter of connections may guard; what its filter chain serves is closed";
                    is_closed |= self.out.guard_not_converted(
                        filter.at,
                        format_args!("{what}: {kind}"),
                        why,
                        filters::TODO,
                    );
                    config.see_all();
                }
            }
        }
    }

    /// A listener's certificates, and whether it asks for clients'.
    fn tls(&mut self, what: &str, socket: &Node, made: &mut Listener) {
        let config = filters::config(socket);
        for pair in config.path(&["common_tls_context", "tls_certificates"]).map_or(&[][..], Node::items) {
            let file = |key: &str| pair.path(&[key, "filename"]).and_then(Node::str).map(str::to_owned);
            match (file("certificate_chain"), file("private_key")) {
                (Some(certificate), Some(key)) => {
                    let pair = draft!(CertificateFile { cert_path: certificate, key_path: key }).into();
                    if !self.certificates.contains(&pair) {
                        self.certificates.push(pair);
                    }
                }
                _ => self.out.not_converted(
                    pair.at,
                    format_args!("{what}: tls_certificates"),
                    "only files are known",
                    "set gateway.tls.certificates",
                ),
            }
        }
        let asks = config
            .get("require_client_certificate")
            .is_some_and(|it| it.bool() == Some(true) || it.get("value").and_then(Node::bool) == Some(true));
        if asks {
            let todo = "set gateway.tls.client_ca_path, then remove `request_termination`";
            made.is_closed |= self.out.guard_not_converted(
                socket.at,
                format_args!("{what}: require_client_certificate"),
                "clients' certificates are asked for by the whole gateway",
                todo,
            );
        }
    }

    fn stream(&mut self, what: &str, filter: &Node, config: &Node, place: StreamPlace<'_>, alone: bool) {
        let StreamPlace { port, is_tls, names } = place;
        if is_tls && !names.is_empty() {
            let why = "names are only looked at where TLS passes through; the port is not opened";
            return self.out.route_closed(filter.at, what, why, "write it as a stream proxy");
        }
        let backend =
            config.text_of("cluster").map(str::to_owned).and_then(|name| self.cluster(&name, filter.at));
        let Some(Backend { to: To::Upstream { id: upstream, is_tls: to_tls }, .. }) =
            backend.filter(|_| alone)
        else {
            let why = "what comes before it may guard, or its cluster is not known; the port is not opened";
            self.out.route_closed(filter.at, what, why, "write it as a stream proxy");
            return;
        };
        let id = self.out.id("proxy", &format!("tcp-{port}"));
        let backend_scheme = if to_tls { "tcps" } else { "tcp" };
        let mut made = draft!(Proxy { id, listen_port: port, backend_scheme, upstream_id: upstream });
        if is_tls {
            made.frontend_tls(true);
        } else if !names.is_empty() {
            made.passthrough(true);
            made.hosts(names);
        }
        self.out.proxies.push(made.into());
        self.out.converted(filter.at, what);
    }
}

#[cfg(test)]
mod tests;
