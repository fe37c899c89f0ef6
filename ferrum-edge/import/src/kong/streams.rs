//! Kong's routes of TCP and UDP: each port is a proxy.

use std::collections::HashSet;

use super::order::Rank;
use super::{Kong, list, name, some, texts};
use crate::draft::{IpRestriction, Proxy, draft};
use crate::text;
use crate::tree::Node;

impl Kong {
    pub(super) fn stream_route(&mut self, place: &str, route: &Node, common: Proxy, service: &str) {
        let speaks = texts(route, "protocols");
        let passes = speaks.iter().any(|it| it == "tls_passthrough");
        // Names are only looked at where TLS passes through.
        let known = if passes { "expression" } else { "snis" };
        if let Some(key) =
            super::routes::narrower(route, &[known, "expression", "hosts", "paths", "methods", "headers"])
        {
            let why = "which streams are meant can't be converted; its ports are not opened";
            return self.out.route_closed(route.at, format_args!("{place}.{key}"), why, "write it by hand");
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
            return self.out.route_closed(route.at, what, why, "");
        };
        let ports: HashSet<u64> =
            list(route, "destinations").filter_map(|to| to.get("port").and_then(Node::uint)).collect();
        if ports.is_empty() {
            self.out.not_converted_here(place, "a stream has to say its port under `destinations`");
        }
        for port in ports {
            let called = format!("{}-{port}", name(route));
            let id = self.out.id("proxy", &called);
            let mut proxy = draft!(Proxy { id: &id, listen_port: port });
            proxy.append(&mut common.clone());
            if passes {
                proxy.passthrough(true);
                proxy.hosts(some(texts(route, "snis")));
            } else if speaks.iter().any(|it| it == "tls") {
                proxy.frontend_tls(true);
            }
            if !sources.is_empty() {
                self.out.plugin(&id, "ip_restriction", draft!(IpRestriction { allow: &sources }).into());
            }
            let at = self.out.proxies.len();
            self.out.proxies.push(proxy.into());
            self.of_route.entry(name(route)).or_default().push(at);
            self.of_service.entry(service.to_owned()).or_default().push(at);
        }
        self.report_object(
            place,
            route,
            &[
                "sources",
                "destinations",
                "protocols",
                "service",
                "plugins",
                "strip_path",
                "preserve_host",
                "snis",
            ],
        );
        let proxies = self.of_route.get(&name(route)).cloned().unwrap_or_default();
        for plugin in list(route, "plugins") {
            self.later(Rank::Route, place, plugin, Some(&proxies));
        }
    }
}
