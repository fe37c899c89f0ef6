//! Sending a body on a stream, as fast as its window allows.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::grpc_status;

use super::handle::Handle;
use super::stream::StreamError;
use crate::h1::chunked::keep_trailing;

/// A body on its way out.
pub(crate) struct SendBody {
    body: Body,
    pending: Bytes,
    done: bool,
    idle: Duration,
    /// Body bytes handed to the connection.
    pub(crate) sent: u64,
    /// The gRPC status in the trailers, once they were handed over.
    pub(crate) grpc_status: Option<u16>,
}

/// Which side ended the sending early.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The body could not be read.
    Body(BodyError),
    /// The stream is closed; the body is not to blame.
    Stream,
    /// The peer takes nothing for too long.
    Late,
}

impl SendBody {
    pub(crate) fn new(body: Body, idle: Duration) -> Self {
        Self { body, pending: Bytes::new(), done: false, idle, sent: 0, grpc_status: None }
    }

    /// Whether everything has been handed over.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Sends on `stream` what can be sent now; ready when all of it has been handed over.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, stream: &Handle) -> Poll<Result<(), SendError>> {
        while !self.done {
            if !self.pending.is_empty() {
                ready!(self.poll_pending(cx, stream))?;
                continue;
            }
            let Poll::Ready(frame) = self.body.poll_next(cx) else {
                // A peer that has reset the stream waits for nothing more of the body.
                return stream.poll_fate(cx).map(|_| Err(SendError::Stream));
            };
            let Some(frame) = frame else {
                self.finish(stream, Bytes::new())?;
                break;
            };
            match frame.map_err(SendError::Body)?.into_data() {
                Ok(data) => self.pending = data,
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    keep_trailing(&mut trailers);
                    self.grpc_status = grpc_status(&trailers);
                    self.done = true;
                    stream.send_trailers(&trailers).map_err(stream_error)?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_pending(&mut self, cx: &Context<'_>, stream: &Handle) -> Poll<Result<(), SendError>> {
        let room = ready!(stream.poll_room(cx, self.idle)).map_err(stream_error)?;
        let data = self.pending.split_to(room.min(self.pending.len()));
        self.sent += data.len() as u64;
        if self.pending.is_empty() && self.body.is_empty() {
            return Poll::Ready(self.finish(stream, data));
        }
        Poll::Ready(stream.send_data(data, false).map_err(stream_error))
    }

    fn finish(&mut self, stream: &Handle, data: Bytes) -> Result<(), SendError> {
        self.done = true;
        stream.send_data(data, true).map_err(stream_error)
    }
}

fn stream_error(error: StreamError) -> SendError {
    tracing::debug!(%error, "a stream ended before its body");
    match error {
        StreamError::Late | StreamError::TimedOut(_) => SendError::Late,
        _ => SendError::Stream,
    }
}
