//! Traefik's routers of TCP and UDP.

use super::{Traefik, rule, switched};
use crate::draft::{Proxy, Target, Upstream, draft};
use crate::text;
use crate::tree::Node;

/// The targets of a service.
fn stream_targets(servers: Option<&Node>) -> Vec<Target> {
    let addresses =
        servers.map_or(&[][..], Node::items).iter().filter_map(|server| server.text_of("address"));
    let targets = addresses.filter_map(text::host_port);
    targets.filter_map(|(host, port)| Some(draft!(Target { host, port: port? }))).collect()
}

impl Traefik<'_> {
    /// Routers of TCP and UDP, each with the port of its entry point.
    pub(super) fn streams(&mut self, document: &Node) {
        for kind in ["tcp", "udp"] {
            for (name, router) in document.path(&[kind, "routers"]).map_or(&[][..], Node::entries) {
                let what = format!("{kind} router {name}");
                let service = router.text_of("service").unwrap_or(name);
                let servers = document.path(&[kind, "services", service, "loadBalancer", "servers"]);
                let targets = stream_targets(servers);
                let names =
                    router.text_of("rule").map_or_else(|| Some(vec!["*".to_owned()]), rule::server_names);
                let guarded = !router.texts("middlewares").is_empty();
                if self.stream_asks(&what, router) {
                    continue;
                }
                // Passed through, TLS has the target's certificate.
                if switched(router.path(&["tls", "passthrough"])).is_none() {
                    let hosts =
                        names.iter().flatten().filter(|name| *name != "*").cloned().collect::<Vec<_>>();
                    self.get_certificate(&what, router, &hosts, &[]);
                }
                let points = router.texts("entryPoints");
                let ports: Vec<u16> =
                    points.iter().filter_map(|point| self.entry(point)).map(|it| it.number).collect();
                let (Some(names), false, false, false) =
                    (names, targets.is_empty(), guarded, ports.is_empty())
                else {
                    let why = "its rule, servers, middlewares or entry points can't be converted; its port is not opened";
                    self.out.route_closed(router.at, what, why, "write it as a stream proxy");
                    continue;
                };
                // A port of the gateway serves HTTP or streams.
                let is_of_http = |name: &&String| self.entry(name).is_some_and(|it| it.port.is_some());
                if kind == "tcp" && points.iter().any(|name| is_of_http(&name)) {
                    let why = "HTTP is served at the same entry point; here a port has one of them";
                    self.out.route_closed(
                        router.at,
                        what,
                        why,
                        "write it as a stream proxy with another port",
                    );
                    continue;
                }
                let upstream = self.out.id("upstream", &format!("{kind}-{service}"));
                self.out.upstreams.push(draft!(Upstream { id: &upstream, targets }).into());
                let passthrough = switched(router.path(&["tls", "passthrough"])).is_some();
                for port in ports {
                    let id = self.out.id("proxy", &format!("{kind}-{name}"));
                    let mut made =
                        draft!(Proxy { id, listen_port: port, backend_scheme: kind, upstream_id: &upstream });
                    if passthrough && names != ["*"] {
                        made.hosts(&names);
                    }
                    if passthrough {
                        made.passthrough(true);
                    } else if switched(router.get("tls")).is_some() {
                        made.frontend_tls(true);
                    }
                    if names != ["*"] && !passthrough {
                        self.out.route_closed(
                            router.at,
                            &what,
                            "names are only looked at where TLS passes through; its port is not opened",
                            "",
                        );
                        continue;
                    }
                    self.out.proxies.push(made.into());
                }
                self.out.converted(router.at, what);
            }
        }
    }
}
