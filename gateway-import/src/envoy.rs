//! Envoy: a bootstrap's static resources. Listeners with the HTTP connection manager or the TCP proxy, and clusters.

mod filters;
mod routes;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::draft::{Import, Plug, To, set};
use crate::error::Failure;
use crate::report::At;
use crate::text;
use crate::tree::{self, Node};

/// An import under way.
struct Envoy<'o> {
    out: &'o mut Import,
    clusters: HashMap<String, Node>,
    /// Upstreams by cluster.
    made: HashMap<String, Option<Backend>>,
    taken: [Option<u64>; 2],
    certificates: Vec<Value>,
}

/// Where a cluster's requests go.
#[derive(Debug, Clone)]
struct Backend {
    to: To,
    settings: Map<String, Value>,
}

/// What a listener says for all its routes.
#[derive(Debug, Clone, Default)]
struct Listener {
    scheme: Option<&'static str>,
    plugins: Vec<Plug>,
    is_closed: bool,
}

/// Imports a bootstrap.
///
/// # Errors
/// When it has no static listeners.
pub(crate) fn import(out: &mut Import, (name, source): (&str, &str)) -> Result<(), Failure> {
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
            "dynamic_resources" => out.lost(
                value.at,
                key,
                "what an xDS server says is not known here",
                "dump the configuration, and import that",
            ),
            "admin" | "node" | "stats_config" | "layered_runtime" | "overload_manager" | "stats_sinks" => {
                out.needless(value.at, key, "it is about Envoy's process");
            }
            _ => out.lost(value.at, key, "the gateway does not support this", ""),
        }
    }
    let clusters =
        resources.each("clusters").iter().filter_map(|it| Some((it.text_of("name")?.to_owned(), it.clone())));
    let mut envoy = Envoy {
        clusters: clusters.collect(),
        out,
        made: HashMap::new(),
        taken: [None, None],
        certificates: Vec::new(),
    };
    let listeners = resources.each("listeners");
    if listeners.is_empty() {
        return Err(Failure::new(name, 1, "there is no listener in it"));
    }
    for listener in listeners {
        envoy.listener(listener);
    }
    if !envoy.certificates.is_empty() {
        let certificates = std::mem::take(&mut envoy.certificates);
        set(&mut envoy.out.gateway, "tls", json!({ "certificates": certificates }));
    }
    Ok(())
}

