//! Values of header fields without their credentials.

use http::HeaderName;

use super::{REDACTED, is_credential_field, redact_text, redact_url};

/// Fields whose values are URLs or paths, whose queries may have credentials in them.
const URL_FIELDS: &[&str] = &[
    "content-location",
    "destination",
    "hx-location",
    "hx-redirect",
    "location",
    "x-accel-redirect",
    "x-envoy-original-path",
    "x-forwarded-uri",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// Appends one value of a field without credentials: of `authorization` only the scheme is left, of cookies the names, of
/// URLs what [`redact_url`] leaves, of other credentials nothing.
pub fn redact_field(shown: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    match name.as_str() {
        "authorization" | "proxy-authorization" => {
            let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
            if scheme.len() < value.len() {
                shown.extend_from_slice(scheme);
                shown.push(b' ');
            }
            shown.extend_from_slice(REDACTED.as_bytes());
        }
        "cookie" => cookies(shown, value, usize::MAX),
        "set-cookie" => cookies(shown, value, 1),
        "referer" => shown.extend_from_slice(&redact_referer(value)),
        url if URL_FIELDS.contains(&url) => {
            shown.extend_from_slice(redact_url(&String::from_utf8_lossy(value)).as_bytes());
        }
        _ if is_credential_field(name) => shown.extend_from_slice(REDACTED.as_bytes()),
        _ if memchr::memmem::find(value, b"://").is_some() => {
            shown.extend_from_slice(redact_text(&String::from_utf8_lossy(value)).as_bytes());
        }
        _ => shown.extend_from_slice(value),
    }
}

/// A referer without user information, and without its query, which is another site's, with secrets of unknown names.
pub fn redact_referer(value: &[u8]) -> Vec<u8> {
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
                shown.extend_from_slice(REDACTED.as_bytes());
            }
            // A cookie without a name is all value.
            None if n < blanked => shown.extend_from_slice(REDACTED.as_bytes()),
            _ => shown.extend_from_slice(pair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_credential_field_is_redacted() {
        for name in super::super::CREDENTIAL_FIELDS {
            let mut shown = Vec::new();
            redact_field(&mut shown, &HeaderName::from_static(name), b"hush");
            assert_eq!(shown, REDACTED.as_bytes(), "{name}");
        }
    }

    #[test]
    fn fields_with_urls_show_no_credentials() {
        for (name, given, expected) in [
            ("location", "/cb?code=hush&state=1", "/cb?code=REDACTED&state=1"),
            ("location", "https://a.test/cb#access_token=hush", "https://a.test/cb#access_token=REDACTED"),
            ("link", "<https://a.test/?sig=hush>; rel=next", "<https://a.test/?sig=REDACTED>; rel=next"),
            ("refresh", "0;url=https://u:hush@a.test/", "0;url=https://REDACTED@a.test/"),
            ("x-original-url", "/x?token=hush", "/x?token=REDACTED"),
            ("accept", "a/b, c/d", "a/b, c/d"),
        ] {
            let mut shown = Vec::new();
            redact_field(&mut shown, &HeaderName::from_static(name), given.as_bytes());
            assert_eq!(String::from_utf8_lossy(&shown), expected, "{name}");
        }
    }

    #[test]
    fn referers_lose_user_information_and_queries() {
        for (given, shown) in [
            ("https://a.test/x?token=1#f", "https://a.test/x"),
            ("https://ann:secret@a.test/x@y", "https://a.test/x@y"),
            ("https://ann:p@ss@a.test", "https://a.test"),
            ("/relative@x", "/relative@x"),
            ("", ""),
        ] {
            assert_eq!(redact_referer(given.as_bytes()), shown.as_bytes(), "{given}");
        }
    }
}
