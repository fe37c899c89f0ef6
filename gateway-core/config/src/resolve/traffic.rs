//! What traffic a proxy takes.

use std::sync::Arc;

use super::shared_values::SharedValues;
use super::{Notes, backend, forwarded, proxy_protocol, words};
use crate::claims::ties;
use crate::condition;
use crate::condition::written::Condition;
use crate::file;
use crate::model::{
    HostPattern, HttpRules, Match, Parameters, PathPattern, PathPolicy, PathRules, Scheme, StreamRules,
    Traffic, WebSocketRules,
};
use crate::pattern::parse;
use crate::problem::ValueProblem;
use crate::units::Bytes;

/// Ports one proxy may listen on; each is a socket a worker.
const MAX_LISTEN_PORTS: u16 = 1024;
/// Silence after which a TCP session ends, in seconds.
const TCP_IDLE: u64 = 300;
/// Silence after which a UDP session ends, in seconds.
const UDP_IDLE: u64 = 60;

/// The traffic of a proxy whose target has this scheme.
pub(super) fn traffic(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    scheme: Scheme,
    shared: &SharedValues,
) -> Option<Traffic> {
    match scheme {
        Scheme::Http | Scheme::Https => http(notes, written, shared).map(Traffic::Http),
        Scheme::Tcp | Scheme::Tcps | Scheme::Udp | Scheme::Dtls => {
            stream(notes, written, scheme).map(|rules| Traffic::Stream(Box::new(rules)))
        }
    }
}

fn hosts(notes: &mut Notes<'_>, written: &[String]) -> Vec<HostPattern> {
    hosts_at(notes, written, "hosts")
}

fn hosts_at(notes: &mut Notes<'_>, written: &[String], key: &str) -> Vec<HostPattern> {
    let mut hosts = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let at = format!("{key}[{n}]");
        match notes.value(&at, parse::host_pattern(text)) {
            Some(host) if hosts.contains(&host) => {
                notes.add(&at, format!("`{text}` is listed twice")).remedy = Some("remove it".to_owned());
            }
            Some(host) => hosts.push(host),
            None => {}
        }
    }
    hosts
}

fn http(notes: &mut Notes<'_>, written: &file::Proxy, shared: &SharedValues) -> Option<HttpRules> {
    only_for_streams(notes, written);
    let matches = matches(notes, written, shared);
    let allowed_methods = written.allowed_methods.as_ref().map(|methods| {
        if methods.is_empty() {
            notes.add("allowed_methods", "no method at all is allowed").remedy =
                Some("name some, or leave it out to allow all".to_owned());
        }
        let mut methods = words::methods(notes, "allowed_methods", methods);
        // Who may have an answer may have its head (RFC 9110 §9.3.2).
        if let Some(get) = methods.iter().position(|method| *method == http::Method::GET)
            && !methods.contains(&http::Method::HEAD)
        {
            methods.insert(get + 1, http::Method::HEAD);
        }
        methods.into()
    });
    // Scripts know their site by the host that the client asked for.
    let is_fastcgi = written.backend_protocol == Some(file::Protocol::FastCgi);
    if is_fastcgi && written.allowed_upgrades.as_ref().is_some_and(|protocols| !protocols.is_empty()) {
        notes.add("allowed_upgrades", "a FastCGI target can't switch protocols").remedy =
            Some("remove it, or leave the list empty".to_owned());
    }
    let backend_path =
        written.backend_path.as_deref().and_then(|text| notes.value("backend_path", words::base_path(text)));
    let defaults = WebSocketRules::default();
    let websocket = WebSocketRules {
        is_allowed: written.allowed_upgrades.as_ref().is_none_or(|protocols| !protocols.is_empty()),
        allowed_origins: origins(notes, &written.allowed_ws_origins),
        idle: words::millis(written.websocket_idle_timeout, defaults.idle),
        lifetime: words::millis(written.websocket_lifetime, defaults.lifetime),
        max_message: written.websocket_max_message.map_or(defaults.max_message, Bytes::count),
    };
    Some(HttpRules {
        matches: matches?,
        priority: written.priority.unwrap_or(0),
        allowed_methods,
        path_rules: written.path_rules.map(path_rules).unwrap_or_default(),
        strip_listen_path: written.strip_listen_path.unwrap_or(true),
        backend_path: backend_path.flatten(),
        preserve_host_header: written.preserve_host_header.unwrap_or(is_fastcgi),
        early_data: written.early_data.unwrap_or(true),
        websocket: websocket.shared(),
        forwarded: written.forwarded.as_ref().and_then(|it| forwarded::forwarded(notes, it)),
        max_request_body: written.max_request_body.map(|bytes| bytes.0),
    })
}

