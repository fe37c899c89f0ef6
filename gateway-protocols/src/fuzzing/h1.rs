//! HTTP/1.1 in both directions: where messages end, however their octets arrive, and whether hyper agrees.

use bytes::BytesMut;
use http::Method;

use super::oracle::{self, Message};
use super::pieces;
use crate::h1::body::{BodyStep, Decoder};
use crate::h1::head::{self, HeadLimits};

const LIMITS: HeadLimits = HeadLimits { bytes: 32 << 10, fields: 100, target: 8 << 10 };
/// As many as a target may send before its answer.
const MAX_INTERIM: usize = 8;

/// Whether a version may be among these octets that is read as 1.1 (RFC 9110 §2.5) and that hyper refuses.
fn has_later_version(data: &[u8]) -> bool {
    data.windows(8).any(|text| text.starts_with(b"HTTP/1.") && matches!(text.last(), Some(b'2'..=b'9')))
}

/// How reading came to an end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// More would have to come; so much of a body was read by then.
    Short(Vec<u8>),
    /// Nothing that comes after this can be read.
    Refused,
    /// The connection is not used any further.
    Closed,
}

/// Octets that arrive in pieces.
struct Wire<'d> {
    rest: &'d [u8],
    step: usize,
    buffer: BytesMut,
}

impl<'d> Wire<'d> {
    fn new(data: &'d [u8], step: usize) -> Self {
        Self { rest: data, step, buffer: BytesMut::new() }
    }

    /// False when nothing more comes.
    fn fill(&mut self) -> bool {
        let (now, later) = self.rest.split_at(self.step.min(self.rest.len()));
        self.buffer.extend_from_slice(now);
        self.rest = later;
        !now.is_empty()
    }

    /// Reads a body; false when it is not all there.
    fn body(&mut self, mut decoder: Decoder, message: &mut Message) -> Result<bool, ()> {
        loop {
            match decoder.next(&mut self.buffer).map_err(drop)? {
                BodyStep::Data(data) => message.body.extend_from_slice(&data),
                BodyStep::Trailers(trailers) => {
                    message.trailers(&trailers);
                    return Ok(true);
                }
                BodyStep::End => return Ok(true),
                BodyStep::More if self.fill() => {}
                BodyStep::More => return Ok(decoder.end_of_stream().is_ok()),
            }
        }
    }
}

/// A client sends `data`: one request after the other.
pub(super) fn request(data: &[u8]) {
    if has_later_version(data) {
        return;
    }
    let (ours, end) = pieces::whole(data, requests);
    let (theirs, refused) = oracle::requests(data);
    for (n, message) in ours.iter().enumerate() {
        match theirs.get(n) {
            // It may close where we don't: it takes a Connection for absent that has an octet beyond ASCII.
            None if !refused => break,
            other => {
                assert_eq!(Some(message), other, "hyper reads request {n} differently; it ends with {end:?}")
            }
        }
    }
}

fn requests(data: &[u8], step: usize) -> (Vec<Message>, End) {
    let mut wire = Wire::new(data, step);
    let mut read = Vec::new();
    loop {
        let parsed = match head::request(&mut wire.buffer, &LIMITS) {
            Ok(Some(head)) => head,
            Ok(None) if wire.fill() => continue,
            Ok(None) => return (read, End::Short(Vec::new())),
            Err(_) => return (read, End::Refused),
        };
        let mut message = Message::request(&parsed.request);
        match wire.body(parsed.framing.into(), &mut message) {
            Ok(true) => read.push(message),
            Ok(false) => return (read, End::Short(message.body)),
            Err(()) => return (read, End::Refused),
        }
        if !parsed.keep_alive {
            return (read, End::Closed);
        }
    }
}

/// A target sends `data` as its answer, and closes.
pub(super) fn response(data: &[u8]) {
    if has_later_version(data) {
        return;
    }
    for method in [Method::GET, Method::HEAD] {
        let (ours, end) = pieces::whole(data, |data, step| answer(data, step, &method));
        let Some(ours) = ours else { continue };
        let theirs = oracle::answer(data, &method);
        assert_eq!(Some(&ours), theirs.as_ref(), "hyper reads the answer to {method} differently ({end:?})");
    }
}

fn answer(data: &[u8], step: usize, method: &Method) -> (Option<Message>, End) {
    let mut wire = Wire::new(data, step);
    let mut interim = 0;
    loop {
        let parsed = match head::response(&mut wire.buffer, &LIMITS, method) {
            Ok(Some(head)) => head,
            Ok(None) if wire.fill() => continue,
            Ok(None) => return (None, End::Short(Vec::new())),
            Err(_) => return (None, End::Refused),
        };
        let status = parsed.response.status();
        if status == http::StatusCode::SWITCHING_PROTOCOLS {
            return (None, End::Closed);
        }
        if status.is_informational() {
            interim += 1;
            if interim > MAX_INTERIM {
                return (None, End::Refused);
            }
            continue;
        }
        let mut message = Message::response(&parsed.response);
        return match wire.body(parsed.framing.into(), &mut message) {
            Ok(true) => (Some(message), End::Closed),
            Ok(false) => (None, End::Short(message.body)),
            Err(()) => (None, End::Refused),
        };
    }
}
