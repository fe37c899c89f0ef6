//! `Alt-Svc`, read for the one thing that is of use here: the port on which a target itself speaks HTTP/3.

use std::time::Duration;

use http::HeaderValue;

/// How long what is said holds when nothing is said about that (RFC 7838 §3.1), and how long it holds at most: targets
/// say it again with every answer.
const MAX_FRESH: Duration = Duration::from_secs(24 * 3600);

/// Port and lifetime of the first service that speaks HTTP/3 under one of these names. `None` is none, which `clear`
/// says too, and takes back what was said before.
pub(super) fn service<'h>(
    fields: impl Iterator<Item = &'h HeaderValue>,
    names: &[Option<&str>],
) -> Option<(u16, Duration)> {
    fields
        .flat_map(|field| unquoted(field.as_bytes(), b','))
        .find_map(|service| one(service, names))
        .filter(|(_, fresh)| !fresh.is_zero())
}

/// Splits where `by` stands outside of quotes.
fn unquoted(text: &[u8], by: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        if std::mem::take(&mut escaped) {
            return false;
        }
        match c {
            b'"' => quoted = !quoted,
            b'\\' => escaped = quoted,
            _ => {}
        }
        *c == by && !quoted
    })
    .map(<[u8]>::trim_ascii)
}

/// `h3=":443"; ma=3600`
fn one(service: &[u8], names: &[Option<&str>]) -> Option<(u16, Duration)> {
    let mut parts = unquoted(service, b';');
    let authority = parts.next()?.strip_prefix(b"h3=\"")?.strip_suffix(b"\"")?;
    let (host, port) = std::str::from_utf8(authority).ok()?.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_same = host.is_empty() || names.iter().flatten().any(|name| name.eq_ignore_ascii_case(host));
    let port: u16 = port.bytes().all(|c| c.is_ascii_digit()).then(|| port.parse().ok())??;
    if !is_same || port == 0 {
        return None;
    }
    let mut fresh = MAX_FRESH;
    for parameter in parts {
        let Some(age) = parameter.strip_prefix(b"ma=") else { continue };
        let age = age.strip_prefix(b"\"").and_then(|age| age.strip_suffix(b"\"")).unwrap_or(age);
        if age.is_empty() || !age.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // More digits than a number has are more than enough.
        let age = std::str::from_utf8(age).ok().and_then(|age| age.parse().ok());
        fresh = age.map_or(MAX_FRESH, Duration::from_secs).min(MAX_FRESH);
    }
    Some((port, fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> Option<(u16, u64)> {
        let fields: Vec<_> = fields.iter().map(|field| HeaderValue::from_str(field).unwrap()).collect();
        let found = service(fields.iter(), &[Some("10.0.0.1"), Some("api.example"), None]);
        found.map(|(port, fresh)| (port, fresh.as_secs()))
    }

    #[test]
    fn services_of_the_target_itself() {
        for (fields, expected) in [
            (&[r#"h3=":443""#][..], (443, 86_400)),
            (&[r#"h3=":8443"; ma=60"#], (8443, 60)),
            (&[r#"h3=":8443";ma="60"; persist=1"#], (8443, 60)),
            (&[r#"h3=":443"; ma=99999999999999999999999"#], (443, 86_400)),
            (&[r#"h2=":443"; ma=5, h3-29=":1"; ma=5 ,  h3=":443"; ma=9"#], (443, 9)),
            (&[r#"h2="a,b;c\",h3=":1"#, r#"h3="API.example:443""#], (443, 86_400)),
            (&[r#"h3="other.example:443", h3="10.0.0.1:444""#], (444, 86_400)),
            (&[r#"h3=":443"; note="a,b;ma=1"; ma=7"#], (443, 7)),
        ] {
            assert_eq!(read(fields), Some(expected), "{fields:?}");
        }
    }

    proptest::proptest! {
        /// Whatever a target says, it never leads below port 1 or beyond a day.
        #[test]
        fn any_octets_are_read_or_not(fields in proptest::collection::vec(
            "(h3|h2|clear|ma)?[ -~]{0,12}[=\";:,\\\\0-9]{0,12}(h3=\":[0-9]{1,6}\"(; ?ma=[0-9]{0,20})?)?[ -~]{0,12}", 0..4
        )) {
            let fields: Vec<_> = fields.iter().map(|field| HeaderValue::from_str(field).unwrap()).collect();
            if let Some((port, fresh)) = service(fields.iter(), &[Some("a")]) {
                assert!(port > 0 && !fresh.is_zero() && fresh <= MAX_FRESH);
            }
        }
    }

    #[test]
    fn nothing_of_use() {
        for field in [
            "",
            "clear",
            "h3",
            "h3=",
            "h3=:443",
            r#"h3="""#,
            r#"h3=":""#,
            r#"h3=":0""#,
            r#"h3=":+443""#,
            r#"h3=":65536""#,
            r#"h3="443""#,
            r#"h3="other.example:443""#,
            r#"h3="xapi.example:443""#,
            r#"h3-29=":443""#,
            r#"H3=":443""#,
            r#"h2=":443""#,
            r#"h3=":443"; ma=0"#,
            r#"h3=":443"; ma=-1"#,
            r#"h3=":443"; ma="#,
            r#"h3=":443"#,
            r#"x="h3=":443""#,
        ] {
            assert_eq!(read(&[field]), None, "{field}");
        }
    }
}
