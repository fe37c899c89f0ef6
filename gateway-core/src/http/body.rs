//! Bodies: nothing, some bytes at hand, or a stream that is pulled; never collected unless somebody asks.

mod collect;
mod file;
mod grpc;
mod transform;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

pub use grpc::{GrpcMessage, GrpcMessages, GrpcPrefix};
pub use transform::{Transform, TransformOutput};

use super::names::{TrailerRules, strip_trailers};
use super::reply::{Cause, Reply};

/// A message body with a limit and a count of what has passed.
pub struct Body {
    kind: BodyKind,
    /// Bytes that may pass in all; `u64::MAX` is no limit.
    allowed: u64,
    passed: Meter,
    /// When it ended is noted in the meter.
    is_timed: bool,
    /// Set for a client's request: its trailers pass by the rules of its head.
    trailers: Option<TrailerRules>,
    /// Names that no trailer may have.
    #[expect(clippy::box_collection, reason = "few bodies have any, and all are moved about")]
    withheld: Option<Box<Vec<HeaderName>>>,
}

/// How many bytes of a body have passed; outlives the body, for the record.
#[derive(Debug, Clone)]
pub struct Meter(Option<Arc<Passed>>, u64);

/// What has passed of a body that comes piece by piece.
#[derive(Debug, Default)]
struct Passed {
    bytes: AtomicU64,
    /// When the last piece came, of bodies that are timed.
    ended: OnceLock<Instant>,
}

impl Meter {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(self.1, |shared| shared.bytes.load(Ordering::Relaxed))
    }

    /// When the last piece of a timed body came; `None` where it has not, or the body broke off.
    pub(crate) fn ended(&self) -> Option<Instant> {
        self.0.as_ref()?.ended.get().copied()
    }

    /// Bytes that count as not yet passed after all.
    fn take_back(&mut self, bytes: usize) {
        match &self.0 {
            Some(shared) => {
                let passed = shared.bytes.load(Ordering::Relaxed).saturating_sub(bytes as u64);
                shared.bytes.store(passed, Ordering::Relaxed);
            }
            None => self.1 = self.1.saturating_sub(bytes as u64),
        }
    }

    fn add(&mut self, bytes: u64) -> u64 {
        match &self.0 {
            // One body is pulled by one task at a time, so load and store suffice.
            Some(shared) => {
                let total = shared.bytes.load(Ordering::Relaxed) + bytes;
                shared.bytes.store(total, Ordering::Relaxed);
                total
            }
            None => {
                self.1 += bytes;
                self.1
            }
        }
    }
}

enum BodyKind {
    Empty,
    Full(Bytes),
    Trailed(Box<Trailed>),
    Stream(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
    File(Pin<Box<dyn FileBody>>),
}

/// A body that is read from a file. Whoever can't have the kernel send it pulls it as any other.
pub trait FileBody: HttpBody<Data = Bytes, Error = BodyError> + Send {
    /// The piece of the file that comes next, where the kernel can send it without waiting for a disk, and sooner than it
    /// would be read.
    fn cached(&self) -> Option<FilePiece>;

