//! `reverse_proxy`: targets, balancing, health checks, TLS and headers, from a Caddyfile and from JSON.

use super::headers::header_rule;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::draft::{
    ActiveCheck, Cookie, HeaderRule, HealthChecks, PassiveCheck, Plug, Proxy, RequestTransformer,
    ResponseTransformer, Retry, Rewrite, Sticky, Target, To, Upstream, draft, is_service,
};
use crate::report::At;
use crate::steps::RouteEnd;
use crate::text;

/// What a `reverse_proxy` says.
#[derive(Debug, Default)]
pub(super) struct Proxying {
    pub(super) to: Vec<String>,
    pub(super) policy: Vec<String>,
    pub(super) settings: Proxy,
    pub(super) active: ActiveCheck,
    pub(super) passive: PassiveCheck,
    pub(super) request: Vec<HeaderRule>,
    pub(super) response: Vec<HeaderRule>,
    pub(super) host: Option<String>,
    pub(super) is_tls: bool,
    pub(super) is_h2: bool,
    /// Where to is not known, or who may come in.
    pub(super) is_closed: bool,
}

/// What is looked up to find targets.
#[derive(Debug, Default)]
pub(super) struct DynamicUpstream {
    pub(super) service: String,
    pub(super) proto: String,
    pub(super) name: String,
    pub(super) port: String,
    pub(super) resolvers: Vec<String>,
}

impl DynamicUpstream {
    /// The target that stands for all of them, as `to` names targets.
    fn target(&self, source: &str) -> Option<String> {
        let Self { service, proto, name, port, .. } = self;
        match source {
            _ if name.is_empty() => None,
            "srv" if service.is_empty() && proto.is_empty() => Some(format!("srv:{name}")),
            "srv" if service.is_empty() || proto.is_empty() => None,
            "srv" => Some(format!("srv:_{service}._{proto}.{name}")),
            // Port 80, where none is given.
            "a" => Some(format!("{name}:{}", if port.is_empty() { "80" } else { port.as_str() })),
            _ => None,
        }
    }
}

