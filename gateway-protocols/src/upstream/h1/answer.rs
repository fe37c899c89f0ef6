//! The body of a target's answer; pulling it also drives what is left of the request's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gateway_core::http::body::BodyError;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{Exchange, ExchangeFailure, Home};
use crate::h1::body::{BodyStep, Decoder};

/// An answer's body as it comes off the wire.
pub(super) struct AnswerBody {
    /// Gone once it is back in its pool, or broken.
    exchange: Option<Exchange>,
    decoder: Decoder,
    home: Home,
}

impl AnswerBody {
    pub(super) fn new(exchange: Exchange, decoder: Decoder, home: Home) -> Self {
        Self { exchange: Some(exchange), decoder, home }
    }

    /// Returns the connection when neither direction has anything left.
    fn settle(&mut self) {
        if self.decoder.is_done()
            && self.exchange.as_ref().is_some_and(|exchange| exchange.upload.is_done())
            && let Some(mut exchange) = self.exchange.take()
        {
            exchange.connection.since = Instant::now();
            exchange.give_back(&self.home);
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyStep, BodyError>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(Ok(BodyStep::End)) };
        match exchange.poll_upload(cx) {
            Poll::Ready(Err(ExchangeFailure::Body(error))) => {
                return Poll::Ready(Err(BodyError::Request(Box::new(error))));
            }
            Poll::Ready(_) | Poll::Pending => {}
        }
        loop {
            let connection = &mut exchange.connection;
            match self.decoder.next(&mut connection.buffer)? {
                BodyStep::More => {}
                step => {
                    connection.timer.clear();
                    return Poll::Ready(Ok(step));
                }
            }
            match connection.link.poll_fill(cx, &mut connection.buffer, self.decoder.wants()) {
                Poll::Ready(Ok(0)) => {
                    self.decoder.end_of_stream()?;
                    return Poll::Ready(Ok(BodyStep::End));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => break,
            }
        }
        let timer = &mut exchange.connection.timer;
        if !timer.is_set() {
            timer.set(self.home.idle);
        }
        timer.poll_elapsed(cx).map(|()| Err(BodyError::Idle))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Poll::Ready(step) = this.poll_step(cx) else { return Poll::Pending };
        let frame = match step {
            Ok(BodyStep::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyStep::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(BodyStep::End | BodyStep::More) => None,
            Err(error) => {
                this.exchange = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        this.settle();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
