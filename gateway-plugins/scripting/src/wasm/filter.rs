//! One message on its way through a module: its head may be held back, its body passes in pieces that the guest can hold back
//! and change.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Wake, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::{Cause, Reply};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::guest_error::GuestError;
use super::host::{Direction, Made};
use super::visit::{GuestContext, Stop};

/// A message's body with the guest in between.
pub(super) struct Filter {
    visit: Arc<GuestContext>,
    way: Direction,
    inner: Body,
    calls: FuturesUnordered<BoxFuture<'static, Made>>,
    out: VecDeque<Frame<Bytes>>,
    /// Bytes that the guest holds back.
    held: usize,
    /// What is still to come by the message's own length; `None` where the length may change.
    remaining: Option<u64>,
    /// The guest holds back what there is.
    is_paused: bool,
    /// It holds the head back: nothing behind it is read, or shown to the guest, before it lets the head pass.
    holds_head: bool,
    sees_body: bool,
    /// All of the inner body has come; the guest knows; all of it is out.
    ended: bool,
    told_end: bool,
    over: bool,
    /// The guest is not asked any more.
    passes: bool,
}

// Nothing in it is ever pinned in place.
impl Unpin for Filter {}

impl Filter {
    /// The body of a message whose head the guest is about to see.
    pub(super) fn new(visit: Arc<GuestContext>, way: Direction, inner: Body, sees_body: bool) -> Self {
        Self {
            visit,
            way,
            inner,
            calls: FuturesUnordered::new(),
            out: VecDeque::new(),
            held: 0,
            remaining: None,
            is_paused: false,
            holds_head: false,
            sees_body,
            ended: false,
            told_end: false,
            over: false,
            passes: false,
        }
    }

    /// Tells the guest of the head.
    ///
    /// # Errors
    /// What becomes of the exchange instead.
    pub(super) fn head(&mut self) -> Result<(), Stop> {
        let (way, id, is_end) = (self.way, self.visit.id, self.inner.is_empty());
        self.told_end = is_end;
        let action = self.visit.with(|vm| vm.headers(way, id, is_end))?;
        self.is_paused = action.unwrap_or(0) != 0;
        self.holds_head = self.is_paused;
        let drops_length = self.visit.context(|context| context.side(way).drops_length)?;
        if !drops_length {
            self.remaining = self.inner.exact_length();
        }
        self.settle()
    }

    /// Whether the hook has to wait: the guest holds the head back, or all of a body at hand is to pass the guest first.
    pub(super) fn has_to_wait(&self) -> bool {
        self.is_paused || (self.is_needed() && self.is_at_hand())
    }

    /// Whether the body has to pass the guest.
    pub(super) fn is_needed(&self) -> bool {
        self.sees_body && !self.told_end
    }

    /// Whether all of the body is at hand.
    pub(super) fn is_at_hand(&self) -> bool {
        self.inner.replay().is_some()
    }

    /// Comes when the guest has let the head pass.
    pub(super) async fn released(&mut self) -> Result<(), Stop> {
        let done = std::future::poll_fn(|cx| self.poll_event(cx, true)).await;
        done.map_err(|stop| self.answered_with(stop))
    }

    /// Comes when all of the body has passed.
    pub(super) async fn passed(&mut self) -> Result<(), Stop> {
        let done = std::future::poll_fn(|cx| {
            loop {
                match self.poll_event(cx, false) {
                    Poll::Ready(Ok(())) if !self.over => {}
                    polled => return polled,
                }
            }
        });
        let done = done.await;
        done.map_err(|stop| self.answered_with(stop))
    }

    /// What a body that has broken off is answered with, where no answer has begun.
    fn answered_with(&self, stop: Stop) -> Stop {
        let cause = match (&stop, self.way) {
            (Stop::Reply(_) | Stop::Pass | Stop::Body(BodyError::Refused(_)), _) => return stop.into_reply(),
            (Stop::Body(BodyError::TooLarge { .. }), Direction::Request) => Cause::BodyTooLarge,
            (Stop::Body(_), Direction::Request) => Cause::BadRequest,
            (Stop::Body(_), Direction::Response) => Cause::UpstreamClosed,
        };
        Stop::Reply(Box::new(Reply::new(cause).reason("body_incomplete")))
    }