impl Caddy<'_> {
    pub(super) fn proxy_line(&mut self, whole: &CaddyLine, line: &CaddyLine, proxy: &mut Proxying) {
        let what = format!("{}: {}", whole.text(), line.text());
        let first = line.arguments().first().map(String::as_str);
        match line.name() {
            "to" => proxy.to.extend(line.arguments().iter().cloned()),
            "lb_policy" => proxy.policy = line.arguments().to_vec(),
            "header_up" if first.is_some_and(|name| name.eq_ignore_ascii_case("host")) => {
                self.host_up(&what, line, proxy);
            }
            "header_up" | "header_down" => self.header_line(&what, line, proxy),
            "health_uri" | "health_path" | "health_interval" | "health_timeout" | "health_status"
            | "fail_duration" | "max_fails" => self.health_line(&what, line, proxy),
            "flush_interval" | "buffer_requests" | "buffer_responses" | "request_buffers"
            | "response_buffers" | "stream_timeout" | "stream_close_delay" | "max_buffer_size" => {
                self.out.not_needed(line.at, what, "bodies pass as they come")
            }
            "lb_retries" => {
                let most = first.and_then(|it| it.parse::<u32>().ok());
                proxy.settings.retry(most.map(|it| draft!(Retry { max_retries: it.min(100) })));
            }
            "lb_try_duration" | "lb_try_interval" => {
                let why = "another target is tried at once, each one time";
                self.out.partial(line.at, what, why, "see `retry`");
            }
            "transport" => self.transport(whole, line, proxy),
            "trusted_proxies" => {
                let why = "it is set for the gateway as a whole";
                self.out.not_converted(line.at, what, why, "set gateway.trusted_proxies");
            }
            "dynamic" => self.dynamic_line(&what, line, proxy),
            name @ ("method" | "rewrite" | "handle_response") => {
                let why = format!("what `{name}` changes can't be converted");
                proxy.is_closed |= self.out.guard_not_converted(line.at, what, why, "");
            }
            name if name.starts_with('@') => {
                proxy.is_closed |=
                    self.out.guard_not_converted(line.at, what, "what it changes can't be converted", "");
            }
            _ => self.out.not_converted(line.at, what, "the gateway does not support this", ""),
        }
    }

    /// `dynamic srv …` and `dynamic a …`: targets that are found by DNS.
    fn dynamic_line(&mut self, what: &str, line: &CaddyLine, proxy: &mut Proxying) {
        let mut found = DynamicUpstream::default();
        let words = line.arguments();
        let source = words.first().map_or("", String::as_str);
        match (source, words.get(1..).unwrap_or_default()) {
            (_, []) => {}
            ("srv", [name]) => found.name.clone_from(name),
            ("a", [name, port]) => (found.name, found.port) = (name.clone(), port.clone()),
            _ => found.name = "{".to_owned(),
        }
        for inner in line.inner() {
            let first = inner.arguments().first().cloned().unwrap_or_default();
            match inner.name() {
                "service" => found.service = first,
                "proto" => found.proto = first,
                "name" => found.name = first,
                "port" => found.port = first,
                "resolvers" => found.resolvers = inner.arguments().to_vec(),
                "refresh" | "grace_period" | "dial_timeout" | "dial_fallback_delay" | "versions" => {
                    let why = "records are kept for their time to live";
                    self.out.not_needed(inner.at, format_args!("{what}: {}", inner.text()), why);
                }
                _ => self.out.not_converted(
                    inner.at,
                    format_args!("{what}: {}", inner.text()),
                    "it is not known",
                    "",
                ),
            }
        }
        self.found(line.at, what, source, &found, proxy);
    }

    /// Targets that are found by DNS.
    pub(super) fn found(
        &mut self,
        at: At,
        what: &str,
        source: &str,
        found: &DynamicUpstream,
        proxy: &mut Proxying,
    ) {
        if source == "srv" && !found.resolvers.is_empty() {
            self.out.name_servers(found.resolvers.iter().map(String::as_str));
            self.out.partial(at, what, "the gateway looks up all names there", "see gateway.dns_servers");
        }
        let target = found.target(source);
        match target.filter(|target| !target.contains('{')) {
            Some(target) => {
                if source == "a" {
                    self.out.partial(at, what, "all addresses of the name are one target here", "");
                }
                proxy.to.push(target);
            }
            None => {
                let why = "its targets are not known beforehand";
                proxy.is_closed |= self.out.guard_not_converted(
                    at,
                    what,
                    why,
                    "name them, or a service: `srv:_http._tcp.NAME`",
                );
            }
        }
    }

    /// `header_up Host …`.
    fn host_up(&mut self, what: &str, line: &CaddyLine, proxy: &mut Proxying) {
        match line.arguments().get(1).map(String::as_str) {
            Some("{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}") => {}
            Some("{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}") => {
                proxy.host = Some(String::new());
            }
            Some(host) => match matchers::template(host) {
                Some(host) => proxy.host = Some(host),
                None => self.out.not_converted(line.at, what, "a placeholder in it has no counterpart", ""),
            },
            None => self.out.not_converted(line.at, what, "Host can't be removed", ""),
        }
    }

    fn header_line(&mut self, what: &str, line: &CaddyLine, proxy: &mut Proxying) {
        let is_up = line.name() == "header_up";
        let words: Vec<&str> = line.arguments().iter().map(String::as_str).collect();
        // What Caddy sets by itself as well.
        const OWN: [(&str, &[&str]); 3] = [
            ("x-forwarded-for", &["{remote_host}", "{http.request.remote.host}", "{remote}"]),
            ("x-forwarded-proto", &["{scheme}", "{http.request.scheme}"]),
            ("x-forwarded-host", &["{hostport}", "{http.request.hostport}"]),
        ];
        let is_own = |(own, values): &(&str, &[&str])| {
            let value = words.get(1).is_some_and(|value| values.contains(value));
            words.first().is_some_and(|name| name.eq_ignore_ascii_case(own)) && value
        };
        let own = OWN.iter().any(is_own);
        match header_rule(&words, is_up) {
            _ if own && is_up => self.out.not_needed(line.at, what, "the gateway sets it by itself"),
            Some(Some(rule)) if is_up => proxy.request.push(rule),
            Some(Some(rule)) => proxy.response.push(rule),
            Some(None) => {}
            None if is_up && words.len() == 2 => {
                // What a client sends under this name does not pass for what Caddy would have said.
                proxy.request.push(draft!(HeaderRule {
                    operation: "remove",
                    target: "header",
                    key: words[0]
                }));
                let why = "a placeholder in it has no counterpart; the field is removed";
                self.out.not_converted(line.at, what, why, "");
            }
            None => {
                self.out.not_converted(line.at, what, "it has no counterpart", "use `request_transformer`")
            }
        }
    }

    /// Active and passive health checks.
    fn health_line(&mut self, what: &str, line: &CaddyLine, proxy: &mut Proxying) {
        let first = line.arguments().first().map(String::as_str);
        let millis = first.and_then(|time| text::millis(time, 1_000));
        match line.name() {
            "health_uri" | "health_path" => proxy.active.http_path(first.unwrap_or("/")),
            "health_interval" => proxy.active.interval(millis.map(text::seconds)),
            "health_timeout" => proxy.active.timeout(millis.map(|it| text::duration(it.max(1)))),
            "health_status" => match first.and_then(|status| status.parse::<u16>().ok()) {
                Some(status) if status >= 100 => proxy.active.healthy_status_codes([status]),
                _ => self.out.not_converted(line.at, what, "only one status is known here", ""),
            },
            "fail_duration" => {
                proxy.passive.unhealthy_window(millis.map(text::seconds));
                proxy.passive.healthy_after(millis.map(text::seconds));
            }
            _ => {
                let most = first.and_then(|it| it.parse::<u32>().ok());
                proxy.passive.unhealthy_threshold(most);
            }
        }
    }

    fn transport(&mut self, whole: &CaddyLine, line: &CaddyLine, proxy: &mut Proxying) {
        if line.arguments().first().map(String::as_str) != Some("http") {
            self.out.not_converted(
                line.at,
                format_args!("{}: {}", whole.text(), line.text()),
                "only HTTP is spoken to targets; it answers 503",
                "",
            );
            proxy.is_closed = true;
            return;
        }
        for inner in line.inner() {
            let first = inner.arguments().first().map(String::as_str);
            let millis = first.and_then(|time| text::millis(time, 1_000));
            match inner.name() {
                "tls" => proxy.is_tls = true,
                "tls_insecure_skip_verify" => {
                    proxy.is_tls = true;
                    proxy.settings.backend_tls_verify_server_cert(false);
                }
                "tls_server_name" => proxy.settings.backend_tls_server_name(first.unwrap_or_default()),
                "tls_trusted_ca_certs" => proxy.settings.backend_tls_ca_path(first.unwrap_or_default()),
                "tls_client_auth" => {
                    if let [certificate, key] = inner.arguments() {
                        proxy.settings.backend_tls_client_cert_path(certificate.clone());
                        proxy.settings.backend_tls_client_key_path(key.clone());
                    }
                }
                "dial_timeout" => {
                    proxy.settings.backend_connect_timeout(millis.map(|it| text::duration(it.max(1))))
                }
                "response_header_timeout" => {
                    proxy.settings.backend_first_byte_timeout(millis.map(text::duration))
                }
                "read_timeout" | "write_timeout" => {
                    proxy.settings.backend_idle_timeout(millis.map(text::duration))
                }
                "versions" if inner.arguments().iter().any(|it| it == "h2c") => proxy.is_h2 = true,
                "versions"
                | "keepalive"
                | "keepalive_idle_conns"
                | "keepalive_idle_conns_per_host"
                | "compression"
                | "max_conns_per_host"
                | "read_buffer"
                | "write_buffer"
                | "dial_fallback_delay"
                | "keepalive_interval" => {
                    self.out.not_needed(
                        inner.at,
                        format_args!("{}: {}", whole.text(), inner.text()),
                        "connections are pooled anyway",
                    );
                }
                _ => self.out.not_converted(
                    inner.at,
                    format_args!("{}: {}", whole.text(), inner.text()),
                    "the gateway does not support this",
                    "",
                ),
            }
        }
    }

    /// The end of a way that passes to targets.
    pub(super) fn proxied(&mut self, at: At, what: &str, proxy: Proxying) -> RouteEnd {
        let targets: Option<Vec<_>> = proxy.to.iter().map(|target| dialed(target)).collect();
        let Some(targets) = targets.filter(|targets| !targets.is_empty() && !proxy.is_closed) else {
            if !proxy.is_closed {
                let why = "its targets are not known beforehand; it answers 503";
                self.out.not_converted(at, what, why, "name them");
            }
            return RouteEnd::new(at, To::Closed);
        };
        let is_tls = proxy.is_tls || targets.iter().any(|it| it.2);
        let is_h2 = proxy.is_h2 || targets.iter().any(|it| it.3);
        let mut settings = draft!(Proxy {
            strip_listen_path: false,
            backend_connect_timeout: "3s",
            backend_first_byte_timeout: 0,
        });
        let mut plugins = Vec::new();
        match proxy.host.as_deref() {
            None => settings.preserve_host_header(true),
            Some("") => {}
            Some(host) => plugins.push(Plug::of(draft!(Rewrite { host }))),
        }
        if is_h2 {
            settings.backend_http_version("2");
        }
        settings.extend(proxy.settings);
        if !proxy.request.is_empty() {
            plugins.push(Plug::of(draft!(RequestTransformer { rules: proxy.request })));
        }
        if !proxy.response.is_empty() {
            let config = draft!(ResponseTransformer { of: "target", rules: proxy.response });
            plugins.push(Plug::of(config));
        }
        let is_single = targets.len() == 1
            && proxy.active.is_empty()
            && proxy.passive.is_empty()
            && proxy.policy.is_empty()
            // A service's servers are several.
            && !targets.iter().any(|(host, ..)| is_service(host));
        let to = match targets.first() {
            Some((host, port, ..)) if is_single => To::Host { host: host.clone(), port: *port, is_tls },
            _ => {
                let mut list: Vec<Target> =
                    targets.iter().map(|(host, port, ..)| Target::new(host, *port)).collect();
                let name = targets.first().map_or("targets", |(host, ..)| host.trim_start_matches("srv:"));
                let id = self.out.id("upstream", name);
                let choice = self.balancing(at, what, &proxy.policy, &mut list);
                let mut made = draft!(Upstream { id: &id, targets: list });
                made.extend(choice);
                let mut checks = HealthChecks::default();
                if !proxy.active.is_empty() {
                    checks.active(proxy.active);
                }
                if !proxy.passive.is_empty() {
                    let mut passive = proxy.passive;
                    passive.unhealthy_status_codes(Vec::<u16>::new());
                    if !passive.contains_key("unhealthy_threshold") {
                        passive.unhealthy_threshold(1);
                    }
                    checks.passive(passive);
                }
                if !checks.is_empty() {
                    made.health_checks(checks);
                }
                self.out.upstreams.push(made.into());
                To::Upstream { id, is_tls }
            }
        };
        self.out.converted(at, what);
        RouteEnd { settings, plugins, ..RouteEnd::new(at, to) }
    }

    /// How one of the targets is chosen, whose weights or priorities this sets.
    fn balancing(&mut self, at: At, what: &str, policy: &[String], targets: &mut [Target]) -> Upstream {
        let mut made = Upstream::default();
        let (name, argument) = (policy.first().map(String::as_str), policy.get(1).map(String::as_str));
        let algorithm = match name {
            None | Some("random") => "random",
            Some("round_robin") => "round_robin",
            Some("weighted_round_robin") => {
                for (target, weight) in targets.iter_mut().zip(policy.iter().skip(1)) {
                    if let Ok(weight) = weight.parse::<u16>() {
                        target.weight(weight.max(1));
                    }
                }
                "weighted_round_robin"
            }
            Some("least_conn") => "least_connections",
            Some("random_choose") => "power_of_two",
            Some("ip_hash" | "client_ip_hash") => "consistent_hashing",
            Some("header") if argument.is_some() => {
                made.hash_on(format!("header:{}", argument.unwrap_or_default().to_ascii_lowercase()));
                "consistent_hashing"
            }
            Some("cookie") => {
                made.sticky(draft!(Sticky {
                    cookie: argument.unwrap_or("lb"),
                    cookie_config: draft!(Cookie { ttl: 0 })
                }));
                "random"
            }
            Some("first") => {
                for (n, target) in targets.iter_mut().enumerate() {
                    target.priority(n.min(15));
                }
                "round_robin"
            }
            Some(other) => {
                self.out.partial(
                    at,
                    what,
                    format_args!("the policy `{other}` is not known: targets are taken in turn"),
                    "",
                );
                "round_robin"
            }
        };
        made.algorithm(algorithm);
        made
    }
}

