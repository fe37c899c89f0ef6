//! An exchange with a target over HTTP/1.1, inline: no task, no channel.
//!
//! While the response's head is awaited the request's body goes out beside it; once the head is there, whoever pulls
//! the response's body drives what is left of the request's too. A connection goes back to its pool the moment both
//! are through.

mod answer;

use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::balance::ConnectionPlace;
use gateway_core::config::model::PoolRules;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::http::upstream::{Call, Failure, TargetResponse};
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::interim::{MAX_INTERIM, pass_on};
use super::placed::Placed;
use super::{Inner, key};
use crate::buffer::{self, HEAD_BYTES};
use crate::dns::ResolvedAddress;
use crate::h1::body::Decoder;
use crate::h1::head::{self, HeadError, HeadLimits, ResponseHead};
use crate::h1::send::{Sender, Stopped};
use crate::h1::write::{self, Frame};
use crate::link::{Link, Rewound};
use crate::timer::Timer;
use crate::tls::refusal;
use answer::AnswerBody;

/// A connection to a target. It lives in a box, since it moves from the pool to its exchange and back each time.
#[derive(Debug)]
pub(crate) struct H1Connection {
    pub(super) link: Link,
    pub(super) buffer: BytesMut,
    /// The room to read the next response into.
    pub(super) room: usize,
    pub(super) timer: Timer,
    /// When the exchange under way began, and once it is over when that was: read once for all who ask.
    pub(super) since: Instant,
    /// Whether it has carried an exchange before.
    pub(super) used: bool,
    /// Where it leads, if the target was found by its name.
    resolved: Option<Arc<ResolvedAddress>>,
    /// Its place among the target's connections, where they are counted.
    place: Option<ConnectionPlace>,
}

/// Heads of targets may be this large; what they send is not in the operator's hands alone.
const LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, fields: 256, target: 0 };

impl H1Connection {
    pub(crate) fn new(
        link: Link,
        resolved: Option<Arc<ResolvedAddress>>,
        place: Option<ConnectionPlace>,
    ) -> Self {
        let (buffer, room, since) = (BytesMut::new(), HEAD_BYTES, Instant::now());
        Self { link, buffer, room, timer: Timer::default(), since, used: false, resolved, place }
    }

    /// Whether its target's name still leads where it leads.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        self.resolved.as_ref().is_none_or(|resolved| resolved.is_current(now))
    }

    /// Begins an exchange; false when others have the target's connections.
    pub(super) fn occupy(&mut self, most: Option<NonZeroU32>) -> bool {
        self.place.as_mut().is_none_or(|place| place.occupy(most))
    }

    /// Ends an exchange. Whether the connection may be kept for another one; it is wanted elsewhere where not.
    pub(super) fn may_stay(&mut self, most: Option<NonZeroU32>) -> bool {
        self.place.as_mut().is_none_or(|place| {
            place.rest();
            place.may_stay(most)
        })
    }

    /// Whether a kept connection can carry another exchange. A target that closed, or spoke unasked, can't.
    pub(crate) fn is_open(&mut self) -> bool {
        self.buffer.is_empty() && self.link.is_silent(&mut self.buffer)
    }
}

/// Why an exchange failed before the response's head.
enum ExchangeFailure {
    Body(BodyError),
    Io(io::Error),
    Head(HeadError),
    Closed,
    /// The target was silent for so long.
    Stalled(Duration),
}

/// An exchange under way.
struct Exchange {
    connection: Box<H1Connection>,
    upload: Sender,
    /// The target no longer takes the request; its answer may still come.
    deaf: bool,
    /// Whether it had to wait for the target, so that time has passed since it began.
    waited: bool,
}

