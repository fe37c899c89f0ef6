//! Single values of a request's head: a header, a cookie, a query parameter.

use std::ops::Deref;

use http::header::{COOKIE, HeaderName};
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// A value, in its place or put together from there. Short ones take no memory of their own.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for a comparison; boxing it would be the allocation it avoids"
)]
pub enum Value<'a> {
    /// As it stands in the head.
    Borrowed(&'a [u8]),
    /// Joined or decoded.
    Made(SmallVec<[u8; 256]>),
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}

/// A header's value. Several fields of one name count as one, joined by `, ` (RFC 9110 §5.3).
pub fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Value<'h>> {
    let mut fields = headers.get_all(name).iter();
    let first = fields.next()?;
    let Some(second) = fields.next() else { return Some(Value::Borrowed(first.as_bytes())) };
    let mut joined = SmallVec::from_slice(first.as_bytes());
    for field in std::iter::once(second).chain(fields) {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(field.as_bytes());
    }
    Some(Value::Made(joined))
}

/// The first cookie of this name, as the client sent it.
pub fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    cookies(headers, name).next()
}

/// Every cookie of this name, as the client sent them.
pub fn cookies<'h, 'n>(
    headers: &'h HeaderMap,
    name: &'n str,
) -> impl Iterator<Item = &'h [u8]> + use<'h, 'n> {
    let pairs = |field: &'h HeaderValue| field.as_bytes().split(|c| *c == b';');
    headers.get_all(COOKIE).iter().flat_map(pairs).filter_map(move |pair| {
        let value = pair.trim_ascii_start().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=").map(<[u8]>::trim_ascii_end)
    })
}

/// The first query parameter of this name, decoded: `+` is a space, `%41` is `A`; what is broken stays as it is.
///
/// `name` is the decoded name. A parameter without `=` has an empty value. Borrowed where nothing is encoded.
pub fn query<'q>(query: Option<&'q str>, name: &str) -> Option<Value<'q>> {
    query?.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_it = if is_plain(key) { key == name } else { *decode(key) == *name.as_bytes() };
        is_it.then(|| decode(value))
    })
}

fn is_plain(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'%' | b'+'))
}

fn decode(text: &str) -> Value<'_> {
    if is_plain(text) {
        return Value::Borrowed(text.as_bytes());
    }
    let spaced: SmallVec<[u8; 256]> = text.bytes().map(|b| if b == b'+' { b' ' } else { b }).collect();
    Value::Made(percent_encoding::percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let cases = [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&a=2", "a", Some("1")),
            ("a", "a", Some("")),
            ("a=", "a", Some("")),
            ("ab=1", "a", None),
            ("a=1%202+3&b=%zz", "a", Some("1 2 3")),
            ("a=1%202+3&b=%zz", "b", Some("%zz")),
            ("%61+b=c", "a b", Some("c")),
            ("a=b=c", "a", Some("b=c")),
            ("", "a", None),
        ];
        for (text, name, expected) in cases {
            let found = query(Some(text), name);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text} {name}");
        }
        assert!(query(None, "a").is_none());
    }

    #[test]
    fn cookies_and_headers() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; bb=2;c = 3"));
        headers.append(COOKIE, HeaderValue::from_static("d=4 ; a=5"));
        let cases = [("a", Some("1")), ("b", None), ("bb", Some("2")), ("d", Some("4")), ("c", None)];
        for (name, expected) in cases {
            assert_eq!(cookie(&headers, name), expected.map(str::as_bytes), "{name}");
        }
        let name = HeaderName::from_static("x-a");
        assert!(header(&headers, &name).is_none());
        headers.append(&name, HeaderValue::from_static("1"));
        assert!(matches!(header(&headers, &name), Some(Value::Borrowed(b"1"))));
        headers.append(&name, HeaderValue::from_static("2"));
        assert_eq!(header(&headers, &name).as_deref(), Some(&b"1, 2"[..]));
    }
}
