//! nginx.conf: `http` with servers, locations and upstreams, and `stream`.
//!
//! Each location with a `proxy_pass` or a `return` becomes a proxy for the server's names.

mod blocks;
mod dump;
mod guards;
mod location;
mod plugins;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{Translation, set};
use blocks::Directive;
pub use blocks::NotNginx;

/// Directives that need no counterpart: the gateway does so anyway, or they are about the process.
const SILENT: &[&str] = &[
    "worker_processes",
    "worker_connections",
    "worker_rlimit_nofile",
    "worker_cpu_affinity",
    "events",
    "user",
    "pid",
    "sendfile",
    "tcp_nopush",
    "tcp_nodelay",
    "types",
    "types_hash_max_size",
    "use",
    "multi_accept",
    "proxy_http_version",
    "proxy_buffers",
    "proxy_buffer_size",
    "server_names_hash_bucket_size",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_prefer_server_ciphers",
    "http2",
    "reset_timedout_connection",
    "keepalive",
    "zone",
];

/// The translation.
///
/// # Errors
/// When the text is not made of nginx's blocks and directives.
pub fn translate(text: &str, open: bool) -> Result<Translation, NotNginx> {
    let mut nginx = Nginx::default();
    nginx.out.open = open;
    let directives = dump::read(text)?;
    // A file of `sites-enabled` is a piece of the `http` block.
    let (fragment, main): (Vec<_>, Vec<_>) = directives
        .into_iter()
        .partition(|directive| matches!(directive.name.as_str(), "server" | "upstream" | "map" | "geo"));
    for directive in &main {
        match directive.name.as_str() {
            "http" => nginx.http(directive),
            "stream" => nginx.stream(directive),
            "location" => return Err(NotNginx::new(directive.line, "a location needs its server around it")),
            _ => nginx.unknown("main", directive),
        }
    }
    if !fragment.is_empty() {
        nginx.http(&Directive { name: "http".to_owned(), block: fragment, ..Directive::default() });
    }
    if nginx.out.proxies.is_empty() && nginx.out.missing.is_empty() && nginx.out.closed.is_empty() {
        return Err(NotNginx::new(1, "there is no server in it"));
    }
    Ok(nginx.out)
}

/// A translation under way.
#[derive(Default)]
struct Nginx {
    out: Translation,
    /// Upstreams by their names.
    upstreams: HashMap<String, String>,
    certificates: Vec<Value>,
    zones: plugins::Zones,
    /// What the servers of `http` listen to.
    kinds: Vec<Kind>,
}

impl Nginx {
    /// Notes a directive that was not translated.
    fn unknown(&mut self, place: &str, directive: &Directive) {
        let name = directive.name.as_str();
        if SILENT.contains(&name) {
            return;
        }
        let why = match name {
            "include" => "includes are not followed; translate what `nginx -T` prints",
            _ => "there is nothing like it here",
        };
        self.out.miss(format_args!("line {}, {place}: {directive}", directive.line), why);
    }

    fn http(&mut self, http: &Directive) {
        for directive in http.block.iter().filter(|directive| directive.name == "upstream") {
            self.upstream(directive);
        }
        let servers: Vec<&Directive> = http.block.iter().filter(|d| d.name == "server").collect();
        self.kinds = servers.iter().map(|server| kind(server)).collect();
        for directive in &http.block {
            match directive.name.as_str() {
                "upstream" => {}
                "limit_req_zone" | "limit_conn_zone" => match plugins::zone(directive) {
                    Some((name, zone)) => drop(self.zones.insert(name, zone)),
                    None => self.unknown("http", directive),
                },
                "server" => self.server(directive, http),
                name if is_inherited(name) => {}
                _ => self.unknown("http", directive),
            }
        }
        if !self.certificates.is_empty() {
            let certificates = std::mem::take(&mut self.certificates);
            set(&mut self.out.gateway, "tls", json!({ "certificates": certificates }));
        }
    }