/// The requests a proxy takes: its hosts and path, or its `matches`, which may have their own.
fn matches(notes: &mut Notes<'_>, written: &file::Proxy, shared: &SharedValues) -> Option<Box<[Match]>> {
    let hosts = hosts(notes, &written.hosts);
    let path = match written.listen_path.as_deref() {
        Some(text) => notes.value("listen_path", parse::listen_path(text)),
        None if written.hosts.is_empty() && written.matches.is_empty() => {
            notes.add("", "neither `listen_path` nor `hosts` is given").remedy =
                Some("write `listen_path: /` to take everything".to_owned());
            None
        }
        None => Some(PathPattern::HostOnly),
    };
    if written.matches.is_empty() {
        return Some([Match { hosts, path: path?, condition: None }].into());
    }
    let mut matches = Vec::with_capacity(written.matches.len());
    for (n, one) in written.matches.iter().enumerate() {
        let Some(rule) = one_match(notes, one, &format!("matches[{n}]"), &hosts, path.as_ref(), shared)
        else {
            continue;
        };
        let tied = matches.iter().find(|(_, other): &&(usize, Match)| {
            let same_host = rule.hosts.is_empty() && other.hosts.is_empty()
                || rule.hosts.iter().any(|host| other.hosts.contains(host));
            same_host
                && rule.path == other.path
                && ties(rule.condition.as_deref(), other.condition.as_deref())
        });
        if let Some((other, _)) = tied {
            notes.add(&format!("matches[{n}]"), format!("matches[{other}] says the same already")).remedy =
                Some("join them, or remove one".to_owned());
        }
        matches.push((n, rule));
    }
    // A proxy whose requests are known only in part would leave the others to its neighbours.
    (matches.len() == written.matches.len()).then(|| matches.into_iter().map(|(_, rule)| rule).collect())
}

fn one_match(
    notes: &mut Notes<'_>,
    written: &Condition,
    at: &str,
    hosts: &[HostPattern],
    path: Option<&PathPattern>,
    shared: &SharedValues,
) -> Option<Match> {
    let mut rest = written.clone();
    let own_hosts = std::mem::take(&mut rest.hosts);
    let own_path = rest.path.take();
    let before = notes.problems.0.len();
    let hosts = if own_hosts.is_empty() {
        hosts.to_vec()
    } else {
        hosts_at(notes, &own_hosts, &format!("{at}.hosts"))
    };
    let path = match own_path.as_ref().map(parse::path_match) {
        None => path.cloned(),
        Some(Ok(path)) => Some(path),
        Some(Err((key, fault))) => {
            let dot = if key.is_empty() { "" } else { "." };
            notes.value::<()>(&format!("{at}.path{dot}{key}"), Err(fault));
            None
        }
    };
    let condition = if rest == Condition::default() {
        if own_hosts.is_empty() && own_path.is_none() {
            notes.add(at, "this says nothing").remedy = Some("say what is meant, or leave it out".to_owned());
        }
        None
    } else {
        let place = format!("{}{}{at}", notes.at, if notes.at.is_empty() { "" } else { "." });
        match condition::compile(&rest, &place, condition::Use::Route) {
            Ok(condition) => Some(shared.condition(condition)),
            Err(problems) => {
                notes.problems.0.extend(problems.0);
                None
            }
        }
    };
    let is_good = notes.problems.0.len() == before;
    path.filter(|_| is_good).map(|path| Match { hosts, path, condition })
}

/// Sessions of one UDP proxy, each a socket.
const UDP_MAX_SESSIONS: usize = 100_000;

/// Origins as browsers send them: in lower case, without a path.
fn origins(notes: &mut Notes<'_>, written: &[String]) -> Vec<Arc<str>> {
    let mut origins = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let lower = text.trim_end_matches('/').to_ascii_lowercase();
        match lower.split_once("://") {
            Some((scheme, host)) if !scheme.is_empty() && !host.is_empty() && !host.contains('/') => {
                origins.push(Arc::from(lower));
            }
            _ if lower == "null" => origins.push(Arc::from(lower)),
            _ => {
                notes.add(&format!("allowed_ws_origins[{n}]"), format!("`{text}` is not an origin")).remedy =
                    Some("such as `https://app.example.com`".to_owned());
            }
        }
    }
    origins
}

