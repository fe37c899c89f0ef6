//! Traefik's services: servers, how they are asked, shares of several.

use serde_json::Value;

use super::{Backend, Traefik};
use crate::draft::{ActiveCheck, Cookie, HealthChecks, Proxy, Sticky, Target, To, Upstream, draft};
use crate::text;
use crate::tree::{Node, NodeValue};

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
                self.out.not_converted(
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

    fn service(&mut self, name: &str, node: &Node) -> Option<Backend> {
        let what = format!("service {name}");
        let Some(balancer) = node.get("loadBalancer") else {
            return self.other_service(&what, node);
        };
        let mut settings = Proxy::default();
        settings.strip_listen_path(false);
        let (targets, is_tls) = self.targets(&what, balancer, &mut settings);
        if targets.is_empty() {
            self.out.not_converted(node.at, &what, "it has no servers; it answers 503", "");
            return None;
        }
        let passes_host = balancer.get("passHostHeader").and_then(Node::plain).as_deref() != Some("false");
        settings.preserve_host_header(passes_host);
        // The static file's is for all that name none.
        let transport = balancer.text_of("serversTransport").unwrap_or_default();
        self.transport(&what, transport, is_tls, &mut settings);
        let id = self.out.id("upstream", name);
        let mut made = draft!(Upstream { id: &id });
        made.targets(targets);
        made.algorithm("weighted_round_robin");
        if let Some(check) = balancer.get("healthCheck") {
            made.health_checks(draft!(HealthChecks { active: active(check) }));
        }
        if let Some(sticky) = sticky(balancer) {
            made.sticky(sticky);
        }
        self.out.upstreams.push(made.into());
        self.out.converted(node.at, what);
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }

    /// A service that is made of others.
    fn other_service(&mut self, what: &str, node: &Node) -> Option<Backend> {
        if let Some(weighted) = node.get("weighted") {
            return self.weighted(what, weighted);
        }
        let kind = node.entries().first().map_or("", |(kind, _)| kind.as_str());
        let paths = [["mirroring", "service"], ["failover", "service"]];
        let main = paths.iter().find_map(|path| node.path(path)).and_then(Node::str).map(str::to_owned);
        let why = format!("`{kind}` is not converted");
        self.out.not_converted(node.at, what, why, "see `request_mirror` and targets' `priority`");
        main.and_then(|main| self.backend(what, node, &main))
    }

    /// The servers of a balancer, and whether they are asked over TLS.
    fn targets(&mut self, what: &str, balancer: &Node, settings: &mut Proxy) -> (Vec<Target>, bool) {
        let (mut targets, mut is_tls) = (Vec::new(), false);
        for server in balancer.each("servers") {
            let Some(url) = server.text_of("url").and_then(text::url) else {
                self.out.not_converted(server.at, what, "a server has no URL", "");
                continue;
            };
            is_tls |= url.scheme == "https";
            if url.scheme == "h2c" {
                settings.backend_http_version("2");
            }
            let default = if url.scheme == "https" { 443 } else { 80 };
            let mut target = draft!(Target { host: url.host, port: url.port.unwrap_or(default) });
            if let Some(weight) = server.get("weight").and_then(Node::uint).filter(|it| *it > 0) {
                target.weight(weight);
            }
            if url.path.len() > 1 {
                let why = "a path in a server's URL is put before the request's";
                self.out.partial(server.at, what, why, "");
                target.path(url.path);
            }
            targets.push(target);
        }
        (targets, is_tls)
    }

    /// How servers are asked, where that is over TLS.
    fn transport(&mut self, what: &str, name: &str, is_tls: bool, settings: &mut Proxy) {
        let called = name.split('@').next().unwrap_or(name);
        let Some(transport) = self.transports.get(called).cloned() else { return };
        let skips = transport.get("insecureSkipVerify").and_then(Node::plain);
        let (name, roots) = (transport.text_of("serverName"), transport.texts("rootCAs"));
        if !is_tls {
            return;
        }
        if skips.as_deref() == Some("true") {
            settings.backend_tls_verify_server_cert(false);
        }
        if let Some(name) = name {
            settings.backend_tls_server_name(name);
        }
        if let Some(file) = roots.first() {
            settings.backend_tls_ca_path(file.clone());
        }
        if roots.len() > 1 {
            let why = "the first of the files is trusted";
            self.out.partial(transport.at, format_args!("{what}: rootCAs"), why, "write them into one file");
        }
    }

    /// Shares of several services, as one upstream with all their servers.
    fn weighted(&mut self, what: &str, weighted: &Node) -> Option<Backend> {
        let mut targets = Vec::new();
        let mut is_tls = false;
        let mut settings = Proxy::default();
        for part in weighted.each("services") {
            let weight = part.get("weight").and_then(Node::plain).and_then(|it| it.parse::<u64>().ok());
            let weight = weight.unwrap_or(1).min(1_000_000);
            let called = part.text_of("name").unwrap_or_default().to_owned();
            if weight == 0 {
                self.out.not_needed(part.at, format_args!("{what}: {called}"), "a weight of 0 is no traffic");
                continue;
            }
            let node = self.services.get(called.split('@').next().unwrap_or(&called)).cloned();
            let balancer = node.and_then(|it| it.get("loadBalancer").cloned());
            let mut own = Proxy::default();
            let (servers, own_tls) = match &balancer {
                Some(balancer) => self.targets(&format!("service {called}"), balancer, &mut own),
                None => (Vec::new(), false),
            };
            if servers.is_empty() {
                let why = "it has no servers that are known here; the others have its share";
                self.out.not_converted(part.at, format_args!("{what}: {called}"), why, "");
                continue;
            }
            if let Some(balancer) = &balancer {
                let transport = balancer.text_of("serversTransport").unwrap_or_default();
                self.transport(&format!("service {called}"), transport, own_tls, &mut own);
                if balancer.get("passHostHeader").and_then(Node::plain).as_deref() == Some("false") {
                    own.preserve_host_header(false);
                }
            }
            if targets.is_empty() {
                settings = own;
                is_tls = own_tls;
            } else if settings != own || is_tls != own_tls {
                let why = "it is asked in another way than the first one; the others have its share";
                let todo = "use the plugin `traffic_split`";
                self.out.not_converted(part.at, format_args!("{what}: {called}"), why, todo);
                continue;
            }
            let count = u64::try_from(servers.len()).unwrap_or(1).max(1);
            for mut server in servers {
                let own = server.get("weight").and_then(Value::as_u64).unwrap_or(1).min(1_000_000);
                let share = weight * 10 * own / count;
                server.weight(share.clamp(1, 65_535));
                targets.push(server);
            }
        }
        if targets.is_empty() {
            self.out.not_converted(weighted.at, what, "none of its services has servers; it answers 503", "");
            return None;
        }
        self.out.converted(weighted.at, what);
        let id = self.out.id("upstream", what);
        self.out
            .upstreams
            .push(draft!(Upstream { id: &id, targets, algorithm: "weighted_round_robin" }).into());
        settings.strip_listen_path(false);
        if !settings.contains_key("preserve_host_header") {
            settings.preserve_host_header(true);
        }
        Some(Backend { to: To::Upstream { id, is_tls }, settings })
    }
}

fn active(check: &Node) -> ActiveCheck {
    let mut active = draft!(ActiveCheck { http_path: check.text_of("path").unwrap_or("/") });
    let millis = |name: &str| check.get(name).and_then(Node::plain).and_then(|it| text::millis(&it, 1000));
    if let Some(millis) = millis("interval") {
        active.interval((millis / 1000).max(1));
    }
    if let Some(millis) = millis("timeout") {
        active.timeout(text::duration(millis.max(1)));
    }
    active
}

fn sticky(balancer: &Node) -> Option<Sticky> {
    let plain = || balancer.get("sticky").filter(|it| matches!(it.value, NodeValue::Map(_)));
    let cookie = balancer.path(&["sticky", "cookie"]).or_else(plain)?;
    let flag = |key: &str| cookie.get(key).and_then(Node::plain).as_deref() == Some("true");
    let config = draft!(Cookie { ttl: 0, http_only: flag("httpOnly"), secure: flag("secure") });
    Some(draft!(Sticky { cookie: cookie.text_of("name").unwrap_or("lb"), cookie_config: config }))
}
