//! The sending half of a request's stream.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::forwarding::Forwarding;
use http::header::{CONTENT_LENGTH, DATE, HOST, HeaderName, TE};
use http::{HeaderMap, StatusCode};
use quinn::{SendStream, WriteError};
use smallvec::SmallVec;

use super::frame::{kind, put_varint};
use super::link::{H3Link, lost};
use super::{Code, StreamError};
use crate::h2::connection::{Extra, RequestLine};
use crate::h2::head::{is_of_connection, is_secret};
use crate::qpack;
use crate::timer::{LastActivity, Timer};

/// Pieces of a body up to so many octets are copied behind their frame's head: one piece costs QUIC less than two.
const JOINED: usize = 4 << 10;
/// Octets the first buffer of a stream begins with: most heads fit.
const FIRST: usize = 512;

/// Writes one message, or what is in a tunnel. When it is dropped before the message's end, the peer is told that what
/// it has is not the whole.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: SendStream,
    link: Arc<H3Link>,
    /// Frames under construction.
    frames: Vec<u8>,
    /// Frames that wait, from `at` on.
    queue: SmallVec<[Bytes; 4]>,
    at: usize,
    /// Octets that wait.
    queued: usize,
    ending: bool,
    ended: bool,
    /// What is said when it ends early.
    code: Code,
    timer: Timer,
    /// Noted where a reader asks for it.
    activity: Option<LastActivity>,
}

impl Writer {
    /// Says `code` when the message does not come to its end.
    pub(crate) fn new(stream: SendStream, link: Arc<H3Link>, code: Code) -> Self {
        Self {
            stream,
            link,
            frames: Vec::new(),
            queue: SmallVec::new(),
            at: 0,
            queued: 0,
            ending: false,
            ended: false,
            code,
            timer: Timer::default(),
            activity: None,
        }
    }

    /// Ready with what the peer said when it wants no more of this stream, or the connection was lost; with nothing
    /// when all of it has arrived.
    pub(crate) fn stopped(&self) -> impl Future<Output = Option<StreamError>> + Send + Sync + use<> {
        let stopped = self.stream.stopped();
        async {
            match stopped.await {
                Ok(code) => code.map(|code| StreamError::Reset(code.into())),
                Err(quinn::StoppedError::ConnectionLost(error)) => Some(lost(&error)),
                Err(_) => Some(StreamError::Refused(Code::INTERNAL_ERROR)),
            }
        }
    }

    /// When something last goes out, from now on.
    pub(super) fn activity(&mut self) -> LastActivity {
        self.activity.get_or_insert_default().clone()
    }

    /// What is said when the message ends early from now on.
    pub(crate) fn blame(&mut self, code: Code) {
        self.code = code;
    }

    /// Appends a request's head.
    pub(crate) fn request(&mut self, line: &RequestLine<'_>, headers: &HeaderMap, extra: &Extra<'_>) {
        self.section(|out| {
            qpack::method(out, line.method);
            qpack::scheme(out, line.scheme);
            qpack::field(out, b":authority", line.authority, false);
            qpack::path(out, line.path);
            fields(out, headers, extra, true);
        });
    }

    /// Appends a response's head, informational or final.
    pub(crate) fn response(&mut self, status: StatusCode, headers: &HeaderMap, extra: &Extra<'_>) {
        self.section(|out| {
            qpack::status(out, status);
            fields(out, headers, extra, false);
        });
        self.link.earned();
    }

