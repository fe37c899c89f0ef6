//! Envoy's clusters as upstreams, and how their endpoints are asked.

use super::forwarding::wrapped;
use super::{Backend, Envoy, filters};
use crate::draft::{ActiveCheck, HealthChecks, PassiveCheck, Proxy, Target, To, Upstream, draft};
use crate::report::At;
use crate::text;
use crate::tree::Node;

impl Envoy<'_> {
    /// Where a cluster's requests go; `None` when it is not known.
    pub(super) fn cluster(&mut self, name: &str, at: At) -> Option<Backend> {
        if let Some(known) = self.made.get(name) {
            return known.clone();
        }
        let made = match self.clusters.get(name).cloned() {
            Some(cluster) => self.make_cluster(name, &cluster),
            None => {
                self.out.not_converted(
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

    fn make_cluster(&mut self, name: &str, cluster: &Node) -> Option<Backend> {
        let what = format!("cluster {name}");
        self.discovery(&what, cluster);
        let mut targets = self.endpoints(&what, cluster);
        if targets.is_empty() {
            let why = "it has no static endpoints; it answers 503";
            self.out.not_converted(cluster.at, what, why, "name them in load_assignment");
            return None;
        }
        let mut settings = Proxy::default();
        let connect = cluster.text_of("connect_timeout").and_then(|it| text::millis(it, 1000));
        settings.backend_connect_timeout(text::duration(connect.unwrap_or(5000).clamp(1, 86_400_000)));
        let socket = cluster.get("transport_socket");
        if let Some(socket) = socket {
            self.cluster_tls(&what, socket, &mut settings);
        }
        if is_h2(cluster) {
            settings.backend_http_version("2");
        }
        let id = self.out.id("upstream", name);
        let algorithm = self.algorithm(&what, cluster);
        let limits = cluster.get("circuit_breakers");
        let queue = limits.and_then(|limits| self.cluster_limits(&what, limits, &mut targets));
        let health_checks = Some(checks(cluster)).filter(|checks| !checks.is_empty());
        let made = draft!(Upstream { id: &id, targets, algorithm, health_checks, queue });
        self.out.upstreams.push(made.into());
        self.out.converted(cluster.at, what);
        Some(Backend { to: To::Upstream { id, is_tls: socket.is_some() }, settings })
    }

    /// How names become addresses.
    fn discovery(&mut self, what: &str, cluster: &Node) {
        let kind = cluster.get("type");
        if let Some("STRICT_DNS") = kind.and_then(Node::str) {
            let why = "all addresses of a name are one target here: connections go to the first that answers";
            let todo = "write `srv:` and a service's name, where there are SRV records";
            self.out.partial(kind.map_or(cluster.at, |it| it.at), format_args!("{what}: type"), why, todo);
        }
        for key in ["dns_refresh_rate", "respect_dns_ttl", "dns_failure_refresh_rate", "dns_jitter"] {
            if let Some(node) = cluster.get(key) {
                self.out.not_needed(
                    node.at,
                    format_args!("{what}: {key}"),
                    "records are kept for their time to live",
                );
            }
        }
        for key in ["dns_resolution_config", "typed_dns_resolver_config", "dns_resolvers"] {
            let Some(node) = cluster.get(key) else { continue };
            let config = node.get("typed_config").unwrap_or(node);
            let listed = if key == "dns_resolvers" { node.items() } else { config.each("resolvers") };
            let written = |(host, port): (String, u16)| match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            let servers: Vec<String> = listed.iter().filter_map(place).map(written).collect();
            self.out.name_servers(servers.iter().map(String::as_str));
            let why = "the gateway looks up all names there";
            self.out.partial(node.at, format_args!("{what}: {key}"), why, "see gateway.dns_servers");
        }
    }

    fn endpoints(&mut self, what: &str, cluster: &Node) -> Vec<Target> {
        let mut targets = Vec::new();
        for locality in cluster.path(&["load_assignment", "endpoints"]).map_or(&[][..], Node::items) {
            let priority = locality.get("priority").and_then(Node::uint).unwrap_or(0);
            for endpoint in locality.each("lb_endpoints") {
                let Some((host, port)) = endpoint.path(&["endpoint", "address"]).and_then(place) else {
                    self.out.not_converted(
                        endpoint.at,
                        what,
                        "an endpoint is neither a host with a port nor a socket",
                        "",
                    );
                    continue;
                };
                let mut target = Target::new(&host, port);
                let weight = wrapped(endpoint, "load_balancing_weight");
                if let Some(weight) = weight.filter(|it| (1..=65_535).contains(it)) {
                    target.weight(weight);
                }
                if priority > 0 {
                    target.priority(priority.min(15));
                }
                targets.push(target);
            }
        }
        targets
    }

    fn cluster_tls(&mut self, what: &str, socket: &Node, settings: &mut Proxy) {
        let config = filters::config(socket);
        let roots = ["common_tls_context", "validation_context", "trusted_ca", "filename"];
        match config.path(&roots).and_then(Node::str) {
            Some(file) => settings.backend_tls_ca_path(file),
            None => {
                let why = "Envoy checks no certificate without a validation context; here it is checked";
                let todo = "set backend_tls_ca_path, or backend_tls_verify_server_cert: false";
                self.out.partial(socket.at, what, why, todo);
            }
        }
        if let Some(sni) = config.text_of("sni") {
            settings.backend_tls_server_name(sni);
        }
    }

    fn algorithm(&mut self, what: &str, cluster: &Node) -> &'static str {
        match cluster.text_of("lb_policy") {
            None | Some("ROUND_ROBIN") => "weighted_round_robin",
            Some("LEAST_REQUEST") => "least_connections",
            Some("RANDOM") => "random",
            Some("RING_HASH" | "MAGLEV") => "consistent_hashing",
            Some(other) => {
                let what = format!("{what}: lb_policy {other}");
                self.out.partial(cluster.at, what, "targets are taken in turn", "");
                "weighted_round_robin"
            }
        }
    }
}

/// Host and port, or a socket.
fn place(address: &Node) -> Option<(String, u16)> {
    if let Some(path) = address.path(&["pipe", "path"]).and_then(Node::str) {
        return path.starts_with('/').then(|| (format!("unix:{path}"), 0));
    }
    let socket = address.get("socket_address")?;
    let port = u16::try_from(socket.get("port_value")?.uint()?).ok().filter(|port| *port > 0)?;
    Some((socket.text_of("address")?.to_owned(), port))
}

fn is_h2(cluster: &Node) -> bool {
    let explicit = |options: &Node| {
        let http = options.get("explicit_http_config");
        http.is_some_and(|http| http.has("http2_protocol_options"))
    };
    let typed = cluster.get("typed_extension_protocol_options");
    cluster.has("http2_protocol_options")
        || typed.is_some_and(|typed| typed.entries().iter().any(|(_, options)| explicit(options)))
}

fn checks(cluster: &Node) -> HealthChecks {
    let mut checks = HealthChecks::default();
    if let Some(check) = cluster.each("health_checks").first() {
        checks.active(active(check));
    }
    if let Some(outlier) = cluster.get("outlier_detection") {
        let failures = wrapped(outlier, "consecutive_5xx").unwrap_or(5);
        let statuses = [500, 502, 503, 504];
        checks.passive(draft!(PassiveCheck {
            unhealthy_threshold: failures,
            unhealthy_status_codes: statuses
        }));
    }
    checks
}

fn active(check: &Node) -> ActiveCheck {
    let time = |key: &str| check.text_of(key).and_then(|it| text::millis(it, 1000));
    let count = |key: &str| check.get(key).and_then(Node::uint).filter(|it| *it > 0);
    let mut made = ActiveCheck::default();
    match (check.get("http_health_check"), check.has("grpc_health_check")) {
        (Some(http), _) => made.http_path(http.text_of("path").unwrap_or("/")),
        (None, true) => made.probe_type("grpc"),
        (None, false) => made.probe_type("tcp"),
    }
    made.interval(time("interval").map(|millis| text::seconds(millis).min(86_400)));
    made.timeout(time("timeout").map(|millis| text::duration(millis.clamp(1, 300_000))));
    made.healthy_threshold(count("healthy_threshold"));
    made.unhealthy_threshold(count("unhealthy_threshold"));
    made
}
