//! Bodies read into memory, whole or in part, and handed back.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Body, BodyError, Meter};
use crate::limit::collected::CollectedRoom;

impl Body {
    /// Reads all of it, at most `limit` bytes, and keeps the trailers aside. The bytes count against the ceiling of all
    /// collected bodies for as long as any of them is held.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] beyond the limit and [`BodyError::NoRoom`] at the ceiling: the body is then whole again,
    /// as if nothing had been read. Or what ended the body early.
    pub async fn collect(&mut self, limit: u64) -> Result<(Bytes, Option<HeaderMap>), BodyError> {
        if self.exact_length().is_some_and(|length| length > limit) {
            return Err(BodyError::TooLarge { limit });
        }
        if let Some(bytes) = self.take_full() {
            return Ok((bytes, None));
        }
        let (bytes, room, end) = self.read(limit).await?;
        match end {
            ReadingEnd::Body(trailers) => Ok((hold(room, bytes), trailers)),
            ReadingEnd::Limit(over) => {
                self.put_back(bytes, Some(over));
                Err(BodyError::TooLarge { limit })
            }
            ReadingEnd::Room(over) => {
                self.put_back(bytes, Some(over));
                Err(BodyError::NoRoom)
            }
        }
    }

    /// The first bytes, up to `limit` or the end, without taking them: the body is whole afterwards. Waits until that
    /// many have come.
    ///
    /// # Errors
    /// [`BodyError::NoRoom`] at the ceiling of all collected bodies; what ended the body early.
    pub async fn peek(&mut self, limit: u64) -> Result<Bytes, BodyError> {
        if let Some(bytes) = self.take_full() {
            let seen = bytes.slice(..bytes.len().min(usize::try_from(limit).unwrap_or(usize::MAX)));
            self.put_back(bytes, None);
            return Ok(seen);
        }
        let (bytes, _room, end) = self.read(limit).await?;
        let seen = match &end {
            ReadingEnd::Limit(over) => {
                let wanted = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(bytes.len());
                let mut seen = BytesMut::from(&bytes[..]);
                seen.extend_from_slice(over.get(..wanted).unwrap_or(over));
                seen.freeze()
            }
            ReadingEnd::Body(_) | ReadingEnd::Room(_) => bytes.clone(),
        };
        match end {
            ReadingEnd::Body(trailers) => *self = self.rest(bytes, None, trailers),
            ReadingEnd::Limit(over) => self.put_back(bytes, Some(over)),
            ReadingEnd::Room(over) => {
                self.put_back(bytes, Some(over));
                return Err(BodyError::NoRoom);
            }
        }
        Ok(seen)
    }

    /// How many bytes have come already, up to the first frame with which they are more than `limit`: waits for none. The body
    /// is whole afterwards.
    ///
    /// # Errors
    /// What ended the body early.
    pub async fn at_hand(&mut self, limit: u64) -> Result<u64, BodyError> {
        if let Some(length) = self.exact_length() {
            return Ok(length);
        }
        let (mut ahead, mut trailers) = (BytesMut::new(), None);
        while ahead.len() as u64 <= limit && trailers.is_none() {
            let polled = poll_fn(|cx| Poll::Ready(self.poll_next(cx))).await;
            let Poll::Ready(Some(frame)) = polled else { break };
            match frame?.into_data() {
                Ok(data) => ahead.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let length = ahead.len() as u64;
        if length > 0 || trailers.is_some() {
            *self = self.rest(ahead.freeze(), None, trailers);
        }
        Ok(length)
    }

    /// Has all of it at hand, so that it can be sent twice, where it has no more than `limit` bytes and no trailers. Else it
    /// stays whole, and to be had once.
    ///
    /// # Errors
    /// What ended the body early.
    pub async fn settle(&mut self, limit: u64) -> Result<(), BodyError> {
        if self.replay().is_some() || self.exact_length().is_some_and(|length| length > limit) {
            return Ok(());
        }
        let (bytes, room, end) = self.read(limit).await?;
        match end {
            ReadingEnd::Body(None) => *self = Self { allowed: self.allowed, ..Self::full(hold(room, bytes)) },
            ReadingEnd::Body(trailers) => *self = self.rest(bytes, None, trailers),
            ReadingEnd::Limit(over) | ReadingEnd::Room(over) => self.put_back(bytes, Some(over)),
        }
        Ok(())
    }

    /// Pulls until the end or a limit; says what was read and what ended it.
    async fn read(&mut self, limit: u64) -> Result<(Bytes, CollectedRoom, ReadingEnd), BodyError> {
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut room = CollectedRoom::new();
        let mut end = ReadingEnd::Body(None);
        while let Some(frame) = self.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    let total = (first.len() + rest.len() + data.len()) as u64;
                    if total > limit {
                        end = ReadingEnd::Limit(data);
                        break;
                    }
                    if !room.grow(data.len()) {
                        end = ReadingEnd::Room(data);
                        break;
                    }
                    if first.is_empty() { first = data } else { rest.extend_from_slice(&data) }
                }
                Err(frame) => end = ReadingEnd::Body(frame.into_trailers().ok()),
            }
        }
        if !rest.is_empty() {
            let mut all = BytesMut::with_capacity(first.len() + rest.len());
            all.extend_from_slice(&first);
            all.extend_from_slice(&rest);
            first = all.freeze();
        }
        Ok((first, room, end))
    }

    /// Puts bytes before what is left.
    fn put_back(&mut self, bytes: Bytes, more: Option<Bytes>) {
        *self = self.rest(bytes, more, None);
    }

    /// These bytes, then what is left of this body. They count as not yet passed.
    fn rest(&mut self, first: Bytes, second: Option<Bytes>, trailers: Option<HeaderMap>) -> Self {
        let length = first.len() + second.as_ref().map_or(0, Bytes::len);
        let mut passed = self.passed.clone();
        passed.take_back(length);
        let allowed = std::mem::replace(&mut self.allowed, u64::MAX);
        let mut rest = std::mem::take(self);
        // It is counted where it passes the whole.
        rest.passed = Meter(None, 0);
        let ahead = [Some(first).filter(|first| !first.is_empty()), second];
        let mut body = Self::stream(Remaining { ahead, body: rest, trailers });
        (body.allowed, body.passed) = (allowed, passed);
        body
    }
}

/// The bytes, which keep the room until the last of them is dropped.
fn hold(room: CollectedRoom, bytes: Bytes) -> Bytes {
    if room.is_empty() { bytes } else { Bytes::from_owner(Reservation { bytes, _room: room }) }
}

struct Reservation {
    bytes: Bytes,
    _room: CollectedRoom,
}

impl AsRef<[u8]> for Reservation {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What ended a reading.
enum ReadingEnd {
    Body(Option<HeaderMap>),
    Limit(Bytes),
    Room(Bytes),
}

/// Bytes that were read before, and the body they come from.
struct Remaining {
    ahead: [Option<Bytes>; 2],
    body: Body,
    trailers: Option<HeaderMap>,
}

impl HttpBody for Remaining {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.ahead.iter_mut().find_map(Option::take) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match this.body.poll_next(cx) {
            Poll::Ready(None) => {
                Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.iter().all(Option::is_none) && self.trailers.is_none() && self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self.ahead.iter().flatten().map(|bytes| bytes.len() as u64).sum();
        self.body.exact_length().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(ahead + rest))
    }
}
