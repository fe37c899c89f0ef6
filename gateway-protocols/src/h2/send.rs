//! Sending a body on an HTTP/2 stream, as fast as its window allows.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use h2::{Reason, SendStream};

use crate::h1::chunked::keep_trailing;
use crate::timer::Timer;

/// A body on its way out.
pub(crate) struct SendBody {
    stream: SendStream<Bytes>,
    body: Body,
    pending: Bytes,
    done: bool,
    idle: Duration,
    timer: Timer,
    /// Body bytes handed to the connection.
    pub(crate) sent: u64,
}

/// Which side ended the sending early.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The body could not be read.
    Body(BodyError),
    /// The stream is closed or stalled; the body is not to blame.
    Stream,
}

impl SendBody {
    pub(crate) fn new(stream: SendStream<Bytes>, body: Body, idle: Duration) -> Self {
        Self { stream, body, pending: Bytes::new(), done: false, idle, timer: Timer::default(), sent: 0 }
    }

    /// Whether everything has been handed over.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Tells the peer that what was sent is not the whole.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
        self.done = true;
    }

    /// Sends what can be sent now; ready when all of it has been handed over.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        while !self.done {
            if !self.pending.is_empty() {
                ready!(self.poll_pending(cx))?;
                continue;
            }
            let Poll::Ready(frame) = self.body.poll_next(cx) else {
                // A peer that has reset the stream waits for nothing more of the body.
                return self.stream.poll_reset(cx).map(|_| Err(SendError::Stream));
            };
            let Some(frame) = frame else {
                self.finish(Bytes::new())?;
                break;
            };
            match frame.map_err(SendError::Body)?.into_data() {
                Ok(data) => self.pending = data,
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    keep_trailing(&mut trailers);
                    self.done = true;
                    self.stream.send_trailers(trailers).map_err(stream_error)?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.stream.reserve_capacity(self.pending.len());
        let mut room = self.stream.capacity();
        if room == 0 {
            room = match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => room,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(stream_error(error))),
                Poll::Ready(None) => return Poll::Ready(Err(SendError::Stream)),
                Poll::Pending => return self.stalled(cx),
            };
        }
        self.timer.clear();
        let data = self.pending.split_to(room.min(self.pending.len()));
        self.sent += data.len() as u64;
        if self.pending.is_empty() && self.body.is_empty() {
            return Poll::Ready(self.finish(data));
        }
        Poll::Ready(self.stream.send_data(data, false).map_err(stream_error))
    }

    fn finish(&mut self, data: Bytes) -> Result<(), SendError> {
        self.done = true;
        self.stream.send_data(data, true).map_err(stream_error)
    }

    /// Waits for the window, but not for a peer that has reset the stream or never reads again.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(SendError::Stream));
        }
        if !self.timer.is_set() {
            self.timer.set(self.idle);
        }
        ready!(self.timer.poll_elapsed(cx));
        Poll::Ready(Err(SendError::Stream))
    }
}

fn stream_error(error: h2::Error) -> SendError {
    tracing::debug!(%error, "a stream ended before its body");
    SendError::Stream
}
