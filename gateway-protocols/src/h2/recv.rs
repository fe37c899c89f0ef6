//! A body that arrives on an HTTP/2 stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::BodyError;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};

use super::body_error;
use crate::timer::Timer;

/// Pulls data and trailers, and opens the window as fast as they are taken: what nobody takes is not asked for.
pub(crate) struct RecvBody {
    stream: RecvStream,
    length: Option<u64>,
    idle: Duration,
    timer: Timer,
    data_done: bool,
}

impl RecvBody {
    pub(crate) fn new(stream: RecvStream, length: Option<u64>, idle: Duration) -> Self {
        Self { stream, length, idle, timer: Timer::default(), data_done: false }
    }
}

impl Body for RecvBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.data_done {
            match this.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    this.timer.clear();
                    let taken = this.stream.flow_control().release_capacity(data.len());
                    if let Some(left) = &mut this.length {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    return Poll::Ready(Some(taken.map(|()| Frame::data(data)).map_err(body_error)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(body_error(error)))),
                Poll::Ready(None) => this.data_done = true,
                Poll::Pending => return this.stalled(cx),
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(body_error(error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl RecvBody {
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.timer.is_set() {
            self.timer.set(self.idle);
        }
        ready!(self.timer.poll_elapsed(cx));
        Poll::Ready(Some(Err(BodyError::Idle)))
    }
}
