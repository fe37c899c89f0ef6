//! What the streams of one connection share.

use std::sync::Arc;
use std::task::{Context, Waker};

use atomic_refcell::AtomicRefCell;
use bytes::Bytes;
use quinn::{Connection, ConnectionError, VarInt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::frame::{self, kind, put_varint};
use super::settings::Settings;
use super::{Code, H3Error, StreamError};
use crate::h2::Role;
use crate::h2::flood::Floods;

/// One end of a connection. It belongs to one worker: the cell checks, it never waits.
#[derive(Debug)]
pub(crate) struct H3Link {
    pub(crate) quic: Connection,
    pub(crate) role: Role,
    /// Octets of a field section we take, counted by RFC 9114 §4.2.2.
    pub(crate) max_fields: usize,
    /// Rung at each GOAWAY of the peer.
    pub(crate) leaving: Notify,
    state: AtomicRefCell<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    peer: Option<Settings>,
    /// The peer's GOAWAY.
    goaway: Option<u64>,
    max_push: Option<u64>,
    control: Option<quinn::SendStream>,
    /// What waits to be written on the control stream.
    waiting: Vec<u8>,
    floods: Floods,
}

/// Whoever is done with a connection closes it; one that was closed before stays as it is.
impl Drop for H3Link {
    fn drop(&mut self) {
        self.close(Code::NO_ERROR, "");
    }
}

impl H3Link {
    pub(crate) fn new(quic: Connection, role: Role, max_fields: usize) -> Arc<Self> {
        Arc::new(Self { quic, role, max_fields, leaving: Notify::new(), state: AtomicRefCell::default() })
    }

    /// Ends the connection because of what the peer did.
    pub(crate) fn fail(&self, fault: H3Error) -> StreamError {
        tracing::debug!(%fault, role = ?self.role, "an HTTP/3 connection failed");
        self.close(fault.code, fault.note);
        StreamError::Lost(fault.code)
    }

    /// Ends the connection.
    pub(crate) fn close(&self, code: Code, note: &str) {
        self.quic.close(code.into(), note.as_bytes());
    }

    /// The control stream is open.
    pub(super) fn opened(&self, control: quinn::SendStream) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.control = Some(control);
            state.flush();
        }
    }

    /// Says something on the control stream, as soon as there is one.
    pub(super) fn say(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            write(&mut state.waiting);
            state.flush();
        }
    }

    /// Tells the peer that streams from `id` on are not looked at (RFC 9114 §5.2).
    pub(crate) fn goaway(&self, id: u64) {
        self.say(|out| {
            let mut number = Vec::with_capacity(8);
            put_varint(&mut number, id.min(frame::MAX_VARINT - 3));
            put_varint(out, kind::GOAWAY);
            put_varint(out, number.len() as u64);
            out.extend_from_slice(&number);
        });
    }

    /// Where the peer's GOAWAY stands, when there was one.
    pub(crate) fn peer_leaves(&self) -> Option<u64> {
        self.state.try_borrow().ok()?.goaway
    }

    pub(super) fn settle(&self, settings: Settings) -> Result<(), H3Error> {
        match self.state.try_borrow_mut() {
            Ok(mut state) if state.peer.is_none() => state.peer = Some(settings),
            _ => return Err(H3Error::new(Code::FRAME_UNEXPECTED, "SETTINGS twice")),
        }
        Ok(())
    }

    /// Octets of a field section the peer takes, counted by RFC 9114 §4.2.2, where it has said so by now.
    pub(crate) fn peer_max_fields(&self) -> Option<u64> {
        self.state.try_borrow().ok()?.peer?.max_field_section
    }

    pub(super) fn is_settled(&self) -> bool {
        self.state.try_borrow().is_ok_and(|state| state.peer.is_some())
    }

    /// The peer goes.
    pub(super) fn heard_goaway(&self, id: u64) -> Result<(), H3Error> {
        let Ok(mut state) = self.state.try_borrow_mut() else { return Ok(()) };
        // RFC 9114 §7.2.6: to a client it names one of its requests, and it never grows.
        let wrong = self.role == Role::Client && !id.is_multiple_of(4);
        if wrong || state.goaway.is_some_and(|before| id > before) {
            return Err(H3Error::new(Code::ID_ERROR, "a GOAWAY that goes nowhere"));
        }
        state.goaway = Some(id);
        self.leaving.notify_waiters();
        Ok(())
    }

    pub(super) fn heard_max_push(&self, id: u64) -> Result<(), H3Error> {
        let Ok(mut state) = self.state.try_borrow_mut() else { return Ok(()) };
        if state.max_push.is_some_and(|before| id < before) {
            return Err(H3Error::new(Code::ID_ERROR, "a MAX_PUSH_ID that shrinks"));
        }
        state.max_push = Some(id);
        Ok(())
    }

    /// The peer sent something that brings nothing.
    pub(crate) fn idle_frame(&self) -> Result<(), H3Error> {
        self.count(|floods, now| floods.idle_frame(now))
    }

    /// A stream ended before it was answered, or was none.
    pub(crate) fn wasted(&self) -> Result<(), H3Error> {
        self.count(|floods, now| floods.reset(now))
    }

    /// Something worth a few idle frames has gone out.
    pub(crate) fn earned(&self) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.floods.earned();
        }
    }

    fn count(&self, take: impl FnOnce(&mut Floods, Instant) -> bool) -> Result<(), H3Error> {
        let Ok(mut state) = self.state.try_borrow_mut() else { return Ok(()) };
        match take(&mut state.floods, Instant::now()) {
            true => Ok(()),
            false => Err(H3Error::new(Code::EXCESSIVE_LOAD, "too much of what brings nothing")),
        }
    }
}

impl LinkState {
    /// Writes what can be written now; a peer that leaves no room for that little gets it with the next thing said.
    fn flush(&mut self) {
        let Some(control) = &mut self.control else { return };
        while !self.waiting.is_empty() {
            let data = Bytes::copy_from_slice(&self.waiting);
            let mut cx = Context::from_waker(Waker::noop());
            match std::pin::Pin::new(&mut *control).poll_write(&mut cx, &data) {
                std::task::Poll::Ready(Ok(written)) if written > 0 => drop(self.waiting.drain(..written)),
                _ => return,
            }
        }
    }
}

/// What is said about streams of a connection that is gone.
pub(super) fn lost(error: &ConnectionError) -> StreamError {
    StreamError::Lost(match error {
        ConnectionError::ApplicationClosed(close) => Code::from(close.error_code),
        ConnectionError::LocallyClosed => Code::NO_ERROR,
        ConnectionError::TimedOut | ConnectionError::Reset => Code::NO_ERROR,
        _ => Code::INTERNAL_ERROR,
    })
}

impl From<Code> for VarInt {
    fn from(code: Code) -> Self {
        Self::from_u64(code.0).unwrap_or(Self::MAX)
    }
}

impl From<VarInt> for Code {
    fn from(code: VarInt) -> Self {
        Self(code.into_inner())
    }
}
