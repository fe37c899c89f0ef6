//! Header fields on their way through: what is stripped, what is added, whom to believe about the client.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{ALT_SVC, CONNECTION, HeaderName, TE};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::early::{EARLY_DATA, MARK};
use super::exchange::{Exchange, canonical};
use super::forwarding::{Forwarding, X_FORWARDED_FOR};
use super::reply::{Cause, Reply};
use crate::config::model::{Settings, Underscores};
use crate::config::snapshot::Route;

const ALT_USED: HeaderName = HeaderName::from_static("alt-used");

/// Forwarding hops read from a client's headers, beyond which the rest is ignored.
const MAX_HOPS: usize = 32;

/// What was seen on the way through the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripped {
    /// The sender takes trailers (`TE: trailers`, which is gone now).
    pub trailers: bool,
    /// There is an `Early-Data`, which stays.
    pub early: bool,
}

/// Which side a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A request from a client.
    Request {
        /// Whether the client is a trusted proxy.
        trusted: bool,
        /// What becomes of names with underscores.
        underscores: Underscores,
    },
    /// A response from a target.
    Response,
}

/// Removes what belongs to one hop only (RFC 9110 §7.6.1): the fields `Connection` names and the well-known ones.
/// From requests it also removes what a client may not say: identity headers, which only this gateway may set, certificates
/// of its own, which only a trusted proxy may pass on, and names with underscores, which CGI and WSGI take for names with
/// hyphens.
pub fn strip(headers: &mut HeaderMap, side: Side) -> Stripped {
    let mut removed: SmallVec<[HeaderName; 8]> = SmallVec::new();
    let mut early = false;
    for name in headers.keys() {
        if is_hop_by_hop(name.as_str()) || is_of_the_side(name, side) {
            removed.push(name.clone());
        }
        early |= *name == EARLY_DATA;
    }
    if removed.is_empty() {
        return Stripped { trailers: false, early };
    }
    let trailers = removed.contains(&TE) && takes_trailers(headers);
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|c| *c == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") || token.eq_ignore_ascii_case(b"keep-alive") {
                // Names no field that is not in the list anyway.
                continue;
            }
            // Framing and Host can't be declared hop-by-hop, or a client could have them removed behind a check.
            if let Ok(name) = HeaderName::from_bytes(token)
                && !is_end_to_end(&name)
            {
                removed.push(name);
            }
        }
    }
    for name in removed {
        headers.remove(name);
    }
    Stripped { trailers, early }
}

