//! HTTP/2 with a client: many exchanges at a time on one connection, each a task of its own on the same worker.

mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::server::{Connection, SendResponse};
use ::h2::{Reason, RecvStream};
use atomic_refcell::AtomicRefCell;
use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::Cause;
use gateway_core::stream::relay::Tunnel;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::{Entry, complete, cut_by};
use crate::h2::recv::RecvBody;
use crate::h2::send::{SendBody, SendError};
use crate::timer::Timer;
use crate::worker::Worker;

/// What one stream may send before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
/// What one connection may send before it is read.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of responses that wait for a slow client, for each connection.
const MAX_SEND_BUFFER: usize = 256 << 10;

/// How long a client without streams may take to answer a goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

type Wire<T> = Connection<T, Bytes>;

/// Serves a connection until it ends.
pub(super) async fn serve<T>(worker: &Arc<Worker>, io: T, client: Arc<Client>, entry: &Entry)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let settings = worker.snapshot().settings.clone();
    let handshake = ::h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(settings.limits.max_concurrent_streams)
        .max_header_list_size(u32::try_from(settings.limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .enable_connect_protocol()
        .handshake(io);
    let Ok(Ok(mut wire)) = tokio::time::timeout(settings.client_timeouts.header, handshake).await else {
        return;
    };
    let streams = Arc::new(AtomicUsize::new(0));
    let mut idle = Idle { timer: Timer::default(), after: settings.client_timeouts.keep_alive };
    let mut leaving = false;
    loop {
        match poll_fn(|cx| poll_next(cx, &mut wire, &mut idle, entry, (&streams, leaving))).await {
            Next::Stream(stream) => {
                let (request, respond) = *stream;
                let counted = Counted::begin(&streams);
                let (worker, client) = (worker.clone(), client.clone());
                tokio::spawn(async move {
                    worker.guarded(exchange(&worker, request, respond, client)).await;
                    drop(counted);
                });
            }
            Next::Leave => {
                wire.graceful_shutdown();
                idle.timer.clear();
                leaving = true;
            }
            Next::Over => return,
        }
    }
}

enum Next {
    Stream(Box<(Request<RecvStream>, SendResponse<Bytes>)>),
    /// Say goodbye: no more streams, those open are finished.
    Leave,
    Over,
}

/// Closes a connection without streams after a while.
struct Idle {
    timer: Timer,
    after: Duration,
}

/// Counts a stream as open until dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn begin(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(streams.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn poll_next<T>(
    cx: &mut Context<'_>,
    wire: &mut Wire<T>,
    idle: &mut Idle,
    entry: &Entry,
    (streams, leaving): (&AtomicUsize, bool),
) -> Poll<Next>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match wire.poll_accept(cx) {
        Poll::Ready(Some(Ok((request, respond)))) => {
            idle.timer.clear();
            return Poll::Ready(Next::Stream(Box::new((request, respond))));
        }
        Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Next::Over),
        Poll::Pending => {}
    }
    let patience = if leaving { GOODBYE } else { idle.after };
    entry.watch(cx);
    if !leaving && entry.is_draining() {
        return Poll::Ready(Next::Leave);
    }
    if !idle.timer.is_set() {
        idle.timer.set(patience);
    }
    while idle.timer.poll_elapsed(cx).is_ready() {
        if streams.load(Ordering::Relaxed) == 0 {
            // A client that does not answer the goodbye is not waited for.
            return Poll::Ready(if leaving { Next::Over } else { Next::Leave });
        }
        idle.timer.set(patience);
    }
    Poll::Pending
}

