//! Responses to an HTTP/1.1 client.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::http::tunnel::Tunnel;
use gateway_core::pipeline::http::Close;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};

use super::super::cut_by;
use super::expectation::Expectation;
use super::{ConnectionReader, Lent, MAX_DISCARD};
use crate::buffer;
use crate::h1::send::{Sender, Stopped};
use crate::h1::write::{self, Frame, Tail};
use crate::link::{Link, Rewound, WriteHalf};
use crate::registry::{ConnectionControl, StreamMark};
use crate::timer::Timer;

/// The writing side of a connection, for one exchange after the other.
pub(super) struct Responder<'e> {
    /// Gone after an upgrade.
    half: Option<WriteHalf>,
    /// The reading side, lent while the client asks for an upgrade.
    pub(super) reader: Option<Lent>,
    timer: Timer,
    idle: Duration,
    method: Method,
    version: Version,
    keep_alive: bool,
    /// Whether the body under way ends with the connection.
    until_close: bool,
    /// Whether the client was never told to go on with its body, where it waits for that.
    continue_owed: Option<Arc<Expectation>>,
    /// Bytes that nobody read of a body that was given up.
    unread: Option<Arc<AtomicU64>>,
    /// Where HTTP/3 is, for clients that could use it.
    alt_svc: Option<HeaderValue>,
    /// Says when a drain has begun.
    entry: &'e ConnectionControl,
    /// From an upgrade on.
    mark: Option<StreamMark<'e>>,
}

impl<'e> Responder<'e> {
    pub(super) fn new(half: WriteHalf, alt_svc: Option<HeaderValue>, entry: &'e ConnectionControl) -> Self {
        Self {
            alt_svc,
            entry,
            mark: None,
            half: Some(half),
            reader: None,
            timer: Timer::default(),
            idle: Duration::from_secs(60),
            method: Method::GET,
            version: Version::HTTP_11,
            keep_alive: false,
            until_close: false,
            continue_owed: None,
            unread: None,
        }
    }

    /// Gets ready for the answer to this request.
    pub(super) fn begin(&mut self, exchange: &Exchange, keep_alive: bool, idle: Duration) {
        self.method.clone_from(exchange.method());
        self.version = exchange.version();
        self.keep_alive = keep_alive;
        self.idle = idle;
        self.until_close = false;
        self.continue_owed = None;
        self.unread = None;
    }

    /// Where a body that is read while the request is served says what was not read of it.
    pub(super) fn watch_body(&mut self) -> Arc<AtomicU64> {
        self.unread.get_or_insert_default().clone()
    }

    /// The client waits for `100 Continue`.
    pub(super) fn owe_continue(&mut self) -> Arc<Expectation> {
        self.continue_owed.get_or_insert_default().clone()
    }

    /// Gets ready to refuse what is no request.
    pub(super) fn begin_refusal(&mut self) {
        self.method = Method::GET;
        self.version = Version::HTTP_11;
        self.keep_alive = false;
    }

    /// Whether the connection may carry another exchange.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Ends a connection in the middle of a response. A body that ends with its connection must not see it end in
    /// order, or half of it would look whole; TLS says so by itself, TCP only by a reset.
    pub(super) fn abort(&mut self) {
        if self.until_close
            && let Some(WriteHalf::Tcp(half)) = self.half.take()
        {
            drop(half.as_ref().set_zero_linger());
            // Dropped, it would end the stream in order first.
            half.forget();
        }
    }

