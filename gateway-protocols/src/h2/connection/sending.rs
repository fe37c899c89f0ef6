//! What we send: heads, bodies, resets, and leave to send more.

use bytes::Bytes;
use gateway_core::http::forwarding::Forwarding;
use http::header::{CONTENT_LENGTH, DATE, HOST, TE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use super::super::frame::{self, FrameType, HEAD_BYTES, flag};
use super::super::head::{is_of_connection, is_secret};
use super::super::stream::{Discard, Stream, StreamError};
use super::super::{Reason, Role};
use super::{Connection, DISCARD_TIMEOUT, MAX_ADAPTIVE_WINDOW, MAX_DISCARD, MAX_QUEUED};
use crate::hpack::Encoder;

/// The largest frame we send, even when the peer takes larger ones: others want their turn.
const MAX_FRAME: usize = 64 << 10;

/// A request's pseudo-header fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a Method,
    pub(crate) scheme: &'static str,
    pub(crate) authority: &'a [u8],
    pub(crate) path: &'a str,
}

/// Fields that are not in a message's map.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extra<'a> {
    pub(crate) length: Option<u64>,
    pub(crate) date: Option<&'a [u8]>,
    pub(crate) alt_svc: Option<&'a HeaderValue>,
    /// Where a target is asked that offered to be asked there; HTTP/3 only.
    pub(crate) alt_used: Option<&'a str>,
    /// The way a request took.
    pub(crate) forwarding: Option<&'a Forwarding>,
    /// Says `te: trailers`.
    pub(crate) trailers: bool,
}

impl Connection {
    /// Opens a stream and sends a request's head; `None` when there is no room for it, or no way.
    pub(crate) fn request(
        &mut self,
        line: &RequestLine<'_>,
        headers: &HeaderMap,
        extra: &Extra<'_>,
        ends: bool,
    ) -> Option<(usize, u32)> {
        if !self.is_open() || !self.has_room() {
            return None;
        }
        let id = self.next_own;
        self.next_own += 2;
        let mut stream = Stream::new(id, self.stream_inflow(), i64::from(self.peer.initial_window_size));
        stream.sending = !ends;
        stream.bodiless = *line.method == Method::HEAD;
        let key = self.streams.insert(stream);
        self.write_block(id, ends, |encoder, out| {
            match *line.method {
                Method::GET => Encoder::known(out, 2),
                Method::POST => Encoder::known(out, 3),
                ref other => encoder.field(out, b":method", other.as_str().as_bytes(), false),
            }
            Encoder::known(out, if line.scheme == "https" { 7 } else { 6 });
            encoder.field(out, b":authority", line.authority, false);
            match line.path {
                "/" => Encoder::known(out, 4),
                path => encoder.field(out, b":path", path.as_bytes(), false),
            }
            write_fields(encoder, out, headers, extra, true);
        });
        Some((key, id))
    }

    /// Sends a response's head, informational or final.
    pub(crate) fn respond(
        &mut self,
        key: usize,
        status: StatusCode,
        headers: &HeaderMap,
        extra: &Extra<'_>,
        ends: bool,
    ) -> Result<(), StreamError> {
        let id = self.sendable(key)?;
        self.write_block(id, ends, |encoder, out| {
            match status.as_u16() {
                200 => Encoder::known(out, 8),
                204 => Encoder::known(out, 9),
                206 => Encoder::known(out, 10),
                304 => Encoder::known(out, 11),
                400 => Encoder::known(out, 12),
                404 => Encoder::known(out, 13),
                500 => Encoder::known(out, 14),
                _ => encoder.field(out, b":status", status.as_str().as_bytes(), false),
            }
            write_fields(encoder, out, headers, extra, false);
        });
        if let Some(stream) = self.streams.of(key) {
            stream.answered |= !status.is_informational();
        }
        if ends {
            self.sent(key);
        }
        Ok(())
    }

    /// Ends our side of a stream with trailers.
    pub(crate) fn send_trailers(&mut self, key: usize, trailers: &HeaderMap) -> Result<(), StreamError> {
        let id = self.sendable(key)?;
        self.write_block(id, true, |encoder, out| {
            write_fields(encoder, out, trailers, &Extra::default(), false);
        });
        self.sent(key);
        Ok(())
    }

