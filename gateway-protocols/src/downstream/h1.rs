//! HTTP/1.1 with a client: one exchange after the other on one connection.

mod body;
mod expectation;
mod reply;
mod unreadable;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use bytes::BytesMut;
use gateway_core::config::model::Settings;
use gateway_core::http::body::Body;
use gateway_core::http::downstream::Delivery;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::snapshot::Snapshot;
use http::{Method, Version};
use tokio::sync::oneshot;

use crate::buffer::{self, HEAD_BYTES};
use crate::h1::body::Decoder;
use crate::h1::head::{self, Framing, HeadError, HeadLimits, RequestHead};
use crate::link::{Link, ReadHalf};
use crate::registry::ConnectionControl;
use crate::timer::Timer;
use crate::worker::Worker;
use body::{RequestBody, Returned};
use expectation::Continue;
use reply::Responder;

/// The reading side of a connection: its half of the link and what was read ahead.
#[derive(Debug)]
pub(super) struct ConnectionReader {
    half: ReadHalf,
    buffer: BytesMut,
    /// Whether a byte of the next head has arrived.
    begun: bool,
    /// Whether the gateway drains, and only waits for a request that is on its way.
    leaving: bool,
    /// The room to read the next message into.
    room: usize,
}

/// Bytes a client may send ahead while its request is being served; beyond that it is not read.
const MAX_AHEAD: usize = 64 << 10;
/// Bytes of an unwanted request body that are read to keep the connection; beyond that it is closed.
const MAX_DISCARD: u64 = 256 << 10;
/// How long a closed connection is still read, so that the client gets to see the last response.
const LINGER: Duration = Duration::from_secs(2);

/// How long a draining gateway waits for a request that a client sends before it has heard of the end: its answer says
/// `Connection: close`, where closing at once would lose it.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// How reading a head ended.
enum Incoming {
    /// A request without its body, and what its head says of body and connection.
    Head(Box<Exchange>, MessageInfo),
    Refused(HeadError),
    /// The client closed, or stayed silent too long, between two exchanges.
    Over,
    /// The gateway drains, and the client asked nothing more.
    Left,
    /// The client closed in the middle of a head.
    Torn,
    /// The head did not arrive in time.
    Late,
}

/// How a request is to be read and answered.
#[derive(Debug, Clone, Copy)]
struct MessageInfo {
    framing: Framing,
    keep_alive: bool,
    expects: bool,
    expects_continue: bool,
}

/// What the connection does after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Next,
    /// Close, but let the client read what it was sent.
    Linger,
    Close,
}

/// Serves a connection until it ends. What is large and short-lived (an exchange, a refusal) is on the heap while it
/// lasts: most connections are idle most of the time, and should cost little. `buffer` holds what was read to find out the version.
pub(super) async fn serve(
    worker: &Worker,
    link: Link,
    client: Arc<Client>,
    entry: &ConnectionControl,
    buffer: BytesMut,
) {
    let (read, write) = link.into_split();
    let mut reader = ConnectionReader { half: read, begun: false, leaving: false, room: HEAD_BYTES, buffer };
    let alt_svc = client.tls.as_ref().and_then(|_| worker.alt_svc().cloned());
    let mut responder = Responder::new(write, alt_svc, entry);
    let mut timer = Timer::default();
    let mut snapshots = worker.snapshots();
    let mut first = true;
    loop {
        let rules = HeadRules::of(&snapshots.load().settings, first);
        let incoming = poll_fn(|cx| poll_head(cx, &mut reader, &mut timer, &rules, entry, &client)).await;
        timer.clear();
        let after = match incoming {
            Incoming::Over => return,
            Incoming::Left if asked_late(&mut reader).await => continue,
            Incoming::Left => return Box::pin(linger(reader, responder)).await,
            Incoming::Torn => return lost(worker, &client, Some(&reader.buffer)),
            Incoming::Late => {
                let mut exchange = unreadable::exchange(&reader.buffer, &client);
                // The timer ran from the first byte.
                exchange.started = exchange.started.checked_sub(rules.header).unwrap_or(exchange.started);
                let reply = Reply::new(Cause::RequestTimeout);
                Box::pin(refuse(worker, snapshots.load(), exchange, &mut responder, reply)).await
            }
            Incoming::Refused(error) => {
                let mut exchange = unreadable::exchange(&reader.buffer, &client);
                exchange.note_failure(error.to_string());
                Box::pin(refuse(worker, snapshots.load(), exchange, &mut responder, unreadable::reply(error)))
                    .await
            }
            Incoming::Head(request, info) => {
                // Only now: a connection may have been idle for long, and its next request belongs to the
                // configuration that is in use when it arrives.
                let snapshot: &Snapshot = snapshots.load();
                responder.begin(&request, info.keep_alive, snapshot.settings.client_timeouts.body);
                let (after, returned) =
                    Box::pin(exchange(worker, snapshot, request, info, reader, &mut responder)).await;
                let Some(returned) = returned else { return };
                reader = returned;
                after
            }
        };
        match after {
            After::Next => {}
            After::Linger => return Box::pin(linger(reader, responder)).await,
            After::Close => return,
        }
        first = false;
    }
}