    /// Counts the first bytes of that piece as sent.
    fn advance(self: Pin<&mut Self>, bytes: u64);
}

/// A piece of a file.
#[derive(Debug)]
pub struct FilePiece {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Where the piece begins, in bytes.
    pub from: u64,
    /// Its bytes; not zero.
    pub length: u64,
}

/// A body at hand, and what follows it.
struct Trailed {
    data: Bytes,
    trailers: Option<HeaderMap>,
    /// The length that was declared. Without one it is not told, or there would be no room for trailers where the message goes
    /// on as HTTP/1.1.
    length: Option<u64>,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// More bytes than the limit allows.
    #[error("the body is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The peer sent nothing for the idle timeout.
    #[error("the body stalled")]
    Idle,
    /// The peer closed, or reset the stream, before the end.
    #[error("the body was cut off")]
    Incomplete,
    /// The peer broke the framing.
    #[error("the body's framing is broken: {0}")]
    Framing(&'static str),
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// A plugin refused what it saw of the body; the reply is the answer where none has begun yet.
    #[error("a plugin refused the body")]
    Refused(Box<Reply>),
    /// As much of bodies is held in memory as may be.
    #[error("too much of bodies is held in memory")]
    NoRoom,
    /// The request's body failed while the answer was already on its way.
    #[error("the request's body failed: {0}")]
    Request(Box<Self>),
}

impl BodyError {
    /// What a plugin that reads a request's body answers when it can't.
    pub fn into_reply(self) -> Box<Reply> {
        let cause = match self {
            Self::Refused(reply) => return reply,
            Self::TooLarge { .. } => return Box::new(Reply::new(Cause::BodyTooLarge).closing()),
            Self::Framing(detail) => return Box::new(Reply::new(Cause::BadRequest).detail(detail)),
            Self::Idle => Cause::RequestTimeout,
            Self::NoRoom => Cause::Overloaded,
            Self::Incomplete | Self::Io(_) => Cause::ClientGone,
            Self::Request(error) => return error.into_reply(),
        };
        Box::new(Reply::new(cause))
    }
}

impl Body {
    /// No body at all.
    pub const fn empty() -> Self {
        Self::of(BodyKind::Empty)
    }

    /// These bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::empty() } else { Self::of(BodyKind::Full(bytes)) }
    }

    /// These bytes and trailers.
    pub fn full_with_trailers(bytes: impl Into<Bytes>, trailers: HeaderMap) -> Self {
        Self::trailed(bytes.into(), trailers, None)
    }

    /// These bytes, of which the length was declared, and trailers.
    pub fn trailed(data: Bytes, trailers: HeaderMap, length: Option<u64>) -> Self {
        Self::of(BodyKind::Trailed(Box::new(Trailed { data, trailers: Some(trailers), length })))
    }

    /// Whatever `stream` yields.
    pub fn stream(stream: impl HttpBody<Data = Bytes, Error = BodyError> + Send + 'static) -> Self {
        Self::pulled(BodyKind::Stream(Box::pin(stream)))
    }

    fn pulled(kind: BodyKind) -> Self {
        Self { passed: Meter(Some(Arc::default()), 0), ..Self::of(kind) }
    }

    const fn of(kind: BodyKind) -> Self {
        Self {
            kind,
            allowed: u64::MAX,
            passed: Meter(None, 0),
            is_timed: false,
            trailers: None,
            withheld: None,
        }
    }

    /// Lets at most `limit` bytes pass; zero is no limit.
    #[must_use]
    pub fn limited(mut self, limit: u64) -> Self {
        self.limit(limit);
        self
    }

    /// Lets at most `limit` bytes pass; zero is no limit.
    pub(crate) fn limit(&mut self, limit: u64) {
        self.allowed = if limit == 0 { u64::MAX } else { limit };
    }

    /// Lets only those trailers pass that a client may send ([`strip_trailers`]). Plugins may add any behind it.
    pub(crate) fn pass_trailers_by(&mut self, rules: TrailerRules) {
        self.trailers = Some(rules);
    }

    /// Whether trailers may come behind it.
    pub(crate) fn may_have_trailers(&self) -> bool {
        matches!(self.kind, BodyKind::Stream(_) | BodyKind::Trailed(_))
    }

    /// Drops trailers of this name, which would otherwise come after what was decided about the head.
    pub fn withhold_trailer(&mut self, name: &HeaderName) {
        if self.may_have_trailers() {
            let withheld = self.withheld.get_or_insert_default();
            if !withheld.contains(name) {
                withheld.push(name.clone());
            }
        }
    }

    /// Has its meter note when the last piece came. Of a body at hand nothing is noted.
    pub(crate) fn time(&mut self) {
        self.is_timed = !self.is_at_hand();
    }

    /// Counts the bytes taken out of this body, also after it has moved elsewhere. A body whose bytes are at hand
    /// counts as passed from the start.
    pub fn meter(&self) -> Meter {
        match &self.kind {
            BodyKind::Full(bytes) => Meter(None, bytes.len() as u64),
            BodyKind::Trailed(whole) => Meter(None, self.passed.bytes() + whole.data.len() as u64),
            BodyKind::Empty | BodyKind::Stream(_) | BodyKind::File(_) => self.passed.clone(),
        }
    }