    /// The stream's number, while something may be sent on it.
    fn sendable(&mut self, key: usize) -> Result<u32, StreamError> {
        match self.streams.of(key) {
            Some(Stream { fate: Some(fate), .. }) => Err(*fate),
            Some(stream) if stream.sending => Ok(stream.id),
            _ => Err(StreamError::Refused(Reason::STREAM_CLOSED)),
        }
    }

    /// Appends HEADERS, and CONTINUATION where the peer's frames are too small for the block.
    fn write_block(&mut self, id: u32, ends: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let most = self.peer.max_frame_size as usize;
        let out = self.out.buffer();
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let length = out.len() - start - HEAD_BYTES;
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        if length <= most {
            let head = frame::head(length, FrameType::Headers, flag::END_HEADERS | end_stream, id);
            out[start..start + HEAD_BYTES].copy_from_slice(&head);
        } else {
            let block = out.split_off(start);
            let mut pieces = block[HEAD_BYTES..].chunks(most).peekable();
            let (mut kind, mut flags) = (FrameType::Headers, end_stream);
            while let Some(piece) = pieces.next() {
                let end = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
                out.extend_from_slice(&frame::head(piece.len(), kind, flags | end, id));
                out.extend_from_slice(piece);
                (kind, flags) = (FrameType::Continuation, 0);
            }
        }
        self.floods.earned();
        self.wake_driver();
    }

    /// Bytes of a body that may be sent on a stream now.
    ///
    /// # Errors
    /// What ended the stream.
    pub(crate) fn room(&mut self, key: usize) -> Result<usize, StreamError> {
        self.sendable(key)?;
        let queued = MAX_QUEUED.saturating_sub(self.out.len());
        let window = self.streams.of(key).map_or(0, |stream| stream.window).min(self.window);
        Ok(usize::try_from(window).unwrap_or(0).min(queued))
    }

    /// A stream without room wants to know when there is some.
    pub(crate) fn await_sending(&mut self, key: usize) {
        let Some(stream) = self.streams.of(key) else { return };
        // With its own window closed it waits for that alone.
        if stream.window > 0 && !std::mem::replace(&mut stream.queued, true) {
            self.senders.push_back(key);
        }
    }

    /// Sends a piece of a body, for which there is room.
    pub(crate) fn send_data(&mut self, key: usize, mut data: Bytes, ends: bool) -> Result<(), StreamError> {
        let id = self.sendable(key)?;
        let most = (self.peer.max_frame_size as usize).min(MAX_FRAME);
        let bytes = data.len() as i64;
        self.window -= bytes;
        if let Some(stream) = self.streams.of(key) {
            stream.window -= bytes;
            stream.reader.moved_opposite();
        }
        loop {
            let piece = data.split_to(most.min(data.len()));
            let flags = if ends && data.is_empty() { flag::END_STREAM } else { 0 };
            self.out.buffer().extend_from_slice(&frame::head(piece.len(), FrameType::Data, flags, id));
            self.out.payload(piece);
            self.floods.earned();
            if data.is_empty() {
                break;
            }
        }
        if ends {
            self.sent(key);
        }
        self.wake_driver();
        Ok(())
    }

    /// Our side of a stream is ended.
    fn sent(&mut self, key: usize) {
        if let Some(stream) = self.streams.of(key) {
            stream.sending = false;
            self.closed(key);
        }
    }

    /// Resets a stream, unless it is closed.
    pub(crate) fn reset(&mut self, key: usize, reason: Reason) {
        let Some(stream) = self.streams.of(key) else { return };
        if stream.is_closed() {
            return;
        }
        let id = stream.id;
        stream.fate = Some(StreamError::Refused(reason));
        stream.wake();
        frame::rst_stream(self.out.buffer(), id, reason);
        self.streams.remember(id);
        self.closed(key);
        self.wake_driver();
    }

    /// Whatever follows from a stream being closed.
    pub(super) fn closed(&mut self, key: usize) {
        let Some(stream) = self.streams.of(key) else { return };
        if !stream.is_closed() {
            return;
        }
        let is_discarded = stream.discard.is_some();
        if std::mem::take(&mut stream.counted) {
            self.streams.active -= 1;
            self.openers.drain(..).for_each(std::task::Waker::wake);
        }
        if is_discarded {
            self.streams.remove(key);
        }
    }

