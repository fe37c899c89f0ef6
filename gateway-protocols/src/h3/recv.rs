//! A body that arrives on an HTTP/3 stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::h3::error::StreamError;
use bytes::{Buf, Bytes};
use gateway_core::http::body::BodyError;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::body_error;
use crate::timer::Timer;

/// The receiving side of a request stream, ours or a target's; the h3 crate has two types for it.
pub(crate) trait Incoming: Send {
    /// Data, or `None` before the trailers.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>>;

    /// Trailers, after the data.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>>;
}

macro_rules! incoming {
    ($stream:ty) => {
        impl Incoming for $stream {
            fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
                let data = ready!(self.poll_recv_data(cx))?;
                Poll::Ready(Ok(data.map(|mut data| data.copy_to_bytes(data.remaining()))))
            }

            fn poll_trailers(
                &mut self,
                cx: &mut Context<'_>,
            ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
                self.poll_recv_trailers(cx)
            }
        }
    };
}

incoming!(::h3::server::RequestStream<::h3_quinn::RecvStream, Bytes>);
incoming!(::h3::client::RequestStream<::h3_quinn::RecvStream, Bytes>);

/// Pulls data and trailers. Checks a declared length, which the h3 crate does not.
pub(crate) struct RecvBody<S> {
    stream: S,
    length: Option<u64>,
    left: Option<u64>,
    idle: Duration,
    timer: Timer,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Data,
    Trailers,
    Done,
}

impl<S: Incoming> RecvBody<S> {
    pub(crate) fn new(stream: S, length: Option<u64>, idle: Duration) -> Self {
        Self { stream, length, left: length, idle, timer: Timer::default(), stage: Stage::Data }
    }

    fn take(&mut self, data: &Bytes) -> Result<(), BodyError> {
        let Some(left) = &mut self.left else { return Ok(()) };
        *left = left
            .checked_sub(data.len() as u64)
            .ok_or(BodyError::Framing("more bytes than the length says"))?;
        Ok(())
    }
}

impl<S: Incoming + Unpin> Body for RecvBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.stage == Stage::Data {
            match this.stream.poll_data(cx) {
                Poll::Ready(Ok(Some(data))) => {
                    this.timer.clear();
                    return Poll::Ready(Some(this.take(&data).map(|()| Frame::data(data))));
                }
                Poll::Ready(Ok(None)) if this.left.is_some_and(|left| left > 0) => {
                    this.stage = Stage::Done;
                    return Poll::Ready(Some(Err(BodyError::Incomplete)));
                }
                Poll::Ready(Ok(None)) => this.stage = Stage::Trailers,
                Poll::Ready(Err(error)) => {
                    this.stage = Stage::Done;
                    return Poll::Ready(Some(Err(body_error(error))));
                }
                Poll::Pending => {
                    if !this.timer.is_set() {
                        this.timer.set(this.idle);
                    }
                    ready!(this.timer.poll_elapsed(cx));
                    this.stage = Stage::Done;
                    return Poll::Ready(Some(Err(BodyError::Idle)));
                }
            }
        }
        if this.stage == Stage::Done {
            return Poll::Ready(None);
        }
        let trailers = ready!(this.stream.poll_trailers(cx));
        this.stage = Stage::Done;
        match trailers {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(body_error(error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::Done
    }

    fn size_hint(&self) -> SizeHint {
        match (self.length, self.left) {
            (Some(_), Some(left)) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}
