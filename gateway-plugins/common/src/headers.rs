//! What the headers of a message say of it, and which of them plugins leave alone.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// The value of `Allow` for these methods: HEAD wherever GET is (RFC 9110 §9.1).
pub fn allow<'m>(methods: impl Iterator<Item = &'m Method>) -> Option<HeaderValue> {
    let mut names: Vec<&str> = methods.map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.sort_unstable();
    names.dedup();
    HeaderValue::from_str(&names.join(", ")).ok()
}

/// Whether the framing of a message depends on this header, so that no rule may touch it.
pub fn is_framing(name: &HeaderName) -> bool {
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

/// Removes what describes the exact bytes of a body that is about to be changed.
pub fn forget_bytes(headers: &mut HeaderMap) {
    for name in ["content-length", "content-md5", "digest", "content-digest", "repr-digest", "accept-ranges"]
    {
        headers.remove(name);
    }
}

/// The content codings of a body in lower case, in the order in which they were applied; `identity` is none.
pub fn codings(headers: &HeaderMap) -> Vec<String> {
    let fields = headers.get_all(http::header::CONTENT_ENCODING).iter();
    let members = fields.flat_map(|field| field.as_bytes().split(|c| *c == b','));
    let names = members.map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty() && name != "identity").collect()
}

/// Whether a response is an event stream (`text/event-stream`).
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    begins_with(headers, &["text/event-stream"])
}

/// Whether the pieces of a response mean something of their own, and may come for ever.
pub fn is_stream(headers: &HeaderMap) -> bool {
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