    /// Ends our side of the connection.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        let Some(half) = &mut self.half else { return Ok(()) };
        poll_fn(|cx| half.poll_shutdown(cx)).await
    }

    /// Writes a response's head and decides what becomes of the connection after it. Gives the head's length, too.
    fn begin_response(&mut self, response: Response<Body>) -> (Sender, usize) {
        let (mut parts, body) = response.into_parts();
        if let Some(alt_svc) = &self.alt_svc {
            parts.headers.insert(http::header::ALT_SVC, alt_svc.clone());
        }
        let frame = write::response_frame(self.version, &self.method, parts.status, body.exact_length());
        self.until_close = frame == Frame::UntilClose;
        self.keep_alive &= frame != Frame::UntilClose && parts.extensions.get::<Close>().is_none();
        // Also when the drain began while the answer was awaited.
        self.keep_alive &= !self.entry.is_draining();
        // After a body that broke, or is too long to be read for nothing, no other request is looked for.
        self.keep_alive &=
            self.unread.as_ref().is_none_or(|left| left.load(Ordering::Relaxed) <= MAX_DISCARD);
        // Whether a client that was not told to go on still sends its body is anybody's guess (RFC 9110 §10.1.1).
        self.keep_alive &= !self.continue_owed.as_ref().is_some_and(|expectation| expectation.is_owed());
        let tail = Tail {
            frame,
            close: !self.keep_alive,
            keep_alive: self.keep_alive && self.version == Version::HTTP_10,
            date: crate::date::now,
        };
        let mut head = buffer::outgoing();
        write::response(&mut head, parts.status, &parts.headers, &tail);
        let length = head.len();
        (Sender::new(head, body, frame), length)
    }

    /// Says why the response is not coming; its body broke before anything of it was sent.
    async fn instead(&mut self, cause: Cause) -> Delivery {
        let (parts, body) = Reply::new(cause).into_response(Dialect::Plain).into_parts();
        let frame = write::response_frame(self.version, &self.method, parts.status, body.exact_length());
        self.until_close = false;
        let tail = Tail { frame, close: true, keep_alive: false, date: crate::date::now };
        let mut head = buffer::outgoing();
        write::response(&mut head, parts.status, &parts.headers, &tail);
        let mut sender = Sender::new(head, body, frame);
        let sent = poll_fn(|cx| self.poll_send(cx, &mut sender)).await;
        let bytes = sender.sent;
        Delivery { bytes, cut: Some(cause), status: sent.ok().map(|()| parts.status), ..Delivery::default() }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, sender: &mut Sender) -> Poll<Result<(), Cause>> {
        let Some(half) = &mut self.half else { return Poll::Ready(Err(Cause::ClientGone)) };
        match sender.poll_send(cx, half) {
            Poll::Ready(Ok(())) => {
                self.timer.clear();
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(Stopped::Body(error))) => return Poll::Ready(Err(cut_by(&error))),
            Poll::Ready(Err(Stopped::Peer(_))) => return Poll::Ready(Err(Cause::ClientGone)),
            Poll::Pending => {}
        }
        if !sender.is_blocked() {
            // The body is slow, not the client; its own timeout watches it.
            self.timer.clear();
            return Poll::Pending;
        }
        if sender.moved() || !self.timer.is_set() {
            self.timer.set(self.idle);
        }
        self.timer.poll_elapsed(cx).map(|()| Err(Cause::ClientTimeout))
    }
}

impl Downstream for Responder<'_> {
    async fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        // HTTP/1.0 knows none, and a second `100 Continue` would confuse.
        if self.version < Version::HTTP_11 || status == StatusCode::CONTINUE {
            if let Some(expectation) = self.continue_owed.as_ref().filter(|_| status == StatusCode::CONTINUE)
            {
                expectation.allow();
            }
            return;
        }
        let mut head = buffer::outgoing();
        write::interim(&mut head, status, headers);
        let mut sender = Sender::new(head, Body::empty(), Frame::Bare);
        if poll_fn(|cx| self.poll_send(cx, &mut sender)).await.is_err() {
            self.keep_alive = false;
        }
    }

    fn asking(&mut self) {
        if let Some(expectation) = &self.continue_owed {
            expectation.hold();
        }
    }

    async fn upgrade(&mut self, response: Response<()>) -> Option<Tunnel> {
        self.keep_alive = false;
        let mut head = buffer::outgoing();
        write::switching(&mut head, response.headers(), &HeaderValue::from_static("websocket"));
        let mut sender = Sender::new(head, Body::empty(), Frame::Bare);
        poll_fn(|cx| self.poll_send(cx, &mut sender)).await.ok()?;
        let ConnectionReader { half, buffer, .. } = self.reader.take()?.borrow_mut().take()?;
        let link = Link::unsplit(half, self.half.take()?)?;
        self.mark = Some(self.entry.stream());
        Some(Box::new(Rewound::new(buffer, link)))
    }

    fn respond(&mut self, response: Response<Body>) -> impl Future<Output = Delivery> + Send {
        // Now, so that the future holds the written head and the body instead of the whole response.
        let (mut sender, length) = self.begin_response(response);
        async move {
            let sent = poll_fn(|cx| self.poll_send(cx, &mut sender)).await;
            let untouched = sent.is_err() && sender.is_untouched(length);
            if let Err(cause) = sent {
                self.keep_alive = false;
                if untouched && !matches!(cause, Cause::ClientGone | Cause::ClientTimeout) {
                    return Box::pin(self.instead(cause)).await;
                }
            }
            Delivery { bytes: sender.sent, cut: sent.err(), ..Delivery::default() }
        }
    }
}
