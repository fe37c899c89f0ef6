//! The gateway's own settings.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

use super::{Notes, ObjectPlace, acme, tls, words};
use crate::file;
use crate::model::{
    AccessLog, ClientTimeouts, DrainStreams, Limits, OverloadRules, Readiness, RealIpHeader, Settings,
    Underscores,
};
use crate::network::canonical_network;
use crate::problem::{Problems, ValueProblem};
use crate::units::Bytes;
use crate::warning::codes;

/// Resolves the settings.
///
/// # Errors
/// Every problem in them.
pub fn settings(written: &file::Gateway, place: ObjectPlace<'_>) -> Result<Settings, Problems> {
    let mut notes = Notes::new(place.at);
    let settings = each(&mut notes, written, place.folder);
    together(&mut notes, &settings);
    acme::together(&mut notes, written, &settings);
    if written.http_socket_mode.is_some() && written.http_socket.is_none() {
        notes.add("http_socket_mode", "has no effect without `http_socket`");
    }
    let sinks = written.access_log.as_ref().and_then(|log| log.sinks.as_deref()).unwrap_or_default();
    if written.access_log.is_some() && settings.access_log.is_none() && sinks.is_empty() {
        notes.add("access_log", "`path` is missing").remedy =
            Some("a file, or `-` for standard output, or give `sinks`".to_owned());
    }
    if written.admin_tls.is_some() && settings.admin_tls.is_none() {
        notes.add("admin_tls", "`cert_path` and `key_path` are both needed");
    }
    notes.problems.into_result(settings)
}

/// The problems of each setting by itself.
pub(crate) fn values(written: &file::Gateway) -> Problems {
    let mut notes = Notes::new("");
    each(&mut notes, written, Path::new(""));
    notes.problems
}

fn each(notes: &mut Notes<'_>, written: &file::Gateway, folder: &Path) -> Settings {
    let defaults = Settings::default();
    let log_sinks = match written.access_log.as_ref().and_then(|log| log.sinks.as_deref()) {
        Some(sinks) => super::log::sinks(notes, sinks, folder),
        None => Box::default(),
    };
    let http = listener(notes, "http", written.http.as_ref(), defaults.http);
    let https = listener(notes, "https", written.https.as_ref(), defaults.https);
    let acme = written.acme.as_ref().map(|acme| Arc::new(acme::rules(notes, acme, folder)));
    Settings {
        carries_traffic: true,
        http,
        https,
        http3: written.http3.unwrap_or(defaults.http3),
        host_fallthrough: written.host_fallthrough.unwrap_or(defaults.host_fallthrough),
        admin: listener(notes, "admin", written.admin.as_ref(), defaults.admin),
        admin_tls: written.admin_tls.as_ref().and_then(|tls| tls::admin(tls, folder)),
        admin_socket: written.admin_socket.as_deref().map(|path| words::file_path(folder, path)),
        admin_require_token: written.admin_require_token.unwrap_or(defaults.admin_require_token),
        admin_console: written.admin_console.unwrap_or(defaults.admin_console),
        admin_totp_roles: words::roles(written.admin_totp_roles.as_deref().unwrap_or_default()),
        admin_approval: super::admin_approval::rules(notes, written.admin_approval.as_ref()),
        admin_oidc: super::admin_oidc::provider(notes, written.admin_oidc.as_ref(), folder),
        additional_http: additional(notes, "additional_http", written.additional_http.as_deref(), http),
        additional_https: additional(notes, "additional_https", written.additional_https.as_deref(), https),
        congestion: words::congestion(notes, "congestion_control", written.congestion_control.as_deref()),
        dns_servers: dns_servers(notes, written.dns_servers.as_deref().unwrap_or_default()),
        http_socket: http_socket(notes, written, folder),
        share_ports: written.share_ports.unwrap_or(defaults.share_ports),
        stream_address: {
            let text = written.stream_address.as_deref();
            let given = text.and_then(|text| notes.value("stream_address", words::address(text)));
            given.unwrap_or(defaults.stream_address)
        },
        workers: written.workers.unwrap_or(defaults.workers),
        tls: tls::frontend(notes, written.tls.as_ref(), acme.as_deref(), folder),
        acme,
        limits: written.limits.as_ref().map_or(defaults.limits, limits),
        overload: written.overload.as_ref().map_or(defaults.overload, |rules| OverloadRules {
            max_memory: rules.max_memory.map(|bytes| bytes.0),
            max_delay: words::millis(rules.max_delay, Duration::ZERO),
        }),
        client_timeouts: written.client_timeouts.as_ref().map_or(defaults.client_timeouts, client_timeouts),
        trusted_proxies: trusted(notes, written.trusted_proxies.as_deref().unwrap_or_default()),
        real_ip_header: real_ip_header(notes, written.real_ip_header.as_deref()),
        forwarded_header: written.forwarded_header.unwrap_or(defaults.forwarded_header),
        old_spellings: Box::default(),
        silence_warnings: silenced(notes, written.silence_warnings.as_deref().unwrap_or_default()),
        admin_hosts: hosts(notes, written.admin_hosts.as_deref().unwrap_or_default()),
        merge_slashes: written.merge_slashes.unwrap_or(defaults.merge_slashes),
        via: via(notes, written.via.as_deref(), defaults.via),
        access_log: written.access_log.as_ref().and_then(|log| access_log(log, folder)),
        audit_log: written.audit_log.as_deref().map(|path| log_path(path, folder)),
        redis: Some(super::redis::servers(notes, written.redis.as_ref(), folder)),
        metrics_push: written
            .metrics
            .as_ref()
            .map(|metrics| super::log::metrics(notes, metrics))
            .unwrap_or_default(),
        logged_headers: super::log::response_headers(&log_sinks),
        log_sinks,
        session_check: words::seconds(written.session_check, defaults.session_check.as_secs()),
        drain_timeout: words::seconds(written.drain_timeout, defaults.drain_timeout.as_secs()),
        drain_streams: drain_streams(written.drain_streams),
        accept_proxy_protocol: written.accept_proxy_protocol.unwrap_or(defaults.accept_proxy_protocol),
        underscores_in_headers: underscores(written.underscores_in_headers),
        not_ready_when: written.not_ready_when.as_deref().map_or(defaults.not_ready_when, readiness),
    }
}