fn path_rules(written: file::PathRules) -> PathRules {
    let policy = |written: Option<file::PathPolicy>| match written {
        None | Some(file::PathPolicy::Refuse) => PathPolicy::Refuse,
        Some(file::PathPolicy::Keep) => PathPolicy::Keep,
        Some(file::PathPolicy::Decode) => PathPolicy::Decode,
    };
    PathRules {
        encoded_slash: policy(written.encoded_slash),
        backslash: policy(written.backslash),
        double_encoding: policy(written.double_encoding),
        parameters: match written.parameters {
            None | Some(file::Parameters::Keep) => Parameters::Keep,
            Some(file::Parameters::Refuse) => Parameters::Refuse,
            Some(file::Parameters::Remove) => Parameters::Remove,
        },
    }
}

fn only_for_streams(notes: &mut Notes<'_>, written: &file::Proxy) {
    let keys = [
        ("listen_port", written.listen_port.is_some()),
        ("listen_port_range", written.listen_port_range.is_some()),
        ("backend_port_mapping", written.backend_port_mapping.is_some()),
        ("frontend_tls", written.frontend_tls == Some(true)),
        ("passthrough", written.passthrough == Some(true)),
        ("alpn", !written.alpn.is_empty()),
        ("frontend_starttls", written.frontend_starttls.is_some()),
        ("backend_starttls", written.backend_starttls.is_some()),
        ("udp_idle_timeout", written.udp_idle_timeout.is_some()),
        ("udp_max_response_amplification_factor", written.udp_max_response_amplification_factor.is_some()),
        ("udp_max_sessions", written.udp_max_sessions.is_some()),
        ("tcp_idle_timeout", written.tcp_idle_timeout.is_some()),
        ("accept_proxy_protocol", written.accept_proxy_protocol == Some(true)),
        ("send_proxy_protocol", written.send_proxy_protocol.is_some()),
        ("backend_tls_server_name", backend::sends_client_name(written)),
        ("send_proxy_protocol_tlvs", !written.send_proxy_protocol_tlvs.is_empty()),
        ("accept_proxy_protocol_datagrams", written.accept_proxy_protocol_datagrams.is_some()),
        ("send_proxy_protocol_datagrams", written.send_proxy_protocol_datagrams.is_some()),
    ];
    for (key, _) in keys.iter().filter(|(_, given)| *given) {
        let remedy = if key.starts_with("listen_port") {
            "an HTTP proxy takes the gateway's ports: remove it, or write `backend_scheme: tcp`"
        } else {
            "remove it, or write `backend_scheme: tcp` and `listen_port`"
        };
        notes.add(key, "only a stream proxy has this").remedy = Some(remedy.to_owned());
    }
}

fn only_for_http(notes: &mut Notes<'_>, written: &file::Proxy) {
    // The older spelling had an empty `listen_path` on every stream proxy.
    let has_path = written.listen_path.as_deref().is_some_and(|path| !path.is_empty());
    let keys = [
        ("listen_path", has_path),
        ("matches", !written.matches.is_empty()),
        ("priority", written.priority.is_some()),
        ("backend_path", written.backend_path.is_some()),
        ("backend_http_version", written.backend_http_version.is_some()),
        ("fastcgi", written.fastcgi.is_some()),
        ("forwarded", written.forwarded.is_some()),
        ("path_rules", written.path_rules.is_some()),
        ("preserve_host_header", written.preserve_host_header == Some(true)),
        ("early_data", written.early_data.is_some()),
        ("backend_alt_svc", written.backend_alt_svc.is_some()),
        ("allowed_methods", written.allowed_methods.is_some()),
        ("allowed_upgrades", written.allowed_upgrades.is_some()),
        ("allowed_ws_origins", !written.allowed_ws_origins.is_empty()),
        ("max_request_body", written.max_request_body.is_some()),
        ("websocket_idle_timeout", written.websocket_idle_timeout.is_some()),
        ("websocket_lifetime", written.websocket_lifetime.is_some()),
        ("websocket_max_message", written.websocket_max_message.is_some()),
        ("strip_listen_path", written.strip_listen_path == Some(false)),
        ("auth_mode", written.auth_mode.is_some_and(|mode| mode != file::AuthMode::Single)),
        ("retry", written.retry.is_some()),
        (
            "circuit_breaker.failure_status_codes",
            written.circuit_breaker.as_ref().is_some_and(|breaker| breaker.failure_status_codes.is_some()),
        ),
    ];
    let keys = keys.into_iter().chain(of_requests(written));
    for (key, _) in keys.filter(|(_, given)| *given) {
        notes.add(key, "only an HTTP proxy has this").remedy =
            Some("remove it, or write `backend_scheme: http` or `https`".to_owned());
    }
}