    fn upstream(&mut self, upstream: &Directive) {
        let Some(called) = upstream.arguments.first() else { return };
        let place = format!("upstream {called}");
        let id = self.out.id("upstream", called);
        let mut made = Map::from_iter([("id".to_owned(), json!(id))]);
        self.failures(&place, upstream, &mut made);
        let (mut targets, mut algorithm) = (Vec::new(), "weighted_round_robin");
        for directive in &upstream.block {
            match directive.name.as_str() {
                "server" => targets.extend(self.target(&place, directive)),
                "least_conn" => algorithm = "least_connections",
                "random" => algorithm = "random",
                "ip_hash" => algorithm = "consistent_hashing",
                "hash" => {
                    algorithm = "consistent_hashing";
                    match directive.arguments.first().map(String::as_str) {
                        Some("$remote_addr" | "$binary_remote_addr") => {}
                        Some(key) if key.starts_with("$http_") => {
                            let header = key.trim_start_matches("$http_").replace('_', "-");
                            set(&mut made, "hash_on", format!("header:{header}"));
                        }
                        Some(key) if key.starts_with("$cookie_") => {
                            let cookie = key.trim_start_matches("$cookie_");
                            set(&mut made, "hash_on", format!("cookie:{cookie}"));
                        }
                        _ => self.unknown(&place, directive),
                    }
                }
                "sticky" => match sticky(directive) {
                    Some(cookie) => set(&mut made, "sticky", cookie),
                    None => self.unknown(&place, directive),
                },
                _ => self.unknown(&place, directive),
            }
        }
        if targets.is_empty() {
            self.out.miss(place, "it has no servers that could be translated");
            return;
        }
        set(&mut made, "targets", targets);
        set(&mut made, "algorithm", algorithm);
        self.upstreams.insert(called.clone(), id);
        self.out.upstreams.push(Value::Object(made));
    }

    fn target(&mut self, place: &str, server: &Directive) -> Option<Value> {
        let address = server.arguments.first()?;
        if address.starts_with("unix:") {
            self.unknown(place, server);
            return None;
        }
        let (host, port) = host_port(address, 80);
        let mut made = Map::from_iter([("host".to_owned(), json!(host)), ("port".to_owned(), json!(port))]);
        for argument in server.arguments.iter().skip(1) {
            match argument.split_once('=') {
                Some(("weight", weight)) if weight.parse::<u16>().is_ok() => {
                    set(&mut made, "weight", weight.parse::<u16>().unwrap_or(1));
                }
                Some(("max_conns", most)) if most.parse::<u32>().is_ok() => {
                    let most = most.parse::<u32>().unwrap_or(0);
                    if most > 0 {
                        set(&mut made, "max_requests", most);
                    }
                }
                Some(("max_fails" | "fail_timeout" | "slow_start", _)) => {}
                _ if argument == "backup" => set(&mut made, "priority", 1),
                _ if argument == "down" => {
                    self.out.miss(
                        format_args!("line {}, {place}", server.line),
                        format_args!("{address} is down, and left out"),
                    );
                    return None;
                }
                _ => self.out.miss(
                    format_args!("line {}, {place}, server {address}", server.line),
                    format_args!("`{argument}`: there is nothing like it here"),
                ),
            }
        }
        Some(Value::Object(made))
    }

    /// `max_fails`, `fail_timeout` and `slow_start`, which hold for the whole upstream here.
    fn failures(&mut self, place: &str, upstream: &Directive, made: &mut Map<String, Value>) {
        let servers = || upstream.block.iter().filter(|directive| directive.name == "server");
        let mut one = |name: &str| {
            let of = |server: &Directive| {
                let value = server.arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
                value.map(str::to_owned)
            };
            let values: Vec<_> = servers().map(of).collect();
            if values.iter().any(|value| *value != values[0]) {
                self.out.miss(
                    place,
                    format_args!("`{name}` holds for all its servers here: the strictest is taken"),
                );
            }
            // As numbers: `10` is more than `9`.
            let number = |value: &String| location::millis(value).unwrap_or(u64::MAX);
            values.into_iter().flatten().min_by_key(number)
        };
        let (fails, timeout, slow) = (one("max_fails"), one("fail_timeout"), one("slow_start"));
        let millis = |text: Option<String>| text.and_then(|text| location::millis(&text));
        if fails.is_some() || timeout.is_some() {
            let seconds = millis(timeout).map_or(10, |millis| (millis / 1000).max(1));
            let fails = fails.and_then(|fails| fails.parse::<u64>().ok()).unwrap_or(1);
            let passive = json!({
                "unhealthy_threshold": fails, "unhealthy_status_codes": [],
                "unhealthy_window_seconds": seconds, "healthy_after_seconds": seconds,
            });
            set(made, "health_checks", json!({ "passive": passive }));
        }
        if let Some(millis) = millis(slow).filter(|millis| *millis > 0) {
            set(made, "slow_start_seconds", (millis / 1000).max(1));
        }
    }

