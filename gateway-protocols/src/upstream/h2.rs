//! An exchange with a target over HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::client::{ResponseFuture, SendRequest};
use ::h2::{Ping, PingPong, Reason, RecvStream};
use bytes::Bytes;
use gateway_core::config::model::Http2Rules;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::pool::Lease;
use gateway_core::pool::multiplex::ConnectionId;
use gateway_core::upstream::{Answer, Call, Failure};
use http::header::{CONTENT_LENGTH, HOST, TE};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial::DialError;
use crate::h2::recv::RecvBody;
use crate::h2::send::{SendBody, SendError};
use crate::link::Link;
use crate::timer::Timer;

/// A connection to a target, shared by many exchanges; a task of its own drives it.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    /// Streams the operator allows at a time.
    most: usize,
}

/// A stream's share of a connection: counted until dropped, then whoever waits for room is told.
#[derive(Debug)]
pub(crate) struct Stream {
    lease: Option<Lease>,
    bell: Arc<Notify>,
}

impl Stream {
    pub(super) fn new(lease: Lease, bell: Arc<Notify>) -> Self {
        Self { lease: Some(lease), bell }
    }

    /// The connection it is on.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        self.lease.as_ref().map(Lease::connection)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(self.lease.take());
        self.bell.notify_waiters();
    }
}

/// Heads of targets may be this large.
const MAX_HEADER_LIST: u32 = 64 << 10;
/// Informational responses passed on before a target counts as broken.
const MAX_INTERIM: u32 = 16;

impl Connection {
    /// Speaks HTTP/2 over a link just made.
    pub(crate) async fn open(link: Link, rules: &Http2Rules) -> Result<Self, DialError> {
        let (requests, mut connection) = ::h2::client::Builder::new()
            .initial_window_size(rules.stream_window)
            .initial_connection_window_size(rules.connection_window)
            .max_frame_size(rules.max_frame_size)
            .max_header_list_size(MAX_HEADER_LIST)
            .enable_push(false)
            .handshake::<_, Bytes>(link)
            .await?;
        let alive = keep_alive(connection.ping_pong(), rules.keep_alive_interval, rules.keep_alive_timeout);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a shared connection to a target ended");
                    }
                }
                () = alive => tracing::info!("a target left a ping unanswered; its connection was closed"),
            }
        });
        let most = rules.max_concurrent_streams.and_then(|streams| usize::try_from(streams).ok());
        Ok(Self { requests, most: most.unwrap_or(usize::MAX) })
    }

    /// Whether streams can still be opened on it.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        !matches!(self.requests.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Streams the target allows at a time.
    pub(crate) fn max_streams(&self) -> usize {
        self.requests.current_max_send_streams().min(self.most)
    }
}

/// Ends when a ping was not answered in time: the connection is dead, whatever TCP still believes.
async fn keep_alive(pings: Option<PingPong>, interval: Duration, timeout: Duration) {
    let Some(mut pings) = pings.filter(|_| !interval.is_zero()) else { return std::future::pending().await };
    loop {
        tokio::time::sleep(interval).await;
        let answer = tokio::time::timeout(timeout, pings.ping(Ping::opaque())).await;
        if !matches!(answer, Ok(Ok(_))) {
            return;
        }
    }
}

/// Sends a request on a stream of `connection` and waits for the response's head.
pub(crate) async fn send<D: Downstream>(
    mut connection: Connection,
    stream: Stream,
    call: Call<'_>,
    body: Body,
    downstream: &mut D,
) -> Result<Answer, Failure> {
    let started = Instant::now();
    let timeouts = &call.route.proxy.timeouts;
    if call.dialect == Dialect::Upgrade {
        // Targets that speak HTTP/2 only are not asked for extended CONNECT.
        return Err(Failure::unsent(Cause::VersionUnsupported, body));
    }
    if let Err(error) = poll_fn(|cx| connection.requests.poll_ready(cx)).await {
        // Refused before a stream was opened: the connection went away while it was being chosen.
        return Err(Failure { stale: true, ..Failure::unsent(Cause::UpstreamClosed, body) }.source(error));
    }
    let Some(request) = request(&call, &body) else { return Err(Failure::unsent(Cause::BadRequest, body)) };
    let ends = body.is_empty();
    let (response, sending) = match connection.requests.send_request(request, ends) {
        Ok(sent) => sent,
        Err(error) => {
            return Err(Failure { stale: true, ..Failure::unsent(Cause::UpstreamClosed, body) }.source(error));
        }
    };
    let upload = (!ends).then(|| SendBody::new(sending, body, timeouts.idle));
    let mut exchange = Exchange { response, upload, timer: Timer::default(), stream };
    for _ in 0..MAX_INTERIM {
        match poll_fn(|cx| exchange.poll_head(cx, &call)).await? {
            // RFC 9113 §8.6: there is nothing to switch to.
            Head::Interim(head) if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Err(Failure::sent(Cause::UpstreamGarbage).source("a switch nobody asked for"));
            }
            Head::Interim(head) => downstream.interim(head.status(), head.headers()).await,
            Head::Final(head) => {
                let first_byte = started.elapsed();
                let response = exchange.into_response(head, timeouts.idle);
                return Ok(Answer { response, first_byte, reused: true, tunnel: None });
            }
        }
    }
    Err(Failure::sent(Cause::UpstreamGarbage).source("too many informational responses"))
}

