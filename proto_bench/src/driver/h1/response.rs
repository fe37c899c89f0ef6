//! What decides an answer's framing (RFC 9112 §6), read strictly: an answer that two readers could frame differently
//! is broken.

use super::template::STAMP_HEADER;
use crate::driver::{Fault, Stamp};

/// The parts of an answer's head that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Bytes of the head, the empty line included.
    pub(crate) length: usize,
    pub(crate) framing: Framing,
    /// The connection closes after this answer.
    pub(crate) last: bool,
    /// The stamp, where the server sent the header back.
    pub(crate) stamp: Option<Stamp>,
}

/// Where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

const MAX_HEADERS: usize = 64;

/// Parses a head; nothing while it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes).map_err(Fault::protocol)? else {
        return Ok(None);
    };
    let status = response.code.unwrap_or(0);
    let mut head =
        Head { status, length, framing: Framing::UntilClose, last: response.version == Some(0), stamp: None };
    let (mut content_length, mut chunked) = (None, false);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = decimal(header.value).ok_or_else(|| Fault::protocol("unreadable content-length"))?;
            if content_length.is_some_and(|earlier| earlier != value) {
                return Err(Fault::protocol("two content-lengths"));
            }
            content_length = Some(value);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::protocol("transfer-encoding other than chunked"));
            }
            chunked = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.last = header.value.eq_ignore_ascii_case(b"close");
        } else if header.name.eq_ignore_ascii_case(STAMP_HEADER) {
            head.stamp = read_hex(header.value);
        }
    }
    head.framing = match (chunked, content_length) {
        (true, Some(_)) => return Err(Fault::protocol("both content-length and chunked")),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) if matches!(status, 100..=199 | 204 | 304) => Framing::Length(0),
        (false, None) => {
            head.last = true;
            Framing::UntilClose
        }
    };
    Ok(Some(head))
}

/// Reads a chunk's size line; returns the size and the line's length.
pub(crate) fn chunk_size(bytes: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete((line, size))) => {
            Ok(Some((usize::try_from(size).map_err(Fault::protocol)?, line)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(Fault::protocol("unreadable chunk size")),
    }
}

/// Reads the trailers after the last chunk; returns their length, the empty line included.
pub(crate) fn trailers(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    match httparse::parse_headers(bytes, &mut headers).map_err(Fault::protocol)? {
        httparse::Status::Complete((length, _)) => Ok(Some(length)),
        httparse::Status::Partial => Ok(None),
    }
}

fn decimal(value: &[u8]) -> Option<usize> {
    if value.is_empty() || value.len() > 15 {
        return None;
    }
    value
        .iter()
        .try_fold(0_usize, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + usize::from(digit - b'0')))
}

fn read_hex(value: &[u8]) -> Option<Stamp> {
    if value.len() != Stamp::LENGTH * 2 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; Stamp::LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(value.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Stamp::read(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_read_strictly() {
        let framing = |headers: &str| {
            parse(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes())
                .map(|head| head.expect("whole").framing)
        };
        assert_eq!(framing("Content-Length: 64\r\n").expect("good"), Framing::Length(64));
        assert_eq!(framing("transfer-encoding: chunked\r\n").expect("good"), Framing::Chunked);
        assert_eq!(framing("").expect("good"), Framing::UntilClose);
        for wrong in [
            "content-length: 1\r\ncontent-length: 2\r\n",
            "content-length: 1\r\ntransfer-encoding: chunked\r\n",
            "content-length: +1\r\n",
            "content-length: \r\n",
            "transfer-encoding: gzip\r\n",
        ] {
            assert!(framing(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stamps_come_back_in_a_header() {
        let stamp = Stamp { connection: 1, lane: 2, sequence: 3 };
        let hex = String::from_utf8(stamp.hex().to_vec()).expect("ascii");
        let head = parse(format!("HTTP/1.1 204 No Content\r\nX-Bench-Stamp: {hex}\r\n\r\n").as_bytes());
        assert_eq!(head.expect("good").expect("whole").stamp, Some(stamp));
    }
}