/// Answers a client that sends plain HTTP to a port for TLS, and closes. The request is not read to its end: nothing in it decides.
pub(super) async fn refuse_plain(
    worker: &Worker,
    link: Link,
    client: Arc<Client>,
    entry: &ConnectionControl,
    timeout: Duration,
) {
    const DETAIL: &str = "plain HTTP request was sent to HTTPS port";
    let (half, write) = link.into_split();
    let mut reader =
        ConnectionReader { half, buffer: BytesMut::new(), begun: true, leaving: false, room: HEAD_BYTES };
    let mut responder = Responder::new(write, None, entry);
    // What came with the first byte is enough for the record.
    let reading = poll_fn(|cx| reader.half.poll_fill(cx, &mut reader.buffer, HEAD_BYTES));
    drop(tokio::time::timeout(timeout, reading).await);
    let mut exchange = unreadable::exchange(&reader.buffer, &client);
    exchange.note_failure(DETAIL.to_owned());
    let reply = Reply::new(Cause::BadRequest).detail(DETAIL);
    let snapshot = worker.snapshot();
    if refuse(worker, &snapshot, exchange, &mut responder, reply).await == After::Linger {
        linger(reader, responder).await;
    }
}

/// The client's connection is lost; where that was in the middle of a head, what was read of it is recorded.
pub(super) fn lost(worker: &Worker, client: &Arc<Client>, read: Option<&[u8]>) {
    if let Some(read) = read {
        worker.pipeline().abandon(unreadable::exchange(read, client), Cause::ClientGone);
    }
}

/// What the next head must keep to; copied, so that nothing of a configuration is held while a client is silent.
struct HeadRules {
    limits: HeadLimits,
    /// From a head's first byte to its last.
    header: Duration,
    /// Before the first byte.
    silence: Duration,
}

impl HeadRules {
    fn of(settings: &Settings, first: bool) -> Self {
        let timeouts = &settings.client_timeouts;
        Self {
            limits: HeadLimits {
                bytes: settings.limits.max_header_size,
                fields: settings.limits.max_headers,
                target: settings.limits.max_uri,
            },
            header: timeouts.header,
            silence: if first { timeouts.header } else { timeouts.keep_alive },
        }
    }
}

/// Reads until a head is complete, broken, or too late.
fn poll_head(
    cx: &mut Context<'_>,
    reader: &mut ConnectionReader,
    timer: &mut Timer,
    rules: &HeadRules,
    entry: &ConnectionControl,
    client: &Arc<Client>,
) -> Poll<Incoming> {
    loop {
        if !reader.buffer.is_empty() {
            match head::request(&mut reader.buffer, &rules.limits) {
                Ok(Some(head)) => {
                    (reader.begun, reader.leaving) = (false, false);
                    entry.is_in_use();
                    return Poll::Ready(incoming(head, client));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Incoming::Refused(error)),
            }
        }
        let begun = !reader.buffer.is_empty();
        match reader.half.poll_fill(cx, &mut reader.buffer, reader.room) {
            Poll::Ready(Ok(0) | Err(_)) => {
                return Poll::Ready(if begun { Incoming::Torn } else { Incoming::Over });
            }
            Poll::Ready(Ok(_)) => {
                if !std::mem::replace(&mut reader.begun, true) {
                    // The time for a head runs from its first byte, also where that is an empty line before it. Most
                    // heads come whole, and then nobody needs to know when.
                    timer.clear();
                }
            }
            Poll::Pending => {
                entry.watch(cx);
                let leaves = !begun && !reader.begun && entry.leaves_when_idle();
                if leaves && !std::mem::replace(&mut reader.leaving, true) {
                    timer.set(LAST_REQUEST);
                } else if !timer.is_set() {
                    timer.set(if begun || reader.begun { rules.header } else { rules.silence });
                }
                let late = match begun {
                    true => Incoming::Late,
                    false if leaves => Incoming::Left,
                    false => Incoming::Over,
                };
                return timer.poll_elapsed(cx).map(|()| late);
            }
        }
    }
}