    fn server(&mut self, server: &Directive, http: &Directive) {
        let names: Vec<String> = server
            .block
            .iter()
            .filter(|directive| directive.name == "server_name")
            .flat_map(|directive| directive.arguments.clone())
            .collect();
        let hosts = self.hosts(server, &names);
        let called = hosts.first().cloned().unwrap_or_else(|| "server".to_owned());
        let place = format!("server {called}");
        let (mut certificate, mut key) = (None, None);
        for directive in &server.block {
            let first = directive.arguments.first().cloned();
            match directive.name.as_str() {
                "server_name" | "location" => {}
                "listen" => self.listen(&place, directive),
                "ssl_certificate" => certificate = first,
                "ssl_certificate_key" => key = first,
                "ssl_protocols" => {}
                "return" | "proxy_pass" => {}
                name if is_inherited(name) => {}
                _ => self.unknown(&place, directive),
            }
        }
        if let (Some(cert_path), Some(key_path)) = (certificate, key) {
            let pair = json!({ "cert_path": cert_path, "key_path": key_path });
            if !self.certificates.contains(&pair) {
                self.certificates.push(pair);
            }
        }
        let own = kind(server);
        let differs = |other: &Kind| {
            other.is_tls != own.is_tls && other.names.iter().any(|name| own.names.contains(name))
        };
        // A name that one server answers in plain and another one over TLS.
        let scheme = own.is_tls.filter(|_| self.kinds.iter().any(differs));
        let context = location::Context {
            hosts: &hosts,
            called: &called,
            place: &place,
            outer: vec![http, server],
            scheme: scheme.map(|is_tls| if is_tls { "https" } else { "http" }),
            order: location::Order::of(server),
            parent: None,
        };
        for directive in server.block.iter().filter(|directive| directive.name == "location") {
            self.location(directive, &context);
        }
        // What a server says for itself holds for whatever no location takes.
        let answers =
            server.block.iter().any(|directive| matches!(directive.name.as_str(), "return" | "proxy_pass"));
        if answers {
            let rest = Directive { arguments: vec!["/".to_owned()], ..server.clone() };
            self.location(&rest, &context);
        }
    }

    fn hosts(&mut self, server: &Directive, names: &[String]) -> Vec<String> {
        let mut hosts = Vec::new();
        for name in names {
            match name.as_str() {
                "_" | "" | "localhost" if names.len() == 1 => {}
                "_" | "" => {}
                name if name.starts_with('~') || name.ends_with(".*") => {
                    self.out.miss(
                        format_args!("line {}, server_name {name}", server.line),
                        "only `*.` in front is known",
                    );
                }
                name => match name.strip_prefix('.') {
                    Some(rest) => hosts.extend([rest.to_owned(), format!("*.{rest}")]),
                    None => hosts.push(name.to_owned()),
                },
            }
        }
        hosts
    }

