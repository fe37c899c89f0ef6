//! An exchange with a target over HTTP/2.

mod drive;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::http::upstream::{Call, Failure, TargetResponse};
use gateway_core::pool::Lease;
use gateway_core::pool::multiplex::ConnectionId;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial_error::DialError;
use super::interim::{MAX_INTERIM, pass_on};
use crate::h2::Reason;
use crate::h2::body::{self, RecvBody};
use crate::h2::connection::{Extra, RequestLine};
use crate::h2::handle::{Handle, ResponseHead};
use crate::h2::send::{SendBody, SendError};
use crate::h2::stream::StreamError;
pub(crate) use drive::H2Connection;

/// A stream's share of a connection: counted until dropped, then whoever waits for room is told.
#[derive(Debug)]
pub(crate) struct Stream {
    lease: Option<Lease>,
    waiters: Arc<Notify>,
}

impl Stream {
    pub(super) fn new(lease: Lease, waiters: Arc<Notify>) -> Self {
        Self { lease: Some(lease), waiters }
    }

    /// The connection it is on.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        self.lease.as_ref().map(Lease::connection)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(self.lease.take());
        self.waiters.notify_waiters();
    }
}

/// A time that is zero where it is not limited.
fn limit(time: Duration) -> Duration {
    if time.is_zero() { Duration::MAX } else { time }
}

/// Sends a request on a stream of `connection` and waits for the response's head.
pub(crate) async fn send<D: Downstream>(
    connection: H2Connection,
    stream: Stream,
    call: &Call<'_>,
    body: Body,
    downstream: &mut D,
) -> Result<TargetResponse, Failure> {
    // Not when the attempt began: finding a connection has a timeout of its own, and takes nothing of the answer's.
    let started = Instant::now();
    let timeouts = &call.timeouts;
    if call.dialect == Dialect::Upgrade {
        // Targets that speak HTTP/2 only are not asked for extended CONNECT.
        return Err(Failure::unsent(Cause::VersionUnsupported, body));
    }
    let length = body.exact_length();
    let extra = Extra {
        length: length.filter(|length| *length > 0),
        trailers: call.trailers,
        forwarding: Some(call.forwarding),
        ..Extra::default()
    };
    let line = RequestLine {
        method: call.method,
        scheme: if call.backend.scheme.is_encrypted() { "https" } else { "http" },
        authority: call.host.as_bytes(),
        path: call.path,
    };
    let ends = body.is_empty();
    let opening = connection.open(&line, call.headers, &extra, ends);
    let opened = match connection.has_room() {
        true => opening.await,
        // The target allows fewer streams than it did when this connection was chosen. That is worth waiting for, but
        // for no longer than another connection would take.
        false => match tokio::time::timeout(limit(timeouts.connect), opening).await {
            Ok(opened) => opened,
            Err(_) => return Err(DialError::Full.into_failure(body)),
        },
    };
    let Some(handle) = opened else {
        // Refused before a stream was opened: the connection went away while it was being chosen.
        return Err(Failure { stale: true, ..Failure::unsent(Cause::UpstreamClosed, body) });
    };
    let upload = (!ends).then(|| SendBody::new(body, timeouts.idle));
    let mut exchange = Exchange { handle, upload, stream, started };
    for _ in 0..MAX_INTERIM {
        match poll_fn(|cx| exchange.poll_said(cx, call)).await? {
            // RFC 9113 §8.6: there is nothing to switch to.
            ResponseHead::Interim(head) if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Err(Failure::sent(Cause::UpstreamGarbage).source("a switch nobody asked for"));
            }
            // Rare: the head would be room in every exchange's future.
            ResponseHead::Interim(head) => {
                Box::pin(pass_on(head, downstream)).await;
                // A sign of life: the wait for the response begins again.
                exchange.started = Instant::now();
            }
            ResponseHead::Final(head) => {
                // What follows may be here as well, and malformed: nothing has gone out yet (RFC 9113 §8.1.1).
                if let Some(error @ StreamError::Refused(_)) = exchange.handle.fate() {
                    return Err(stream_failure(error));
                }
                let first_byte = started.elapsed();
                let response = exchange.into_response(head, call);
                return Ok(TargetResponse { response, first_byte, reused: true, tunnel: None });
            }
        }
    }
    Err(Failure::sent(Cause::UpstreamGarbage).source("too many informational responses"))
}

