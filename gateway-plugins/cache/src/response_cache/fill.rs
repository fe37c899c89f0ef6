//! A response on its way into the store, read by its first client and by others at the same time.
//!
//! A task of its own on the worker that sent the request pulls the body, so that a slow client holds up nobody and one
//! that leaves ends nothing. It never holds more than a response may have to be stored: when there turns out to be more,
//! it hands the rest of the body to the first client, which goes on as without a cache.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use gateway_core::http::body::{Body, BodyError};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

use super::flights::Lead;
use super::key::Key;
use super::store::{Room, Start, Store};
use super::stored::{Head, Stored};

/// The longest a response may be on its way where the proxy sets no limit.
const LONGEST: Duration = Duration::from_secs(600);

/// A response on its way.
pub(super) struct Fill {
    pub(super) head: Arc<Head>,
    /// The body's length, where it is known from the start.
    pub(super) length: Option<u64>,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    end: Option<FillEnd>,
    waiting: Vec<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FillEnd {
    Complete,
    Failed,
    /// The rest is with the first client.
    HandedOver,
}

impl Fill {
    fn lock(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what there is so far, and wakes who waits for more.
    fn change(&self, change: impl FnOnce(&mut SoFar)) {
        let waiting = {
            let mut so_far = self.lock();
            change(&mut so_far);
            std::mem::take(&mut so_far.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The body for one more client; only where the length is known.
    pub(super) fn body(self: &Arc<Self>) -> Body {
        Body::stream(FillReader { fill: self.clone(), at: 0, rest: None, raw: None })
    }
}

/// What becomes of a response that is stored.
pub(super) struct Plan {
    pub(super) store: Arc<Store>,
    pub(super) key: Key,
    pub(super) start: Start,
    /// Bytes its body may have.
    pub(super) limit: u64,
    /// How long it may take.
    pub(super) within: Duration,
    /// Those that wait for it; `None` where nobody may.
    pub(super) lead: Option<Lead<Fill>>,
}

/// Begins to store a response; says with which body the client goes on. The body is handed back where there is no room,
/// or too much of it is known to come.
///
/// # Errors
/// The body, as it was.
pub(super) fn begin(head: Arc<Head>, mut body: Body, plan: Plan) -> Result<Body, Body> {
    let length = body.exact_length();
    if length.is_some_and(|length| length > plan.limit) {
        plan.settle();
        return Err(body);
    }
    let Some(room) = plan.store.take_room(length.unwrap_or(0)) else {
        plan.settle();
        return Err(body);
    };
    let at_hand = if body.is_empty() { Some(Bytes::new()) } else { body.take_full() };
    if let Some(bytes) = at_hand {
        // What comes off a connection keeps the whole of its buffer.
        let bytes = Bytes::copy_from_slice(&bytes);
        plan.store.put(&plan.key, Arc::new(Stored::new(head, bytes.clone())), plan.start.clone());
        plan.settle();
        return Ok(Body::full(bytes));
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        plan.settle();
        return Err(body);
    };
    let fill = Arc::new(Fill { head, length, so_far: Mutex::default() });
    let (rest, theirs) = oneshot::channel();
    let mut filling = Filling { fill: fill.clone(), plan, room, rest: Some(rest), size: 0, has_ended: false };
    // Most small responses are there already.
    let done = filling.run(&mut body).now_or_never().is_some();
    if done {
        if let Some(bytes) = filling.end(body) {
            let trailers = fill.lock().trailers.take();
            return Ok(match trailers {
                Some(trailers) => Body::full_with_trailers(bytes, trailers),
                None => Body::full(bytes),
            });
        }
    } else {
        if let Some(lead) = &filling.plan.lead {
            lead.share(fill.clone());
        }
        drop(runtime.spawn(async move {
            let within = filling.plan.within;
            let in_time = tokio::time::timeout(within, filling.run(&mut body)).await;
            if in_time.is_ok() {
                drop(filling.end(body));
            }
        }));
    }
    Ok(Body::stream(FillReader { fill, at: 0, rest: Some(theirs), raw: None }))
}

/// How long a response may be on its way.
pub(super) fn time_for(total: Duration) -> Duration {
    if total.is_zero() { LONGEST } else { total.min(LONGEST) }
}

/// The end of a fill that pulls.
struct Filling {
    fill: Arc<Fill>,
    plan: Plan,
    room: Room,
    rest: Option<oneshot::Sender<Body>>,
    size: u64,
    has_ended: bool,
}

impl Filling {
    /// Pulls until the end, a failure or the limit.
    async fn run(&mut self, body: &mut Body) {
        while self.fill.lock().end.is_none() {
            match body.frame().await {
                None => self.fill.change(|so_far| so_far.end = Some(FillEnd::Complete)),
                Some(Err(_)) => self.fill.change(|so_far| so_far.end = Some(FillEnd::Failed)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(frame) => self.fill.change(|so_far| so_far.trailers = frame.into_trailers().ok()),
                },
            }
        }
    }

    fn take(&mut self, data: Bytes) {
        self.size += data.len() as u64;
        let is_known = self.fill.length.is_some();
        let is_over = self.size > self.plan.limit || !(is_known || self.room.grow(data.len() as u64));
        self.fill.change(|so_far| {
            so_far.pieces.push(data);
            if is_over {
                so_far.end = Some(FillEnd::HandedOver);
            }
        });
    }

    /// Stores what is complete and says what that is, or hands over the rest.
    fn end(&mut self, body: Body) -> Option<Bytes> {
        self.has_ended = true;
        let (end, stored) = {
            let so_far = self.fill.lock();
            // Trailers may be left out of what is stored (RFC 9110 §6.5.1), and are: whoever gets it now gets them.
            let whole = so_far.end == Some(FillEnd::Complete);
            (so_far.end, whole.then(|| joined(&so_far.pieces, self.size)))
        };
        if end == Some(FillEnd::HandedOver)
            && let Some(rest) = self.rest.take()
        {
            // A client that is gone wants no more of it.
            drop(rest.send(body));
        }
        let is_whole = self.fill.length.is_none_or(|length| length == self.size);
        let stored = stored.filter(|_| is_whole);
        if let Some(bytes) = &stored {
            let stored = Arc::new(Stored::new(self.fill.head.clone(), bytes.clone()));
            self.plan.store.put(&self.plan.key, stored, self.plan.start.clone());
        }
        self.plan.settle();
        stored
    }
}

impl Plan {
    /// Lets those that wait look into the store.
    fn settle(&self) {
        if let Some(lead) = &self.lead {
            lead.settle();
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if !self.has_ended {
            self.fill.change(|so_far| so_far.end = Some(FillEnd::Failed));
        }
    }
}

/// Pieces in one, with no byte to spare.
fn joined(pieces: &[Bytes], size: u64) -> Bytes {
    let mut all = BytesMut::with_capacity(usize::try_from(size).unwrap_or(0));
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

/// One client's way through a fill.
struct FillReader {
    fill: Arc<Fill>,
    at: usize,
    rest: Option<oneshot::Receiver<Body>>,
    raw: Option<Body>,
}

impl HttpBody for FillReader {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(raw) = &mut this.raw {
            return raw.poll_next(cx);
        }
        let mut so_far = this.fill.lock();
        if let Some(piece) = so_far.pieces.get(this.at) {
            this.at += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        match so_far.end {
            None => {
                if !so_far.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    so_far.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
            Some(FillEnd::Complete) if this.at == so_far.pieces.len() => {
                this.at += 1;
                Poll::Ready(so_far.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Some(FillEnd::Complete) => Poll::Ready(None),
            Some(FillEnd::Failed) => Poll::Ready(Some(Err(BodyError::Incomplete))),
            Some(FillEnd::HandedOver) => {
                drop(so_far);
                let Some(rest) = &mut this.rest else {
                    return Poll::Ready(Some(Err(BodyError::Incomplete)));
                };
                match ready!(rest.poll_unpin(cx)) {
                    Ok(body) => this.raw.insert(body).poll_next(cx),
                    Err(_) => Poll::Ready(Some(Err(BodyError::Incomplete))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        if let Some(raw) = &self.raw {
            return raw.is_empty();
        }
        let so_far = self.fill.lock();
        so_far.end == Some(FillEnd::Complete) && self.at >= so_far.pieces.len() && so_far.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.fill.length {
            Some(length) if self.at == 0 => SizeHint::with_exact(length),
            _ => SizeHint::default(),
        }
    }
}
