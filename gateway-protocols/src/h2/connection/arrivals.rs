//! Messages that arrive: HEADERS, CONTINUATION and DATA.

use bytes::{Buf, Bytes, BytesMut};
use gateway_core::http::reply::Cause;
use http::StatusCode;

use super::super::flood::{MAX_BLOCK_EXCESS, MAX_CONTINUATIONS};
use super::super::flow::Inflow;
use super::super::frame::{self, Head, INITIAL_WINDOW, flag};
use super::super::head::{Fields, Unreadable};
use super::super::stream::{Stream, StreamError, is_peers};
use super::super::{H2Error, Reason, Role};
use super::{Block, Connection, Leaving, MAX_LINGERING, NewRequest};
use crate::hpack::Listed;

impl Connection {
    pub(super) fn headers(&mut self, head: &Head, mut payload: Bytes) -> Result<(), H2Error> {
        if head.stream == 0 || (self.rules.role == Role::Server && !is_peers(Role::Server, head.stream)) {
            return Err(H2Error::protocol("HEADERS on a wrong stream"));
        }
        let (skip, padding) = frame::unpad(head, &payload)
            .map_err(|reason| H2Error::new(reason, "HEADERS with wrong padding"))?;
        if head.has(flag::PRIORITY) {
            self.depends(head.stream, &payload[skip - 5..])?;
        }
        payload.truncate(payload.len() - padding);
        payload.advance(skip);
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.block(head, ends, &payload);
        }
        self.clock.block_began();
        let data = BytesMut::from(&payload[..]);
        self.block = Some(Block { stream: head.stream, ends, data, frames: 0 });
        Ok(())
    }

    pub(super) fn continuation(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        let Some(mut block) = self.block.take() else {
            return Err(H2Error::protocol("CONTINUATION of nothing"));
        };
        block.frames += 1;
        let most = self.rules.max_header_list.saturating_add(MAX_BLOCK_EXCESS);
        if block.frames > MAX_CONTINUATIONS || block.data.len() + payload.len() > most {
            return Err(H2Error::new(Reason::ENHANCE_YOUR_CALM, "a header block without end"));
        }
        block.data.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(());
        }
        self.clock.block_ended();
        self.block(head, block.ends, &block.data.freeze())
    }

    /// Reads a whole header block. It is read in any case, or the tables would be out of step.
    fn block(&mut self, head: &Head, ends: bool, block: &Bytes) -> Result<(), H2Error> {
        let mut fields = Fields::new(self.rules.role);
        let listed = self
            .decoder
            .decode(block, self.rules.max_header_list, |field| fields.push(field))
            .map_err(|error| {
                tracing::debug!(%error, "a header block can't be read");
                H2Error::new(Reason::COMPRESSION_ERROR, "a header block is broken")
            })?;
        let beyond = listed == Listed::BeyondLimit || fields.overflow;
        match self.streams.key(head.stream) {
            Some(key) => self.more_headers(key, ends, &mut fields, beyond),
            None if self.rules.role == Role::Server => self.open(head, ends, &mut fields, beyond),
            None => self.stray(head),
        }
    }

    /// A new request.
    fn open(&mut self, head: &Head, ends: bool, fields: &mut Fields, beyond: bool) -> Result<(), H2Error> {
        let id = head.stream;
        if id <= self.last_peer {
            return match self.streams.was_reset(id) {
                true => self.idle_frame(),
                false => Err(H2Error::new(Reason::STREAM_CLOSED, "HEADERS on a closed stream")),
            };
        }
        if matches!(self.leaving, Leaving::Final(_)) {
            return self.idle_frame();
        }
        self.last_peer = id;
        let most = self.rules.settings.max_concurrent_streams.unwrap_or(u32::MAX) as usize;
        if self.streams.active >= most || self.streams.len() >= most.saturating_add(MAX_LINGERING) {
            frame::rst_stream(self.out.buffer(), id, Reason::REFUSED_STREAM);
            self.streams.remember(id);
            return self.count_reset();
        }
        let parsed = if beyond {
            Err(Unreadable { cause: Cause::HeadersTooLarge, answerable: true })
        } else {
            fields.take_request().map_err(|why| {
                tracing::debug!(why, "a malformed request");
                Unreadable { cause: Cause::BadRequest, answerable: false }
            })
        };
        let parsed = parsed.and_then(|head| match head.length {
            Some(1..) if ends => Err(Unreadable { cause: Cause::BadRequest, answerable: false }),
            _ => Ok(head),
        });
        if parsed.as_ref().is_err_and(|unreadable| !unreadable.answerable) {
            self.arrivals.push_back(NewRequest { stream: None, head: parsed });
            frame::rst_stream(self.out.buffer(), id, Reason::PROTOCOL_ERROR);
            self.streams.remember(id);
            return self.count_reset();
        }
        let mut stream = Stream::new(id, self.stream_inflow(), i64::from(self.peer.initial_window_size));
        stream.receiving = !ends;
        stream.length = parsed.as_ref().ok().and_then(|head| head.length);
        let key = self.streams.insert(stream);
        self.arrivals.push_back(NewRequest { stream: Some((key, id)), head: parsed });
        Ok(())
    }

    /// What a new stream may send us.
    pub(super) fn stream_inflow(&self) -> Inflow {
        let size = self.rules.settings.initial_window_size;
        Inflow::new(if self.settled { size } else { size.max(INITIAL_WINDOW) }, size)
    }

    /// A response, or trailers.
    fn more_headers(
        &mut self,
        key: usize,
        ends: bool,
        fields: &mut Fields,
        beyond: bool,
    ) -> Result<(), H2Error> {
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if let Some(fate) = stream.fate {
            let id = stream.id;
            return self.after_end(id, fate);
        }
        if !stream.receiving {
            return self.stream_error(key, Reason::STREAM_CLOSED);
        }
        if beyond {
            return self.stream_error(key, Reason::PROTOCOL_ERROR);
        }
        if self.rules.role == Role::Client && !stream.answered {
            return self.response(key, ends, fields);
        }
        match fields.take_trailers() {
            Ok(trailers) if ends => {
                if !trailers.is_empty() && !stream.deaf {
                    stream.trailers = Some(trailers);
                }
                self.received(key)
            }
            _ => self.stream_error(key, Reason::PROTOCOL_ERROR),
        }
    }

    /// A frame on a stream that has come to an early end: what was under way when we ended it is ignored, what a peer
    /// sends after it ended it itself is not (RFC 9113 §5.1).
    fn after_end(&mut self, id: u32, fate: StreamError) -> Result<(), H2Error> {
        if matches!(fate, StreamError::Reset(_)) {
            frame::rst_stream(self.out.buffer(), id, Reason::STREAM_CLOSED);
        }
        self.idle_frame()
    }

    fn response(&mut self, key: usize, ends: bool, fields: &mut Fields) -> Result<(), H2Error> {
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        let (response, length) = match fields.take_response() {
            Ok(parsed) => parsed,
            Err(why) => {
                tracing::debug!(why, "a malformed response");
                return self.stream_error(key, Reason::PROTOCOL_ERROR);
            }
        };
        if response.status().is_informational() {
            // RFC 9113 §8.1: it ends nothing, and whoever reads counts how many.
            if ends || stream.interims.len() >= MAX_INTERIMS {
                return self.stream_error(key, Reason::PROTOCOL_ERROR);
            }
            stream.interims.push_back(response);
            stream.reader.moved();
            stream.reader.wake();
            return Ok(());
        }
        let bodiless = stream.bodiless || response.status() == StatusCode::NOT_MODIFIED;
        stream.length = length.filter(|_| !bodiless);
        stream.answered = true;
        stream.head = Some(response);
        stream.reader.moved();
        if ends {
            return self.received(key);
        }
        stream.reader.wake();
        Ok(())
    }

    /// The peer has ended its side of a stream.
    fn received(&mut self, key: usize) -> Result<(), H2Error> {
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if stream.length.is_some_and(|left| left > 0) {
            return self.stream_error(key, Reason::PROTOCOL_ERROR);
        }
        stream.receiving = false;
        stream.reader.moved();
        stream.reader.wake();
        self.closed(key);
        Ok(())
    }

    pub(super) fn data(&mut self, head: &Head, mut payload: Bytes) -> Result<(), H2Error> {
        if head.stream == 0 {
            return Err(H2Error::protocol("DATA without a stream"));
        }
        let octets = payload.len();
        let (skip, padding) =
            frame::unpad(head, &payload).map_err(|reason| H2Error::new(reason, "DATA with wrong padding"))?;
        self.charge(octets)?;
        let Some(key) = self.streams.key(head.stream) else {
            self.give_connection(octets);
            return self.stray(head);
        };
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if stream.fate.is_some() || !stream.receiving {
            let fate = stream.fate;
            self.give_connection(octets);
            return match fate {
                Some(fate) => self.after_end(head.stream, fate),
                None => self.stream_error(key, Reason::STREAM_CLOSED),
            };
        }
        if self.rules.role == Role::Client && !stream.answered {
            self.give_connection(octets);
            return self.stream_error(key, Reason::PROTOCOL_ERROR);
        }
        if !stream.inflow.arrived(octets) {
            self.give_connection(octets);
            return self.stream_error(key, Reason::FLOW_CONTROL_ERROR);
        }
        payload.truncate(octets - padding);
        payload.advance(skip);
        if let Some(left) = &mut stream.length {
            match left.checked_sub(payload.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    self.give_connection(octets);
                    return self.stream_error(key, Reason::PROTOCOL_ERROR);
                }
            }
        }
        if let Some(discard) = &mut stream.discard {
            match discard.octets.checked_sub(octets) {
                Some(left) => discard.octets = left,
                None => {
                    self.give_connection(octets);
                    self.reset(key, Reason::NO_ERROR);
                    return Ok(());
                }
            }
        }
        self.take_data(key, head, payload, octets)
    }

    /// Keeps a piece of a body for whoever reads it.
    fn take_data(&mut self, key: usize, head: &Head, payload: Bytes, octets: usize) -> Result<(), H2Error> {
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        let ends = head.has(flag::END_STREAM);
        let brings_nothing = payload.is_empty() && !ends;
        let overhead = if stream.deaf { octets } else { octets - payload.len() };
        if !stream.deaf {
            stream.pieces.push(payload);
            stream.reader.moved();
            if !ends {
                stream.reader.wake();
            }
        }
        if overhead > 0 {
            self.give(key, overhead);
        }
        if ends {
            self.received(key)?;
        }
        if brings_nothing { self.idle_frame() } else { Ok(()) }
    }
}

/// Informational responses kept for a reader; more of them mean a broken target.
const MAX_INTERIMS: usize = 100;
