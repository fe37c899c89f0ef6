//! The receiving half of a request's stream.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::reply::Cause;
use http::{HeaderMap, Response, Version};
use quinn::{ReadError, RecvStream};
use tokio::time::Instant;

use super::frame::{Event, Frames, StreamKind};
use super::link::{H3Link, lost};
use super::writer::Writer;
use super::{Code, H3Error, StreamError};
use crate::h2::Role;
use crate::h2::head::{Fields, RequestHead, Unreadable};
use crate::qpack::{self, Listed};
use crate::timer::{LastActivity, Timer};

/// Octets taken from QUIC at a time.
const READ: usize = 64 << 10;

/// How far the message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageStage {
    Head,
    Body,
    /// Whatever octets, and nothing else (RFC 9114 §4.4).
    Tunnel,
    Trailers,
    Done,
}

/// Reads one message, or what is in a tunnel.
#[derive(Debug)]
pub(crate) struct MessageReader {
    stream: RecvStream,
    link: Arc<H3Link>,
    frames: Frames,
    input: Bytes,
    stage: MessageStage,
    /// Octets the content-length still promises.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    /// A piece that was looked at in advance.
    ahead: Option<Bytes>,
    fate: Option<StreamError>,
    timer: Timer,
    /// When the other direction last moved, where both last as long as either does.
    opposite: Option<LastActivity>,
}

/// What a target said.
#[derive(Debug)]
pub(crate) enum ResponseHead {
    Interim(Response<()>),
    Final(Response<()>, Option<u64>),
}

/// Why there is no request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NoRequest {
    /// It is not understood, or won't be.
    Unreadable(Unreadable),
    /// The stream is gone.
    Stream(StreamError),
}

impl From<StreamError> for NoRequest {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl MessageReader {
    pub(crate) fn new(stream: RecvStream, link: Arc<H3Link>) -> Self {
        let frames = Frames::new(StreamKind::Request, link.role, link.max_fields);
        Self {
            stream,
            link,
            frames,
            input: Bytes::new(),
            stage: MessageStage::Head,
            left: None,
            trailers: None,
            ahead: None,
            fate: None,
            timer: Timer::default(),
            opposite: None,
        }
    }

    /// A request's head; waits for it no longer than `timeout`.
    pub(crate) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<RequestHead, NoRequest>> {
        let refused = |cause, answerable| NoRequest::Unreadable(Unreadable { cause, answerable });
        let event = match ready!(self.poll_event(cx, timeout)) {
            Err(StreamError::Late) => return Poll::Ready(Err(refused(Cause::RequestTimeout, true))),
            event => event?,
        };
        let mut fields = Fields::new(Role::Server);
        let whole = match event {
            Some(Event::Headers(section)) => self.decode(&section, &mut fields)?,
            Some(Event::TooLarge) => false,
            Some(_) => return Poll::Ready(Err(self.unexpected("DATA before HEADERS").into())),
            None => return Poll::Ready(Err(self.refuse(Code::REQUEST_INCOMPLETE).into())),
        };
        if !whole {
            return Poll::Ready(Err(refused(Cause::HeadersTooLarge, true)));
        }
        Poll::Ready(match fields.take_request() {
            Ok(mut head) => {
                *head.request.version_mut() = Version::HTTP_3;
                self.stage = MessageStage::Body;
                self.left = head.length;
                Ok(head)
            }
            Err(why) => {
                tracing::debug!(why, "a malformed request");
                self.refuse(Code::MESSAGE_ERROR);
                Err(refused(Cause::BadRequest, false))
            }
        })
    }