fn readiness(written: &[file::NotReady]) -> Readiness {
    Readiness {
        all_proxies_closed: written.contains(&file::NotReady::AllProxiesClosed),
        any_proxy_closed: written.contains(&file::NotReady::AnyProxyClosed),
        overloaded: written.contains(&file::NotReady::Overloaded),
        no_healthy_target: written.contains(&file::NotReady::NoHealthyTarget),
        source_unreachable: written.contains(&file::NotReady::SourceUnreachable),
    }
}

/// Listeners of different kinds on one address.
fn apart(notes: &mut Notes<'_>, settings: &Settings) {
    let http = settings.http_addresses().map(|address| ("http", address));
    let https = settings.https_addresses().map(|address| ("https", address));
    let admin = settings.admin.map(|address| ("admin", address));
    let all: Vec<_> = http.chain(https).chain(admin).collect();
    for (n, (kind, address)) in all.iter().enumerate() {
        let earlier = all.iter().take(n).filter(|(other, _)| other != kind);
        if let Some((other, known)) = earlier.into_iter().find(|(_, known)| meet(*address, *known)) {
            let message = format!("{address} is where `{other}` listens already, on {known}");
            notes.add(kind, message).remedy = Some("give one of them another port".to_owned());
        }
    }
}

/// What settings need of one another.
fn together(notes: &mut Notes<'_>, settings: &Settings) {
    apart(notes, settings);
    let certificates = [
        ("tls.client_ca_path", settings.tls.client_ca_path.is_some()),
        ("tls.early_data", settings.tls.early_data),
    ];
    for (key, _) in certificates.into_iter().filter(|(_, is_set)| *is_set) {
        if settings.tls.certificates.is_empty() {
            notes.add(key, "no listener speaks TLS: there is no certificate").remedy =
                Some("give `tls.certificates`, or remove it".to_owned());
        }
    }
    let servers = [
        ("tls.client_crl_path", Some(&settings.tls)),
        ("admin_tls.client_crl_path", settings.admin_tls.as_ref()),
    ];
    for (key, rules) in servers {
        if rules.is_some_and(|rules| rules.client_crl_path.is_some() && rules.client_ca_path.is_none()) {
            notes.add(key, "no certificates of clients are checked that could be revoked").remedy =
                Some("write `client_ca_path`".to_owned());
        }
    }
    if settings.admin.is_none() && settings.admin_tls.is_some() {
        notes.add("admin_tls", "`admin` is off, and the socket has no TLS").remedy =
            Some("give `admin` an address, or remove it".to_owned());
    }
    if settings.http3 && (settings.https.is_none() || settings.tls.certificates.is_empty()) {
        notes.add("http3", "HTTP/3 needs the https listener and a certificate").remedy =
            Some("give `tls.certificates`, or remove it".to_owned());
    }
    if settings.accept_proxy_protocol && settings.trusted_proxies.is_empty() {
        notes.add("accept_proxy_protocol", "nobody is trusted to send a PROXY protocol header").remedy =
            Some("name the balancer's addresses in `trusted_proxies`".to_owned());
    }
    if settings.accept_proxy_protocol && settings.http3 {
        notes.add("http3", "a PROXY protocol header is required, and HTTP/3 has none").remedy =
            Some("remove it, or `accept_proxy_protocol`".to_owned());
    }
}

