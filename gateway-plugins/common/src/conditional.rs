//! Conditional requests (RFC 9110 §13): whether what the client has is still right.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// What the selected representation is recognised by.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'a> {
    /// The entity tag, with its quotes and `W/`.
    pub etag: Option<&'a [u8]>,
    /// When it was last changed, in whole seconds.
    pub modified: Option<SystemTime>,
}

/// What the preconditions of a request come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The request is carried out.
    Proceed,
    /// 304: the client has it already.
    NotModified,
    /// 412: a precondition does not hold.
    Failed,
}

impl<'a> Validators<'a> {
    /// Those of a response.
    pub fn of(headers: &'a HeaderMap) -> Self {
        Self {
            etag: headers.get(http::header::ETAG).map(HeaderValue::as_bytes),
            modified: headers.get(LAST_MODIFIED).and_then(date),
        }
    }
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2. Dates that can't be read count as absent.
pub fn evaluate(headers: &HeaderMap, method: &Method, have: Validators<'_>) -> Precondition {
    let is_read = *method == Method::GET || *method == Method::HEAD;
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, IF_MATCH, have.etag, strong) {
            return Precondition::Failed;
        }
    } else if let Some(since) = headers.get(IF_UNMODIFIED_SINCE).and_then(date)
        && have.modified.is_none_or(|modified| modified > since)
    {
        return Precondition::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        return match any_tag(headers, IF_NONE_MATCH, have.etag, weak) {
            true if is_read => Precondition::NotModified,
            true => Precondition::Failed,
            false => Precondition::Proceed,
        };
    }
    let since = headers.get(IF_MODIFIED_SINCE).filter(|_| is_read).and_then(date);
    match (since, have.modified) {
        (Some(since), Some(modified)) if modified <= since => Precondition::NotModified,
        _ => Precondition::Proceed,
    }
}

/// Whether the `Range` of a request counts: there is none without it, and an `If-Range` must fit exactly
/// (RFC 9110 §13.1.5).
pub fn range_counts(headers: &HeaderMap, have: Validators<'_>) -> bool {
    if !headers.contains_key(RANGE) {
        return false;
    }
    let Some(condition) = headers.get(IF_RANGE) else { return true };
    let bytes = condition.as_bytes();
    if bytes.starts_with(b"\"") || bytes.starts_with(b"W/") {
        return have.etag.is_some_and(|etag| strong(bytes, etag));
    }
    date(condition).is_some_and(|date| have.modified == Some(date))
}

/// Whether a tag of the list fits the one there is; `*` fits any.
fn any_tag(
    headers: &HeaderMap,
    name: HeaderName,
    have: Option<&[u8]>,
    fits: fn(&[u8], &[u8]) -> bool,
) -> bool {
    headers.get_all(name).iter().any(|value| {
        if value.as_bytes().trim_ascii() == b"*" {
            return true;
        }
        have.is_some_and(|have| tags(value.as_bytes()).any(|tag| fits(tag, have)))
    })
}

/// The entity tags of a list. A tag may have commas within its quotes; what is no tag ends the list.
fn tags(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        while let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
        }
        let opening = if rest.starts_with(b"W/\"") { 3 } else { 1 };
        if opening == 1 && !rest.starts_with(b"\"") {
            return None;
        }
        let closing = rest.get(opening..)?.iter().position(|c| *c == b'"')? + opening;
        let (tag, after) = rest.split_at_checked(closing + 1)?;
        rest = after;
        Some(tag)
    })
}

fn strong(a: &[u8], b: &[u8]) -> bool {
    a == b && a.starts_with(b"\"")
}

fn weak(a: &[u8], b: &[u8]) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    a == b || opaque(a) == opaque(b)
}

