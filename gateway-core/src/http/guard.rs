//! What a request must be before anything else looks at it.
//!
//! The adapters refuse what breaks their own framing (conflicting lengths, over-long heads); here stands what is the
//! same for every version: method, Host, target, sizes.

use std::net::IpAddr;

use http::header::{ALLOW, CONTENT_LENGTH, EXPECT, HOST, MAX_FORWARDS};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::body::Body;
use super::exchange::Exchange;
use super::reply::{Cause, Reply};
use crate::config::model::Limits;

/// What is told to those who ask with a method the gateway never takes; a 405 has to tell (RFC 9110 §15.5.6).
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Checks a request's head. Gives its `Host`, which everybody who asks for it need not look up again.
///
/// # Errors
/// The refusal.
pub fn check(exchange: &Exchange, limits: &Limits) -> Result<Option<HeaderValue>, Box<Reply>> {
    let request = &exchange.request;
    // CONNECT asks for a tunnel to anywhere, except in its extended form (RFC 8441, RFC 9220).
    if request.method == Method::TRACE || (request.method == Method::CONNECT && exchange.upgrade.is_none()) {
        return Err(Box::new(Reply::new(Cause::MethodUnknown).header(ALLOW, METHODS)));
    }
    let target_bytes = request.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target_bytes > limits.max_uri {
        return Err(Box::new(Reply::new(Cause::UriTooLong)));
    }
    if request.headers.len() > limits.max_headers {
        return Err(Box::new(Reply::new(Cause::HeadersTooLarge).detail("there are too many header fields")));
    }
    // Over HTTP/1.1 the adapter looks at it, and nobody has to search for it.
    if request.version > http::Version::HTTP_11
        && request
            .headers
            .get(EXPECT)
            .is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        return Err(Box::new(Reply::new(Cause::ExpectationFailed)));
    }
    check_host(&request.uri, &request.headers, request.version)
}

/// Answers OPTIONS that ask the gateway itself: for `*`, or with a `Max-Forwards` that is used up (RFC 9110 §7.6.2,
/// §9.3.7). One with some left is counted down.
///
/// # Errors
/// The answer.
pub fn options(exchange: &mut Exchange) -> Result<(), Box<Reply>> {
    if exchange.request.method != Method::OPTIONS {
        return Ok(());
    }
    let left =
        exchange.request.headers.get(MAX_FORWARDS).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    if exchange.request.uri.path() == "*" || left == Some(0) {
        let answer = Reply { body: Some(Body::empty()), ..Reply::new(Cause::Options) };
        return Err(Box::new(answer.header(ALLOW, METHODS)));
    }
    if let Some(left) = left {
        exchange.request.headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
    }
    Ok(())
}

/// RFC 9112 §3.2: exactly one valid Host in HTTP/1.1; `:authority` (or an absolute target) wins over it.
fn check_host(
    uri: &Uri,
    headers: &HeaderMap,
    version: http::Version,
) -> Result<Option<HeaderValue>, Box<Reply>> {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(Box::new(Reply::new(Cause::BadHost).closing()));
    }
    if let Some(authority) = uri.authority() {
        check_target(uri, authority)?;
    }
    let checked = match (first, uri.authority()) {
        // RFC 9112 §3.2.2: the target wins over Host, which has to be there and valid all the same.
        (host, Some(_)) if version == http::Version::HTTP_11 => match host {
            Some(host) if is_host(host.as_bytes()) => Ok(()),
            _ => Err(Box::new(Reply::new(Cause::BadHost).closing())),
        },
        // RFC 9114 §4.3.1, RFC 9113 §8.3.1: two names could be routed by the one and served by the other.
        (Some(host), Some(authority))
            if version > http::Version::HTTP_11
                && !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Err(Box::new(Reply::new(Cause::BadHost).detail("Host and :authority are not the same")))
        }
        (_, Some(_)) => Ok(()),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        (None, None) if version < http::Version::HTTP_11 => Ok(()),
        _ => Err(Box::new(Reply::new(Cause::BadHost).closing())),
    };
    checked.map(|()| first.cloned())
}

/// What [`Uri`] lets pass: user information (RFC 9110 §4.2.4), ports that are none, schemes the gateway has no targets for.
fn check_target(uri: &Uri, authority: &Authority) -> Result<(), Box<Reply>> {
    let refused = |detail| Err(Box::new(Reply::new(Cause::BadHost).detail(detail).closing()));
    if authority.as_str().contains('@') {
        return refused("user information is not allowed in a target");
    }
    if uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return refused("only http and https targets are served");
    }
    let after_host = authority.as_str().strip_prefix(authority.host());
    if !after_host.is_some_and(|port| is_port(port.as_bytes())) {
        return refused("the port is malformed");
    }
    Ok(())
}

/// Nothing, or a colon and a port; none is beyond 65535.
fn is_port(port: &[u8]) -> bool {
    match port {
        [] | [b':'] => true,
        [b':', digits @ ..] => {
            let add = |port: u16, digit: &u8| match digit {
                b'0'..=b'9' => port.checked_mul(10)?.checked_add(u16::from(digit - b'0')),
                _ => None,
            };
            digits.iter().try_fold(0, add).is_some()
        }
        _ => false,
    }
}

/// A registered name, an IPv4 address or a bracketed IPv6 address, with an optional port.
fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host.first() {
        None => return false,
        Some(b'[') => {
            let Some(end) = memchr::memchr(b']', host) else { return false };
            let literal =
                std::str::from_utf8(&host[1..end]).ok().and_then(|text| text.parse::<IpAddr>().ok());
            if literal.is_none() {
                return false;
            }
            (None, &host[end + 1..])
        }
        Some(_) => {
            let end = memchr::memchr(b':', host).unwrap_or(host.len());
            (Some(&host[..end]), &host[end..])
        }
    };
    let name_ok = name.is_none_or(|name| {
        !name.is_empty()
            && name.len() <= 253
            && name.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_' | b'~' | b'%'))
    });
    name_ok && is_port(port)
}

/// Refuses a body that is declared to be larger than its proxy's `limit` in bytes; zero is no limit.
///
/// # Errors
/// The refusal.
pub fn check_body(exchange: &Exchange, limit: u64) -> Result<(), Box<Reply>> {
    if let Some(length) = exchange.body.exact_length() {
        // The adapter has read what was declared.
        return if limit > 0 && length > limit { Err(too_large()) } else { Ok(()) };
    }
    let Some(length) = exchange.request.headers.get(CONTENT_LENGTH) else { return Ok(()) };
    let Some(length) = length.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else {
        return Err(Box::new(
            Reply::new(Cause::BadRequest).detail("content-length is not a number").closing(),
        ));
    };
    if limit > 0 && length > limit { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> Box<Reply> {
    Box::new(Reply::new(Cause::BodyTooLarge).closing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for good in ["a", "a.example:80", "10.0.0.1:65535", "[::1]:8000", "[::1]", "my_host"] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in
            ["", ":80", "a b", "a/b", "a:b", "[::1", "[::1]x", "a@b", "a:123456", "a:65536", "a:+1", "a,b"]
        {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