struct Exchange {
    handle: Handle,
    upload: Option<SendBody>,
    stream: Stream,
    started: Instant,
}

impl Exchange {
    fn poll_said(&mut self, cx: &mut Context<'_>, call: &Call<'_>) -> Poll<Result<ResponseHead, Failure>> {
        match poll_upload(&mut self.upload, &self.handle, cx) {
            Poll::Ready(Err(SendError::Body(error))) => return Poll::Ready(Err(body_failure(error))),
            // A target may answer before it has read everything; read on to learn whether it did.
            Poll::Ready(Err(SendError::Stream | SendError::Late)) => self.upload = None,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        // While the request is under way its own idle timeout watches over it; the time to the first byte runs from its
        // end.
        let uploading = self.upload.as_ref().map(|upload| !upload.is_done());
        let limit = call.timeouts.first_byte;
        let started = self.started;
        let until = || match uploading {
            Some(true) => None,
            Some(false) => (!limit.is_zero()).then(|| Instant::now() + limit),
            None => (!limit.is_zero()).then(|| started + limit),
        };
        self.handle.poll_said(cx, until).map_err(stream_failure)
    }

    fn into_response(self, head: Response<()>, call: &Call<'_>) -> Response<Body> {
        let (parts, ()) = head.into_parts();
        let upload = self.upload.filter(|upload| !upload.is_done());
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let bodiless = parts.status == StatusCode::NOT_MODIFIED || *call.method == http::Method::HEAD;
        let length = length.filter(|_| !bodiless);
        let idle = call.timeouts.idle;
        if upload.is_none()
            && let Some(body) = body::complete(&self.handle, length)
        {
            return Response::from_parts(parts, body);
        }
        let recv = RecvBody::new(self.handle, length, idle);
        Response::from_parts(parts, Body::stream(AnswerBody { recv, upload, _stream: self.stream }))
    }
}

fn poll_upload(
    upload: &mut Option<SendBody>,
    stream: &Handle,
    cx: &mut Context<'_>,
) -> Poll<Result<(), SendError>> {
    match upload {
        None => Poll::Ready(Ok(())),
        Some(sending) => sending.poll_send(cx, stream),
    }
}

pub(super) fn body_failure(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge { .. } => Failure::sent(Cause::BodyTooLarge),
        BodyError::Refused(reply) => Failure::refused(reply),
        BodyError::NoRoom => Failure::sent(Cause::Overloaded),
        BodyError::Idle => Failure::sent(Cause::RequestTimeout),
        BodyError::Framing(what) => Failure::sent(Cause::BadRequest).source(what),
        other => Failure::sent(Cause::ClientGone).source(other.to_string()),
    }
}

fn stream_failure(error: StreamError) -> Failure {
    // Streams refused or beyond a GOAWAY's last one were not processed (RFC 9113 §8.7): safe to send again.
    let unprocessed = matches!(error, StreamError::Unprocessed | StreamError::Reset(Reason::REFUSED_STREAM));
    let cause = match error {
        StreamError::Late | StreamError::TimedOut(_) => Cause::UpstreamTimeout,
        StreamError::Reset(reason) | StreamError::Refused(reason) | StreamError::Lost(reason)
            if is_garbage(reason) =>
        {
            Cause::UpstreamGarbage
        }
        _ => Cause::UpstreamClosed,
    };
    Failure { reached_wire: !unprocessed, stale: unprocessed, ..Failure::sent(cause) }.source(error)
}

/// Whether one side could not understand the other.
fn is_garbage(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::PROTOCOL_ERROR
            | Reason::FRAME_SIZE_ERROR
            | Reason::COMPRESSION_ERROR
            | Reason::FLOW_CONTROL_ERROR
            | Reason::STREAM_CLOSED
    )
}

/// The body of a target's answer; pulling it also drives what is left of the request's.
struct AnswerBody {
    recv: RecvBody,
    upload: Option<SendBody>,
    _stream: Stream,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match poll_upload(&mut this.upload, this.recv.stream(), cx) {
            Poll::Ready(Err(SendError::Body(error))) => {
                return Poll::Ready(Some(Err(BodyError::Request(Box::new(error)))));
            }
            Poll::Ready(_) => this.upload = None,
            Poll::Pending => {}
        }
        Pin::new(&mut this.recv).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.recv.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.recv.size_hint()
    }
}