/// Whether a request arrived while a busy worker had no time to see it: nothing that the kernel has taken is closed on.
async fn asked_late(reader: &mut ConnectionReader) -> bool {
    // The task runs again after the worker has asked the kernel what is new.
    tokio::task::yield_now().await;
    let room = reader.room;
    let filled = poll_fn(|cx| Poll::Ready(reader.half.poll_fill(cx, &mut reader.buffer, room))).await;
    reader.begun = matches!(filled, Poll::Ready(Ok(1..)));
    reader.begun
}

fn incoming(head: RequestHead, client: &Arc<Client>) -> Incoming {
    let RequestHead { request, framing, keep_alive, expects, expects_continue, upgrade } = head;
    let mut exchange = Box::new(Exchange::new(request.map(|()| Body::empty()), client.clone()));
    // Only WebSocket is switched to, by GET (RFC 6455 §4.1): h2c here would let a client speak past the gateway.
    let plain_get = exchange.request.method == Method::GET && framing == Framing::None;
    exchange.upgrade =
        upgrade.filter(|protocol| plain_get && protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    Incoming::Head(exchange, MessageInfo { framing, keep_alive, expects, expects_continue })
}

/// Serves one exchange; gives the reader back unless the connection is lost.
async fn exchange(
    worker: &Worker,
    snapshot: &Snapshot,
    mut exchange: Box<Exchange>,
    info: MessageInfo,
    mut reader: ConnectionReader,
    responder: &mut Responder<'_>,
) -> (After, Option<ConnectionReader>) {
    let MessageInfo { framing, expects, expects_continue, .. } = info;
    // RFC 9110 §10.1.1: HTTP/1.0 knows no expectations.
    let unexpected = expects && !expects_continue && exchange.request.version == Version::HTTP_11;
    // The target decides whether it wants the body; without one there is nothing to decide.
    if expects && !(expects_continue && framing != Framing::None) {
        exchange.request.headers.remove(http::header::EXPECT);
    }
    if exchange.client.is_early() && (framing != Framing::None || exchange.upgrade.is_some()) {
        // Both take the reading side away, without which the handshake does not go on.
        if poll_fn(|cx| reader.half.poll_finish(cx)).await.is_err() {
            worker.pipeline().abandon(exchange, Cause::ClientGone);
            return (After::Close, None);
        }
    }
    let (body, mut reading) = match framing {
        Framing::None if exchange.upgrade.is_some() => {
            let lent = Arc::new(AtomicRefCell::new(Some(reader)));
            responder.reader = Some(lent.clone());
            (Body::empty(), Reading::Lent(lent))
        }
        Framing::None => {
            reader.room = HEAD_BYTES;
            (Body::empty(), Reading::Here(Returned { reader, decoder: Decoder::Done }))
        }
        framing => {
            // Whoever has begun to send the body does not wait for a word (RFC 9110 §10.1.1).
            let waits = expects_continue && reader.buffer.is_empty();
            let go_ahead = waits.then(|| Continue::new(responder.owe_continue()));
            request_body(reader, framing, go_ahead, responder, snapshot)
        }
    };
    exchange.body = body;
    let delivery = {
        let mut serving = pin!(async {
            match unexpected {
                true => {
                    let reply = Reply::new(Cause::ExpectationFailed);
                    worker.pipeline().refuse(snapshot, exchange, reply, responder).await
                }
                false => worker.pipeline().serve(snapshot, exchange, responder).await,
            }
        });
        poll_fn(|cx| match serving.as_mut().poll(cx) {
            Poll::Ready(delivery) => Poll::Ready(Some(delivery)),
            Poll::Pending => reading.poll_gone(cx).map(|()| None),
        })
        .await
    };
    // The client is gone: dropping the exchange has recorded it.
    let Some(delivery) = delivery else { return (After::Close, None) };
    let returned = match reading {
        Reading::Here(returned) => Some(returned),
        Reading::Away(receiver) => receiver.await.ok(),
        // Still there when the upgrade was refused.
        Reading::Lent(lent) => {
            responder.reader = None;
            lent.borrow_mut().take().map(|reader| Returned { reader, decoder: Decoder::Done })
        }
    };
    let Some(returned) = returned else { return (After::Close, None) };
    after(delivery, returned, responder, snapshot.settings.client_timeouts.body).await
}

/// Decides what becomes of the connection.
async fn after(
    delivery: Delivery,
    mut returned: Returned,
    responder: &mut Responder<'_>,
    timeout: Duration,
) -> (After, Option<ConnectionReader>) {
    if delivery.cut.is_some() && delivery.status.is_none() {
        responder.abort();
        return (After::Close, None);
    }
    if !responder.keeps_alive() {
        return (After::Linger, Some(returned.reader));
    }
    if !returned.decoder.is_done() && !Box::pin(returned.discard(MAX_DISCARD, timeout)).await {
        return (After::Linger, Some(returned.reader));
    }
    (After::Next, Some(returned.reader))
}

/// Where the reader is while its request is served.
enum Reading {
    Here(Returned),
    /// In the body, which gives it back when it is dropped.
    Away(oneshot::Receiver<Returned>),
    /// With the responder too, which takes it to switch protocols.
    Lent(Lent),
}

/// A reader that the responder may take.
type Lent = Arc<AtomicRefCell<Option<ConnectionReader>>>;

fn request_body(
    mut reader: ConnectionReader,
    framing: Framing,
    go_ahead: Option<Continue>,
    responder: &mut Responder<'_>,
    snapshot: &Snapshot,
) -> (Body, Reading) {
    reader.room = buffer::room_after(if let Framing::Length(length) = framing { length } else { 0 });
    if let Framing::Length(length) = framing
        && let Ok(length) = usize::try_from(length)
        && reader.buffer.len() >= length
    {
        let bytes = reader.buffer.split_to(length).freeze();
        return (Body::full(bytes), Reading::Here(Returned { reader, decoder: Decoder::Done }));
    }
    let (home, receiver) = oneshot::channel();
    let idle = snapshot.settings.client_timeouts.body;
    let body = RequestBody::new(reader, framing.into(), home, idle, go_ahead, responder.watch_body());
    (Body::stream(body), Reading::Away(receiver))
}

impl Reading {
    /// Ready when the client has closed. What it sends ahead is kept for the next exchange.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Away(receiver) = self {
            match ready!(Pin::new(receiver).poll(cx)) {
                Ok(returned) => *self = Self::Here(returned),
                Err(_) => return Poll::Ready(()),
            }
        }
        match self {
            // With a rest of the body on the way, its end will show when it is discarded.
            Self::Here(Returned { reader, decoder }) if decoder.is_done() => reader.poll_gone(cx),
            Self::Lent(lent) => match &mut *lent.borrow_mut() {
                Some(reader) => reader.poll_gone(cx),
                None => Poll::Pending,
            },
            Self::Here(_) | Self::Away(_) => Poll::Pending,
        }
    }
}

impl ConnectionReader {
    /// Ready when the client has closed; keeps what it sends ahead.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.buffer.len() < MAX_AHEAD {
            match ready!(self.half.poll_fill(cx, &mut self.buffer, HEAD_BYTES)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }
}

/// Answers what is no request, and records it like one.
async fn refuse(
    worker: &Worker,
    snapshot: &Snapshot,
    exchange: Box<Exchange>,
    responder: &mut Responder<'_>,
    reply: Reply,
) -> After {
    responder.begin_refusal();
    let delivery = worker.pipeline().refuse(snapshot, exchange, reply.closing(), responder).await;
    if delivery.cut.is_some() { After::Close } else { After::Linger }
}

/// Closes without a reset, which could destroy the response before the client has read it (RFC 9112 §9.6).
async fn linger(mut reader: ConnectionReader, mut responder: Responder<'_>) {
    let lingering = async {
        if responder.shutdown().await.is_err() {
            return;
        }
        loop {
            reader.buffer.clear();
            match poll_fn(|cx| reader.half.poll_fill(cx, &mut reader.buffer, HEAD_BYTES)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    let _in_time = tokio::time::timeout(LINGER, lingering).await;
}