/// The request as HTTP/2 says it; `None` when the host can't be an authority.
pub(super) fn request(call: &Call<'_>, body: &Body) -> Option<Request<()>> {
    let scheme = if call.route.proxy.backend.scheme.is_encrypted() { "https" } else { "http" };
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(call.host.as_bytes())
        .path_and_query(call.path)
        .build()
        .ok()?;
    let mut request = Request::new(());
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.clone_from(call.headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    if let Some(length) = body.exact_length().filter(|length| *length > 0) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if call.dialect == Dialect::Grpc {
        // gRPC targets take its absence for a proxy that drops trailers.
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    Some(request)
}

struct Exchange {
    response: ResponseFuture,
    upload: Option<SendBody>,
    timer: Timer,
    stream: Stream,
}

enum Head {
    Interim(Response<()>),
    Final(Response<RecvStream>),
}

impl Exchange {
    fn poll_head(&mut self, cx: &mut Context<'_>, call: &Call<'_>) -> Poll<Result<Head, Failure>> {
        match poll_upload(&mut self.upload, cx) {
            Poll::Ready(Err(SendError::Body(error))) => return Poll::Ready(Err(body_failure(error))),
            // A target may answer before it has read everything; read on to learn whether it did.
            Poll::Ready(Err(SendError::Stream)) => self.upload = None,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        if let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(cx) {
            return Poll::Ready(Ok(Head::Interim(interim)));
        }
        match Pin::new(&mut self.response).poll(cx) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Ok(Head::Final(response))),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(stream_failure(error))),
            Poll::Pending => {}
        }
        if self.upload.as_ref().is_some_and(|upload| !upload.is_done()) {
            // The request's own idle timeouts watch over it; the time to the first byte runs from its end.
            return Poll::Pending;
        }
        if !self.timer.is_set() {
            self.timer.set(call.route.proxy.timeouts.first_byte);
        }
        self.timer.poll_elapsed(cx).map(|()| Err(Failure::sent(Cause::UpstreamTimeout)))
    }

    fn into_response(self, head: Response<RecvStream>, idle: Duration) -> Response<Body> {
        let (parts, recv) = head.into_parts();
        let upload = self.upload.filter(|upload| !upload.is_done());
        if recv.is_end_stream() && upload.is_none() {
            return Response::from_parts(parts, Body::empty());
        }
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length = length.filter(|_| parts.status != StatusCode::NOT_MODIFIED);
        let body = AnswerBody { recv: RecvBody::new(recv, length, idle), upload, _stream: self.stream };
        Response::from_parts(parts, Body::stream(body))
    }
}

fn poll_upload(upload: &mut Option<SendBody>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
    match upload {
        None => Poll::Ready(Ok(())),
        Some(sending) => sending.poll_send(cx),
    }
}

pub(super) fn body_failure(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge { .. } => Failure::sent(Cause::BodyTooLarge),
        BodyError::Idle => Failure::sent(Cause::RequestTimeout),
        BodyError::Framing(what) => Failure::sent(Cause::BadRequest).source(what),
        other => Failure::sent(Cause::ClientGone).source(other),
    }
}

fn stream_failure(error: ::h2::Error) -> Failure {
    // Streams refused or beyond a GOAWAY's last one were not processed (RFC 9113 §8.7): safe to send again.
    let unprocessed =
        error.reason() == Some(Reason::REFUSED_STREAM) || (error.is_go_away() && error.is_remote());
    let cause = match error.reason() {
        Some(Reason::PROTOCOL_ERROR | Reason::FRAME_SIZE_ERROR | Reason::COMPRESSION_ERROR) => {
            Cause::UpstreamGarbage
        }
        _ => Cause::UpstreamClosed,
    };
    Failure { reached_wire: !unprocessed, stale: unprocessed, ..Failure::sent(cause) }.source(error)
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
        match poll_upload(&mut this.upload, cx) {
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