/// Whether `TE` has `trailers` among what it lists (RFC 9110 §10.1.4).
fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TE).into_iter().flat_map(|value| value.as_bytes().split(|c| *c == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// What a client may not say of itself, and what a target says of its own address: RFC 7838 speaks of the origin a client
/// asked for, which is the gateway.
fn is_of_the_side(name: &HeaderName, side: Side) -> bool {
    match side {
        Side::Request { trusted, underscores } => {
            may_be_claim(name.as_str().as_bytes()) && is_claim(name, trusted, underscores)
        }
        Side::Response => *name == ALT_SVC,
    }
}

fn is_end_to_end(name: &HeaderName) -> bool {
    *name == http::header::HOST
        || *name == http::header::CONTENT_LENGTH
        || *name == http::header::AUTHORIZATION
        || *name == http::header::COOKIE
        || *name == X_FORWARDED_FOR
        // RFC 8470 §5.1: no intermediary may lose it.
        || *name == EARLY_DATA
}

/// Whether [`is_claim`] has to look at a name: asked of every field of every request, so it is coarse and quick.
fn may_be_claim(name: &[u8]) -> bool {
    has_underscore(name)
        || matches!(
            name,
            [b'x', b'-', b'c' | b'f' | b'r', ..] | [b'c', b'l', b'i', ..] | [b'a', b'l', b't', ..]
        )
}

/// Whether a client may not say this.
fn is_claim(name: &HeaderName, trusted: bool, underscores: Underscores) -> bool {
    *name == ALT_USED
        || is_identity(name.as_str())
        || (!trusted && (is_certificate(name.as_str()) || is_way(name.as_str())))
        || (has_underscore(name.as_str().as_bytes())
            && (underscores != Underscores::Allow || poses(name, trusted)))
}

/// Headers that tell a target who the caller is; believed only from the gateway itself.
fn is_identity(name: &str) -> bool {
    name.starts_with("x-consumer-") || name == "x-credential-identifier"
}

/// Headers that tell a target which certificate the client showed (RFC 9440, and Envoy's).
fn is_certificate(name: &str) -> bool {
    matches!(name, "client-cert" | "client-cert-chain" | "x-forwarded-client-cert")
}

/// What else only a trusted proxy may say about the way here; targets tend to believe it. The gateway does not write these:
/// a plugin may.
fn is_way(name: &str) -> bool {
    matches!(name, "x-real-ip" | "x-forwarded-port" | "x-forwarded-prefix")
}

/// Whether a name with underscores could be taken for one of those that a client may not use or that say where it comes
/// from: those are removed even where underscores are allowed.
fn poses(name: &HeaderName, trusted: bool) -> bool {
    let plain = name.as_str().replace('_', "-");
    is_identity(&plain)
        || (!trusted && is_certificate(&plain))
        || plain.starts_with("x-forwarded-")
        || matches!(plain.as_str(), "x-real-ip" | "content-length" | "transfer-encoding" | "early-data")
}

/// Whether the name has one. Names of 4 to 16 bytes, as most are, are looked at in one or two pieces that may overlap.
fn has_underscore(name: &[u8]) -> bool {
    let has = |word: u64| {
        const ONES: u64 = u64::MAX / 255;
        // A byte that is an underscore becomes zero; a zero borrows from its highest bit.
        let zeros = word ^ (ONES * u64::from(b'_'));
        zeros.wrapping_sub(ONES) & !zeros & (ONES << 7) != 0
    };
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        let ends = has(u64::from_ne_bytes(*first)) || has(u64::from_ne_bytes(*last));
        return ends || (name.len() > 16 && name.contains(&b'_'));
    }
    match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            has(u64::from(u32::from_ne_bytes(*first)) << 32 | u64::from(u32::from_ne_bytes(*last)))
        }
        _ => name.contains(&b'_'),
    }
}

/// Refuses a request with an underscore in a field's name, where the settings say so.
///
/// # Errors
/// The refusal.
pub fn check_names(headers: &HeaderMap, underscores: Underscores) -> Result<(), Box<Reply>> {
    if underscores == Underscores::Reject
        && headers.keys().any(|name| has_underscore(name.as_str().as_bytes()))
    {
        let detail = "a header field's name has an underscore";
        return Err(Box::new(Reply::new(Cause::BadRequest).detail(detail)));
    }
    Ok(())
}

/// Finds the client's address behind trusted proxies: the rightmost hop of `X-Forwarded-For` that is not trusted.
pub fn client_address(exchange: &Exchange, trusted: &[IpNet]) -> IpAddr {
    let peer = canonical(exchange.client.peer.ip());
    if !exchange.client.trusted {
        return peer;
    }
    let mut nearest = peer;
    let values = exchange.request.headers.get_all(X_FORWARDED_FOR);
    let hops = values.iter().rev().flat_map(|value| value.as_bytes().rsplit(|c| *c == b','));
    for hop in hops.take(MAX_HOPS) {
        let Some(address) = parse_hop(hop) else { break };
        nearest = address;
        if !trusted.iter().any(|net| net.contains(&address)) {
            break;
        }
    }
    nearest
}

/// `10.0.0.1`, `10.0.0.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(canonical(address));
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(canonical(address.ip()));
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(canonical)
}

/// Adds what the target should know: the caller, the way here.
///
/// # Errors
/// The request has been here before.
pub fn forward(exchange: &mut Exchange, settings: &Settings, route: &Route) -> Result<(), Box<Reply>> {
    if exchange.early && exchange.client.is_early() {
        exchange.request.headers.insert(EARLY_DATA, MARK);
    }
    exchange.forwarding = Forwarding::of(exchange, settings, route.mark(settings.via.as_ref()))?;
    Ok(())
}

#[cfg(test)]
mod tests;
