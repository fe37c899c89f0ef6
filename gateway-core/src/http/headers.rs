//! Header fields on their way through: what is stripped, what is added, whom to believe about the client.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{ALT_SVC, CONNECTION, FORWARDED, HeaderName, TE};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::early::EARLY_DATA;
use super::exchange::{Exchange, canonical};
use super::forwarding::X_FORWARDED_FOR;
use super::names::{has_underscore, is_claim, is_hop_by_hop, may_be_claim};
use super::reply::{Cause, Reply};
use crate::config::model::{RealIpHeader, Settings, Underscores};

/// Forwarding hops read from a client's headers, beyond which the rest is ignored.
const MAX_HOPS: usize = 32;

/// What was seen on the way through the fields.
#[derive(Debug, Default)]
pub struct Stripped {
    /// The sender takes trailers (`TE: trailers`, which is gone now).
    pub trailers: bool,
    /// There is an `Early-Data`, which stays.
    pub early: bool,
    /// What a request's client said to this hop, for conditions. `Connection: keep-alive` or `close` and `TE: trailers` by themselves
    /// are left out: nearly every request has them.
    pub hop: Option<Box<HeaderMap>>,
}

/// Which side a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSource {
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
pub fn strip(headers: &mut HeaderMap, side: MessageSource) -> Stripped {
    let mut removed: SmallVec<[HeaderName; 8]> = SmallVec::new();
    let mut early = false;
    match side {
        MessageSource::Request { trusted, underscores } => {
            for name in headers.keys() {
                let text = name.as_str();
                let is_forbidden = may_be_claim(text.as_bytes()) && is_claim(name, trusted, underscores);
                if is_forbidden || is_hop_by_hop(text) {
                    removed.push(name.clone());
                }
                early |= *name == EARLY_DATA;
            }
        }
        // What a target says of its own address: RFC 7838 speaks of the origin a client asked for, which is the gateway.
        MessageSource::Response => {
            let goes = |name: &&HeaderName| is_hop_by_hop(name.as_str()) || **name == ALT_SVC;
            removed.extend(headers.keys().filter(goes).cloned());
        }
    }
    if removed.is_empty() {
        return Stripped { early, ..Stripped::default() };
    }
    let trailers = removed.contains(&TE) && takes_trailers(headers);
    let mut names_fields = false;
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|c| *c == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") || token.eq_ignore_ascii_case(b"keep-alive") {
                // Names no field that is not in the list anyway.
                continue;
            }
            names_fields = true;
            // Framing and Host can't be declared hop-by-hop, or a client could have them removed behind a check.
            if let Ok(name) = HeaderName::from_bytes(token)
                && !is_end_to_end(&name)
            {
                removed.push(name);
            }
        }
    }
    let mut hop = None;
    for name in removed {
        let is_usual = (name == CONNECTION && !names_fields)
            || (name == TE && headers.get(TE).is_some_and(|value| value == "trailers"));
        if let MessageSource::Request { trusted, underscores } = side
            && !is_usual
            && !is_claim(&name, trusted, underscores)
        {
            let hop: &mut Box<HeaderMap> = hop.get_or_insert_default();
            hop.extend(headers.get_all(&name).iter().map(|value| (name.clone(), value.clone())));
        }
        headers.remove(name);
    }
    Stripped { trailers, early, hop }
}

/// Whether `TE` has `trailers` among what it lists (RFC 9110 §10.1.4).
fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TE).into_iter().flat_map(|value| value.as_bytes().split(|c| *c == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
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

/// Finds the client's address behind trusted proxies: the rightmost hop that is not trusted, of the field that names them.
/// What a client that is not trusted says in that field is removed.
pub fn client_address(exchange: &mut Exchange, settings: &Settings) -> IpAddr {
    let peer = canonical(exchange.client.peer.ip());
    if !exchange.client.trusted {
        if let RealIpHeader::Other(name) = &settings.real_ip_header {
            exchange.remove_header(name);
        }
        return peer;
    }
    let (headers, trusted) = (&exchange.request.headers, &settings.trusted_proxies);
    let listed =
        |name| headers.get_all(name).iter().rev().flat_map(|value| value.as_bytes().rsplit(|c| *c == b','));
    let hop = match &settings.real_ip_header {
        RealIpHeader::XForwardedFor => nearest(listed(&X_FORWARDED_FOR).map(parse_hop), trusted),
        RealIpHeader::Other(name) => nearest(listed(name).map(parse_hop), trusted),
        RealIpHeader::Forwarded => {
            let values = headers.get_all(FORWARDED).iter().rev();
            let elements =
                values.flat_map(|value| UnquotedParts { rest: Some(value.as_bytes()), separator: b',' });
            nearest(elements.map(forwarded_hop), trusted)
        }
    };
    hop.unwrap_or(peer)
}

/// The first address that is not trusted, of those from the right, or the last that can be read.
fn nearest(hops: impl Iterator<Item = Option<IpAddr>>, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut nearest = None;
    for hop in hops.take(MAX_HOPS) {
        let Some(address) = hop else { break };
        nearest = Some(address);
        if !trusted.iter().any(|net| net.contains(&address)) {
            break;
        }
    }
    nearest
}

/// The parts of a text between separators outside of quotes, from the right: that is where proxies add, and what stands
/// left of it may be anything.
pub(super) struct UnquotedParts<'v> {
    pub(super) rest: Option<&'v [u8]>,
    pub(super) separator: u8,
}

impl<'v> Iterator for UnquotedParts<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let rest = self.rest.take()?;
        let mut quoted = false;
        for (at, byte) in rest.iter().enumerate().rev() {
            let escapes = || rest[..at].iter().rev().take_while(|c| **c == b'\\').count();
            if *byte == b'"' && escapes().is_multiple_of(2) {
                quoted = !quoted;
            } else if *byte == self.separator && !quoted {
                self.rest = Some(&rest[..at]);
                return Some(&rest[at + 1..]);
            }
        }
        Some(rest)
    }
}

/// The address of an element's `for` (RFC 7239 §6); `None` for `unknown` and for names that hide it.
fn forwarded_hop(element: &[u8]) -> Option<IpAddr> {
    let node = UnquotedParts { rest: Some(element), separator: b';' }.find_map(|pair| {
        let at = pair.iter().position(|c| *c == b'=')?;
        pair[..at].trim_ascii().eq_ignore_ascii_case(b"for").then(|| pair[at + 1..].trim_ascii())
    })?;
    let quoted = node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\""));
    parse_hop(quoted.unwrap_or(node))
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

#[cfg(test)]
mod tests;