    /// A response's head, or an informational one before it; waits no longer than `timeout`. One that answers HEAD is
    /// `bodiless`, whatever its fields say.
    pub(crate) fn poll_said(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        bodiless: bool,
    ) -> Poll<Result<ResponseHead, StreamError>> {
        let mut fields = Fields::new(Role::Client);
        match ready!(self.poll_event(cx, timeout))? {
            Some(Event::Headers(section)) if self.decode(&section, &mut fields)? => {}
            Some(Event::Headers(_) | Event::TooLarge) => {
                return Poll::Ready(Err(self.refuse(Code::EXCESSIVE_LOAD)));
            }
            Some(_) => return Poll::Ready(Err(self.unexpected("DATA before HEADERS"))),
            None => return Poll::Ready(Err(self.refuse(Code::MESSAGE_ERROR))),
        }
        let (mut response, length) = match fields.take_response() {
            Ok(parsed) => parsed,
            Err(why) => {
                tracing::debug!(why, "a malformed response");
                return Poll::Ready(Err(self.refuse(Code::MESSAGE_ERROR)));
            }
        };
        *response.version_mut() = Version::HTTP_3;
        if response.status().is_informational() {
            return Poll::Ready(Ok(ResponseHead::Interim(response)));
        }
        self.stage = MessageStage::Body;
        let length = length.filter(|_| !bodiless && response.status() != http::StatusCode::NOT_MODIFIED);
        self.left = length;
        Poll::Ready(Ok(ResponseHead::Final(response, length)))
    }

    /// The stream's number.
    pub(crate) fn id(&self) -> u64 {
        self.stream.id().into()
    }

    /// The connection it is on.
    pub(crate) fn link(&self) -> &Arc<H3Link> {
        &self.link
    }

    /// From now on the stream is a tunnel.
    pub(crate) fn tunnel(&mut self) {
        self.stage = MessageStage::Tunnel;
        self.left = None;
    }

    /// Ready when the body's first piece, its end or its fate has come.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>, idle: Duration) -> Poll<()> {
        if let Some(Ok(data)) = ready!(self.poll_data(cx, idle)) {
            self.ahead = Some(data);
        }
        Poll::Ready(())
    }

    /// Waits for a body for as long as what is sent on the same stream moves, too.
    pub(crate) fn lasts_with(&mut self, writer: &mut Writer) {
        self.opposite = Some(writer.activity());
    }