/// `None` is off; when something is wrong the default stands in.
fn listener(
    notes: &mut Notes<'_>,
    key: &str,
    written: Option<&file::Listener>,
    default: Option<SocketAddr>,
) -> Option<SocketAddr> {
    let (written, default) = match (written, default) {
        (Some(written), Some(default)) => (written, default),
        (_, default) => return default,
    };
    let resolved = match written {
        file::Listener::Port(port) => with_port(default, *port),
        file::Listener::Address(text) => address(text, default),
        file::Listener::Parts(file::ListenerParts { address: None, port }) => {
            with_port(default, port.unwrap_or_else(|| default.port().into()))
        }
        file::Listener::Parts(file::ListenerParts { address: Some(text), port: None }) => {
            address(text, default)
        }
        file::Listener::Parts(file::ListenerParts { address: Some(text), port: Some(port) }) => {
            words::address(text).and_then(|ip| with_port(SocketAddr::new(ip, default.port()), *port))
        }
    };
    notes.value(key, resolved).unwrap_or(Some(default))
}

/// The file mode of a Unix socket where none is given: this user and group.
const SOCKET_MODE: u32 = 0o660;

/// A Unix socket for HTTP, with the mode of its file.
fn http_socket(notes: &mut Notes<'_>, written: &file::Gateway, folder: &Path) -> Option<(PathBuf, u32)> {
    let mode = match written.http_socket_mode.as_deref() {
        None => SOCKET_MODE,
        Some(text) => match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 && text.len() <= 4 => mode,
            _ => {
                notes.add("http_socket_mode", format!("`{text}` is not the mode of a socket")).remedy =
                    Some("octal digits by which its owner may read and write, such as `\"0660\"`".into());
                return None;
            }
        },
    };
    written.http_socket.as_deref().map(|path| (words::file_path(folder, path), mode))
}

/// Name servers, each an address with or without a port.
fn dns_servers(notes: &mut Notes<'_>, written: &[String]) -> Box<[SocketAddr]> {
    const DNS: u16 = 53;
    let mut servers = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let text = text.trim();
        let address = text.parse().or_else(|_| text.parse().map(|address| SocketAddr::new(address, DNS)));
        match address.ok().filter(|address| address.port() != 0 && !address.ip().is_unspecified()) {
            Some(address) => servers.push(address),
            None => {
                notes
                    .add(
                        &format!("dns_servers[{n}]"),
                        format!("`{text}` is not the address of a name server"),
                    )
                    .remedy =
                    Some("write one such as `127.0.0.1:8600`, `10.0.0.53` or `[::1]:53`".to_owned());
            }
        }
    }
    servers.into()
}