/// Serves one exchange.
async fn exchange(
    worker: &Worker,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    client: Arc<Client>,
) {
    let snapshot = worker.snapshot();
    let idle = snapshot.settings.client_timeouts.body;
    let head = *request.method() == Method::HEAD;
    let (request, upgrade) = match tunnel::asked(request) {
        tunnel::Asked::Plain(request) => (request, None),
        tunnel::Asked::WebSocket(request, recv) => (request, Some(recv)),
    };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let request = request.map(|recv| match recv {
        // The h2 crate checks that a declared length is kept.
        Some(recv) if !recv.is_end_stream() => Body::stream(RecvBody::new(recv, length, idle)),
        _ => Body::empty(),
    });
    let respond = Arc::new(AtomicRefCell::new(respond));
    let asks_upgrade = upgrade.is_some();
    let alt_svc = client.tls.as_ref().and_then(|_| worker.alt_svc().cloned());
    let mut responder = Responder { respond: respond.clone(), head, idle, upgrade, alt_svc };
    let mut exchange = Exchange::new(request, client);
    exchange.started = Instant::now();
    exchange.upgrade = asks_upgrade.then_some(HeaderValue::from_static("websocket"));
    let mut serving = pin!(worker.pipeline().serve(&snapshot, exchange, &mut responder));
    poll_fn(|cx| {
        if serving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // A client that resets the stream no longer waits: dropping the exchange records that and frees the target.
        match respond.try_borrow_mut() {
            Ok(mut respond) => poll_gone(&mut respond, cx),
            Err(_) => Poll::Pending,
        }
    })
    .await;
}

/// Ready when nobody waits for the response's head any more. Once it is on its way, whoever sends the body watches.
fn poll_gone(respond: &mut SendResponse<Bytes>, cx: &mut Context<'_>) -> Poll<()> {
    match respond.poll_reset(cx) {
        Poll::Ready(Ok(_)) => Poll::Ready(()),
        Poll::Ready(Err(error)) if error.is_io() || error.is_go_away() || error.is_reset() => Poll::Ready(()),
        // The h2 crate refuses to watch for resets here after the head was sent.
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
    }
}

struct Responder {
    respond: Arc<AtomicRefCell<SendResponse<Bytes>>>,
    head: bool,
    idle: Duration,
    /// The client's side of the stream, when it asks for a WebSocket.
    upgrade: Option<RecvStream>,
    /// Where HTTP/3 is, for clients that could use it.
    alt_svc: Option<HeaderValue>,
}

impl Downstream for Responder {
    async fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers.clone();
        if let Ok(mut respond) = self.respond.try_borrow_mut() {
            // A client that can't take it is gone, which the final response will find out.
            drop(respond.send_informational(response));
        }
    }

    async fn upgrade(&mut self, mut response: Response<()>) -> Option<Tunnel> {
        let recv = self.upgrade.take()?;
        // RFC 8441 §5: success is 200, and there is no key to answer.
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(http::header::SEC_WEBSOCKET_ACCEPT);
        let send = self.respond.try_borrow_mut().ok()?.send_response(response, false).ok()?;
        Some(Box::new(tunnel::StreamTunnel::new(recv, send)))
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let mut response = Response::from_parts(parts, ());
        let bodiless = self.head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        complete(response.headers_mut(), bodiless, &body);
        if let Some(alt_svc) = self.alt_svc.take() {
            response.headers_mut().insert(http::header::ALT_SVC, alt_svc);
        }
        let ends = bodiless || body.is_empty();
        let sent = match self.respond.try_borrow_mut() {
            Ok(mut respond) => respond.send_response(response, ends),
            Err(_) => return Delivery { bytes: 0, cut: Some(Cause::Internal) },
        };
        let Ok(stream) = sent else { return Delivery { bytes: 0, cut: Some(Cause::ClientGone) } };
        if ends {
            return Delivery { bytes: 0, cut: None };
        }
        let mut sending = SendBody::new(stream, body, self.idle);
        let cut = match poll_fn(|cx| sending.poll_send(cx)).await {
            Ok(()) => None,
            Err(SendError::Body(error)) => {
                // What was sent is not the whole, and must not look like it.
                sending.reset(Reason::INTERNAL_ERROR);
                Some(cut_by(&error))
            }
            Err(SendError::Stream) => {
                sending.reset(Reason::CANCEL);
                Some(Cause::ClientGone)
            }
        };
        Delivery { bytes: sending.sent, cut }
    }
}
