//! Header fields on their way through: what is stripped, what is added, whom to believe about the client.

use std::net::IpAddr;

use http::header::{
    ALT_SVC, CONNECTION, FORWARDED, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderValue, Version};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::early::{EARLY_DATA, MARK};
use super::exchange::{Exchange, canonical};
use crate::config::model::Settings;

/// `X-Forwarded-For`
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `X-Forwarded-Proto`
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// `X-Forwarded-Host`
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const ALT_USED: HeaderName = HeaderName::from_static("alt-used");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_CONSUMER_USERNAME: HeaderName = HeaderName::from_static("x-consumer-username");
const X_CONSUMER_ID: HeaderName = HeaderName::from_static("x-consumer-id");
const X_CONSUMER_CUSTOM_ID: HeaderName = HeaderName::from_static("x-consumer-custom-id");
const X_CONSUMER_GROUPS: HeaderName = HeaderName::from_static("x-consumer-groups");

/// What else only a trusted proxy may say about the way here; targets tend to believe it.
const CLAIMS: [HeaderName; 3] = [
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
];

/// Forwarding hops read from a client's headers, beyond which the rest is ignored.
const MAX_HOPS: usize = 32;

/// Which side a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A request from a client.
    Request,
    /// A response from a target.
    Response,
}

/// Removes what belongs to one hop only (RFC 9110 §7.6.1): the fields `Connection` names and the well-known ones.
/// From requests it also removes identity headers, which only this gateway may set.
pub fn strip(headers: &mut HeaderMap, side: Side) {
    let mut doomed: SmallVec<[HeaderName; 8]> = SmallVec::new();
    for name in headers.keys() {
        if is_hop_by_hop(name) || is_of_the_side(name, side) {
            doomed.push(name.clone());
        }
    }
    if doomed.is_empty() {
        return;
    }
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|c| *c == b',') {
            // `close` and `keep-alive` name no field; framing and Host can't be declared hop-by-hop, or a client
            // could have them removed behind a check.
            if let Ok(name) = HeaderName::from_bytes(token.trim_ascii())
                && !is_end_to_end(&name)
            {
                doomed.push(name);
            }
        }
    }
    for name in doomed {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
        || *name == TE
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == PROXY_AUTHENTICATE
        || *name == PROXY_AUTHORIZATION
}

/// What a client may not say of itself, and what a target says of its own address: RFC 7838 speaks of the origin a client
/// asked for, which is the gateway.
fn is_of_the_side(name: &HeaderName, side: Side) -> bool {
    match side {
        Side::Request => is_identity(name) || *name == ALT_USED,
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

/// Headers that tell a target who the caller is; believed only from the gateway itself.
fn is_identity(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-consumer-") || name.as_str() == "x-credential-identifier"
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

/// Adds what the target should know of the way here: `X-Forwarded-*`, `Forwarded` (RFC 7239), `Via`, the caller.
///
/// What an untrusted client claims about itself is replaced, not extended.
pub fn forward(exchange: &mut Exchange, settings: &Settings) {
    let host = host_value(exchange);
    let client = exchange.client.clone();
    if exchange.early && client.is_early() {
        exchange.request.headers.insert(EARLY_DATA, MARK);
    }
    let headers = &mut exchange.request.headers;
    let scheme = HeaderValue::from_static(client.scheme());
    if client.trusted {
        append(headers, X_FORWARDED_FOR, &client.peer_text);
        headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
        if let Some(host) = &host {
            headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
        }
    } else {
        headers.insert(X_FORWARDED_FOR, client.peer_text.clone());
        headers.insert(X_FORWARDED_PROTO, scheme);
        match &host {
            Some(host) => headers.insert(X_FORWARDED_HOST, host.clone()),
            None => headers.remove(X_FORWARDED_HOST),
        };
        // Looking once through the few fields there are costs less than looking each claim up.
        if headers.keys().any(|name| CLAIMS.contains(name)) {
            for claim in CLAIMS {
                headers.remove(claim);
            }
        }
    }
    if settings.forwarded_header {
        add_forwarded(headers, &client, host.as_ref());
    } else if !client.trusted {
        headers.remove(FORWARDED);
    }
    if let Some(via) = &settings.via {
        add_via(headers, exchange.request.version, via);
    }
    add_identity(exchange);
}

/// The host the client asked for, as a header value that shares its bytes where it can.
fn host_value(exchange: &Exchange) -> Option<HeaderValue> {
    match exchange.request.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => exchange.request.headers.get(http::header::HOST).cloned(),
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value.clone());
        return;
    }
    // Several fields of a list are one list (RFC 9110 §5.3); joined, because many targets read only the first.
    let mut joined = Vec::new();
    for field in headers.get_all(&name) {
        joined.extend_from_slice(field.as_bytes());
        joined.extend_from_slice(b", ");
    }
    joined.extend_from_slice(value.as_bytes());
    if let Ok(joined) = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)) {
        headers.insert(name, joined);
    }
}

fn add_forwarded(headers: &mut HeaderMap, client: &super::exchange::Client, host: Option<&HeaderValue>) {
    let node = match canonical(client.peer.ip()) {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
    let host = host.map_or_else(String::new, |host| format!(";host=\"{host}\""));
    let Ok(value) = HeaderValue::from_str(&format!("{node};proto={}{host}", client.scheme())) else { return };
    if client.trusted {
        append(headers, FORWARDED, &value);
    } else {
        headers.insert(FORWARDED, value);
    }
}

fn add_via(headers: &mut HeaderMap, version: Version, name: &str) {
    let protocol = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    // The default name is by far the most common; its values need no allocation.
    let value = match (protocol, name) {
        ("1.1", "ferrum-edge") => HeaderValue::from_static("1.1 ferrum-edge"),
        ("2", "ferrum-edge") => HeaderValue::from_static("2 ferrum-edge"),
        ("3", "ferrum-edge") => HeaderValue::from_static("3 ferrum-edge"),
        _ => match HeaderValue::from_str(&format!("{protocol} {name}")) {
            Ok(value) => value,
            Err(_) => return,
        },
    };
    append(headers, VIA, &value);
}

fn add_identity(exchange: &mut Exchange) {
    let Some(identity) = &exchange.identity else { return };
    let headers = &mut exchange.request.headers;
    let mut set = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    set(X_CONSUMER_USERNAME, &identity.name);
    if let Some(consumer) = &identity.consumer {
        set(X_CONSUMER_ID, consumer.id.as_str());
        if let Some(custom_id) = &consumer.custom_id {
            set(X_CONSUMER_CUSTOM_ID, custom_id);
        }
        if !consumer.acl_groups.is_empty() {
            set(X_CONSUMER_GROUPS, &consumer.acl_groups.join(", "));
        }
    }
}

#[cfg(test)]
mod tests;
