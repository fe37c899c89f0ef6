//! What scripts and modules may change of a message, whatever they are written in.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue};

/// Header fields that a message may have after operators' code has changed it.
pub(crate) const MAX_FIELDS: usize = 1000;

/// Whether the framing of a message depends on this header, so that no code may touch it.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Removes what describes the exact bytes of a body that has changed.
#[cfg(feature = "script")]
pub(crate) fn forget_bytes(headers: &mut HeaderMap) {
    const OF_BYTES: [&str; 8] = [
        "content-length",
        "content-encoding",
        "content-md5",
        "content-range",
        "digest",
        "content-digest",
        "repr-digest",
        "accept-ranges",
    ];
    for name in OF_BYTES {
        headers.remove(name);
    }
    if headers.get("etag").is_some_and(|tag| !tag.as_bytes().starts_with(b"W/")) {
        headers.remove("etag");
    }
}

/// Why a field can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("this is not a valid header name")]
    Name,
    #[error("this header frames messages and is the gateway's own to write")]
    Framing,
    #[error("the value has characters that a header may not have")]
    Value,
    #[error("the message has as many header fields as it may have")]
    TooMany,
}

/// The name of a field that code may write.
pub(crate) fn writable(name: &[u8]) -> Result<HeaderName, FieldError> {
    let name = HeaderName::from_bytes(name).map_err(|_| FieldError::Name)?;
    if is_framing(&name) { Err(FieldError::Framing) } else { Ok(name) }
}

/// Sets a field to one value, or adds a value to it.
pub(crate) fn write(
    headers: &mut HeaderMap,
    name: &[u8],
    value: &[u8],
    keeps_others: bool,
) -> Result<(), FieldError> {
    let name = writable(name)?;
    let value = HeaderValue::from_bytes(value).map_err(|_| FieldError::Value)?;
    if headers.len() >= MAX_FIELDS {
        return Err(FieldError::TooMany);
    }
    let written = if keeps_others {
        headers.try_append(name, value).map(drop)
    } else {
        headers.try_insert(name, value).map(drop)
    };
    written.map_err(|_| FieldError::TooMany)
}

/// Whether this can be the path of a request as it goes to a target: absolute, encoded, and without dot segments.
pub(crate) fn is_path(path: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_graphic() && !matches!(c, b'?' | b'#' | b'\\');
    let is_dots = |segment: &str| {
        let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(decoded.split(';').next(), Some("." | ".."))
    };
    path.starts_with('/') && path.bytes().all(is_plain) && !path.split('/').any(is_dots)
}

/// Whether this can be a query.
pub(crate) fn is_query(query: &str) -> bool {
    query.bytes().all(|c| c.is_ascii_graphic() && c != b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_dot_segments_are_refused_however_they_are_written() {
        for (path, expected) in [
            ("/a/b", true),
            ("/a..b/.c", true),
            ("a", false),
            ("/a/../b", false),
            ("/a/%2E%2e/b", false),
            ("/a/..;x/b", false),
            ("/a b", false),
            ("/a?b", false),
            ("/a\\b", false),
        ] {
            assert_eq!(is_path(path), expected, "{path}");
        }
    }

    #[test]
    fn fields_that_frame_messages_and_bad_ones_are_refused() {
        let mut headers = HeaderMap::new();
        for (name, value, expected) in [
            ("x-a", "1", Ok(())),
            ("content-length", "1", Err(FieldError::Framing)),
            ("Transfer-Encoding", "chunked", Err(FieldError::Framing)),
            ("x a", "1", Err(FieldError::Name)),
            ("x-b", "1\r\nx-c: 2", Err(FieldError::Value)),
        ] {
            assert_eq!(write(&mut headers, name.as_bytes(), value.as_bytes(), true), expected, "{name}");
        }
        for n in 0..MAX_FIELDS + 10 {
            let written = write(&mut headers, b"x-many", b"1", true);
            assert_eq!(written.is_ok(), n < MAX_FIELDS - 1, "{n}");
        }
    }
}