    /// A body's reader has taken so many bytes: the peer may send as many more.
    pub(crate) fn give(&mut self, key: usize, octets: usize) {
        self.give_connection(octets);
        let adaptive = self.rules.adaptive_window;
        let Some(stream) = self.streams.of(key) else { return };
        if !stream.receiving || stream.fate.is_some() {
            return;
        }
        let Some(mut increment) = stream.inflow.taken(octets) else { return };
        let keeps_up = adaptive && stream.pieces.is_empty();
        let more = if keeps_up { stream.inflow.grow(MAX_ADAPTIVE_WINDOW) } else { None };
        increment += more.unwrap_or(0);
        let id = stream.id;
        frame::window_update(self.out.buffer(), id, increment);
        // The connection's window has to hold the stream's.
        if more.is_some()
            && let Some(more) = self.inflow.grow(2 * MAX_ADAPTIVE_WINDOW)
        {
            frame::window_update(self.out.buffer(), 0, more);
        }
        self.wake_driver();
    }

    pub(super) fn give_connection(&mut self, octets: usize) {
        if let Some(increment) = self.inflow.taken(octets) {
            frame::window_update(self.out.buffer(), 0, increment);
            self.wake_driver();
        }
    }

    /// Nobody reads a stream any more: what is there, and what comes, makes room for others.
    pub(crate) fn deafen(&mut self, key: usize) {
        let Some(stream) = self.streams.of(key) else { return };
        stream.deaf = true;
        stream.trailers = None;
        let waiting = std::mem::take(&mut stream.pieces).bytes();
        if waiting > 0 {
            self.give(key, waiting);
        }
    }

    /// One who held a stream lets it go. With the last one goes the stream, in whatever state it is.
    pub(crate) fn release(&mut self, key: usize) {
        let role = self.rules.role;
        let Some(stream) = self.streams.of(key) else { return };
        stream.handles -= 1;
        if stream.handles > 0 {
            return;
        }
        if role == Role::Server && !stream.sending && !stream.is_closed() {
            return self.discard(key);
        }
        self.reset(key, Reason::CANCEL);
        self.deafen(key);
        self.streams.remove(key);
        if self.is_over() {
            self.wake_driver();
        }
    }

    /// A response that is complete makes the rest of its request unneeded, which is no error (RFC 9113 §8.1). A reset at once would be
    /// one to clients that are still sending, and cost them the answer: they may finish, within bounds. The stream counts as open.
    fn discard(&mut self, key: usize) {
        let until = Instant::now() + DISCARD_TIMEOUT;
        if let Some(stream) = self.streams.of(key) {
            stream.discard = Some(Discard { octets: MAX_DISCARD, until });
        }
        self.deafen(key);
        self.arm(until);
    }

    /// One more holds a stream.
    pub(crate) fn hold(&mut self, key: usize) {
        if let Some(stream) = self.streams.of(key) {
            stream.handles += 1;
        }
    }

    /// A stream, for those who hold it.
    pub(crate) fn stream(&mut self, key: usize) -> Option<&mut Stream> {
        self.streams.of(key)
    }
}

/// Writes a message's fields. Requests get their length and authority from elsewhere.
fn write_fields(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    headers: &HeaderMap,
    extra: &Extra<'_>,
    request: bool,
) {
    if let Some(length) = extra.length {
        let mut text = itoa::Buffer::new();
        encoder.field(out, b"content-length", text.format(length).as_bytes(), false);
    }
    if let Some(date) = extra.date {
        encoder.field(out, b"date", date, false);
    }
    for (name, value) in headers {
        let ours = (*name == CONTENT_LENGTH && (request || extra.length.is_some()))
            || (*name == DATE && extra.date.is_some())
            || (request && (*name == HOST || (*name == TE && extra.trailers)));
        if ours || is_of_connection(name) {
            continue;
        }
        encoder.field(out, name.as_str().as_bytes(), value.as_bytes(), is_secret(name, value));
    }
    for (name, value) in extra.forwarding.into_iter().flat_map(Forwarding::fields) {
        encoder.field(out, name.as_str().as_bytes(), value.as_bytes(), false);
    }
    if extra.trailers {
        encoder.field(out, b"te", b"trailers", false);
    }
    if let Some(alt_svc) = extra.alt_svc {
        encoder.field(out, b"alt-svc", alt_svc.as_bytes(), false);
    }
}
