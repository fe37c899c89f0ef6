//! Queries without their secrets.

use gateway_core::config::snapshot::ProxyState;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::json;

/// Parameters whose values are never logged, in lower case.
const SECRETS: &[&str] = &[
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "assertion",
    "auth",
    "authorization",
    "client_assertion",
    "client_secret",
    "code",
    "credential",
    "credentials",
    "id_token",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "pwd",
    "refresh_token",
    "secret",
    "session",
    "session_id",
    "sessionid",
    "sig",
    "signature",
    "subscription-key",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-api-key",
    "x-goog-signature",
];

/// Query parameters whose values are never shown, in lower case, beside the well-known ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Secrets<'a> {
    /// As the operator names them.
    pub configured: &'a [Box<str>],
    /// As the proxy's plugins read credentials from them.
    pub of_plugins: &'a [Box<str>],
}

impl<'a> Secrets<'a> {
    /// Those of a proxy's plugins, beside the operator's.
    pub fn of(route: Option<&'a ProxyState>, configured: &'a [Box<str>]) -> Self {
        Self { configured, of_plugins: route.map_or(&[], |route| route.plugins.secrets()) }
    }
}

/// What stands in a value's place.
const BLANK: &[u8] = b"REDACTED";
/// A name longer than this is none of [`SECRETS`].
const MAX_NAME: usize = 128;