/// Addresses besides the first one, each once.
fn additional(
    notes: &mut Notes<'_>,
    key: &str,
    written: Option<&[String]>,
    first: Option<SocketAddr>,
) -> Box<[SocketAddr]> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for (n, text) in written.into_iter().flatten().enumerate() {
        let at = format!("{key}[{n}]");
        match text.parse() {
            Ok(address) => {
                let known = first.iter().chain(&addresses).find(|known| meet(address, **known));
                if let Some(known) = known {
                    notes.add(&at, format!("{address} and {known} are listened on at once")).remedy =
                        Some("keep the one that takes both".to_owned());
                } else {
                    addresses.push(address);
                }
            }
            Err(_) => {
                notes.add(&at, format!("`{text}` is not an address with a port")).remedy =
                    Some("write one such as `127.0.0.1:8080` or `[::]:8080`".to_owned());
            }
        }
    }
    addresses.into()
}

/// Whether two listeners' addresses have connections in common. `[::]` takes IPv4 as well.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |a: SocketAddr, b: SocketAddr| a.ip().is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    let is_settled = one.port() != 0;
    is_settled && one.port() == other.port() && (one == other || takes(one, other) || takes(other, one))
}

fn with_port(address: SocketAddr, port: u32) -> Result<Option<SocketAddr>, ValueProblem> {
    match u16::try_from(port) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(SocketAddr::new(address.ip(), port))),
        Err(_) => {
            Err(ValueProblem::new(format!("{port} is not a port"))
                .remedy("1 to 65535, or 0 to switch it off"))
        }
    }
}

fn address(text: &str, default: SocketAddr) -> Result<Option<SocketAddr>, ValueProblem> {
    if matches!(text, "off" | "none" | "") {
        return Ok(None);
    }
    if let Ok(address) = text.parse() {
        return Ok(Some(address));
    }
    if let Ok(ip) = words::address(text) {
        return Ok(Some(SocketAddr::new(ip, default.port())));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        return Err(ValueProblem::new(format!("`{text}` is not an address"))
            .remedy(format!("write `0.0.0.0:{port}`")));
    }
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest.split('/').next().unwrap_or(rest));
    let remedy = match bare.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some(("localhost", Ok(port))) => format!("write `127.0.0.1:{port}`"),
        Some(("*" | "", Ok(port))) => format!("write `0.0.0.0:{port}`"),
        Some((host, Ok(port))) if words::address(host).is_ok() => format!("write `{host}:{port}`"),
        _ => format!("such as `{default}`, or `off`"),
    };
    Err(ValueProblem::new(format!("`{text}` is not an address with a port")).remedy(remedy))
}

fn limits(written: &file::Limits) -> Limits {
    let defaults = Limits::default();
    Limits {
        max_connections: written.max_connections.unwrap_or(defaults.max_connections),
        max_header_size: written.max_header_size.map_or(defaults.max_header_size, Bytes::count),
        max_headers: written.max_headers.unwrap_or(defaults.max_headers),
        max_uri: written.max_uri.map_or(defaults.max_uri, Bytes::count),
        max_request_body: written.max_request_body.map_or(defaults.max_request_body, |bytes| bytes.0),
        max_collected_body: written.max_collected_body.map_or(defaults.max_collected_body, |bytes| bytes.0),
        max_concurrent_streams: written.max_concurrent_streams.unwrap_or(defaults.max_concurrent_streams),
        max_requests: written.max_requests.unwrap_or(defaults.max_requests),
        max_unsent: written
            .max_unsent
            .map_or(defaults.max_unsent, |bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX)),
    }
}

fn client_timeouts(written: &file::ClientTimeouts) -> ClientTimeouts {
    let defaults = ClientTimeouts::default();
    ClientTimeouts {
        header: words::millis(written.header, defaults.header),
        keep_alive: words::millis(written.keep_alive, defaults.keep_alive),
        body: words::millis(written.body, defaults.body),
        handshake: words::millis(written.handshake, defaults.handshake),
    }
}

