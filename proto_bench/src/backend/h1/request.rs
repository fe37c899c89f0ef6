//! What an HTTP/1.1 echo server must know of a request.

use std::io;

use crate::backend::answer::{CONSUMER_HEADER, STAMP_HEADER};

/// A request's head.
pub(super) struct Request<'a> {
    pub(super) post: bool,
    pub(super) path: &'a str,
    pub(super) consumer: &'a str,
    pub(super) stamp: Option<&'a [u8]>,
    pub(super) websocket_key: Option<&'a str>,
    pub(super) expects_continue: bool,
    pub(super) close: bool,
    pub(super) framing: Framing,
    /// Bytes of the head.
    pub(super) length: usize,
}

/// Where the body ends.
pub(super) enum Framing {
    Length(usize),
    Chunked,
}

/// Parses a head; nothing while it is incomplete.
pub(super) fn parse<'a>(
    bytes: &'a [u8],
    headers: &mut [httparse::Header<'a>],
) -> io::Result<Option<Request<'a>>> {
    let mut parsed = httparse::Request::new(headers);
    let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(bad)? else { return Ok(None) };
    let mut request = Request {
        post: matches!(parsed.method, Some("POST" | "PUT" | "PATCH")),
        path: parsed.path.unwrap_or("/"),
        consumer: "",
        stamp: None,
        websocket_key: None,
        expects_continue: false,
        close: parsed.version == Some(0),
        framing: Framing::Length(0),
        length,
    };
    for header in parsed.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        // Lengths first: comparing names of the wrong length costs nothing, and most have it.
        match header.name.len() {
            14 if is("content-length") => {
                let text = std::str::from_utf8(header.value).map_err(bad)?;
                request.framing = Framing::Length(text.trim().parse().map_err(bad)?);
            }
            17 if is("transfer-encoding") => request.framing = Framing::Chunked,
            17 if is("sec-websocket-key") => request.websocket_key = std::str::from_utf8(header.value).ok(),
            19 if is(CONSUMER_HEADER) => request.consumer = std::str::from_utf8(header.value).unwrap_or(""),
            13 if is(STAMP_HEADER) => request.stamp = Some(header.value),
            10 if is("connection") => {
                if header.value.eq_ignore_ascii_case(b"close") {
                    request.close = true;
                } else if header.value.eq_ignore_ascii_case(b"keep-alive") {
                    request.close = false;
                }
            }
            6 if is("expect") => request.expects_continue = true,
            _ => {}
        }
    }
    Ok(Some(request))
}

/// Joins a chunked body; returns the bytes it took on the wire, or nothing while it is incomplete.
pub(super) fn join_chunks(bytes: &[u8], joined: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut at = 0;
    loop {
        let Some(rest) = bytes.get(at..) else { return Ok(None) };
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(rest).map_err(bad)? else {
            return Ok(None);
        };
        let size = usize::try_from(size).map_err(bad)?;
        at += line;
        if size == 0 {
            let mut trailers = [httparse::EMPTY_HEADER; 16];
            let rest = bytes.get(at..).unwrap_or_default();
            return Ok(match httparse::parse_headers(rest, &mut trailers).map_err(bad)? {
                httparse::Status::Complete((length, _)) => Some(at + length),
                httparse::Status::Partial => None,
            });
        }
        let Some(chunk) = bytes.get(at..at + size) else { return Ok(None) };
        joined.extend_from_slice(chunk);
        at += size + 2;
    }
}

fn bad(error: impl std::fmt::Debug) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        let wire = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: v\r\n\r\nNEXT";
        for cut in 0..wire.len() - 4 {
            assert_eq!(join_chunks(&wire[..cut], &mut Vec::new()).expect("good"), None, "cut at {cut}");
        }
        let mut joined = Vec::new();
        assert_eq!(join_chunks(wire, &mut joined).expect("good"), Some(wire.len() - 4));
        assert_eq!(joined, b"abcde");
    }
}