    /// The first port of each kind is the gateway's.
    fn listen(&mut self, place: &str, listen: &Directive) {
        let Some(address) = listen.arguments.first() else { return };
        let flags: Vec<&str> = listen.arguments.iter().skip(1).map(String::as_str).collect();
        let is_tls = flags.contains(&"ssl") || flags.contains(&"quic");
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) => (host.to_owned(), port.to_owned()),
            None if address.bytes().all(|byte| byte.is_ascii_digit()) => {
                ("0.0.0.0".to_owned(), address.clone())
            }
            None => (address.clone(), "80".to_owned()),
        };
        let host = if host == "*" { "0.0.0.0".to_owned() } else { host };
        if flags.contains(&"quic") {
            set(&mut self.out.gateway, "http3", true);
        }
        let (key, text) = (if is_tls { "https" } else { "http" }, format!("{host}:{port}"));
        match self.out.gateway.get(key) {
            None => set(&mut self.out.gateway, key, json!({ "address": text })),
            Some(known) if known["address"] == text.as_str() => {}
            // The same port for the other family is the same listener.
            Some(known)
                if known["address"].as_str().is_some_and(|known| known.ends_with(&format!(":{port}"))) => {}
            Some(_) => self.out.miss(
                format_args!("line {}, {place}: {listen}", listen.line),
                "the gateway listens on one port for http and one for https",
            ),
        }
    }

    fn stream(&mut self, stream: &Directive) {
        for directive in stream.block.iter().filter(|directive| directive.name == "upstream") {
            self.upstream(directive);
        }
        for directive in &stream.block {
            match directive.name.as_str() {
                "upstream" => {}
                "server" => self.stream_server(directive),
                _ => self.unknown("stream", directive),
            }
        }
    }

    fn stream_server(&mut self, server: &Directive) {
        let mut proxy = Map::new();
        let (mut listen, mut to, mut is_udp, mut is_tls, mut to_tls) = (None, None, false, false, false);
        for directive in &server.block {
            let first = directive.arguments.first().cloned();
            let has = |flag: &str| directive.arguments.iter().any(|argument| argument == flag);
            match directive.name.as_str() {
                "listen" => {
                    listen = first.and_then(|address| {
                        address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok())
                    });
                    is_udp = has("udp");
                    is_tls = has("ssl");
                }
                "proxy_pass" => to = first,
                "proxy_ssl" => to_tls = first.as_deref() == Some("on"),
                "proxy_timeout" => {
                    if let Some(millis) = first.as_deref().and_then(location::millis) {
                        let key =
                            if is_udp { "udp_idle_timeout_seconds" } else { "tcp_idle_timeout_seconds" };
                        set(&mut proxy, key, (millis / 1000).max(1));
                    }
                }
                "proxy_connect_timeout" => {
                    if let Some(millis) = first.as_deref().and_then(location::millis) {
                        set(&mut proxy, "backend_connect_timeout_ms", millis);
                    }
                }
                "proxy_protocol" if first.as_deref() == Some("on") => {
                    set(&mut proxy, "send_proxy_protocol", 1)
                }
                _ => self.unknown("stream server", directive),
            }
        }
        let (Some(port), Some(to)) = (listen, to) else {
            self.out
                .miss(format_args!("line {}, stream server", server.line), "it has no port or no proxy_pass");
            return;
        };
        let scheme = match (is_udp, to_tls) {
            (true, _) => "udp",
            (false, true) => "tcps",
            (false, false) => "tcp",
        };
        let id = self.out.id("proxy", &format!("{scheme}-{port}"));
        let mut made = Map::from_iter([("id".to_owned(), json!(id))]);
        set(&mut made, "listen_port", port);
        set(&mut made, "backend_scheme", scheme);
        if is_tls {
            set(&mut made, "frontend_tls", true);
        }
        self.backend(&mut made, &to, 0);
        made.extend(proxy);
        self.out.proxies.push(Value::Object(made));
    }

    /// Where to: a named upstream, or a host and port.
    fn backend(&self, proxy: &mut Map<String, Value>, authority: &str, default_port: u16) {
        match self.upstreams.get(authority) {
            Some(id) => set(proxy, "upstream_id", id.clone()),
            None => {
                let (host, port) = host_port(authority, default_port);
                set(proxy, "backend_host", host);
                set(proxy, "backend_port", port);
            }
        }
    }
}

/// Which names a server has, and whether it speaks TLS; `None` when it has ports of both kinds.
struct Kind {
    names: Vec<String>,
    is_tls: Option<bool>,
}

fn kind(server: &Directive) -> Kind {
    let all = |wanted: &'static str| server.block.iter().filter(move |directive| directive.name == wanted);
    let mut names: Vec<String> = all("server_name").flat_map(|names| names.arguments.clone()).collect();
    names.retain(|name| !matches!(name.as_str(), "_" | ""));
    if names.is_empty() {
        names.push("_".to_owned());
    }
    let tls = |listen: &Directive| listen.arguments.iter().any(|flag| flag == "ssl" || flag == "quic");
    let kinds: Vec<bool> = all("listen").map(tls).collect();
    let is_tls = match (kinds.contains(&true), kinds.contains(&false)) {
        (true, true) => None,
        (is_tls, _) => Some(is_tls),
    };
    Kind { names, is_tls }
}

fn host_port(address: &str, default_port: u16) -> (String, u16) {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => match port.parse() {
            Ok(port) => (host, port),
            Err(_) => (address, default_port),
        },
        None => (address, default_port),
    };
    (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
}

/// Whether a directive holds for the locations below.
fn is_inherited(name: &str) -> bool {
    location::INHERITED.contains(&name) || guards::NAMES.contains(&name) || plugins::NAMES.contains(&name)
}

/// `sticky cookie NAME [expires=1h] [domain=D] [httponly] [secure] [path=P]`.
fn sticky(directive: &Directive) -> Option<Value> {
    let (method, name) = (directive.arguments.first()?, directive.arguments.get(1)?);
    if method != "cookie" {
        return None;
    }
    let mut config = Map::new();
    set(&mut config, "ttl_seconds", 0);
    set(&mut config, "http_only", false);
    for argument in directive.arguments.iter().skip(2) {
        match argument.split_once('=') {
            Some(("expires", time)) => set(&mut config, "ttl_seconds", location::millis(time)? / 1000),
            Some((key @ ("domain" | "path"), value)) => set(&mut config, key, value),
            None if argument == "httponly" => set(&mut config, "http_only", true),
            None if argument == "secure" => set(&mut config, "secure", true),
            _ => return None,
        }
    }
    Some(json!({ "cookie": name, "cookie_config": config }))
}
