//! Traefik's services: servers, how they are asked, shares of several.

use serde_json::{Map, Value, json};

use super::{Backend, Traefik};
use crate::draft::{To, set};
use crate::text;
use crate::tree::{Kind, Node};

impl Traefik<'_> {
    /// Where a service's requests go; `None` when it is not known.
    pub(super) fn backend(&mut self, what: &str, router: &Node, service: &str) -> Option<Backend> {
        let called = service.split('@').next().unwrap_or(service).to_owned();
        if let Some(known) = self.made.get(&called) {
            return known.clone();
        }
        let made = match self.services.get(&called).cloned() {
            Some(node) => self.service(&called, &node),
            None => {
                self.out.lost(
                    router.at,
                    what,
                    format_args!("there is no service `{service}` in the files; it answers 503"),
                    "give the file it is in",
                );
                None
            }
        };
        self.made.insert(called, made.clone());
        made
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn service(&mut self, name: &str, node: &Node) -> Option<Backend> {
        let what = format!("service {name}");
        let Some(balancer) = node.get("loadBalancer") else {
            if let Some(weighted) = node.get("weighted") {
                return self.weighted(&what, weighted);
            }
            let kind = node.entries().first().map_or("", |(kind, _)| kind.as_str());
            let main = node
                .path(&["mirroring", "service"])
                .or_else(|| node.path(&["failover", "service"]))
                .and_then(Node::str);
            self.out.lost(
                node.at,
                &what,
                format_args!("`{kind}` is not translated"),
                "see `request_mirror` and targets' `priority`",
            );
            return main.map(str::to_owned).and_then(|main| self.backend(&what, node, &main));
        };
        let mut targets = Vec::new();
        let mut is_tls = false;
        let mut settings = Map::new();
        set(&mut settings, "strip_listen_path", false);
        for server in balancer.each("servers") {
            let Some(url) = server.text_of("url").and_then(text::url) else {
                self.out.lost(server.at, &what, "a server has no URL", "");
                continue;
            };
            is_tls |= url.scheme == "https";
            if url.scheme == "h2c" {
                set(&mut settings, "backend_http_version", "2");
            }
            let mut target = json!({ "host": url.host, "port": url.port.unwrap_or(if url.scheme == "https" { 443 } else { 80 }) });
            if let Some(weight) = server.get("weight").and_then(Node::uint).filter(|it| *it > 0) {
                target["weight"] = json!(weight);
            }
            if url.path.len() > 1 {
                self.out.partial(
                    server.at,
                    &what,
                    "a path in a server's URL is put before the request's",
                    "",
                );
                target["path"] = json!(url.path);
            }
            targets.push(target);
        }
        if targets.is_empty() {
            self.out.lost(node.at, &what, "it has no servers; it answers 503", "");
            return None;
        }
        let passes_host = balancer.get("passHostHeader").and_then(Node::plain).as_deref() != Some("false");
        set(&mut settings, "preserve_host_header", passes_host);
        if let Some(transport) = balancer.text_of("serversTransport") {
            let transport = self
                .transports
                .get(transport.split('@').next().unwrap_or(transport))
                .cloned()
                .unwrap_or_default();
            if transport.get("insecureSkipVerify").and_then(Node::bool) == Some(true) {
                set(&mut settings, "backend_tls_verify_server_cert", false);
            }
            if let Some(name) = transport.text_of("serverName") {
                set(&mut settings, "backend_tls_server_name", name);
            }
            if let Some(file) = transport.texts("rootCAs").first() {
                set(&mut settings, "backend_tls_server_ca_cert_path", file.clone());
            }
        }
        let mut made = Map::new();
        set(&mut made, "targets", json!(targets));
        set(&mut made, "algorithm", "weighted_round_robin");
        if let Some(check) = balancer.get("healthCheck") {
            let mut active = json!({ "http_path": check.text_of("path").unwrap_or("/") });
            for (theirs, ours, per) in [("interval", "interval_seconds", 1000), ("timeout", "timeout_ms", 1)]
            {
                if let Some(millis) =
                    check.get(theirs).and_then(Node::plain).and_then(|it| text::millis(&it, 1000))
                {
                    active[ours] = json!((millis / per).max(1));
                }
            }
            set(&mut made, "health_checks", json!({ "active": active }));
        }
        if let Some(cookie) = balancer
            .path(&["sticky", "cookie"])
            .or_else(|| balancer.get("sticky").filter(|it| matches!(it.value, Kind::Map(_))))
        {
            let name = cookie.text_of("name").unwrap_or("lb");
            let flag = |key: &str| cookie.get(key).and_then(Node::plain).as_deref() == Some("true");
            set(
                &mut made,
                "sticky",
                json!({ "cookie": name, "cookie_config": {
                "ttl_seconds": 0, "http_only": flag("httpOnly"), "secure": flag("secure"),
            } }),
            );
        }
        let id = self.out.id("upstream", name);
        let mut whole = Map::from_iter([("id".to_owned(), json!(id))]);
        whole.extend(made);
        self.out.upstreams.push(Value::Object(whole));
        self.out.done(node.at, what);
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }

    /// Shares of several services, as one upstream with all their servers.
    fn weighted(&mut self, what: &str, weighted: &Node) -> Option<Backend> {
        let mut targets = Vec::new();
        let mut is_tls = false;
        for part in weighted.each("services") {
            let weight = part.get("weight").and_then(Node::uint).unwrap_or(1);
            let node = part
                .text_of("name")
                .and_then(|name| self.services.get(name.split('@').next().unwrap_or(name)))
                .cloned();
            let servers: Vec<Node> = node
                .and_then(|it| it.path(&["loadBalancer", "servers"]).cloned())
                .map_or_else(Vec::new, |it| it.items().to_vec());
            let count = u64::try_from(servers.len()).unwrap_or(1).max(1);
            for url in servers.iter().filter_map(|server| server.text_of("url").and_then(text::url)) {
                is_tls |= url.scheme == "https";
                let share = (weight.saturating_mul(10) / count).clamp(1, 65_535);
                targets.push(json!({ "host": url.host, "port": url.port.unwrap_or(if url.scheme == "https" { 443 } else { 80 }), "weight": share }));
            }
        }
        if targets.is_empty() {
            self.out.lost(weighted.at, what, "none of its services has servers; it answers 503", "");
            return None;
        }
        self.out.done(weighted.at, what);
        let id = self.out.id("upstream", what);
        self.out.upstreams.push(json!({ "id": id, "targets": targets, "algorithm": "weighted_round_robin" }));
        let settings = Map::from_iter([
            ("strip_listen_path".to_owned(), json!(false)),
            ("preserve_host_header".to_owned(), json!(true)),
        ]);
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }
}
