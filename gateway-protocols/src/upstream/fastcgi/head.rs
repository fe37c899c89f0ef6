//! The head of a CGI response (RFC 3875 §6): fields and an empty line, without a status line.

use bytes::{Buf, BytesMut};
use gateway_core::http::reply::final_status;
use http::header::{CONTENT_LENGTH, HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

/// Maximum length of a head in bytes, as for HTTP targets.
const MAX_BYTES: usize = 64 << 10;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 256;

/// A response's head, and the length of its body if the head contains one.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) length: Option<u64>,
}

/// Why a head is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the head has more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the head has more than {MAX_FIELDS} fields")]
    TooMany,
    #[error("the head is malformed: {0}")]
    Malformed(&'static str),
}

/// Removes a head from the front of the output; `None` if it is not complete yet.
pub(super) fn response(output: &mut BytesMut) -> Result<Option<Head>, HeadError> {
    let (mut start, mut lines, mut end) = (0, Vec::new(), None);
    for at in memchr::memchr_iter(b'\n', &output[..output.len().min(MAX_BYTES)]) {
        let line = start..if at > start && output[at - 1] == b'\r' { at - 1 } else { at };
        start = at + 1;
        if line.is_empty() {
            end = Some(start);
            break;
        }
        if lines.len() == MAX_FIELDS {
            return Err(HeadError::TooMany);
        }
        lines.push(line);
    }
    let Some(end) = end else {
        return if output.len() >= MAX_BYTES { Err(HeadError::TooLarge) } else { Ok(None) };
    };
    if lines.is_empty() {
        return Err(HeadError::Malformed("it has no field"));
    }
    let text = output.split_to(end).freeze();
    let mut head = Reading::default();
    for line in lines {
        let line = text.slice(line);
        let colon = memchr::memchr(b':', &line).ok_or(HeadError::Malformed("a line without a colon"))?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| HeadError::Malformed("field name"))?;
        let mut value = line.slice(colon + 1..);
        let trimmed = value.trim_ascii();
        let before = value.len() - value.trim_ascii_start().len();
        let length = trimmed.len();
        value.advance(before);
        value.truncate(length);
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| HeadError::Malformed("field value"))?;
        head.note(name, value)?;
    }
    Ok(Some(head.into_head()))
}

#[derive(Default)]
struct Reading {
    status: Option<StatusCode>,
    length: Option<u64>,
    fields: HeaderMap,
}

impl Reading {
    fn note(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), HeadError> {
        if name == "status" {
            let code = value.as_bytes().get(..3).ok_or(HeadError::Malformed("status"))?;
            let ends = value.as_bytes().get(3).is_none_or(|c| *c == b' ');
            let status =
                std::str::from_utf8(code).ok().filter(|_| ends).and_then(|code| code.parse::<u16>().ok());
            let status = status.and_then(final_status).ok_or(HeadError::Malformed("status"))?;
            if self.status.replace(status).is_some() {
                return Err(HeadError::Malformed("more than one status"));
            }
            return Ok(());
        }
        if name == CONTENT_LENGTH {
            let digits = value.to_str().ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
            let length = digits.and_then(|text| text.parse().ok());
            let length = length.ok_or(HeadError::Malformed("content-length"))?;
            if self.length.replace(length).is_some() {
                return Err(HeadError::Malformed("more than one content-length"));
            }
        }
        self.fields.append(name, value);
        Ok(())
    }

    /// RFC 3875 §6.2: without `Status`, the status is 200, or 302 with `Location`.
    fn into_head(self) -> Head {
        let implied = if self.fields.contains_key(LOCATION) { StatusCode::FOUND } else { StatusCode::OK };
        let mut response = Response::new(());
        *response.status_mut() = self.status.unwrap_or(implied);
        *response.headers_mut() = self.fields;
        Head { response, length: self.length }
    }
}

/// Whether a response to this method has a body.
pub(super) fn has_body(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, fields, length, and the number of bytes after the head.
    type Seen = (u16, Vec<(String, String)>, Option<u64>, usize);

    fn read(text: &str) -> Result<Option<Seen>, HeadError> {
        let mut output = BytesMut::from(text);
        let head = response(&mut output)?;
        Ok(head.map(|head| {
            let fields = head.response.headers().iter();
            let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
            (head.response.status().as_u16(), fields.collect(), head.length, output.len())
        }))
    }

    #[test]
    fn heads_are_read() {
        let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!(read("Content-Type: a/b\r\n\r\nx"), Ok(Some((200, one("content-type", "a/b"), None, 1))));
        assert_eq!(read("Content-type:a/b\n\nxy"), Ok(Some((200, one("content-type", "a/b"), None, 2))));
        assert_eq!(read("Status: 404 Not Found\r\nX: 1\r\n\r\n"), Ok(Some((404, one("x", "1"), None, 0))));
        assert_eq!(read("Location: /a\r\n\r\n"), Ok(Some((302, one("location", "/a"), None, 0))));
        assert_eq!(
            read("Location: /a\r\nStatus: 301\r\n\r\n"),
            Ok(Some((301, one("location", "/a"), None, 0)))
        );
        assert_eq!(
            read("Status: 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
            Ok(Some((200, one("content-length", "3"), Some(3), 3)))
        );
        assert_eq!(read("Content-Type: a/b\r\n"), Ok(None));
    }

    #[test]
    fn bad_heads_are_refused() {
        use HeadError::Malformed;
        for (text, error) in [
            ("\r\n", Malformed("it has no field")),
            ("hello\r\n\r\n", Malformed("a line without a colon")),
            ("a b: c\r\n\r\n", Malformed("field name")),
            (" a: c\r\n\r\n", Malformed("field name")),
            ("Content-Type: a\0b\r\n\r\n", Malformed("field value")),
            ("Status: 101 Switching\r\n\r\n", Malformed("status")),
            ("Status: 2000\r\n\r\n", Malformed("status")),
            ("Status: ok\r\n\r\n", Malformed("status")),
            ("Status: 200\r\nStatus: 404\r\n\r\n", Malformed("more than one status")),
            ("Status: 200\r\nContent-Length: -1\r\n\r\n", Malformed("content-length")),
            ("Content-Length: 1\r\nContent-Length: 1\r\n\r\n", Malformed("more than one content-length")),
            (&"a: b\n".repeat(257), HeadError::TooMany),
            (&format!("a: {}", "b".repeat(64 << 10)), HeadError::TooLarge),
        ] {
            assert_eq!(read(text), Err(error), "{text:.60}");
        }
    }
}
