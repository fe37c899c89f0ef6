//! How sockets to targets are made.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::TargetProtocol;
use crate::file;
use crate::model::{BackendHttp, Scheme, SocketRules, Upstream};
use crate::resolve::{Notes, words};

/// `None` when nothing of it is written.
pub(super) fn sockets(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    protocol: TargetProtocol,
    upstream: &Upstream,
) -> Option<SocketRules> {
    let source = written.backend_source_address.as_deref();
    let transparent = written.backend_transparent.unwrap_or(false);
    let interface = written.backend_interface.as_deref();
    let rules = SocketRules {
        source: source.and_then(|text| notes.value("backend_source_address", words::address(text))),
        interface: interface.and_then(|name| self::interface(notes, name)),
        transparent,
        user_timeout: written
            .backend_tcp_user_timeout
            .map(|timeout| words::millis(Some(timeout), Duration::ZERO)),
        mptcp: written.backend_mptcp.unwrap_or(false),
    };
    if transparent && source.is_some() {
        notes
            .add("backend_source_address", "`backend_transparent` connects from the client's address")
            .remedy = Some("keep one of the two".to_owned());
    }
    let given = [
        ("backend_source_address", source.is_some()),
        ("backend_interface", interface.is_some()),
        ("backend_transparent", transparent),
        ("backend_tcp_user_timeout", rules.user_timeout.is_some()),
        ("backend_mptcp", rules.mptcp),
    ];
    let socket = upstream.targets.iter().find(|target| target.socket().is_some());
    for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        if let Some((message, remedy)) = without_effect(key, protocol) {
            notes.add(key, message).remedy = Some(remedy.to_owned());
        } else if let Some(target) = socket {
            notes.add(key, format!("`{}` is a Unix socket", target.host)).remedy =
                Some("remove it".to_owned());
        }
    }
    for target in &upstream.targets {
        let (Some(source), Ok(address)) = (rules.source, target.host.parse::<IpAddr>()) else { continue };
        if source.is_ipv4() != address.is_ipv4() {
            let message =
                format!("{source} can't connect to {address}, which is of the other address family");
            notes.add("backend_source_address", message).remedy =
                Some("use an address of its family".to_owned());
        }
    }
    (rules != SocketRules::default()).then_some(rules)
}

/// Why a setting does nothing for targets of this protocol, and what to do.
fn without_effect(key: &str, protocol: TargetProtocol) -> Option<(&'static str, &'static str)> {
    if protocol.version == BackendHttp::Http3 {
        return Some(("HTTP/3 does not have this", "remove it, or use another `backend_http_version`"));
    }
    match (key, protocol.scheme) {
        ("backend_transparent", Scheme::Http | Scheme::Https) => Some((
            "clients share the connections to HTTP targets",
            "remove it; targets get the client's address in `X-Forwarded-For`",
        )),
        ("backend_tcp_user_timeout" | "backend_mptcp", Scheme::Udp | Scheme::Dtls) => {
            Some(("a UDP proxy does not have this", "remove it"))
        }
        _ => None,
    }
}

/// The name of a network interface, as Linux has them.
fn interface(notes: &mut Notes<'_>, name: &str) -> Option<Arc<str>> {
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > 15 || matches!(name, "." | "..") || name.contains(is_bad) {
        notes.add("backend_interface", format!("`{name}` is not a valid interface name")).remedy =
            Some("such as `eth1`; `ip link` lists them".to_owned());
        return None;
    }
    Some(Arc::from(name))
}