    /// The length still to come, where it is known.
    pub fn exact_length(&self) -> Option<u64> {
        match &self.kind {
            BodyKind::Empty => Some(0),
            BodyKind::Full(bytes) => Some(bytes.len() as u64),
            BodyKind::Trailed(whole) => whole.length,
            BodyKind::Stream(stream) => stream.size_hint().exact(),
            BodyKind::File(file) => file.size_hint().exact(),
        }
    }

    /// Whether nothing is left, so that no framing is needed.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            BodyKind::Empty => true,
            BodyKind::Full(_) | BodyKind::Trailed(_) => false,
            BodyKind::Stream(stream) => stream.is_end_stream(),
            BodyKind::File(file) => file.is_end_stream(),
        }
    }

    /// Whether all of it is there, so that nothing can end it early.
    pub fn is_at_hand(&self) -> bool {
        !matches!(self.kind, BodyKind::Stream(_) | BodyKind::File(_))
    }

    /// Whether the body can be sent a second time: nothing has been pulled from a stream.
    pub fn replay(&self) -> Option<Self> {
        match &self.kind {
            BodyKind::Empty => Some(Self::empty()),
            BodyKind::Full(bytes) => Some(Self { allowed: self.allowed, ..Self::full(bytes.clone()) }),
            BodyKind::Trailed(_) | BodyKind::Stream(_) | BodyKind::File(_) => None,
        }
    }

    /// The bytes, when all of them are at hand; the body is empty afterwards.
    pub fn take_full(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.kind, BodyKind::Empty) {
            BodyKind::Full(bytes) if bytes.len() as u64 <= self.allowed => {
                self.passed.add(bytes.len() as u64);
                Some(bytes)
            }
            other => {
                self.kind = other;
                None
            }
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// What ended the body early.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Body::frame`], for those who poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut polled = match &mut self.kind {
            BodyKind::Empty => return Poll::Ready(None),
            BodyKind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.kind = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            BodyKind::Trailed(whole) if !whole.data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut whole.data)))))
            }
            BodyKind::Trailed(whole) => {
                let trailers = whole.trailers.take();
                self.kind = BodyKind::Empty;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            BodyKind::Stream(stream) => stream.as_mut().poll_frame(cx),
            BodyKind::File(file) => file.as_mut().poll_frame(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &mut polled {
            if let Some(trailers) = frame.trailers_mut() {
                self.withheld
                    .iter()
                    .flat_map(|names| names.iter())
                    .for_each(|name| drop(trailers.remove(name)));
                if let Some(rules) = self.trailers
                    && let Err(detail) = strip_trailers(trailers, rules)
                {
                    self.kind = BodyKind::Empty;
                    return Poll::Ready(Some(Err(BodyError::Framing(detail))));
                }
            }
            let passed = self.passed.add(frame.data_ref().map_or(0, |data| data.len() as u64));
            if passed > self.allowed {
                self.kind = BodyKind::Empty;
                return Poll::Ready(Some(Err(BodyError::TooLarge { limit: self.allowed })));
            }
        }
        if self.is_timed {
            self.note_end(&polled);
        }
        polled
    }

    /// Notes that the last piece has come: the end by itself, trailers, or data behind which the stream knows that nothing comes.
    fn note_end(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, BodyError>>>) {
        let is_end = match polled {
            Poll::Pending => return,
            Poll::Ready(Some(Err(_))) => {
                self.is_timed = false;
                return;
            }
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || self.is_empty(),
        };
        if is_end && let Some(shared) = &self.passed.0 {
            self.is_timed = false;
            shared.ended.get_or_init(Instant::now);
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::full(Bytes::from_static(text.as_bytes()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BodyKind::Empty => "empty",
            BodyKind::Full(_) | BodyKind::Trailed(_) => "full",
            BodyKind::Stream(_) => "stream",
            BodyKind::File(_) => "file",
        };
        write!(f, "Body({kind}, {} passed)", self.passed.bytes())
    }
}

#[cfg(test)]
mod tests;