/// Host, port and kind of a target: TLS, and HTTP/2 in plain. A socket has no port. `None` for placeholders.
pub(super) fn dialed(target: &str) -> Option<(String, u16, bool, bool)> {
    if target.contains('{') || target.starts_with("srv+") {
        return None;
    }
    if is_service(target) {
        return Some((target.to_owned(), 0, false, false));
    }
    for (start, is_h2) in [("unix/", false), ("unix+h2c/", true)] {
        if let Some(path) = target.strip_prefix(start).filter(|path| path.starts_with('/')) {
            return Some((format!("unix:{path}"), 0, false, is_h2));
        }
    }
    let (scheme, rest) = target.split_once("://").map_or(("", target), |(scheme, rest)| (scheme, rest));
    let (is_tls, is_h2) = match scheme {
        "" | "http" => (false, false),
        "https" => (true, false),
        "h2c" => (false, true),
        _ => return None,
    };
    let rest = rest.strip_prefix("tcp/").unwrap_or(rest);
    let (host, port) = match rest.strip_prefix(':') {
        Some(port) => ("127.0.0.1".to_owned(), Some(port.parse().ok()?)),
        None => text::host_port(rest)?,
    };
    let usual = if is_tls { 443 } else { 80 };
    (!host.is_empty() && !host.contains('/')).then(|| (host, port.unwrap_or(usual), is_tls, is_h2))
}
