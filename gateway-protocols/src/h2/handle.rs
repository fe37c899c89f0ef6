//! One stream of a connection, for whoever has an exchange on it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tokio::time::Instant;

use super::Reason;
use super::connection::{Connection, Extra};
use super::stream::{StreamError, register};

/// A connection and those who have streams on it. They belong to one worker: the cell checks, it never waits.
pub(crate) type Cell = Arc<AtomicRefCell<Connection>>;

/// A hold on a stream; when the last one is dropped, so is the stream, and the peer is told if that is news.
#[derive(Debug)]
pub(crate) struct Handle {
    cell: Cell,
    key: usize,
}

/// What a target said.
#[derive(Debug)]
pub(crate) enum ResponseHead {
    Interim(Response<()>),
    Final(Response<()>),
}

/// What is asked of a connection by two at once; never done by this crate, and an error rather than a panic.
const CONTENDED: StreamError = StreamError::Lost(Reason::INTERNAL_ERROR);

impl Handle {
    /// Takes over the hold a stream begins with.
    pub(crate) fn adopt(cell: &Cell, key: usize) -> Self {
        Self { cell: cell.clone(), key }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Connection, usize) -> R) -> Option<R> {
        self.cell.try_borrow_mut().ok().map(|mut connection| act(&mut connection, self.key))
    }

    /// The response's head, or an informational one before it; `until` says how long to wait for it, where that is
    /// limited, when nothing is there yet.
    pub(crate) fn poll_said(
        &self,
        cx: &Context<'_>,
        until: impl FnOnce() -> Option<Instant>,
    ) -> Poll<Result<ResponseHead, StreamError>> {
        let said = self.with(|connection, key| {
            let Some(stream) = connection.stream(key) else { return Poll::Ready(Err(CONTENDED)) };
            if let Some(interim) = stream.interims.pop_front() {
                return Poll::Ready(Ok(ResponseHead::Interim(interim)));
            }
            if let Some(head) = stream.head.take() {
                return Poll::Ready(Ok(ResponseHead::Final(head)));
            }
            if let Some(fate) = stream.fate {
                return Poll::Ready(Err(fate));
            }
            if std::mem::take(&mut stream.reader.late) {
                return Poll::Ready(Err(StreamError::Late));
            }
            stream.reader.register(cx);
            if stream.reader.until.is_none()
                && let Some(until) = until()
            {
                (stream.reader.until, stream.reader.idle) = (Some(until), Duration::ZERO);
                connection.arm(until);
            }
            Poll::Pending
        });
        said.unwrap_or(Poll::Ready(Err(CONTENDED)))
    }

    /// The next piece of the body; `None` at its end, before trailers.
    pub(crate) fn poll_data(
        &self,
        cx: &Context<'_>,
        idle: Duration,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let data = self.with(|connection, key| {
            let Some(stream) = connection.stream(key) else { return Poll::Ready(Some(Err(CONTENDED))) };
            if let Some(data) = stream.pieces.pop() {
                connection.give(key, data.len());
                return Poll::Ready(Some(Ok(data)));
            }
            if !stream.receiving {
                return Poll::Ready(None);
            }
            if let Some(fate) = stream.fate {
                return Poll::Ready(Some(Err(fate)));
            }
            if std::mem::take(&mut stream.reader.late) {
                return Poll::Ready(Some(Err(StreamError::Late)));
            }
            stream.reader.register(cx);
            if stream.reader.until.is_none() && !idle.is_zero() {
                let until = Instant::now() + idle;
                (stream.reader.until, stream.reader.idle) = (Some(until), idle);
                connection.arm(until);
            }
            Poll::Pending
        });
        data.unwrap_or(Poll::Ready(Some(Err(CONTENDED))))
    }

    /// The whole rest of the message, body and trailers, where all of it is there and the body is one piece or none.
    pub(crate) fn whole(&self) -> Option<(Bytes, Option<HeaderMap>)> {
        self.with(|connection, key| {
            let stream = connection.stream(key)?;
            if stream.receiving || !stream.pieces.is_single() {
                return None;
            }
            let trailers = stream.trailers.take();
            let data = stream.pieces.pop().unwrap_or_default();
            connection.give(key, data.len());
            Some((data, trailers))
        })
        .flatten()
    }

    /// The trailers, once the body's end was seen.
    pub(crate) fn trailers(&self) -> Option<HeaderMap> {
        self.with(|connection, key| connection.stream(key)?.trailers.take()).flatten()
    }

    /// Whether nothing more comes.
    pub(crate) fn is_done(&self) -> bool {
        let done = self.with(|connection, key| {
            let stream = connection.stream(key)?;
            Some(!stream.receiving && stream.pieces.is_empty() && stream.trailers.is_none())
        });
        done.flatten().unwrap_or(true)
    }

    /// Nobody will read the rest.
    pub(crate) fn deafen(&self) {
        self.with(Connection::deafen);
    }

    /// Sends a response's head.
    pub(crate) fn respond(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        extra: &Extra<'_>,
        ends: bool,
    ) -> Result<(), StreamError> {
        self.with(|connection, key| connection.respond(key, status, headers, extra, ends))
            .unwrap_or(Err(CONTENDED))
    }

    /// How many bytes of a body may be sent now; waits for some, but no longer than `idle`.
    pub(crate) fn poll_room(&self, cx: &Context<'_>, idle: Duration) -> Poll<Result<usize, StreamError>> {
        let room = self.with(|connection, key| {
            let room = match connection.room(key) {
                Ok(room) => room,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let Some(stream) = connection.stream(key) else { return Poll::Ready(Err(CONTENDED)) };
            if room > 0 {
                stream.writer.moved();
                return Poll::Ready(Ok(room));
            }
            if std::mem::take(&mut stream.writer.late) {
                return Poll::Ready(Err(StreamError::Late));
            }
            stream.writer.register(cx);
            let until = (stream.writer.until.is_none() && !idle.is_zero()).then(|| Instant::now() + idle);
            stream.writer.until = stream.writer.until.or(until);
            connection.await_sending(key);
            if let Some(until) = until {
                connection.arm(until);
            }
            Poll::Pending
        });
        room.unwrap_or(Poll::Ready(Err(CONTENDED)))
    }

    /// Sends a piece of a body, for which there is room.
    pub(crate) fn send_data(&self, data: Bytes, ends: bool) -> Result<(), StreamError> {
        self.with(|connection, key| connection.send_data(key, data, ends)).unwrap_or(Err(CONTENDED))
    }

    /// Ends our side with trailers.
    pub(crate) fn send_trailers(&self, trailers: &HeaderMap) -> Result<(), StreamError> {
        self.with(|connection, key| connection.send_trailers(key, trailers)).unwrap_or(Err(CONTENDED))
    }

    /// Resets the stream, unless it is closed.
    pub(crate) fn reset(&self, reason: Reason) {
        self.with(|connection, key| connection.reset(key, reason));
    }

    /// What ended the stream early, if anything did.
    pub(crate) fn fate(&self) -> Option<StreamError> {
        self.with(|connection, key| connection.stream(key).map_or(Some(CONTENDED), |stream| stream.fate))
            .flatten()
    }

    /// Ready when the stream has ended early.
    pub(crate) fn poll_fate(&self, cx: &Context<'_>) -> Poll<StreamError> {
        let fate = self.with(|connection, key| {
            let Some(stream) = connection.stream(key) else { return Poll::Ready(CONTENDED) };
            if let Some(fate) = stream.fate {
                return Poll::Ready(fate);
            }
            register(&mut stream.watcher, cx);
            Poll::Pending
        });
        fate.unwrap_or(Poll::Ready(CONTENDED))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.with(Connection::hold);
        Self { cell: self.cell.clone(), key: self.key }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.with(Connection::release);
    }
}