/// Sends a request over `connection` and waits for the response's head.
pub(crate) async fn send<D: Downstream>(
    mut connection: Box<H1Connection>,
    home: &Arc<Inner>,
    call: &Call<'_>,
    body: &mut Body,
    downstream: &mut D,
) -> Result<TargetResponse, Failure> {
    let started = connection.since;
    let reused = connection.used;
    connection.used = true;
    let frame = request_frame(call, body);
    let mut head = buffer::outgoing();
    write::request(&mut head, call, frame);
    let upload = Sender::new(head, std::mem::take(body), frame);
    let mut exchange = Exchange { connection, upload, deaf: false, waited: false };
    for _ in 0..MAX_INTERIM {
        let head = poll_fn(|cx| exchange.poll_head(cx, call)).await;
        match head {
            Ok(head) if head.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                if !switches(&head, call) {
                    return Err(Failure::sent(Cause::UpstreamGarbage).source("a switch nobody asked for"));
                }
                let response = head.response.map(|()| Body::empty());
                let H1Connection { link, buffer, place, .. } = *exchange.connection;
                let tunnel: Tunnel = Box::new(Rewound::new(buffer, Placed::new(link, place)));
                return Ok(TargetResponse {
                    response,
                    first_byte: started.elapsed(),
                    reused,
                    tunnel: Some(tunnel),
                });
            }
            Ok(head) if head.response.status().is_informational() => {
                // Rare: the head would be room in every exchange's future.
                Box::pin(pass_on(head.response, downstream)).await;
                // A sign of life: the wait for the response begins again.
                exchange.connection.timer.clear();
            }
            Ok(head) => {
                exchange.connection.since = Instant::now();
                let first_byte = exchange.connection.since.duration_since(started);
                let (parts, ()) = head.response.into_parts();
                let body = exchange.into_body(head.framing.into(), head.keep_alive, home, call);
                return Ok(TargetResponse {
                    response: Response::from_parts(parts, body),
                    first_byte,
                    reused,
                    tunnel: None,
                });
            }
            Err(broken) => return Err(failure(broken, reused, &exchange)),
        }
    }
    Err(Failure::sent(Cause::UpstreamGarbage).source("too many informational responses"))
}

/// RFC 9110 §15.2.2: a target may switch only to what it was asked to switch to. After any other 101 nobody knows
/// what the connection speaks.
fn switches(head: &ResponseHead, call: &Call<'_>) -> bool {
    let asked = call.upgrade.map(http::HeaderValue::as_bytes);
    let offered = head.response.headers().get(http::header::UPGRADE).map(http::HeaderValue::as_bytes);
    head.response.status() == StatusCode::SWITCHING_PROTOCOLS
        && asked.zip(offered).is_some_and(|(asked, offered)| asked.eq_ignore_ascii_case(offered))
}

fn request_frame(call: &Call<'_>, body: &Body) -> Frame {
    match body.exact_length() {
        // A length of zero is only said where a body is expected (RFC 9110 §8.6).
        Some(0) if !expects_body(call.method) => Frame::Bare,
        Some(length) => Frame::Length(length),
        None => Frame::Chunked,
    }
}

fn expects_body(method: &http::Method) -> bool {
    *method == http::Method::POST || *method == http::Method::PUT || *method == http::Method::PATCH
}

fn failure(broken: ExchangeFailure, reused: bool, exchange: &Exchange) -> Failure {
    match broken {
        ExchangeFailure::Body(BodyError::TooLarge { .. }) => Failure::sent(Cause::BodyTooLarge),
        ExchangeFailure::Body(BodyError::Refused(reply)) => Failure::refused(reply),
        ExchangeFailure::Body(BodyError::NoRoom) => Failure::sent(Cause::Overloaded),
        ExchangeFailure::Body(BodyError::Idle) => Failure::sent(Cause::RequestTimeout),
        ExchangeFailure::Body(BodyError::Framing(what)) => Failure::sent(Cause::BadRequest).source(what),
        ExchangeFailure::Body(error) => Failure::sent(Cause::ClientGone).source(error.to_string()),
        ExchangeFailure::Stalled(silent) => Failure::sent(Cause::UpstreamTimeout).source(format!(
            "the target sent nothing for {silent:?}, which is what `backend_first_byte_timeout` or `backend_idle_timeout` allows"
        )),
        ExchangeFailure::Head(error) => Failure::sent(Cause::UpstreamGarbage).source(error),
        ExchangeFailure::Io(error) => match refusal(&error) {
            Some(refusal) => Failure::sent(Cause::TlsFailed).source(refusal),
            None => stale(Failure::sent(Cause::UpstreamClosed).source(error), reused, exchange),
        },
        ExchangeFailure::Closed => stale(Failure::sent(Cause::UpstreamClosed), reused, exchange),
    }
}