    /// The body as it goes on; whole where all of it has passed already.
    pub(super) fn into_body(mut self) -> Body {
        if !self.over {
            if !self.sees_body && self.out.is_empty() {
                self.leave_calls();
                return std::mem::take(&mut self.inner);
            }
            return Body::stream(self);
        }
        let mut all = BytesMut::new();
        let mut trailers = None;
        for frame in self.out.drain(..) {
            match frame.into_data() {
                Ok(data) if all.is_empty() => all = BytesMut::from(data),
                Ok(data) => all.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        match trailers {
            Some(trailers) => Body::full_with_trailers(all.freeze(), trailers),
            None => Body::full(all.freeze()),
        }
    }

    /// The body as it came.
    pub(super) fn into_inner(self) -> Body {
        self.inner
    }

    /// Calls under way hold back nothing that the guest lets pass: they go on by themselves.
    fn leave_calls(&mut self) {
        if !self.calls.is_empty() {
            self.visit.go_on(std::mem::take(&mut self.calls));
        }
    }

    /// After the guest was called: begins its calls, and looks at what it has decided.
    fn settle(&mut self) -> Result<(), Stop> {
        let way = self.way;
        let calls = self.visit.take_calls()?;
        for call in calls {
            self.calls.push(self.visit.core.make(call));
        }
        let (local, closed, resumed) = self.visit.context(|context| {
            let local = context.local.take();
            let side = context.side(way);
            (local, side.is_closed, std::mem::take(&mut side.is_resumed))
        })?;
        if let Some(local) = local {
            return Err(Stop::Reply(Box::new(local.into_reply())));
        }
        if closed {
            return Err(Stop::Reply(Box::new(Reply::new(Cause::Forbidden).reason("wasm_closed"))));
        }
        if resumed {
            (self.is_paused, self.holds_head) = (false, false);
        }
        if self.is_paused { Ok(()) } else { self.flush() }
    }

    /// Sends on what the guest has held back.
    fn flush(&mut self) -> Result<(), Stop> {
        let way = self.way;
        let (body, trailers) = self.visit.context(|context| {
            let side = context.side(way);
            (side.body.take(), side.trailers.take())
        })?;
        let body = body.unwrap_or_default();
        let is_last = self.ended && self.told_end;
        if let Some(remaining) = &mut self.remaining {
            let length = body.len() as u64;
            if length > *remaining || (is_last && length < *remaining) {
                return Err(self.failed_with_body(&GuestError::BodyLength, body.freeze()));
            }
            *remaining -= length;
        }
        if !body.is_empty() {
            self.out.push_back(Frame::data(body.freeze()));
        }
        // Trailers that the guest has seen, or has added at the end.
        if is_last && let Some(trailers) = trailers.filter(|trailers| !trailers.is_empty()) {
            self.out.push_back(Frame::trailers(trailers));
        }
        self.over |= is_last;
        self.held = 0;
        Ok(())
    }

    /// The guest failed while it held this back: it is sent on where the exchange continues without the guest.
    fn failed_with_body(&mut self, error: &GuestError, body: Bytes) -> Stop {
        let stop = self.visit.core.failed(error);
        if matches!(stop, Stop::Pass) && !body.is_empty() {
            self.out.push_back(Frame::data(body));
        }
        stop
    }

    /// As [`Self::poll_step`]; where the guest has failed with bytes that it held back, the exchange can't continue without it.
    fn poll_event(&mut self, cx: &mut Wake<'_>, for_head: bool) -> Poll<Result<(), Stop>> {
        self.poll_step(cx, for_head).map_err(|stop| match stop {
            Stop::Pass if self.held > 0 => {
                Stop::Reply(Box::new(Reply::new(Cause::Internal).reason("wasm_failed")))
            }
            stop => stop,
        })
    }

    /// One more event; `Ready` when there is something to do about it. With `for_head`, only when the head is let pass.
    fn poll_step(&mut self, cx: &mut Wake<'_>, for_head: bool) -> Poll<Result<(), Stop>> {
        loop {
            if self.over
                || (for_head && !self.is_paused)
                || (!for_head && !self.out.is_empty() && !self.ended)
            {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(Some(made)) = self.calls.poll_next_unpin(cx) {
                self.visit.with(|vm| vm.answered(made))?;
                self.settle()?;
                continue;
            }
            if self.is_paused || self.visit.listens() {
                // Also other contexts may end the pause, and gRPC streams may have the guest decide something.
                let (waker, before) = (cx.waker().clone(), (self.is_paused, self.calls.len()));
                self.visit.context(|context| context.waker = Some(waker))?;
                self.settle()?;
                // A call that was begun has to be asked how far it is.
                if (before.0 && !self.is_paused) || self.calls.len() > before.1 {
                    continue;
                }
                if self.holds_head {
                    return Poll::Pending;
                }
            }
            if !self.sees_body || self.ended {
                if self.is_paused {
                    return Poll::Pending;
                }
                self.leave_calls();
                self.ended = true;
                self.told_end = true;
                self.flush()?;
                continue;
            }
            match self.inner.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Stop::Body(error))),
                Poll::Ready(Some(Ok(frame))) => self.frame(frame)?,
                Poll::Ready(None) => {
                    self.ended = true;
                    if !std::mem::replace(&mut self.told_end, true) {
                        self.piece(&Bytes::new(), true)?;
                    } else if !self.is_paused {
                        self.flush()?;
                    }
                }
            }
        }
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> Result<(), Stop> {
        match frame.into_data() {
            Ok(data) => {
                let is_end = self.inner.is_empty();
                self.told_end |= is_end;
                self.ended |= is_end;
                self.piece(&data, is_end)
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { return Ok(()) };
                // Trailers are the end; the guest hears of it by them.
                (self.ended, self.told_end) = (true, true);
                let (way, id) = (self.way, self.visit.id);
                self.visit.context(|context| context.side(way).trailers = Some(trailers))?;
                let action = self.visit.with(|vm| vm.trailers(way, id))?;
                match action {
                    Some(action) => self.is_paused = action != 0,
                    // A module that does not look at trailers is told of the end of the body.
                    None => return self.piece(&Bytes::new(), true),
                }
                self.settle()
            }
        }
    }

    /// Tells the guest of more of the body.
    fn piece(&mut self, data: &Bytes, is_end: bool) -> Result<(), Stop> {
        let (way, id) = (self.way, self.visit.id);
        let limit = self.visit.core.parts.rules.max_body;
        let held = self.visit.context(|context| {
            let body = context.side(way).body.get_or_insert_default();
            body.extend_from_slice(data);
            body.len()
        })?;
        if self.is_paused && held > limit {
            let cause = if way == Direction::Request { Cause::BodyTooLarge } else { Cause::UpstreamGarbage };
            return Err(Stop::Reply(Box::new(Reply::new(cause).reason("wasm_body_too_large"))));
        }
        self.held = held - data.len();
        let action = match self.visit.with(|vm| vm.body(way, id, is_end)) {
            Ok(action) => action,
            Err(stop) => {
                if matches!(stop, Stop::Pass) && self.held == 0 && !data.is_empty() {
                    self.out.push_back(Frame::data(data.clone()));
                }
                return Err(stop);
            }
        };
        self.held = held;
        // The guest decides with each piece anew.
        self.is_paused = match action {
            Some(action) => action != 0,
            None => self.is_paused && !is_end,
        };
        self.settle()
    }
}

impl HttpBody for Filter {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Wake<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.passes {
                return this.inner.poll_next(cx);
            }
            if this.over {
                return Poll::Ready(None);
            }
            let error = match this.poll_event(cx, false) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(Stop::Pass)) => {
                    this.passes = true;
                    continue;
                }
                Poll::Ready(Err(Stop::Reply(reply))) => BodyError::Refused(reply),
                Poll::Ready(Err(Stop::Body(error))) => error,
            };
            this.over = true;
            this.out.clear();
            return Poll::Ready(Some(Err(error)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.out.is_empty() && (self.over || (self.passes && self.inner.is_empty()))
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self.out.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        match self.remaining {
            Some(remaining) => SizeHint::with_exact(ahead + remaining),
            None => SizeHint::default(),
        }
    }
}
