//! What several plugins need: settings that are texts of a kind, templates with what is known, queries.

pub(crate) mod accept;
pub(crate) mod assertion;
pub(crate) mod coding;
pub(crate) mod conditional;
mod gzip;
mod kept;
pub(crate) mod limit_headers;
pub(crate) mod list_fields;
pub(crate) mod oauth;
pub(crate) mod privacy;
pub(crate) mod query;
pub(crate) mod range;
pub(crate) mod statuses;
pub(crate) mod turns;
pub(crate) mod watched;
pub(crate) mod wildcard;
mod zstandard;

use gateway_core::config::path_regex_in_request_spelling;
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::path::in_request_spelling;
use gateway_core::plugin::Seat;
use gateway_core::template::{Facts, Moment, Template};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use regex::Regex;

/// Bytes a compiled regex may take.
const MAX_REGEX: usize = 1 << 20;

/// A text as it stands in a page: also between quotes of an attribute.
pub(crate) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Reads a template that is rendered at `moment`.
pub(crate) fn template(path: &str, text: &str, moment: Moment, problems: &mut Problems) -> Option<Template> {
    match Template::parse(text, moment) {
        Ok(template) => Some(template),
        Err(error) => {
            problems.add(path, error.message).remedy = Some(error.remedy);
            None
        }
    }
}

/// Whether a text is a host with or without a port, and nothing else.
pub(crate) fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, after)) if host.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", after),
            _ => return false,
        },
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_port = |port: &str| {
        port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    !host.is_empty()
        && host.bytes().all(is_name)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Reads the name of a header field.
pub(crate) fn header_name(path: &str, name: &str, problems: &mut Problems) -> Option<HeaderName> {
    let read = HeaderName::from_bytes(name.as_bytes()).ok();
    if read.is_none() {
        problems.add(path, format!("`{name}` is not a valid header name"));
    }
    read
}

/// Reads a regex over paths: what it says of characters that are percent-encoded in requests, it says of their encoded form.
pub(crate) fn path_regex(path: &str, text: &str, problems: &mut Problems) -> Option<Regex> {
    regex(path, &path_regex_in_request_spelling(text), problems)
}

/// Reads a path, or the beginning of one, into the spelling of requests when plugins see them.
pub(crate) fn request_path(path: &str, text: &str, problems: &mut Problems) -> Option<String> {
    match in_request_spelling(text) {
        Ok(spelled) => Some(spelled),
        Err(error) => {
            problems.add(path, format!("`{text}`: {error}")).remedy =
                Some("write `%20` for a space and `%25` for a percent sign".into());
            None
        }
    }
}

/// Reads a regex, whose size is limited.
pub(crate) fn regex(path: &str, text: &str, problems: &mut Problems) -> Option<Regex> {
    match regex::RegexBuilder::new(text).size_limit(MAX_REGEX).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            problems.add(path, format!("this is not a regex: {error}"));
            None
        }
    }
}

/// The value of `Allow` for these methods: HEAD wherever GET is (RFC 9110 §9.1).
pub(crate) fn allow<'m>(methods: impl Iterator<Item = &'m Method>) -> Option<HeaderValue> {
    let mut names: Vec<&str> = methods.map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.sort_unstable();
    names.dedup();
    HeaderValue::from_str(&names.join(", ")).ok()
}

/// Whether this is one of the usual methods in other letters, which no request has: methods are case-sensitive (RFC 9110 §9.1).
pub(crate) fn has_other_case(method: &str) -> bool {
    const USUAL: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    USUAL.iter().any(|usual| *usual != method && usual.eq_ignore_ascii_case(method))
}

/// Whether the framing of a message depends on this header, so that no rule may touch it.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    const FRAMING: &[&str] = &[
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FRAMING.contains(&name.as_str())
}

/// What a template may know of a request.
pub(crate) fn facts<'a>(exchange: &'a Exchange, seat: Seat<'a>) -> Facts<'a> {
    let proxy = Some(seat.proxy().id.as_str());
    Facts { proxy, target: seat.target(), ..Facts::of(exchange) }
}

/// What a template may know once there is a response.
pub(crate) fn facts_with<'a>(
    exchange: &'a Exchange,
    seat: Seat<'a>,
    status: StatusCode,
    headers: &'a HeaderMap,
) -> Facts<'a> {
    Facts { response: Some((status, headers)), ..facts(exchange, seat) }
}

/// Removes what describes the exact bytes of a body that is about to be changed.
pub(crate) fn forget_bytes(headers: &mut HeaderMap) {
    for name in ["content-length", "content-md5", "digest", "content-digest", "repr-digest", "accept-ranges"]
    {
        headers.remove(name);
    }
}

/// Whether a response is an event stream (`text/event-stream`).
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    begins_with(headers, &["text/event-stream"])
}

/// Whether the pieces of a response mean something of their own, and may come for ever.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    const STREAMS: [&str; 6] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/jsonl",
        "application/stream+json",
        "application/grpc",
        "multipart/x-mixed-replace",
    ];
    begins_with(headers, &STREAMS)
}

fn begins_with(headers: &HeaderMap, types: &[&str]) -> bool {
    let kind =
        headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes().trim_ascii());
    let fits = |wanted: &&str| {
        kind.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted.as_bytes()))
    };
    types.iter().any(fits)
}