/// A kept connection that ends without a byte of an answer was closed while it waited, which is nobody's fault.
fn stale(failure: Failure, reused: bool, exchange: &Exchange) -> Failure {
    Failure { stale: reused && exchange.connection.buffer.is_empty(), ..failure }
}

impl Exchange {
    /// Sends what can be sent and reads until a head is complete.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        call: &Call<'_>,
    ) -> Poll<Result<ResponseHead, ExchangeFailure>> {
        let timeouts = &call.timeouts;
        if let Poll::Ready(Err(error)) = self.poll_upload(cx) {
            return Poll::Ready(Err(error));
        }
        loop {
            let connection = &mut self.connection;
            if !connection.buffer.is_empty() {
                match head::response(&mut connection.buffer, &LIMITS, call.method) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(ExchangeFailure::Head(error))),
                }
            }
            match connection.link.poll_fill(cx, &mut connection.buffer, connection.room) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ExchangeFailure::Closed)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ExchangeFailure::Io(error))),
                Poll::Pending => break,
            }
        }
        let timer = &mut self.connection.timer;
        let waits_for = if self.upload.is_done() { timeouts.first_byte } else { timeouts.idle };
        if !timer.is_set() {
            match std::mem::replace(&mut self.waited, true) {
                true => timer.set(waits_for),
                false => timer.set_from(self.connection.since, waits_for),
            }
        }
        timer.poll_elapsed(cx).map(|()| Err(ExchangeFailure::Stalled(waits_for)))
    }

    /// Sends what can be sent of the request.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeFailure>> {
        if self.deaf || self.upload.is_done() {
            return Poll::Ready(Ok(()));
        }
        let progress = self.upload.poll_send(cx, &mut self.connection.link);
        if self.upload.moved() {
            self.connection.timer.clear();
        }
        match progress {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                self.connection.timer.clear();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(Stopped::Body(error))) => Poll::Ready(Err(ExchangeFailure::Body(error))),
            // A target may refuse a request half-way: it answers and closes. Read on to learn which.
            Poll::Ready(Err(Stopped::Peer(error))) => {
                tracing::debug!(%error, "the target stopped taking the request");
                self.deaf = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The response's body; the connection goes back to its pool as soon as nothing of the exchange is left on it.
    fn into_body(mut self, decoder: Decoder, keep_alive: bool, home: &Arc<Inner>, call: &Call<'_>) -> Body {
        self.connection.timer.clear();
        self.connection.room = buffer::room_after(decoder.exact_length().unwrap_or(0));
        let home = Home::of(call, home, keep_alive && !self.deaf);
        if self.upload.is_done() {
            if decoder.is_done() {
                self.give_back(&home);
                return Body::empty();
            }
            if let Some(length) = decoder.exact_length().and_then(|length| usize::try_from(length).ok())
                && self.connection.buffer.len() >= length
            {
                let bytes = self.connection.buffer.split_to(length).freeze();
                self.give_back(&home);
                return Body::full(bytes);
            }
        }
        Body::stream(AnswerBody::new(self, decoder, home))
    }

    fn give_back(mut self, home: &Home) {
        // Bytes beyond the response belong to no request: such a connection can't be trusted with another.
        if home.keep_alive && self.connection.buffer.is_empty() && !self.deaf {
            buffer::give_back(&mut self.connection.buffer);
            home.keep(self.connection);
        }
    }
}

impl Home {
    /// Where connections of this call go, if they may be kept.
    pub(super) fn of(call: &Call<'_>, pools: &Arc<Inner>, keep_alive: bool) -> Self {
        Self {
            pools: pools.clone(),
            key: key(call),
            rules: *call.backend.pool,
            max_connections: call.target.rules.max_connections,
            keep_alive,
            idle: call.timeouts.idle,
        }
    }

    /// Keeps a connection whose exchange is over.
    pub(super) fn keep(&self, connection: Box<H1Connection>) {
        if self.keep_alive {
            self.pools.keep(connection, self);
        }
    }
}

/// Where a connection goes when its exchange is over, and how long the rest of the exchange may stall.
pub(super) struct Home {
    pools: Arc<Inner>,
    pub(super) key: u64,
    pub(super) rules: PoolRules,
    /// How many connections the target may have.
    pub(super) max_connections: Option<NonZeroU32>,
    pub(super) keep_alive: bool,
    pub(super) idle: Duration,
}