impl Envoy<'_> {
    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn listener(&mut self, listener: &Node) {
        let name = listener.text_of("name").unwrap_or("listener").to_owned();
        let what = format!("listener {name}");
        let port = listener.path(&["address", "socket_address", "port_value"]).and_then(Node::uint);
        let address = listener
            .path(&["address", "socket_address", "address"])
            .and_then(Node::str)
            .unwrap_or("0.0.0.0")
            .to_owned();
        let Some(port) = port else {
            self.out.lost(listener.at, what, "its address has no port", "");
            return;
        };
        for filter in listener.each("listener_filters") {
            let kind = filters::kind(filter);
            match kind.as_str() {
                "tls_inspector" | "original_dst" | "http_inspector" | "TlsInspector" | "HttpInspector" => {}
                "proxy_protocol" | "ProxyProtocol" => {
                    set(&mut self.out.gateway, "accept_proxy_protocol", true);
                    self.out.partial(
                        filter.at,
                        format_args!("{what}: {kind}"),
                        "it is taken from trusted proxies only, on all ports",
                        "set gateway.trusted_proxies",
                    );
                }
                _ => self.out.lost(
                    filter.at,
                    format_args!("{what}: {kind}"),
                    "the gateway does not support this",
                    "",
                ),
            }
        }
        let chains = listener.each("filter_chains");
        for chain in chains {
            let tls = chain.get("transport_socket");
            let is_tls = tls.is_some();
            let matches = chain.get("filter_chain_match");
            let names = matches.map_or_else(Vec::new, |it| it.texts("server_names"));
            let others = matches.is_some_and(|it| {
                it.entries().iter().any(|(key, _)| {
                    !matches!(key.as_str(), "server_names" | "transport_protocol" | "application_protocols")
                })
            });
            for filter in chain.each("filters") {
                let kind = filters::kind(filter);
                let config = filters::config(filter);
                match kind.as_str() {
                    "HttpConnectionManager" | "http_connection_manager" => {
                        let mut made = Listener::default();
                        if others {
                            made.is_closed |= self.out.guard(
                                chain.at,
                                format_args!("{what}: filter_chain_match"),
                                "only server names can be translated",
                                "",
                            );
                        }
                        let slot = &mut self.taken[usize::from(is_tls)];
                        if slot.is_some_and(|known| known != port) {
                            let why = "the gateway has one port for http and one for https; this listener is left out";
                            self.out.lost(listener.at, &what, why, "run a second gateway for the other port");
                            continue;
                        }
                        *slot = Some(port);
                        let key = if is_tls { "https" } else { "http" };
                        set(&mut self.out.gateway, key, format!("{address}:{port}"));
                        made.scheme = Some(key);
                        if let Some(tls) = tls {
                            self.tls(&what, tls, &mut made);
                        }
                        self.manager(&what, config, &names, made);
                    }
                    "TcpProxy" | "tcp_proxy" => {
                        let alone = chain.each("filters").len() == 1 && !others;
                        self.stream((&what, filter), config, (port, is_tls, &names), alone);
                    }
                    // Those of a stream that come before its proxy make it closed there.
                    _ => {
                        let why = "this filter may guard; the port is not opened for streams";
                        self.out.closed(filter.at, format_args!("{what}: {kind}"), why, "");
                    }
                }
            }
        }
        self.out.done(listener.at, what);
    }

    /// A listener's certificates, and whether it asks for clients'.
    fn tls(&mut self, what: &str, socket: &Node, made: &mut Listener) {
        let config = filters::config(socket);
        for pair in config.path(&["common_tls_context", "tls_certificates"]).map_or(&[][..], Node::items) {
            let file = |key: &str| pair.path(&[key, "filename"]).and_then(Node::str).map(str::to_owned);
            match (file("certificate_chain"), file("private_key")) {
                (Some(certificate), Some(key)) => {
                    self.certificates.push(json!({ "cert_path": certificate, "key_path": key }))
                }
                _ => self.out.lost(
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
            made.is_closed |= self.out.guard(
                socket.at,
                format_args!("{what}: require_client_certificate"),
                "clients' certificates are asked for by the whole gateway",
                todo,
            );
        }
    }

    /// Where a cluster's requests go; `None` when it is not known.
    fn cluster(&mut self, name: &str, at: At) -> Option<Backend> {
        if let Some(known) = self.made.get(name) {
            return known.clone();
        }
        let made = match self.clusters.get(name).cloned() {
            Some(cluster) => self.make_cluster(name, &cluster),
            None => {
                self.out.lost(
                    at,
                    format_args!("cluster {name}"),
                    "there is none of this name; it answers 503",
                    "",
                );
                None
            }
        };
        self.made.insert(name.to_owned(), made.clone());
        made
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn make_cluster(&mut self, name: &str, cluster: &Node) -> Option<Backend> {
        let what = format!("cluster {name}");
        let mut targets = Vec::new();
        for locality in cluster.path(&["load_assignment", "endpoints"]).map_or(&[][..], Node::items) {
            let priority = locality.get("priority").and_then(Node::uint).unwrap_or(0);
            for endpoint in locality.each("lb_endpoints") {
                let address = endpoint.path(&["endpoint", "address", "socket_address"]);
                let pair =
                    address.and_then(|it| Some((it.text_of("address")?, it.get("port_value")?.uint()?)));
                let Some((host, port)) = pair.filter(|(_, port)| (1..=65_535).contains(port)) else {
                    self.out.lost(endpoint.at, &what, "an endpoint is no host with a port", "");
                    continue;
                };
                let mut target = json!({ "host": host, "port": port });
                if let Some(weight) = endpoint
                    .get("load_balancing_weight")
                    .and_then(Node::uint)
                    .filter(|it| (1..=65_535).contains(it))
                {
                    target["weight"] = json!(weight);
                }
                if priority > 0 {
                    target["priority"] = json!(priority.min(15));
                }
                targets.push(target);
            }
        }
        if targets.is_empty() {
            self.out.lost(
                cluster.at,
                what,
                "it has no static endpoints; it answers 503",
                "name them in load_assignment",
            );
            return None;
        }
        let mut settings = Map::new();
        let connect =
            cluster.text_of("connect_timeout").and_then(|it| text::millis(it, 1000)).unwrap_or(5000);
        set(&mut settings, "backend_connect_timeout_ms", connect.clamp(1, 86_400_000));
        let is_tls = cluster.get("transport_socket").is_some();
        if let Some(socket) = cluster.get("transport_socket") {
            let config = filters::config(socket);
            match config
                .path(&["common_tls_context", "validation_context", "trusted_ca", "filename"])
                .and_then(Node::str)
            {
                Some(file) => set(&mut settings, "backend_tls_server_ca_cert_path", file),
                None => {
                    let todo =
                        "set backend_tls_server_ca_cert_path, or backend_tls_verify_server_cert: false";
                    self.out.partial(
                        socket.at,
                        &what,
                        "Envoy checks no certificate without a validation context; here it is checked",
                        todo,
                    );
                }
            }
            if let Some(sni) = config.text_of("sni") {
                set(&mut settings, "backend_tls_server_name", sni);
            }
        }
        let is_h2 = cluster.get("http2_protocol_options").is_some()
            || cluster.entries().iter().any(|(key, _)| key == "http2_protocol_options")
            || cluster.get("typed_extension_protocol_options").is_some_and(|it| {
                it.entries().iter().any(|(_, it)| {
                    it.get("explicit_http_config")
                        .is_some_and(|it| it.entries().iter().any(|(key, _)| key == "http2_protocol_options"))
                })
            });
        if is_h2 {
            set(&mut settings, "backend_http_version", "2");
        }
        let mut made = Map::new();
        set(&mut made, "targets", json!(targets));
        let algorithm = match cluster.text_of("lb_policy") {
            None | Some("ROUND_ROBIN") => "weighted_round_robin",
            Some("LEAST_REQUEST") => "least_connections",
            Some("RANDOM") => "random",
            Some("RING_HASH" | "MAGLEV") => "consistent_hashing",
            Some(other) => {
                self.out.partial(
                    cluster.at,
                    format_args!("{what}: lb_policy {other}"),
                    "targets are taken in turn",
                    "",
                );
                "weighted_round_robin"
            }
        };
        set(&mut made, "algorithm", algorithm);
        let mut checks = Map::new();
        if let Some(check) = cluster.each("health_checks").first() {
            set(&mut checks, "active", active(check));
        }
        if let Some(outlier) = cluster.get("outlier_detection") {
            let failures = outlier
                .get("consecutive_5xx")
                .and_then(|it| it.uint().or_else(|| it.get("value").and_then(Node::uint)))
                .unwrap_or(5);
            set(
                &mut checks,
                "passive",
                json!({ "unhealthy_threshold": failures, "unhealthy_status_codes": [500, 502, 503, 504] }),
            );
        }
        if !checks.is_empty() {
            set(&mut made, "health_checks", Value::Object(checks));
        }
        if let Some(limits) = cluster.get("circuit_breakers") {
            self.out.lost(
                limits.at,
                format_args!("{what}: circuit_breakers"),
                "limits of a cluster are not translated",
                "set `max_requests` of targets",
            );
        }
        let id = self.out.id("upstream", name);
        let mut whole = Map::from_iter([("id".to_owned(), json!(id))]);
        whole.extend(made);
        self.out.upstreams.push(Value::Object(whole));
        self.out.done(cluster.at, what);
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }

    fn stream(
        &mut self,
        (what, filter): (&str, &Node),
        config: &Node,
        (port, is_tls, names): (u64, bool, &[String]),
        alone: bool,
    ) {
        let backend =
            config.text_of("cluster").map(str::to_owned).and_then(|name| self.cluster(&name, filter.at));
        let Some(Backend { to: To::Upstream { id: upstream, is_tls: to_tls }, .. }) =
            backend.filter(|_| alone)
        else {
            let why = "other filters come before it, or its cluster is not known; the port is not opened";
            self.out.closed(filter.at, what, why, "write it as a stream proxy");
            return;
        };
        let id = self.out.id("proxy", &format!("tcp-{port}"));
        let mut made = json!({ "id": id, "listen_port": port, "backend_scheme": if to_tls { "tcps" } else { "tcp" }, "upstream_id": upstream });
        if is_tls {
            made["frontend_tls"] = json!(true);
        } else if !names.is_empty() {
            made["passthrough"] = json!(true);
            made["hosts"] = json!(names);
        }
        self.out.proxies.push(made);
        self.out.done(filter.at, what);
    }
}

fn active(check: &Node) -> Value {
    let time = |key: &str| check.text_of(key).and_then(|it| text::millis(it, 1000));
    let count = |key: &str| check.get(key).and_then(Node::uint).filter(|it| *it > 0);
    let mut made = Map::new();
    match (check.get("http_health_check"), check.entries().iter().any(|(key, _)| key == "grpc_health_check"))
    {
        (Some(http), _) => set(&mut made, "http_path", http.text_of("path").unwrap_or("/")),
        (None, true) => set(&mut made, "probe_type", "grpc"),
        (None, false) => set(&mut made, "probe_type", "tcp"),
    }
    if let Some(millis) = time("interval") {
        set(&mut made, "interval_seconds", text::seconds(millis).min(86_400));
    }
    if let Some(millis) = time("timeout") {
        set(&mut made, "timeout_ms", millis.clamp(1, 300_000));
    }
    for key in ["healthy_threshold", "unhealthy_threshold"] {
        if let Some(count) = count(key) {
            set(&mut made, key, count);
        }
    }
    Value::Object(made)
}

#[cfg(test)]
mod tests;
