//! URLs without their credentials: the redactor for all text that leaves the gateway.

use std::borrow::Cow;

use super::{is_credential_name, is_credential_parameter};

/// What is shown instead of a credential.
pub const REDACTED: &str = "REDACTED";

/// A URL without user information, and without the values of query and fragment parameters that are credentials.
pub fn redact_url(url: &str) -> Cow<'_, str> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority.rsplit_once('@').map(|(_, host)| host).filter(|_| start > 0);
    let path_end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (path, parameters) = rest.split_at(path_end);
    let redacted = redact_parameters(parameters);
    match (host, &redacted) {
        (None, Cow::Borrowed(_)) => Cow::Borrowed(url),
        (None, _) => Cow::Owned(format!("{scheme}{authority}{path}{redacted}")),
        (Some(host), _) => Cow::Owned(format!("{scheme}{REDACTED}@{host}{path}{redacted}")),
    }
}

/// Appends a query without the values of credentials, these names among them.
pub fn redact_query(shown: &mut Vec<u8>, query: &str, others: &[Box<str>]) {
    for piece in query.split_inclusive(['&', ';']) {
        match piece.split_once('=') {
            Some((name, _)) if is_credential_name(name.as_bytes(), others) => {
                shown.extend_from_slice(name.as_bytes());
                shown.push(b'=');
                shown.extend_from_slice(REDACTED.as_bytes());
                shown.extend(piece.bytes().last().filter(|byte| b"&;".contains(byte)));
            }
            _ => shown.extend_from_slice(piece.as_bytes()),
        }
    }
}

/// Whether a text is a URL with a credential in it.
pub fn is_credential_url(text: &str) -> bool {
    text.contains("://") && matches!(redact_url(text), Cow::Owned(_))
}

/// A text in which every URL is redacted by [`redact_url`]: messages, log lines, labels.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find("://") {
        let ends = |c: char| c.is_whitespace() || c.is_control() || "\"`<>\\".contains(c);
        let end = rest.get(at..).and_then(|url| url.find(ends)).map_or(rest.len(), |length| at + length);
        let before = rest.get(..at).unwrap_or_default();
        let scheme = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+-.".contains(c)).len();
        let url = redact_url(rest.get(scheme..end).unwrap_or_default());
        is_changed |= matches!(url, Cow::Owned(_));
        shown.push_str(rest.get(..scheme).unwrap_or_default());
        shown.push_str(&url);
        rest = rest.get(end..).unwrap_or_default();
    }
    shown.push_str(rest);
    if is_changed { Cow::Owned(shown) } else { Cow::Borrowed(text) }
}

/// A query or fragment with its sign, in which the values of credentials are replaced.
fn redact_parameters(text: &str) -> Cow<'_, str> {
    let is_border = |c: char| "?#&;".contains(c);
    let is_credential = |parameter: &str| {
        parameter.split_once('=').is_some_and(|(name, value)| {
            !value.is_empty() && value != REDACTED && is_credential_parameter(name)
        })
    };
    if !text.split(is_border).any(is_credential) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_border) {
        let parameter = piece.trim_end_matches(is_border);
        match parameter.split_once('=').filter(|_| is_credential(parameter)) {
            Some((name, _)) => {
                shown.extend([name, "=", REDACTED]);
                shown.push_str(piece.get(parameter.len()..).unwrap_or_default());
            }
            None => shown.push_str(piece),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_show_no_credentials() {
        for (given, shown) in [
            ("https://a.test/x?page=1", "https://a.test/x?page=1"),
            ("https://ann:hush@a.test/x", "https://REDACTED@a.test/x"),
            ("https://a.test/x?token=hush&page=1", "https://a.test/x?token=REDACTED&page=1"),
            ("https://a.test/x?a=1;api%5Fkey=hush", "https://a.test/x?a=1;api%5Fkey=REDACTED"),
            (
                "https://a.test/cb#access_token=hush&state=1",
                "https://a.test/cb#access_token=REDACTED&state=1",
            ),
            ("https://a.test?sig=hush", "https://a.test?sig=REDACTED"),
            ("/relative?password=hush", "/relative?password=REDACTED"),
            ("user@example.com", "user@example.com"),
            ("redis://:hush@h:6379/0", "redis://REDACTED@h:6379/0"),
            ("", ""),
        ] {
            assert_eq!(redact_url(given), shown, "{given}");
            assert_eq!(redact_url(shown), shown, "{given}");
        }
    }

    #[test]
    fn texts_show_no_credentials_of_urls() {
        for (given, shown) in [
            ("`https://a.test/?token=hush` failed", "`https://a.test/?token=REDACTED` failed"),
            ("get (http://u:p@a.test/), ok", "get (http://REDACTED@a.test/), ok"),
            ("a://b c://d?key=hush é", "a://b c://d?key=REDACTED é"),
            ("https://a/?token=hush\nhttps://b/?x=1", "https://a/?token=REDACTED\nhttps://b/?x=1"),
            ("a://b/{id}(1)?key=hush|x c", "a://b/{id}(1)?key=REDACTED c"),
            ("token=1, no URL", "token=1, no URL"),
            ("://", "://"),
        ] {
            assert_eq!(redact_text(given), shown, "{given}");
        }
    }
}