/// Timeouts of requests, and rules for connections that serve one request after the other.
fn of_requests(written: &file::Proxy) -> [(&'static str, bool); 13] {
    [
        ("backend_first_byte_timeout", written.backend_first_byte_timeout.is_some()),
        ("backend_idle_timeout", written.backend_idle_timeout.is_some()),
        ("pool_idle_timeout", written.pool_idle_timeout.is_some()),
        ("pool_max_idle_per_host", written.pool_max_idle_per_host.is_some()),
        ("pool_http2_connections_per_host", written.pool_http2_connections_per_host.is_some()),
        ("pool_http2_keep_alive_interval", written.pool_http2_keep_alive_interval.is_some()),
        ("pool_http2_keep_alive_timeout", written.pool_http2_keep_alive_timeout.is_some()),
        ("pool_http2_initial_stream_window_size", written.pool_http2_initial_stream_window_size.is_some()),
        (
            "pool_http2_initial_connection_window_size",
            written.pool_http2_initial_connection_window_size.is_some(),
        ),
        ("pool_http2_adaptive_window", written.pool_http2_adaptive_window == Some(true)),
        ("pool_http2_max_frame_size", written.pool_http2_max_frame_size.is_some()),
        ("pool_http2_max_concurrent_streams", written.pool_http2_max_concurrent_streams.is_some()),
        ("pool_http3_connections_per_backend", written.pool_http3_connections_per_backend.is_some()),
    ]
}

fn stream(notes: &mut Notes<'_>, written: &file::Proxy, scheme: Scheme) -> Option<StreamRules> {
    only_for_http(notes, written);
    let server_names = hosts(notes, &written.hosts);
    let frontend_tls = written.frontend_tls.unwrap_or(false);
    let passthrough = written.passthrough.unwrap_or(false);
    if passthrough && frontend_tls {
        notes.add("passthrough", "`frontend_tls` opens what `passthrough` leaves closed").remedy =
            Some("keep one of the two".to_owned());
    }
    if passthrough && scheme.is_encrypted() {
        notes.add("passthrough", "what is passed through is encrypted already").remedy =
            Some(format!("write `backend_scheme: {}`", plain(scheme).as_str()));
    }
    if !server_names.is_empty() && !passthrough && !frontend_tls {
        notes.add("hosts", "there is no server name to choose by in plain traffic").remedy =
            Some("remove it, or write `passthrough: true` or `frontend_tls: true`".to_owned());
    }
    let is_udp = matches!(scheme, Scheme::Udp | Scheme::Dtls);
    wrong_transport(notes, written, is_udp);
    let (idle, default) = match is_udp {
        true => (written.udp_idle_timeout, UDP_IDLE),
        false => (written.tcp_idle_timeout, TCP_IDLE),
    };
    let idle = words::seconds(idle, default);
    let proxy_headers = proxy_protocol::headers(notes, written, scheme);
    let listen_ports = listen_ports(notes, written)?;
    Some(StreamRules {
        listen_ports,
        maps_ports: maps_ports(notes, written, listen_ports),
        frontend_tls,
        is_datagram: is_udp,
        passthrough,
        starttls: super::starttls::starttls(notes, written, scheme),
        server_names,
        alpn: alpn(notes, written),
        idle_timeout: (!idle.is_zero()).then_some(idle),
        max_response_amplification: written.udp_max_response_amplification_factor,
        max_sessions: written
            .udp_max_sessions
            .and_then(|sessions| usize::try_from(sessions).ok())
            .unwrap_or(UDP_MAX_SESSIONS),
        accept_proxy_protocol: written.accept_proxy_protocol.unwrap_or(false),
        sends_client_name: backend::client_name(notes, written, scheme),
        proxy_headers,
        send_proxy_protocol: written.send_proxy_protocol.and_then(|version| u8::try_from(version).ok()),
    })
}

fn alpn(notes: &mut Notes<'_>, written: &file::Proxy) -> Box<[Box<[u8]>]> {
    if !written.alpn.is_empty() && written.passthrough != Some(true) {
        notes.add("alpn", "proxies share a port only where TLS, DTLS or QUIC is passed through").remedy =
            Some("write `passthrough: true` and `backend_scheme: tcp` or `udp`, or remove it".to_owned());
    }
    written.alpn.iter().map(|protocol| protocol.as_bytes().into()).collect()
}

fn plain(scheme: Scheme) -> Scheme {
    if matches!(scheme, Scheme::Udp | Scheme::Dtls) { Scheme::Udp } else { Scheme::Tcp }
}

fn wrong_transport(notes: &mut Notes<'_>, written: &file::Proxy, is_udp: bool) {
    let keys = [
        ("udp_idle_timeout", true, written.udp_idle_timeout.is_some()),
        (
            "udp_max_response_amplification_factor",
            true,
            written.udp_max_response_amplification_factor.is_some(),
        ),
        ("udp_max_sessions", true, written.udp_max_sessions.is_some()),
        ("tcp_idle_timeout", false, written.tcp_idle_timeout.is_some()),
        ("accept_proxy_protocol_datagrams", true, written.accept_proxy_protocol_datagrams.is_some()),
        ("send_proxy_protocol_datagrams", true, written.send_proxy_protocol_datagrams.is_some()),
        ("frontend_starttls", false, written.frontend_starttls.is_some()),
        ("backend_starttls", false, written.backend_starttls.is_some()),
    ];
    for (key, of_udp, _) in keys.iter().filter(|(_, of_udp, given)| *given && *of_udp != is_udp) {
        let transport = if *of_udp { "UDP" } else { "TCP" };
        notes.add(key, format!("only a {transport} proxy has this")).remedy = Some("remove it".to_owned());
    }
    // One of requests is named already.
    let breaker = written.circuit_breaker.as_ref();
    let keys = [
        ("total_timeout", written.total_timeout.is_some_and(|timeout| timeout.0 > 0)),
        ("pool_tcp_keepalive", written.pool_tcp_keepalive.is_some()),
        ("backend_congestion_control", written.backend_congestion_control.is_some()),
        // Nothing says that a datagram has arrived, so that a breaker could neither open nor close again.
        ("circuit_breaker", breaker.is_some_and(|breaker| breaker.failure_status_codes.is_none())),
    ];
    for (key, _) in keys.iter().filter(|(_, given)| *given && is_udp) {
        notes.add(key, "a UDP proxy does not have this").remedy = Some("remove it".to_owned());
    }
}

fn listen_ports(notes: &mut Notes<'_>, written: &file::Proxy) -> Option<(u16, u16)> {
    match (written.listen_port, written.listen_port_range.as_deref()) {
        (Some(port), None) => u16::try_from(port).ok().map(|port| (port, port)),
        (None, Some(range)) => notes.value("listen_port_range", port_range(range)),
        (None, None) => {
            notes.add("", "`listen_port` is missing").remedy =
                Some("a stream proxy has a port of its own".to_owned());
            None
        }
        (Some(_), Some(_)) => {
            notes.add("listen_port_range", "`listen_port` is given as well").remedy =
                Some("keep one of the two".to_owned());
            None
        }
    }
}

fn maps_ports(notes: &mut Notes<'_>, written: &file::Proxy, ports: (u16, u16)) -> bool {
    let Some(mapping) = written.backend_port_mapping else { return false };
    if written.listen_port_range.is_none() {
        notes.add("backend_port_mapping", "has no effect without `listen_port_range`").remedy =
            Some("remove it".to_owned());
    }
    let beyond = u32::from(ports.1 - ports.0);
    if let (file::PortMapping::Offset, Some(port)) = (mapping, written.backend_port)
        && port + beyond > u32::from(u16::MAX)
    {
        let message = format!("the last port of the range leads to {}, which is no port", port + beyond);
        notes.add("backend_port", message).remedy = Some("a lower port, or fewer of them".to_owned());
    }
    mapping == file::PortMapping::Offset
}

fn port_range(text: &str) -> Result<(u16, u16), ValueProblem> {
    let bad = || ValueProblem::new(format!("`{text}` is not a range of ports")).remedy("such as `5000-5010`");
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad);
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(bad());
    }
    if last - first >= MAX_LISTEN_PORTS {
        return Err(ValueProblem::new(format!("`{text}` has more than {MAX_LISTEN_PORTS} ports")));
    }
    Ok((first, last))
}
