//! How sockets to targets are made.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::TargetProtocol;
use crate::file;
use crate::model::{BackendHttp, Scheme, SocketRules, Upstream};
use crate::resolve::known::WrittenSockets;
use crate::resolve::{Notes, words};

/// What an upstream says for its proxies; `None` when nothing of it is written.
pub(in crate::resolve) fn of_upstream(
    notes: &mut Notes<'_>,
    written: &file::Upstream,
) -> Option<WrittenSockets> {
    let source = written.backend_source_address.clone();
    let interface = written.backend_interface.clone();
    // What it means is found for each proxy; what is wrong with it is told here, once.
    source.as_deref().map(|text| notes.value("backend_source_address", words::address(text)));
    interface.as_deref().map(|name| self::interface(notes, name));
    if written.backend_transparent == Some(true) && source.is_some() {
        both_sources(notes);
    }
    let sockets = WrittenSockets {
        source,
        interface,
        transparent: written.backend_transparent,
        user_timeout: written.backend_tcp_user_timeout,
        mptcp: written.backend_mptcp,
    };
    (sockets != WrittenSockets::default()).then_some(sockets)
}

/// `None` when nothing of it is written, by the proxy or by its upstream.
pub(super) fn sockets(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    protocol: TargetProtocol,
    upstream: &Upstream,
    shared: Option<&WrittenSockets>,
) -> Option<SocketRules> {
    let none = WrittenSockets::default();
    let shared = shared.unwrap_or(&none);
    let own_source = written.backend_source_address.as_deref();
    let own_interface = written.backend_interface.as_deref();
    let source = match own_source {
        Some(text) => notes.value("backend_source_address", words::address(text)),
        // An address of the proxy's own, or the client's, takes the place of the upstream's.
        None if written.backend_transparent == Some(true) => None,
        None => shared.source.as_deref().and_then(|text| words::address(text).ok()),
    };
    let transparent = match written.backend_transparent {
        Some(transparent) => transparent,
        None => own_source.is_none() && shared.transparent == Some(true),
    };
    let rules = SocketRules {
        source,
        interface: match own_interface {
            Some(name) => interface(notes, name),
            None => shared.interface.as_deref().map(Arc::from),
        },
        transparent,
        user_timeout: written
            .backend_tcp_user_timeout
            .or(shared.user_timeout)
            .map(|timeout| words::millis(Some(timeout), Duration::ZERO)),
        mptcp: written.backend_mptcp.or(shared.mptcp).unwrap_or(false),
        copies: written.backend_splice == Some(false),
    };
    if transparent && own_source.is_some() {
        both_sources(notes);
    }
    let given = [
        ("backend_source_address", rules.source.is_some(), own_source.is_some()),
        ("backend_interface", rules.interface.is_some(), own_interface.is_some()),
        ("backend_transparent", transparent, written.backend_transparent == Some(true)),
        (
            "backend_tcp_user_timeout",
            rules.user_timeout.is_some(),
            written.backend_tcp_user_timeout.is_some(),
        ),
        ("backend_mptcp", rules.mptcp, written.backend_mptcp == Some(true)),
        ("backend_splice", written.backend_splice.is_some(), true),
    ];
    let socket = upstream.targets.iter().find(|target| target.socket().is_some());
    for (key, _, is_own) in given.into_iter().filter(|(_, is_given, _)| *is_given) {
        let mut refuse = |message: String, remedy: &str| {
            let (at, message) = match is_own {
                true => (key, message),
                false => ("upstream_id", format!("`{key}` of the upstream `{}`: {message}", upstream.id)),
            };
            notes.add(at, message).remedy = Some(remedy.to_owned());
        };
        if let Some((message, remedy)) = without_effect(key, protocol) {
            refuse(message.to_owned(), remedy);
        } else if let Some(target) = socket {
            refuse(format!("`{}` is a Unix socket", target.host), "remove it");
        }
    }
    for target in &upstream.targets {
        let (Some(source), Ok(address)) = (rules.source, target.host.parse::<IpAddr>()) else { continue };
        if source.is_ipv4() != address.is_ipv4() {
            let message =
                format!("{source} can't connect to {address}, which is of the other address family");
            let at = if own_source.is_some() { "backend_source_address" } else { "upstream_id" };
            notes.add(at, message).remedy = Some("use an address of its family".to_owned());
        }
    }
    (rules != SocketRules::default()).then_some(rules)
}

fn both_sources(notes: &mut Notes<'_>) {
    notes.add("backend_source_address", "`backend_transparent` connects from the client's address").remedy =
        Some("keep one of the two".to_owned());
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
        ("backend_splice", scheme) if scheme != Scheme::Tcp => {
            Some(("only plain TCP streams are moved inside the kernel", "remove it"))
        }
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
