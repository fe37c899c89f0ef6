//! What a request must be before anything else looks at it.
//!
//! The adapters refuse what breaks their own framing (conflicting lengths, over-long heads); here stands what is the
//! same for every version: method, Host, target, sizes. A request is routed by the very path that is forwarded, so
//! that no spelling of a path slips past a plugin.

use std::borrow::Cow;
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

/// Checks a request's head.
///
/// # Errors
/// The refusal.
pub fn check(exchange: &Exchange, limits: &Limits) -> Result<(), Box<Reply>> {
    let request = &exchange.request;
    // CONNECT asks for a tunnel to anywhere, except in its extended form (RFC 8441, RFC 9220).
    if request.method == Method::TRACE || (request.method == Method::CONNECT && exchange.upgrade.is_none()) {
        return Err(Box::new(Reply::new(Cause::MethodUnknown).header(ALLOW, METHODS)));
    }
    let target_bytes = request.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target_bytes > limits.max_uri_bytes {
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
fn check_host(uri: &Uri, headers: &HeaderMap, version: http::Version) -> Result<(), Box<Reply>> {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(Box::new(Reply::new(Cause::BadHost).closing()));
    }
    if let Some(authority) = uri.authority() {
        check_target(uri, authority)?;
    }
    match (first, uri.authority()) {
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
    }
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
            let digits =
                std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
            digits.is_some_and(|text| text.parse::<u16>().is_ok())
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

/// The path to route and forward by: dot segments resolved, doubled slashes merged, escaped unreserved characters
/// written plainly (RFC 3986 §6.2.2), the query untouched. Borrowed when it was clean already, which is the rule.
///
/// # Errors
/// A path that no two readers agree on: a NUL, a backslash, a broken escape, a fragment.
pub fn normalise(path_and_query: &str) -> Result<Cow<'_, str>, Box<Reply>> {
    let bytes = path_and_query.as_bytes();
    let end = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let path = &bytes[..end];
    if path == b"*" {
        return Ok(Cow::Borrowed(path_and_query));
    }
    let mut previous = 0_u8;
    let mut clean = path.first() == Some(&b'/');
    for &c in path {
        match c {
            b'%' | b'\\' | b'#' | 0..=b' ' | 0x7f => clean = false,
            b'/' | b'.' if previous == b'/' => clean = false,
            _ => {}
        }
        previous = c;
    }
    if clean {
        return Ok(Cow::Borrowed(path_and_query));
    }
    let mut clean = rebuild(path)?;
    clean.push_str(&String::from_utf8_lossy(&bytes[end..]));
    Ok(Cow::Owned(clean))
}

fn rebuild(path: &[u8]) -> Result<String, Box<Reply>> {
    let bad = || Box::new(Reply::new(Cause::BadRequest).detail("the request target is malformed"));
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        match c {
            b'%' => {
                let [high, low, tail @ ..] = rest else { return Err(bad()) };
                let (Some(high), Some(low)) = (hex(*high), hex(*low)) else { return Err(bad()) };
                let value = high << 4 | low;
                rest = tail;
                match value {
                    0 | b'\\' => return Err(bad()),
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        decoded.push(value)
                    }
                    _ => decoded.extend_from_slice(&[b'%', HEX[usize::from(high)], HEX[usize::from(low)]]),
                }
            }
            b'\\' | b'#' | 0..=b' ' | 0x7f => return Err(bad()),
            _ => decoded.push(c),
        }
    }
    let mut out: Vec<&[u8]> = Vec::new();
    let mut segments = decoded.split(|c| *c == b'/').peekable();
    let mut trailing_slash = false;
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"" => trailing_slash = last,
            b"." => trailing_slash = last,
            b".." => {
                out.pop();
                trailing_slash = last;
            }
            _ => out.push(segment),
        }
    }
    let mut clean = String::with_capacity(decoded.len());
    for segment in &out {
        clean.push('/');
        clean.push_str(std::str::from_utf8(segment).map_err(|_| bad())?);
    }
    if trailing_slash || out.is_empty() {
        clean.push('/');
    }
    Ok(clean)
}

fn hex(c: u8) -> Option<u8> {
    (c as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

const HEX: [u8; 16] = *b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn path(given: &str, expected: Option<&str>) {
        assert_eq!(normalise(given).ok().as_deref(), expected, "{given}");
    }

    #[test]
    fn paths_have_one_spelling() {
        path("/", Some("/"));
        path("/a/b?x=/../%2e", Some("/a/b?x=/../%2e"));
        path("/a/./b/../c", Some("/a/c"));
        path("/a/%2e%2E/admin", Some("/admin"));
        path("//admin///x", Some("/admin/x"));
        path("/../../etc", Some("/etc"));
        path("/a/..", Some("/"));
        path("/a/b/.", Some("/a/b/"));
        path("/%41%7e%2f%3f", Some("/A~%2F%3F"));
        path("/.well-known/x", Some("/.well-known/x"));
        path("*", Some("*"));
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for bad in ["/a%00b", "/a%5cb", "/a\\b", "/a%2", "/a%zz", "/a#b"] {
            path(bad, None);
        }
    }

    #[test]
    fn normalising_twice_changes_nothing() {
        for given in ["/a/./b/../c", "//x//", "/%41%2f", "/..//..//a/"] {
            let once = normalise(given).unwrap().into_owned();
            assert_eq!(normalise(&once).unwrap(), once);
        }
    }

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
