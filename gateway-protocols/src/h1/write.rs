//! Writing a message's head and its body's framing.

use gateway_core::http::upstream::Call;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

use super::chunked::may_trail;
use crate::date::Date;

/// How a body will be framed on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// No body and no length.
    Bare,
    /// A length, also zero.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

/// Writes the head of a request to a target. Framing fields in its headers are ignored in favour of `frame`.
pub fn request(out: &mut Vec<u8>, call: &Call<'_>, frame: Frame) {
    out.reserve(256 + call.path.len());
    out.extend_from_slice(call.method.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(call.path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    out.extend_from_slice(call.host.as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in call.headers {
        if *name != HOST && *name != CONTENT_LENGTH {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    for (name, value) in call.forwarding.fields() {
        field(out, name.as_str(), value.as_bytes());
    }
    framing(out, frame);
    if let Some(protocol) = call.upgrade {
        out.extend_from_slice(b"connection: upgrade\r\n");
        field(out, "upgrade", protocol.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// What a response's head says about its connection.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// How the body is framed.
    pub frame: Frame,
    /// Says `connection: close`.
    pub close: bool,
    /// Says `connection: keep-alive`, for HTTP/1.0 clients that asked.
    pub keep_alive: bool,
    /// The time, asked for by responses without a `Date`.
    pub date: fn() -> Date,
}

/// Writes a response's head. Framing fields in `headers` are ignored in favour of the tail's.
pub fn response(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap, tail: &Tail) {
    out.reserve(256);
    status_line(out, status);
    let mut dated = false;
    for (name, value) in headers {
        if *name == CONTENT_LENGTH && tail.frame != Frame::Bare {
            continue;
        }
        if *name == TRANSFER_ENCODING || *name == CONNECTION {
            continue;
        }
        dated |= *name == DATE;
        field(out, name.as_str(), value.as_bytes());
    }
    framing(out, tail.frame);
    if !dated {
        field(out, "date", &(tail.date)());
    }
    if tail.close {
        out.extend_from_slice(b"connection: close\r\n");
    } else if tail.keep_alive {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes an informational response.
pub fn interim(out: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    status_line(out, status);
    for (name, value) in headers {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING && *name != CONNECTION {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a switch to another protocol.
pub fn switching(out: &mut Vec<u8>, headers: &HeaderMap, protocol: &HeaderValue) {
    status_line(out, StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in headers {
        if *name != CONTENT_LENGTH {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"connection: upgrade\r\n");
    field(out, "upgrade", protocol.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a chunk's size line.
pub fn chunk_size(out: &mut Vec<u8>, mut bytes: usize) {
    let mut digits = [0_u8; 16];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = HEX[bytes & 15];
        bytes >>= 4;
        if bytes == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Writes the last chunk with its trailers.
pub fn last_chunk(out: &mut Vec<u8>, trailers: Option<&HeaderMap>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        if may_trail(name) {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn framing(out: &mut Vec<u8>, frame: Frame) {
    match frame {
        Frame::Bare | Frame::UntilClose => {}
        Frame::Length(length) => {
            let mut digits = itoa::Buffer::new();
            field(out, "content-length", digits.format(length).as_bytes());
        }
        Frame::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// How a response is framed for a client of `version`, given what is known of its body.
pub fn response_frame(version: Version, method: &Method, status: StatusCode, length: Option<u64>) -> Frame {
    let bodiless = *method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    match length {
        _ if bodiless => Frame::Bare,
        Some(length) => Frame::Length(length),
        None if version == Version::HTTP_10 => Frame::UntilClose,
        None => Frame::Chunked,
    }
}

const HEX: [u8; 16] = *b"0123456789abcdef";
