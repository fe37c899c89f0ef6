//! What a location says about its target: timeouts, TLS, sizes, retries, the host.

use super::blocks::Directive;
use super::{Nginx, first, innermost, said};
use crate::draft::{ClientTimeouts, Proxy, Retry, draft};
use crate::text;

/// Directives that hold for every location below, unless it says otherwise.
pub(super) const NAMES: &[&str] = &[
    "proxy_connect_timeout",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "grpc_connect_timeout",
    "grpc_read_timeout",
    "grpc_send_timeout",
    "client_max_body_size",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_next_upstream_timeout",
    "proxy_ssl_verify",
    "proxy_ssl_server_name",
    "proxy_ssl_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
];

/// What nginx waits for a target where nothing is said, in milliseconds.
const TIMEOUT: u64 = 60_000;

impl Nginx<'_> {
    /// A timeout towards a target, in milliseconds.
    fn timeout(&mut self, place: &str, levels: &[&Directive], names: [&str; 2]) -> u64 {
        let Some(found) = names.iter().find_map(|name| innermost(levels, name)) else { return TIMEOUT };
        let read = found.arguments.first().and_then(|time| text::millis(time, 1000));
        if read.is_none() {
            self.directive_not_converted(place, found);
        }
        read.map_or(TIMEOUT, |millis| millis.min(86_400_000))
    }

    /// The settings of a proxy.
    pub(super) fn settings(&mut self, place: &str, levels: &[&Directive]) -> Proxy {
        let mut made = Proxy::default();
        let connect = self.timeout(place, levels, ["proxy_connect_timeout", "grpc_connect_timeout"]);
        made.backend_connect_timeout(text::duration(connect.max(1)));
        // One timeout covers both directions: the longer cuts nothing off that nginx would not.
        let read = self.timeout(place, levels, ["proxy_read_timeout", "grpc_read_timeout"]);
        let send = self.timeout(place, levels, ["proxy_send_timeout", "grpc_send_timeout"]);
        made.read_timeout(read);
        made.backend_idle_timeout(text::duration(read.max(send)));
        match innermost(levels, "client_max_body_size") {
            None => made.max_request_body(1 << 20),
            Some(found) => match found.arguments.first().and_then(|size| text::bytes(size, 1000)) {
                Some(bytes) => made.max_request_body(bytes),
                None => self.directive_not_converted(place, found),
            },
        }
        self.tls_to_target(levels, &mut made);
        self.retries(place, levels, &mut made);
        self.host(levels, &mut made);
        made
    }

    fn tls_to_target(&mut self, levels: &[&Directive], made: &mut Proxy) {
        if let Some(verify) = first(levels, "proxy_ssl_verify") {
            made.backend_tls_verify_server_cert(verify == "on");
        } else if let Some(pass) =
            levels.last().and_then(|level| level.block.iter().find(|it| it.name.ends_with("_pass")))
            && pass.arguments.first().is_some_and(|url| url.starts_with("https") || url.starts_with("grpcs"))
        {
            let why = "nginx checks no certificates by default; here they are checked";
            let todo = "set backend_tls_ca_path, or backend_tls_verify_server_cert: false";
            self.out.partial(pass.at, pass, why, todo);
        }
        made.backend_tls_server_name(self.fixed(levels, "proxy_ssl_name"));
        made.backend_tls_ca_path(self.fixed_path(levels, "proxy_ssl_trusted_certificate"));
        made.backend_tls_client_cert_path(self.fixed_path(levels, "proxy_ssl_certificate"));
        made.backend_tls_client_key_path(self.fixed_path(levels, "proxy_ssl_certificate_key"));
    }

    /// The value of a directive; `None`, and reported, where it has a variable.
    fn fixed(&mut self, levels: &[&Directive], name: &str) -> Option<String> {
        let found = innermost(levels, name)?;
        let value = found.arguments.first().filter(|value| !value.contains('$'));
        if value.is_none() && first(levels, name) != Some("$proxy_host") {
            self.directive_not_converted("", found);
        }
        value.cloned()
    }

    /// The same of a file, from the folder of the configuration.
    fn fixed_path(&mut self, levels: &[&Directive], name: &str) -> Option<String> {
        let value = self.fixed(levels, name)?;
        Some(self.folder.join(value).display().to_string())
    }

    /// `proxy_next_upstream`.
    fn retries(&mut self, place: &str, levels: &[&Directive], made: &mut Proxy) {
        let tries = first(levels, "proxy_next_upstream_tries").and_then(|tries| tries.parse::<u64>().ok());
        let mut retry = Retry::default();
        if let Some(tries) = tries.filter(|tries| *tries > 0) {
            retry.max_retries((tries - 1).min(100));
        }
        if let Some(next) = innermost(levels, "proxy_next_upstream") {
            let mut statuses = Vec::new();
            for word in &next.arguments {
                match word.as_str() {
                    "off" => {
                        retry.max_retries(0);
                        retry.retry_on_connect_failure(false);
                    }
                    "error" | "timeout" | "invalid_header" => {}
                    word => match word.strip_prefix("http_").and_then(|status| status.parse::<u16>().ok()) {
                        Some(status) => statuses.push(status),
                        None => {
                            let why = format!("`{word}`: the gateway does not support this");
                            self.out.partial(next.at, format_args!("{place}: {next}"), why, "");
                        }
                    },
                }
            }
            if !statuses.is_empty() {
                retry.retryable_status_codes(statuses);
            }
        }
        if !retry.is_empty() {
            made.retry(retry);
        }
    }

    /// `proxy_set_header Host`.
    fn host(&mut self, levels: &[&Directive], made: &mut Proxy) {
        let headers = said(levels, "proxy_set_header");
        let host = headers
            .iter()
            .find(|it| it.arguments.first().is_some_and(|name| name.eq_ignore_ascii_case("host")));
        let Some(host) = host else { return };
        if host.arguments.get(1).is_some_and(|value| self.vars_here.is_client_host(value)) {
            made.preserve_host_header(true);
            self.out.not_needed(host.at, host, "the client's Host is sent as it came, with its port");
            return;
        }
        match host.arguments.get(1).map_or("", String::as_str) {
            "$host" | "$http_host" | "$host:$server_port" | "$server_name" => {
                made.preserve_host_header(true);
                self.out.not_needed(host.at, host, "the client's Host is sent as it came, with its port");
            }
            // A plugin sets all others.
            _ => {}
        }
    }
}

