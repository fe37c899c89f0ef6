//! `stream`: ports of TCP and UDP.

use super::blocks::Directive;
use super::{Nginx, innermost};
use crate::draft::{IpRestriction, Proxy, draft};
use crate::text;

impl Nginx<'_> {
    pub(super) fn stream(&mut self, stream: &Directive) {
        self.resolver = stream.block.iter().find(|directive| directive.name == "resolver").cloned();
        for directive in stream.block.iter().filter(|directive| directive.name == "upstream") {
            self.upstream(directive);
        }
        for directive in &stream.block {
            match directive.name.as_str() {
                "upstream" => {}
                "map" => self.server_names(directive),
                "server" => self.stream_server(directive, stream),
                "allow"
                | "deny"
                | "proxy_timeout"
                | "proxy_connect_timeout"
                | "ssl_preread"
                | "proxy_protocol" => {}
                _ => self.directive_not_converted("stream", directive),
            }
        }
    }

    /// `map $ssl_preread_server_name $name { … }`.
    fn server_names(&mut self, map: &Directive) {
        match map.arguments.as_slice() {
            [source, name] if source == "$ssl_preread_server_name" => {
                let has_wildcards =
                    map.block.iter().any(|it| it.name == "hostnames" && it.arguments.is_empty());
                // Elsewhere a `*` is a letter as any other, which no name has.
                let is_name = |it: &&Directive| has_wildcards || !it.name.starts_with(['*', '.']);
                let entries = map.block.iter().filter(|it| it.name != "hostnames").filter(is_name);
                let cases =
                    entries.map(|it| (it.name.clone(), it.arguments.first().cloned().unwrap_or_default()));
                self.by_name.insert(name.clone(), cases.collect());
            }
            _ => self.directive_not_converted("stream", map),
        }
    }

    fn stream_server(&mut self, server: &Directive, stream: &Directive) {
        let place = "stream server";
        let levels = [stream, server];
        let mut settings = Proxy::default();
        let (mut listen, mut to, mut is_udp, mut is_tls, mut to_tls, mut preread) =
            (None, None, false, false, false, false);
        let mut is_closed = false;
        for directive in &server.block {
            let one = directive.arguments.first().cloned();
            let has = |flag: &str| directive.arguments.iter().any(|argument| argument == flag);
            match directive.name.as_str() {
                "listen" => {
                    listen = one.and_then(|address| {
                        address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok())
                    });
                    is_udp = has("udp");
                    is_tls = has("ssl");
                    if has("proxy_protocol") {
                        settings.accept_proxy_protocol(true);
                    }
                }
                "proxy_pass" => to = one,
                "proxy_ssl" => to_tls = one.as_deref() == Some("on"),
                "ssl_preread" => preread = one.as_deref() == Some("on"),
                "proxy_timeout" | "proxy_connect_timeout" | "proxy_protocol" | "allow" | "deny" => {}
                "ssl_certificate" | "ssl_certificate_key" => {}
                "proxy_ssl_verify" => settings.backend_tls_verify_server_cert(one.as_deref() == Some("on")),
                "proxy_ssl_name" => settings.backend_tls_server_name(one.unwrap_or_default()),
                "ssl_verify_client" | super::guard_names::UNREAD | "js_access" | "js_preread" => {
                    let why = "it guards, and can't be converted; the port is not opened";
                    is_closed |= self.out.guard_not_converted(
                        directive.at,
                        format_args!("{place}: {directive}"),
                        why,
                        "",
                    );
                }
                _ => self.directive_not_converted(place, directive),
            }
        }
        timeouts(&levels, is_udp, &mut settings);
        let Some((port, to)) = listen.zip(to) else {
            self.out.not_converted(server.at, place, "it has no port or no proxy_pass", "");
            return;
        };
        let Some(clients) = self.stream_clients(&levels) else { return };
        if is_closed {
            return;
        }
        let scheme = match (is_udp, to_tls) {
            (true, _) => "udp",
            (false, true) => "tcps",
            (false, false) => "tcp",
        };
        if is_tls {
            settings.frontend_tls(true);
        }
        self.out.converted(server.at, format_args!("{place}: port {port}"));
        match self.by_name.get(&to).cloned() {
            Some(cases) if preread => self.by_name(server, scheme, port, &cases, &settings, &clients),
            _ if to.contains('$') || to.starts_with("unix:") => {
                let why = "variables and sockets are not known; the port is not opened";
                self.out.not_converted(server.at, format_args!("{place}: proxy_pass {to}"), why, "");
            }
            _ => self.stream_proxy(scheme, port, &to, settings, &clients),
        }
    }

    /// A port whose targets go by the names that clients ask for.
    fn by_name(
        &mut self,
        server: &Directive,
        scheme: &str,
        port: u16,
        cases: &[(String, String)],
        settings: &Proxy,
        clients: &Option<IpRestriction>,
    ) {
        for (name, to) in cases {
            let mut settings = settings.clone();
            settings.passthrough(true);
            match name.as_str() {
                "default" => {}
                name if name.is_empty() || name.starts_with('~') || name.ends_with(".*") => {
                    let what = format!("stream server: {name}");
                    self.out.not_converted(server.at, what, "only names and `*.` are known", "");
                    continue;
                }
                // It stands for the name itself, too.
                name => match name.strip_prefix('.') {
                    Some(rest) => settings.hosts([rest.to_owned(), format!("*.{rest}")]),
                    None => settings.hosts([name]),
                },
            }
            self.stream_proxy(scheme, port, to, settings, clients);
        }
    }

    /// Settings of `ip_restriction` for a stream; `None` when the port may not be opened.
    fn stream_clients(&mut self, levels: &[&Directive]) -> Option<Option<IpRestriction>> {
        let is_rule = |it: &&Directive| matches!(it.name.as_str(), "allow" | "deny");
        let has = |level: &Directive, name: &str| level.all(name).next().is_some();
        let level = levels.iter().rev().find(|level| has(level, "allow") || has(level, "deny"));
        let Some(level) = level else { return Some(None) };
        let rules: Vec<(bool, &str)> = level
            .block
            .iter()
            .filter(is_rule)
            .map(|it| (it.name == "deny", it.arguments.first().map_or("", String::as_str)))
            .collect();
        let is_network = |rule: &(bool, &str)| text::is_network(rule.1);
        let list =
            |rules: &[(bool, &str)]| rules.iter().map(|(_, whom)| (*whom).to_owned()).collect::<Vec<_>>();
        match rules.split_last() {
            Some(((true, "all"), rest))
                if !rest.is_empty() && rest.iter().all(|rule| !rule.0 && is_network(rule)) =>
            {
                Some(Some(draft!(IpRestriction { allow: list(rest) })))
            }
            Some(((false, "all"), rest))
                if rest.iter().all(|rule| rule.0 && is_network(rule)) && !rest.is_empty() =>
            {
                Some(Some(draft!(IpRestriction { deny: list(rest) })))
            }
            Some(_) if rules.iter().all(|rule| rule.0 && is_network(rule)) => {
                Some(Some(draft!(IpRestriction { deny: list(&rules) })))
            }
            Some(((false, "all"), [])) => Some(None),
            _ => {
                let at = level.block.iter().find(is_rule).map(|it| it.at).unwrap_or_default();
                let why = "only one list of allowed or of denied addresses can be converted; the port is not opened";
                let is_closed = self.out.guard_not_converted(
                    at,
                    "stream server: allow and deny",
                    why,
                    "use the plugin `ip_restriction`",
                );
                if is_closed { None } else { Some(None) }
            }
        }
    }

    fn stream_proxy(
        &mut self,
        scheme: &str,
        port: u16,
        to: &str,
        mut settings: Proxy,
        clients: &Option<IpRestriction>,
    ) {
        let id = self.out.id("proxy", &format!("{scheme}-{port}"));
        let mut made = draft!(Proxy { id: &id, listen_port: port, backend_scheme: scheme });
        match self.upstreams.get(to) {
            Some(upstream) => made.upstream_id(upstream.id.clone()),
            None => {
                let (host, to_port) = text::host_port(to).unwrap_or_default();
                made.backend_host(host);
                made.backend_port(to_port.unwrap_or(port));
            }
        }
        made.append(&mut settings);
        self.out.proxies.push(made.into());
        if let Some(config) = clients {
            self.out.plugin(&id, "ip_restriction", config.clone().into());
        }
    }
}

/// How long steps may take, and whether targets are told of clients.
fn timeouts(levels: &[&Directive], is_udp: bool, settings: &mut Proxy) {
    let millis =
        |name: &str| innermost(levels, name)?.arguments.first().and_then(|time| text::millis(time, 1000));
    if let Some(millis) = millis("proxy_timeout") {
        let seconds = text::seconds(millis);
        match is_udp {
            true => settings.udp_idle_timeout(seconds.min(3600)),
            false => settings.tcp_idle_timeout(seconds.min(86_400)),
        }
    }
    if let Some(millis) = millis("proxy_connect_timeout") {
        settings.backend_connect_timeout(text::duration(millis.clamp(1, 86_400_000)));
    }
    if innermost(levels, "proxy_protocol").is_some_and(|it| it.arguments.first().is_some_and(|it| it == "on"))
    {
        settings.send_proxy_protocol(1);
    }
}