fn silenced(notes: &mut Notes<'_>, written: &[String]) -> Vec<Box<str>> {
    for (n, code) in written.iter().enumerate().filter(|(_, code)| !codes::is_code(code)) {
        notes.add(&format!("silence_warnings[{n}]"), format!("`{code}` is not a warning")).remedy =
            words::did_you_mean(code, codes::CODES.iter().map(|(code, _)| *code));
    }
    written.iter().map(|code| Box::from(code.as_str())).collect()
}

fn hosts(notes: &mut Notes<'_>, written: &[String]) -> Vec<Box<str>> {
    let names = written.iter().enumerate();
    let named =
        names.filter_map(|(n, name)| notes.value(&format!("admin_hosts[{n}]"), words::target_host(name)));
    named.map(|name| Box::from(&*name)).collect()
}

fn trusted(notes: &mut Notes<'_>, written: &[String]) -> Vec<IpNet> {
    let mut blocks = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        blocks.extend(notes.value(&format!("trusted_proxies[{n}]"), cidr(text)));
    }
    blocks
}

/// Fields of requests that mean something of their own (RFC 9110, RFC 6265).
const NOT_FOR_ADDRESSES: [&str; 14] = [
    "accept",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn real_ip_header(notes: &mut Notes<'_>, written: Option<&str>) -> RealIpHeader {
    let Some(text) = written else { return RealIpHeader::default() };
    let Ok(name) = HeaderName::from_bytes(text.trim().as_bytes()) else {
        notes.add("real_ip_header", format!("`{text}` is not a valid header name"));
        return RealIpHeader::default();
    };
    match name.as_str() {
        "x-forwarded-for" => RealIpHeader::XForwardedFor,
        "forwarded" => RealIpHeader::Forwarded,
        // It is removed from requests of clients that are not trusted, so one that requests need for themselves can't be taken.
        name if NOT_FOR_ADDRESSES.contains(&name) => {
            notes.add("real_ip_header", format!("`{name}` says other things than a client's address"));
            RealIpHeader::default()
        }
        _ => RealIpHeader::Other(name),
    }
}

fn cidr(text: &str) -> Result<IpNet, ValueProblem> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let block: IpNet = text.parse().map_err(|_| {
        ValueProblem::new(format!("`{text}` is not an address or a CIDR block"))
            .remedy("such as 10.0.0.0/8 or 192.0.2.7")
    })?;
    Ok(canonical_network(block.trunc()))
}

fn via(notes: &mut Notes<'_>, written: Option<&str>, default: Option<Arc<str>>) -> Option<Arc<str>> {
    match written {
        None => default,
        Some("") => None,
        // A pseudonym is a token (RFC 9110 §7.6.3), as a header's name is.
        Some(name) if HeaderName::from_bytes(name.as_bytes()).is_ok() => Some(Arc::from(name)),
        Some(name) => {
            notes.add("via", format!("`{name}` can't be a pseudonym")).remedy =
                Some("letters, digits, `-` and `.`".to_owned());
            default
        }
    }
}

/// A file, or `-` for standard output.
fn log_path(path: &str, folder: &Path) -> PathBuf {
    if path == "-" { PathBuf::from(path) } else { words::file_path(folder, path) }
}

fn access_log(written: &file::AccessLog, folder: &Path) -> Option<AccessLog> {
    let path = written.path.as_deref()?;
    let path = log_path(path, folder);
    Some(AccessLog { path, queue: written.queue.unwrap_or(8192) })
}

fn drain_streams(written: Option<file::DrainStreams>) -> DrainStreams {
    match written {
        Some(file::DrainStreams::Wait) => DrainStreams::Wait,
        Some(file::DrainStreams::Close) | None => DrainStreams::Close,
    }
}

fn underscores(written: Option<file::UnderscoresInHeaders>) -> Underscores {
    match written {
        Some(file::UnderscoresInHeaders::Allow) => Underscores::Allow,
        Some(file::UnderscoresInHeaders::Reject) => Underscores::Reject,
        Some(file::UnderscoresInHeaders::Drop) | None => Underscores::Drop,
    }
}
