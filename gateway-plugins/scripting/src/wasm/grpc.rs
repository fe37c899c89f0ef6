//! gRPC as guests see it: streams that they have open, what comes on them, and how streams and calls end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Wake, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{BodyError, GrpcPrefix};
use gateway_core::http::dialect::grpc_status;
use gateway_core::http::reply::grpc_status_of;
use gateway_core::plugin::world::calls::{CallError, Client};
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body as HttpBody, Frame};
use percent_encoding::percent_decode;
use tokio::task::AbortHandle;

use super::settings::Callee;

/// gRPC's numbers for how a call ended.
pub(super) const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
pub(super) const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// A stream that a context has open.
pub(super) struct OpenStream {
    pub(super) owner: u32,
    pub(super) outbox: Arc<Outbox>,
    start: Option<Box<Start>>,
    task: Option<AbortHandle>,
}

/// What a stream begins with.
pub(super) struct Start {
    pub(super) client: Client,
    pub(super) request: Request<()>,
    pub(super) timeout: Duration,
    pub(super) max_message: u64,
}

impl OpenStream {
    /// A stream that is begun when the guest has returned. At most `room` bytes wait to be sent.
    pub(super) fn new(owner: u32, callee: &Callee, request: Request<()>, room: usize) -> Self {
        let start = Start {
            client: callee.streams.clone(),
            request,
            timeout: callee.stream_timeout,
            max_message: callee.max_message,
        };
        let outbox = Arc::new(Outbox { room, queue: Mutex::default() });
        Self { owner, outbox, start: Some(Box::new(start)), task: None }
    }

    /// What it begins with, once, and what it says.
    pub(super) fn begin(&mut self) -> Option<(Start, Arc<Outbox>)> {
        self.start.take().map(|start| (*start, self.outbox.clone()))
    }

    /// Ends the task with the stream.
    pub(super) fn runs_as(&mut self, task: AbortHandle) {
        self.task = Some(task);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Messages that wait to be sent.
pub(super) struct Outbox {
    room: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    bytes: BytesMut,
    is_ended: bool,
    /// Nobody reads any more.
    is_left: bool,
    waker: Option<Waker>,
}

/// Why a message can't be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendError {
    /// The guest has ended its direction.
    Ended,
    /// Too much waits already.
    Full,
}

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a message sent.
    ///
    /// # Errors
    /// Why it is not sent.
    pub(super) fn send(&self, message: &[u8], is_end: bool) -> Result<(), SendError> {
        let mut queue = self.queue();
        if queue.is_ended {
            return Err(SendError::Ended);
        }
        if !queue.is_left {
            let waiting = queue.bytes.len() + GrpcPrefix::BYTES + message.len();
            if waiting > self.room {
                return Err(SendError::Full);
            }
            GrpcPrefix { compressed: false, length: message.len() }.write(&mut queue.bytes);
            queue.bytes.extend_from_slice(message);
        }
        queue.is_ended |= is_end;
        queue.wake();
        Ok(())
    }

    /// Nothing more is sent.
    pub(super) fn end(&self) {
        let mut queue = self.queue();
        queue.is_ended = true;
        queue.wake();
    }
}

impl Queue {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The body of a stream's request.
pub(super) struct Outgoing(pub(super) Arc<Outbox>);

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Wake<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut queue = self.0.queue();
        if !queue.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(queue.bytes.split().freeze()))));
        }
        if queue.is_ended {
            return Poll::Ready(None);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let queue = self.0.queue();
        queue.is_ended && queue.bytes.is_empty()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.is_left = true;
        queue.bytes = BytesMut::new();
    }
}

/// What the guest hears of a stream.
pub(super) enum GrpcEvent {
    /// Initial metadata, with the HTTP status where there was more than trailers.
    Head(Option<StatusCode>, HeaderMap),
    Message(Bytes),
    Trailers(HeaderMap),
    Closed(GrpcEnd),
}

/// How a stream or call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrpcEnd {
    pub(super) status: u32,
    pub(super) message: String,
}

impl GrpcEnd {
    pub(super) fn new(status: u32, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// What trailers say, or a head without a body.
    pub(super) fn of(fields: &HeaderMap) -> Option<Self> {
        let status = grpc_status(fields)?;
        let message =
            fields.get("grpc-message").map(|text| percent_decode(text.as_bytes()).decode_utf8_lossy());
        Some(Self::new(u32::from(status), message.unwrap_or_default()))
    }

    /// Of a call that has not been answered.
    pub(super) fn failed(error: &CallError) -> Self {
        Self::new(u32::from(error.cause.grpc_status()), error.cause.reason())
    }

    /// Of an answer that is not gRPC's.
    pub(super) fn of_http(status: StatusCode) -> Self {
        Self::new(u32::from(grpc_status_of(status)), format!("the server answered {}", status.as_u16()))
    }

    pub(super) fn late() -> Self {
        Self::new(DEADLINE_EXCEEDED, "not within its timeout")
    }

    pub(super) fn broken(error: &BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge { .. } => RESOURCE_EXHAUSTED,
            BodyError::Framing(_) => INTERNAL,
            _ => UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}
