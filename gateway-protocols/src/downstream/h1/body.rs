//! A request's body as it comes from an HTTP/1.1 client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::BodyError;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use super::ConnectionReader;
use super::expectation::Continue;
use crate::buffer::HEAD_BYTES;
use crate::h1::body::{BodyStep, Decoder};
use crate::timer::Timer;

/// What is said to be unread of a body after which no other request can be found.
const BROKEN: u64 = u64::MAX;

/// Reads a body and gives the reader back when it is dropped, at whatever point. `unread` has then how many bytes nobody
/// read, as far as that is known.
pub(super) struct RequestBody {
    reader: Option<ConnectionReader>,
    decoder: Decoder,
    home: Option<oneshot::Sender<Returned>>,
    idle: Duration,
    timer: Timer,
    go_ahead: Option<Continue>,
    unread: Arc<AtomicU64>,
    broken: bool,
}

/// A reader that has come back, and what of the body it has not read.
pub(super) struct Returned {
    pub(super) reader: ConnectionReader,
    pub(super) decoder: Decoder,
}

impl RequestBody {
    pub(super) fn new(
        reader: ConnectionReader,
        decoder: Decoder,
        home: oneshot::Sender<Returned>,
        idle: Duration,
        go_ahead: Option<Continue>,
        unread: Arc<AtomicU64>,
    ) -> Self {
        let timer = Timer::default();
        Self { reader: Some(reader), decoder, home: Some(home), idle, timer, go_ahead, unread, broken: false }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyStep, BodyError>> {
        let Some(reader) = &mut self.reader else { return Poll::Ready(Err(BodyError::Incomplete)) };
        loop {
            match self.decoder.next(&mut reader.buffer)? {
                BodyStep::More => {}
                step => {
                    self.timer.clear();
                    return Poll::Ready(Ok(step));
                }
            }
            // Only now is it certain that the body is wanted and not there yet.
            if let Some(go_ahead) = &mut self.go_ahead {
                ready!(go_ahead.poll_allowed(cx));
                while !go_ahead.rest().is_empty() {
                    let written = ready!(reader.half.poll_write_ahead(cx, go_ahead.rest()))?;
                    go_ahead.wrote(written);
                }
                self.go_ahead = None;
            }
            match reader.half.poll_fill(cx, &mut reader.buffer, self.decoder.wants())? {
                Poll::Ready(0) => return Poll::Ready(Err(BodyError::Incomplete)),
                Poll::Ready(_) => {}
                Poll::Pending => break,
            }
        }
        if !self.timer.is_set() {
            self.timer.set(self.idle);
        }
        self.timer.poll_elapsed(cx).map(|()| Err(BodyError::Idle))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let step = ready!(self.poll_step(cx));
        Poll::Ready(match step {
            Ok(BodyStep::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyStep::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(BodyStep::End | BodyStep::More) => None,
            Err(error) => {
                self.broken = true;
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let left = if self.broken { BROKEN } else { self.decoder.exact_length().unwrap_or(0) };
        self.unread.store(left, Ordering::Relaxed);
        if let (Some(reader), Some(home)) = (self.reader.take(), self.home.take()) {
            drop(home.send(Returned { reader, decoder: self.decoder }));
        }
    }
}

impl Returned {
    /// Reads and forgets the rest of the body, at most `limit` bytes; false when it is not worth it.
    pub(super) async fn discard(&mut self, limit: u64, timeout: Duration) -> bool {
        if self.decoder.exact_length().is_some_and(|left| left > limit) {
            return false;
        }
        let reading = async {
            let mut read = 0;
            loop {
                match self.decoder.next(&mut self.reader.buffer) {
                    Ok(BodyStep::End | BodyStep::Trailers(_)) => return true,
                    Ok(BodyStep::Data(data)) => read += data.len() as u64,
                    Ok(BodyStep::More) => {
                        let reader = &mut self.reader;
                        match poll_fn(|cx| reader.half.poll_fill(cx, &mut reader.buffer, HEAD_BYTES)).await {
                            Ok(0) | Err(_) => return false,
                            Ok(_) => {}
                        }
                    }
                    Err(_) => return false,
                }
                if read > limit {
                    return false;
                }
            }
        };
        tokio::time::timeout(timeout, reading).await.unwrap_or(false)
    }
}