    /// Appends trailers.
    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        self.section(|out| fields(out, trailers, &Extra::default(), false));
    }

    /// Appends HEADERS. Its length is written into two octets kept free, as nearly all fit there.
    fn section(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.frames;
        if out.capacity() == 0 {
            out.reserve(FIRST);
        }
        let before = out.len();
        out.extend_from_slice(&[kind::HEADERS as u8, 0, 0]);
        let start = out.len();
        qpack::begin(out);
        write(out);
        let length = out.len() - start;
        match u16::try_from(length) {
            Ok(length @ ..0x4000) => out[start - 2..start].copy_from_slice(&(length | 0x4000).to_be_bytes()),
            _ => {
                let mut long = Vec::with_capacity(8);
                put_varint(&mut long, length as u64);
                drop(out.splice(start - 2..start, long));
            }
        }
        self.queued += out.len() - before;
    }

    /// Appends a piece of a body.
    pub(crate) fn data(&mut self, data: Bytes) {
        let out = &mut self.frames;
        let before = out.len();
        put_varint(out, kind::DATA);
        put_varint(out, data.len() as u64);
        self.queued += out.len() - before + data.len();
        if data.len() <= JOINED {
            out.extend_from_slice(&data);
        } else {
            self.seal();
            self.queue.push(data);
        }
        self.link.earned();
    }

    /// The message ends with what was appended.
    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    /// Octets that wait to be taken by QUIC.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    fn seal(&mut self) {
        if !self.frames.is_empty() {
            self.queue.push(std::mem::take(&mut self.frames).into());
        }
    }

    /// Hands everything to QUIC; waits for room no longer than `idle`.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        idle: Duration,
    ) -> Poll<Result<(), StreamError>> {
        self.seal();
        while self.at < self.queue.len() {
            match pin!(self.stream.write_chunks(&mut self.queue[self.at..])).poll(cx) {
                Poll::Ready(Ok(written)) => {
                    self.timer.clear();
                    if let Some(activity) = &self.activity {
                        activity.note();
                    }
                    self.at += written.chunks;
                    self.queued = self.queued.saturating_sub(written.bytes);
                }
                Poll::Ready(Err(error)) => {
                    self.code = Code::REQUEST_CANCELLED;
                    return Poll::Ready(Err(match error {
                        WriteError::Stopped(code) => StreamError::Reset(code.into()),
                        WriteError::ConnectionLost(error) => lost(&error),
                        _ => StreamError::Refused(Code::INTERNAL_ERROR),
                    }));
                }
                Poll::Pending => {
                    if !self.timer.is_set() {
                        self.timer.set(idle);
                    }
                    return self.timer.poll_elapsed(cx).map(|()| Err(StreamError::Late));
                }
            }
        }
        self.queue.clear();
        (self.at, self.queued) = (0, 0);
        if self.ending && !self.ended {
            self.ended = true;
            // What can be wrong here is that the peer has stopped it, which loses nothing of ours.
            drop(self.stream.finish());
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.stream.reset(self.code.into()));
        }
    }
}

/// Whether a field is said otherwise, or not at all.
fn is_left_out(name: &HeaderName, extra: &Extra<'_>, request: bool) -> bool {
    (*name == CONTENT_LENGTH && (request || extra.length.is_some()))
        || (*name == DATE && extra.date.is_some())
        || (request && (*name == HOST || (*name == TE && extra.trailers)))
        || is_of_connection(name)
}

/// Octets of a request's field section, counted by RFC 9114 §4.2.2.
pub(crate) fn request_size(line: &RequestLine<'_>, headers: &HeaderMap, extra: &Extra<'_>) -> u64 {
    let field = |name: usize, value: usize| (name + value + 32) as u64;
    let pseudo = field(":method".len(), line.method.as_str().len())
        + field(":scheme".len(), line.scheme.len())
        + field(":authority".len(), line.authority.len())
        + field(":path".len(), line.path.len());
    let length = extra
        .length
        .map_or(0, |length| field("content-length".len(), itoa::Buffer::new().format(length).len()));
    let trailers = if extra.trailers { field("te".len(), "trailers".len()) } else { 0 };
    let alt_used = extra.alt_used.map_or(0, |alt_used| field("alt-used".len(), alt_used.len()));
    let forwarding = extra.forwarding.into_iter().flat_map(Forwarding::fields);
    let sent = headers.iter().filter(|(name, _)| !is_left_out(name, extra, true)).chain(forwarding);
    let rest: u64 = sent.map(|(name, value)| field(name.as_str().len(), value.len())).sum();
    pseudo + length + trailers + alt_used + rest
}

/// Appends a message's fields. Requests get their length and authority from elsewhere.
fn fields(out: &mut Vec<u8>, headers: &HeaderMap, extra: &Extra<'_>, request: bool) {
    if let Some(length) = extra.length {
        let mut text = itoa::Buffer::new();
        qpack::field(out, b"content-length", text.format(length).as_bytes(), false);
    }
    if let Some(date) = extra.date {
        qpack::field(out, b"date", date, false);
    }
    for (name, value) in headers {
        if is_left_out(name, extra, request) {
            continue;
        }
        qpack::field(out, name.as_str().as_bytes(), value.as_bytes(), is_secret(name, value));
    }
    for (name, value) in extra.forwarding.into_iter().flat_map(Forwarding::fields) {
        qpack::field(out, name.as_str().as_bytes(), value.as_bytes(), false);
    }
    if extra.trailers {
        qpack::field(out, b"te", b"trailers", false);
    }
    if let Some(alt_used) = extra.alt_used {
        qpack::field(out, b"alt-used", alt_used.as_bytes(), false);
    }
    if let Some(alt_svc) = extra.alt_svc {
        qpack::field(out, b"alt-svc", alt_svc.as_bytes(), false);
    }
}
