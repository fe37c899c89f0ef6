//! Queries without their secrets.

use gateway_core::http::credentials::{REDACTED, is_credential_name, redact_field};
use gateway_core::snapshot::ProxyState;
use http::{HeaderMap, HeaderName};

use crate::json;

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

/// The values of a header, joined, without credentials; see [`redact_field`].
pub fn header(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let mut shown = Vec::new();
    for each in headers.get_all(name) {
        if shown.len() >= json::MAX_TEXT {
            break;
        }
        if !shown.is_empty() {
            shown.extend_from_slice(b", ");
        }
        redact_field(&mut shown, name, each.as_bytes());
    }
    shown
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
        true => out.extend_from_slice(REDACTED.as_bytes()),
        false => json::escape(out, value),
    }
}

/// Whether a parameter is a secret, also when its name is percent-encoded, in capitals, or subscripted (`key[]`).
fn is_secret(name: &[u8], secrets: Secrets<'_>) -> bool {
    is_credential_name(name, secrets.configured.iter().chain(secrets.of_plugins))
}

#[cfg(test)]
mod tests {
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
