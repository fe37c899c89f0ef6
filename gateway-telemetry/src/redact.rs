//! Queries without their secrets.

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

/// What stands in a value's place.
const BLANK: &[u8] = b"REDACTED";
/// A name longer than this is none of [`SECRETS`].
const MAX_NAME: usize = 32;

/// Appends the query, escaped for JSON, its secrets blanked out.
pub fn query(out: &mut Vec<u8>, query: &str) {
    let bytes = query.as_bytes();
    let bytes = &bytes[..bytes.len().min(json::MAX_TEXT)];
    // Some servers part parameters at semicolons too, so both are borders.
    let mut start = 0;
    loop {
        let end = memchr::memchr2(b'&', b';', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        parameter(out, &bytes[start..end]);
        let Some(border) = bytes.get(end) else { return };
        out.push(*border);
        start = end + 1;
    }
}

/// The query with its secrets blanked out, otherwise as it is.
pub fn plain(query: &str) -> String {
    let mut shown = String::with_capacity(query.len().min(json::MAX_TEXT));
    let mut rest = query;
    loop {
        let border = rest.find(['&', ';']);
        let (parameter, after) = border.map_or((rest, None), |at| {
            rest.split_at_checked(at).map_or((rest, None), |(parameter, after)| (parameter, Some(after)))
        });
        match parameter.split_once('=') {
            Some((name, _)) if is_secret(name.as_bytes()) => {
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

fn parameter(out: &mut Vec<u8>, parameter: &[u8]) {
    let (name, value) = match memchr::memchr(b'=', parameter) {
        Some(at) => (&parameter[..at], Some(&parameter[at + 1..])),
        None => (parameter, None),
    };
    json::escape(out, name);
    let Some(value) = value else { return };
    out.push(b'=');
    match is_secret(name) {
        true => out.extend_from_slice(BLANK),
        false => json::escape(out, value),
    }
}

/// Whether a parameter is a secret, also when its name is percent-encoded, in capitals, or subscripted (`key[]`).
fn is_secret(name: &[u8]) -> bool {
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
    SECRETS.iter().any(|secret| secret.as_bytes() == &plain[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let mut out = Vec::new();
        query(&mut out, text);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, plain(text));
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
        assert_eq!(redacted(&format!("{}=x", "k".repeat(40))), format!("{}=x", "k".repeat(40)));
    }
}