/// Whether a value of `Host` is set by `preserve_host_header`, or is what is sent anyway.
pub(super) fn is_usual_host(value: &str) -> bool {
    matches!(value, "$host" | "$http_host" | "$host:$server_port" | "$server_name" | "$proxy_host")
}

/// The settings of the gateway as a whole that `http` makes.
pub(super) fn gateway(nginx: &mut Nginx<'_>, http: &Directive) {
    let levels = [http];
    let time = |directive| {
        let millis = first(&levels, directive).and_then(|time| text::millis(time, 1000))?;
        Some(text::duration(millis.min(86_400_000)))
    };
    let timeouts = draft!(ClientTimeouts {
        keep_alive: time("keepalive_timeout"),
        header: time("client_header_timeout"),
        body: time("client_body_timeout"),
    });
    if !timeouts.is_empty() {
        nginx.out.gateway.client_timeouts(timeouts);
    }
    let flag = |name: &str, value: &str| first(&levels, name) == Some(value);
    if flag("underscores_in_headers", "on") {
        nginx.out.gateway.underscores_in_headers("allow");
    }
    if flag("merge_slashes", "off") {
        nginx.out.gateway.merge_slashes(false);
    }
    real_ip(nginx, http);
    if nginx.out.gateway.get("merge_slashes").is_none() {
        // As nginx: paths are decoded for choosing a location, and passed on as they came.
        nginx.out.not_needed(
            http.at,
            "http",
            "paths with `%2F`, `\\` or double encoding are answered 400; see path_rules",
        );
    }
}

/// Whose word about the client's address is believed.
fn real_ip(nginx: &mut Nginx<'_>, http: &Directive) {
    let all = |name: &str| -> Vec<&Directive> {
        let own = http.block.iter().filter(|it| it.name == name);
        let inner = http.block.iter().filter(|it| it.name == "server").flat_map(|it| it.block.iter());
        own.chain(inner.filter(|it| it.name == name)).collect()
    };
    let from = all("set_real_ip_from");
    if from.is_empty() {
        return;
    }
    let header = all("real_ip_header");
    let header = header.first().and_then(|it| it.arguments.first()).map_or("X-Real-IP", String::as_str);
    let mut networks: Vec<&String> = from.iter().filter_map(|it| it.arguments.first()).collect();
    networks.dedup();
    let good = networks.iter().all(|network| text::is_network(network));
    if good {
        nginx.out.gateway.trusted_proxies(networks);
        if !header.eq_ignore_ascii_case("x-forwarded-for") && header != "proxy_protocol" {
            nginx.out.gateway.real_ip_header(header);
        }
        from.iter().for_each(|it| nginx.out.converted(it.at, it));
        return;
    }
    nginx.has_unknown_clients = true;
    if let Some(first) = from.first() {
        let why = "whose word about clients' addresses is believed can't be converted";
        let todo = "set gateway.trusted_proxies to the networks of the proxies in front";
        nginx.out.not_converted(first.at, first, why, todo);
    }
}
