//! What is recorded of a request whose head could not be read.

use std::sync::Arc;

use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::{Cause, Reply};
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri, Version};

use crate::h1::head::HeadError;

/// Bytes of a request target that are recorded.
const MAX_TARGET: usize = 2048;
/// Bytes of a method that are recorded.
const MAX_METHOD: usize = 32;

/// Stands in for a request that could not be read: with the method and target of its first line as far as those are
/// there, else `-` and `/`. Bytes that no URI has are percent-encoded.
pub(super) fn exchange(read: &[u8], client: &Arc<Client>) -> Box<Exchange> {
    let line = read.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.splitn(2, |byte| *byte == b' ');
    let method = words.next().filter(|word| !word.is_empty() && word.len() <= MAX_METHOD);
    let method = method.and_then(|word| Method::from_bytes(word).ok());
    // What is no method is no request line either, such as TLS spoken to a plain port.
    let target = words.next().filter(|_| method.is_some()).unwrap_or_default();
    let target = target.split(|byte| *byte == b' ').next().unwrap_or_default();
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method.or_else(|| Method::from_bytes(b"-").ok()).unwrap_or(Method::GET);
    *request.uri_mut() = encoded(target).parse().unwrap_or_else(|_| Uri::from_static("/"));
    *request.version_mut() = Version::HTTP_11;
    // Whose software it is has to be found by somebody; a head that is garbage before them has neither.
    for name in [HOST, USER_AGENT] {
        if let Some(value) = field(read, name.as_str()).and_then(|value| HeaderValue::from_bytes(value).ok())
        {
            request.headers_mut().insert(name, value);
        }
    }
    Box::new(Exchange::new(request, client.clone()))
}

/// The first field of this name, as far as the head was read.
fn field<'r>(read: &'r [u8], name: &str) -> Option<&'r [u8]> {
    let lines = read.split(|byte| *byte == b'\n').skip(1);
    let mut head = lines.map(<[u8]>::trim_ascii).take_while(|line| !line.is_empty());
    head.find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":").filter(|_| key.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(value.trim_ascii())
    })
    .filter(|value| !value.is_empty() && value.len() <= MAX_TARGET)
}

fn encoded(target: &[u8]) -> String {
    let mut text = String::with_capacity(target.len().min(MAX_TARGET));
    for byte in target.iter().take(MAX_TARGET) {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => escape(&mut text, *byte),
            b'!'..=b'~' => text.push(char::from(*byte)),
            _ => escape(&mut text, *byte),
        }
    }
    text
}

fn escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The answer to it, which says what is wrong.
pub(super) fn reply(error: HeadError) -> Reply {
    let cause = match error {
        HeadError::TooLarge | HeadError::TooMany => Cause::HeadersTooLarge,
        HeadError::TargetTooLong => Cause::UriTooLong,
        HeadError::Coding => Cause::CodingUnsupported,
        HeadError::Version => Cause::HttpVersionUnsupported,
        HeadError::Malformed(_) => Cause::BadRequest,
    };
    Reply::new(cause).detail(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_as_can_be_told_of_a_request() {
        let address = ([127, 0, 0, 1], 1).into();
        let client = Arc::new(Client::new(address, address, false, None));
        for (read, method, target) in [
            (&b"GET /a?b=c HTTP/1.1\r\nhost"[..], "GET", "/a?b=c"),
            (b"GET /a\"<b> HTTP/1.1\r\n", "GET", "/a%22%3Cb%3E"),
            (b"GET /\xff\x01 HTTP/1.1", "GET", "/%FF%01"),
            (b"PURGE http://a.test/x HTTP/9", "PURGE", "http://a.test/x"),
            (b"GET", "GET", "/"),
            (b"\x16\x03\x01 x", "-", "/"),
            (b"", "-", "/"),
        ] {
            let exchange = exchange(read, &client);
            let found = (exchange.request.method.as_str(), exchange.request.uri.to_string());
            assert_eq!(found, (method, target.to_owned()), "{read:?}");
        }
        let read = b"GET /\"a HTTP/1.1\r\nHOST: a.test:80\r\nx\r\nUser-Agent:  old/1 \r\n\r\nhost: body\r\n";
        let exchange = exchange(read, &client);
        assert_eq!(exchange.authority(), Some("a.test:80"));
        assert_eq!(exchange.request.headers[USER_AGENT], "old/1");
        let exchange = super::exchange(b"GET / HTTP/1.1\r\n\r\nhost: body\r\n", &client);
        assert_eq!(exchange.authority(), None);
        let long = [b"GET /".as_slice(), &[b'a'; 10_000]].concat();
        assert_eq!(super::exchange(&long, &client).request.uri.path().len(), MAX_TARGET);
    }
}