    /// The next piece of the body; `None` at its end, before trailers.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        idle: Duration,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(data) = self.ahead.take() {
            return Poll::Ready(Some(Ok(data)));
        }
        if self.stage == MessageStage::Done {
            return Poll::Ready(None);
        }
        loop {
            let event = match ready!(self.poll_event(cx, idle)) {
                Ok(event) => event,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let failed = match (event, self.stage) {
                (Some(Event::Data(data)), MessageStage::Body | MessageStage::Tunnel) => {
                    match self.charge(data.len()) {
                        true => return Poll::Ready(Some(Ok(data))),
                        false => self.refuse(Code::MESSAGE_ERROR),
                    }
                }
                (Some(Event::Headers(section)), MessageStage::Body) => match self.take_trailers(&section) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                (Some(Event::TooLarge), MessageStage::Body) => self.refuse(Code::EXCESSIVE_LOAD),
                (Some(_), _) => self.unexpected("a frame after the end of its message"),
                (None, _) if self.left.is_some_and(|left| left > 0) => self.refuse(Code::MESSAGE_ERROR),
                (None, _) => {
                    self.stage = MessageStage::Done;
                    return Poll::Ready(None);
                }
            };
            return Poll::Ready(Some(Err(failed)));
        }
    }

    /// The trailers, once the body's end was seen.
    pub(crate) fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Whether nothing more comes.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == MessageStage::Done && self.trailers.is_none() && self.ahead.is_none()
    }

    /// Reads no more of it, and says why.
    pub(crate) fn refuse(&mut self, code: Code) -> StreamError {
        let fate = *self.fate.get_or_insert(StreamError::Refused(code));
        drop(self.stream.stop(code.into()));
        fate
    }

    fn unexpected(&mut self, note: &'static str) -> StreamError {
        self.fail(H3Error::new(Code::FRAME_UNEXPECTED, note))
    }

    fn fail(&mut self, fault: H3Error) -> StreamError {
        let error = self.link.fail(fault);
        *self.fate.insert(error)
    }

    /// Counts a piece against the content-length.
    fn charge(&mut self, octets: usize) -> bool {
        let Some(left) = &mut self.left else { return true };
        match left.checked_sub(octets as u64) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        }
    }

    fn take_trailers(&mut self, section: &Bytes) -> Result<(), StreamError> {
        let mut fields = Fields::new(self.link.role);
        if !self.decode(section, &mut fields)? {
            return Err(self.refuse(Code::EXCESSIVE_LOAD));
        }
        match fields.take_trailers() {
            Ok(trailers) => {
                self.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                self.stage = MessageStage::Trailers;
                Ok(())
            }
            Err(why) => {
                tracing::debug!(why, "malformed trailers");
                Err(self.refuse(Code::MESSAGE_ERROR))
            }
        }
    }

    /// Whether all of a field section was within the limit.
    fn decode(&mut self, section: &Bytes, fields: &mut Fields) -> Result<bool, StreamError> {
        match qpack::decode(section, self.link.max_fields, |field| fields.push(field)) {
            Ok(listed) => Ok(listed == Listed::Whole && !fields.overflow),
            Err(error) => {
                tracing::debug!(%error, "a field section can't be read");
                Err(self.fail(H3Error::new(Code::QPACK_DECOMPRESSION_FAILED, "a field section is broken")))
            }
        }
    }

    /// The next thing on the stream that means something; `None` is its end.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<Option<Event>, StreamError>> {
        if let Some(fate) = self.fate {
            return Poll::Ready(Err(fate));
        }
        loop {
            match self.frames.next(&mut self.input) {
                Ok(Some(Event::Nothing)) => {
                    if let Err(fault) = self.link.idle_frame() {
                        return Poll::Ready(Err(self.fail(fault)));
                    }
                    continue;
                }
                Ok(Some(event)) => {
                    self.timer.clear();
                    return Poll::Ready(Ok(Some(event)));
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Err(self.fail(fault))),
            }
            let chunk = pin!(self.stream.read_chunk(READ, true)).poll(cx);
            match chunk {
                Poll::Ready(Ok(Some(chunk))) => self.input = chunk.bytes,
                Poll::Ready(Ok(None)) if self.frames.is_between() => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(None)) => {
                    return Poll::Ready(
                        Err(self.fail(H3Error::new(Code::FRAME_ERROR, "a frame is cut off"))),
                    );
                }
                Poll::Ready(Err(error)) => {
                    let error = match error {
                        ReadError::Reset(code) => StreamError::Reset(code.into()),
                        ReadError::ConnectionLost(error) => lost(&error),
                        _ => StreamError::Refused(Code::INTERNAL_ERROR),
                    };
                    return Poll::Ready(Err(*self.fate.insert(error)));
                }
                Poll::Pending => {
                    if !self.timer.is_set() {
                        self.timer.set(timeout);
                    }
                    loop {
                        ready!(self.timer.poll_elapsed(cx));
                        // A stream on which one side sends and the other one is silent is not idle.
                        let opposite = self.opposite.as_ref().and_then(LastActivity::get);
                        let opposite = opposite.filter(|_| self.stage == MessageStage::Body);
                        let until = opposite.map(|moved| moved + timeout);
                        if until.is_none_or(|until| until <= Instant::now()) {
                            return Poll::Ready(Err(StreamError::Late));
                        }
                        self.timer.set_at(until);
                    }
                }
            }
        }
    }
}

impl Drop for MessageReader {
    fn drop(&mut self) {
        if self.stage != MessageStage::Done && self.fate.is_none() {
            // RFC 9114 §4.1: what is left of a request that has its answer is of no interest, which is no error.
            let code = if self.link.role == Role::Server { Code::NO_ERROR } else { Code::REQUEST_CANCELLED };
            drop(self.stream.stop(code.into()));
        }
    }
}