/// A date of HTTP.
pub fn date(value: &HeaderValue) -> Option<SystemTime> {
    let text = value.to_str().ok()?.trim();
    if let Ok(date) = httpdate::parse_http_date(text) {
        return Some(date);
    }
    // The day of the week says nothing that the date does not, and some servers get it wrong.
    let (_, rest) = text.split_once(", ").filter(|(day, _)| DAYS.contains(day))?;
    DAYS.iter().find_map(|day| httpdate::parse_http_date(&format!("{day}, {rest}")).ok())
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A moment as HTTP writes it.
pub fn http_date(moment: SystemTime) -> HeaderValue {
    // A moment before 1970 or after 9999 can't be written.
    let last = UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
    let moment = moment.clamp(UNIX_EPOCH, last);
    HeaderValue::from_str(&httpdate::fmt_http_date(moment)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    type Fields = &'static [(&'static str, &'static str)];
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn dates_count_with_a_wrong_day_of_the_week() {
        let read = |text: &'static str| date(&HeaderValue::from_static(text));
        assert_eq!(read("Mon, 06 Nov 1994 08:49:37 GMT"), read(OLD));
        assert!(read(OLD).is_some());
        for bad in
            ["Day, 06 Nov 1994 08:49:37 GMT", "06 Nov 1994 08:49:37 GMT", "Mon, 31 Feb 1994 08:49:37 GMT"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    fn outcome(
        method: Method,
        fields: &[(&'static str, &'static str)],
        etag: &str,
        modified: &str,
    ) -> Precondition {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let modified = httpdate::parse_http_date(modified).ok();
        let etag = Some(etag.as_bytes()).filter(|etag| !etag.is_empty());
        evaluate(&headers, &method, Validators { etag, modified })
    }

    #[test]
    fn preconditions_in_their_order() {
        use Precondition::{Failed, NotModified, Proceed};
        let get = Method::GET;
        let cases: &[(&Method, Fields, Precondition)] = &[
            (&get, &[], Proceed),
            (&get, &[("if-none-match", "\"a\"")], NotModified),
            (&get, &[("if-none-match", "W/\"a\"")], NotModified),
            (&get, &[("if-none-match", "\"b\", \"x,y\" , W/\"a\"")], NotModified),
            (&get, &[("if-none-match", "\"b\""), ("if-none-match", "\"a\"")], NotModified),
            (&get, &[("if-none-match", "*")], NotModified),
            (&get, &[("if-none-match", "\"b\"")], Proceed),
            (&get, &[("if-none-match", "a")], Proceed),
            (&get, &[("if-none-match", "\"a")], Proceed),
            // The tag decides alone where it is there.
            (&get, &[("if-none-match", "\"b\""), ("if-modified-since", OLD)], Proceed),
            (&get, &[("if-modified-since", OLD)], NotModified),
            (&get, &[("if-modified-since", NEW)], NotModified),
            (&get, &[("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], Proceed),
            (&get, &[("if-modified-since", "yesterday")], Proceed),
            (&Method::PUT, &[("if-modified-since", OLD)], Proceed),
            (&Method::PUT, &[("if-none-match", "*")], Failed),
            (&get, &[("if-match", "\"a\"")], Proceed),
            (&get, &[("if-match", "W/\"a\"")], Failed),
            (&get, &[("if-match", "*")], Proceed),
            (&get, &[("if-match", "\"b\"")], Failed),
            (&get, &[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
            (&get, &[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified),
            // And so does the tag before this date.
            (
                &get,
                &[("if-match", "\"a\""), ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")],
                Proceed,
            ),
            (&get, &[("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], Failed),
            (&get, &[("if-unmodified-since", OLD)], Proceed),
        ];
        for (method, fields, expected) in cases {
            assert_eq!(outcome((*method).clone(), fields, "\"a\"", OLD), *expected, "{method} {fields:?}");
        }
        assert_eq!(outcome(get.clone(), &[("if-none-match", "\"a\"")], "W/\"a\"", OLD), NotModified);
        assert_eq!(
            outcome(get.clone(), &[("if-match", "W/\"a\"")], "W/\"a\"", OLD),
            Failed,
            "weak never fits"
        );
        assert_eq!(outcome(get, &[("if-none-match", "\"a\"")], "", OLD), Proceed);
    }

    #[test]
    fn a_range_counts_when_its_condition_fits_exactly() {
        for (condition, etag, counts) in [
            (None, "\"a\"", true),
            (Some("\"a\""), "\"a\"", true),
            (Some("W/\"a\""), "W/\"a\"", false),
            (Some("\"b\""), "\"a\"", false),
            (Some(OLD), "\"a\"", true),
            (Some(NEW), "\"a\"", false),
            (Some("nonsense"), "\"a\"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-1"));
            if let Some(condition) = condition {
                headers.insert(IF_RANGE, HeaderValue::from_static(condition));
            }
            let modified = httpdate::parse_http_date(OLD).ok();
            let have = Validators { etag: Some(etag.as_bytes()), modified };
            assert_eq!(range_counts(&headers, have), counts, "{condition:?}");
        }
    }
}