/// Appends the query, escaped for JSON, its secrets blanked out.
pub fn query(out: &mut Vec<u8>, query: &str, secrets: Secrets<'_>) {
    let bytes = query.as_bytes();
    let bytes = &bytes[..bytes.len().min(json::MAX_TEXT)];
    // Some servers part parameters at semicolons too, so both are borders.
    let mut start = 0;
    loop {
        let end = memchr::memchr2(b'&', b';', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        parameter(out, &bytes[start..end], secrets);
        let Some(border) = bytes.get(end) else { return };
        out.push(*border);
        start = end + 1;
    }
}

/// The values of a header, joined, without credentials; see [`value`].
pub fn header(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let mut shown = Vec::new();
    for each in headers.get_all(name) {
        if shown.len() >= json::MAX_TEXT {
            break;
        }
        if !shown.is_empty() {
            shown.extend_from_slice(b", ");
        }
        value(&mut shown, name, each);
    }
    shown
}

/// Appends one value of a header without credentials: of `authorization` only the scheme is left, of cookies the names, of
/// other well-known secrets nothing.
pub fn value(shown: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    match name.as_str() {
        "authorization" | "proxy-authorization" => {
            let scheme = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
            if scheme.len() < value.len() {
                shown.extend_from_slice(scheme);
                shown.push(b' ');
            }
            shown.extend_from_slice(BLANK);
        }
        "cookie" => cookies(shown, value.as_bytes(), usize::MAX),
        "set-cookie" => cookies(shown, value.as_bytes(), 1),
        "referer" => shown.extend_from_slice(&referer(value.as_bytes())),
        other
            if is_secret(other.as_bytes(), Secrets::default())
                || other.ends_with("-token")
                || other.ends_with("-secret") =>
        {
            shown.extend_from_slice(BLANK);
        }
        _ => shown.extend_from_slice(value.as_bytes()),
    }
}

/// A referer without user information, and without its query, which is somebody else's, with secrets of unknown names.
pub fn referer(value: &[u8]) -> Vec<u8> {
    let value = &value[..memchr::memchr2(b'?', b'#', value).unwrap_or(value.len())];
    let Some(start) = memchr::memmem::find(value, b"://").map(|at| at + 3) else { return value.to_vec() };
    let authority = &value[start..];
    let authority = &authority[..memchr::memchr(b'/', authority).unwrap_or(authority.len())];
    match memchr::memrchr(b'@', authority) {
        Some(at) => [&value[..start], &value[start + at + 1..]].concat(),
        None => value.to_vec(),
    }
}

/// Pairs with `;` between, the values of the first so many blanked out.
fn cookies(shown: &mut Vec<u8>, text: &[u8], blanked: usize) {
    for (n, pair) in text.split(|byte| *byte == b';').enumerate() {
        if n > 0 {
            shown.push(b';');
        }
        match memchr::memchr(b'=', pair) {
            Some(at) if n < blanked => {
                shown.extend_from_slice(&pair[..=at]);
                shown.extend_from_slice(BLANK);
            }
            // A cookie without a name is all value.
            None if n < blanked => shown.extend_from_slice(BLANK),
            _ => shown.extend_from_slice(pair),
        }
    }
}

/// The query with its secrets blanked out, otherwise as it is.
pub fn plain(query: &str, secrets: Secrets<'_>) -> String {
    let mut shown = String::with_capacity(query.len().min(json::MAX_TEXT));
    let mut rest = query;
    loop {
        let border = rest.find(['&', ';']);
        let (parameter, after) = border.map_or((rest, None), |at| {
            rest.split_at_checked(at).map_or((rest, None), |(parameter, after)| (parameter, Some(after)))
        });
        match parameter.split_once('=') {
            Some((name, _)) if is_secret(name.as_bytes(), secrets) => {
                shown.push_str(name);
                shown.push_str("=REDACTED");
            }
            _ => shown.push_str(parameter),
        }
        let mut after = after.unwrap_or_default().chars();
        let Some(border) = after.next() else { return shown };
        if shown.len() >= json::MAX_TEXT {
            return shown;
        }
        shown.push(border);
        rest = after.as_str();
    }
}

fn parameter(out: &mut Vec<u8>, parameter: &[u8], secrets: Secrets<'_>) {
    let (name, value) = match memchr::memchr(b'=', parameter) {
        Some(at) => (&parameter[..at], Some(&parameter[at + 1..])),
        None => (parameter, None),
    };
    json::escape(out, name);
    let Some(value) = value else { return };
    out.push(b'=');
    match is_secret(name, secrets) {
        true => out.extend_from_slice(BLANK),
        false => json::escape(out, value),
    }
}

/// Whether a parameter is a secret, also when its name is percent-encoded, in capitals, or subscripted (`key[]`).
fn is_secret(name: &[u8], secrets: Secrets<'_>) -> bool {
    let mut plain = [0; MAX_NAME];
    let mut len = 0;
    for byte in percent_encoding::percent_decode(name) {
        if byte == b'[' {
            break;
        }
        let Some(place) = plain.get_mut(len) else { return false };
        *place = byte.to_ascii_lowercase();
        len += 1;
    }
    let more = secrets.configured.iter().chain(secrets.of_plugins);
    let known = SECRETS.iter().copied().chain(more.map(|secret| &**secret));
    known.into_iter().any(|secret| secret.as_bytes() == &plain[..len])
}

#[cfg(test)]
mod tests {
    #[test]
    fn referers_lose_user_information_and_queries() {
        for (given, shown) in [
            ("https://a.test/x?token=1#f", "https://a.test/x"),
            ("https://ann:secret@a.test/x@y", "https://a.test/x@y"),
            ("https://ann:p@ss@a.test", "https://a.test"),
            ("/relative@x", "/relative@x"),
            ("", ""),
        ] {
            assert_eq!(referer(given.as_bytes()), shown.as_bytes(), "{given}");
        }
    }

    use super::*;

    fn redacted(text: &str) -> String {
        let mut out = Vec::new();
        query(&mut out, text, Secrets::default());
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, plain(text, Secrets::default()));
        out
    }

    #[test]
    fn secrets_never_show() {
        for (given, logged) in [
            ("", ""),
            ("a=1&b=2", "a=1&b=2"),
            ("api_key=s3cret&page=2", "api_key=REDACTED&page=2"),
            ("page=2&TOKEN=s3cret", "page=2&TOKEN=REDACTED"),
            ("a=1;token=s3cret;b", "a=1;token=REDACTED;b"),
            ("api%5Fkey=s3cret", "api%5Fkey=REDACTED"),
            ("key[]=s3cret&keys=3", "key[]=REDACTED&keys=3"),
            ("password=a=b=s3cret", "password=REDACTED"),
            ("token", "token"),
            ("&&=&", "&&=&"),
        ] {
            assert_eq!(redacted(given), logged, "{given}");
        }
        assert_eq!(redacted(&format!("{}=x", "k".repeat(200))), format!("{}=x", "k".repeat(200)));
    }

    #[test]
    fn other_parameters_are_secrets_where_they_are_named() {
        assert_eq!(
            plain("a=1&PIN=2", Secrets { configured: &["pin".into()], of_plugins: &[] }),
            "a=1&PIN=REDACTED"
        );
    }

    #[test]
    fn headers_show_no_credentials() {
        let shown = |name: &'static str, values: &[&str]| {
            let name = HeaderName::from_static(name);
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| _ = headers.append(&name, value.parse().unwrap()));
            String::from_utf8(header(&headers, &name)).unwrap()
        };
        for (name, given, expected) in [
            ("authorization", &["Bearer s3cret"][..], "Bearer REDACTED"),
            ("authorization", &["s3cret"], "REDACTED"),
            ("cookie", &["a=s3cret; b=s3cret", "s3cret"], "a=REDACTED; b=REDACTED, REDACTED"),
            ("set-cookie", &["a=s3cret; Path=/; Secure"], "a=REDACTED; Path=/; Secure"),
            ("x-api-key", &["s3cret"], "REDACTED"),
            ("x-csrf-token", &["s3cret"], "REDACTED"),
            ("accept", &["a/b", "c/d"], "a/b, c/d"),
        ] {
            assert_eq!(shown(name, given), expected, "{name}");
        }
    }
}
