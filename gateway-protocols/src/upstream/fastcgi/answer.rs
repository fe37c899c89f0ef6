//! The body of a FastCGI response. Reading it also drives the rest of the request's upload.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{Body, BodyError};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::Exchange;
use super::record::{Event, RequestEnd};
use crate::buffer;
use crate::upstream::h1::Home;

/// A response body as it arrives. It is complete only if the target has ended the request, or if all bytes of its announced
/// length have arrived.
pub(super) struct AnswerBody {
    /// `None` after the end or an error.
    exchange: Option<Box<Exchange>>,
    /// Remaining bytes, if the target announced a length.
    left: Option<u64>,
    home: Home,
}

impl AnswerBody {
    pub(super) fn new(exchange: Exchange, length: Option<u64>, home: Home) -> Self {
        Self { exchange: Some(Box::new(exchange)), left: length, home }
    }

    /// The whole body, if all of it has arrived; otherwise `None`, and nothing is consumed.
    pub(super) fn at_hand(&mut self) -> Option<Body> {
        let exchange = self.exchange.as_mut()?;
        if !exchange.upload.is_done() {
            return None;
        }
        let (mut ahead, mut whole) = (BytesMut::from(&exchange.head[..]), false);
        // If the rest has yet to arrive, the bytes read here stay in `head` as the first piece of the body.
        while let Ok(event) = exchange.reader.next(&mut exchange.connection.buffer) {
            match event {
                Event::Output(data) => ahead.extend_from_slice(&data),
                Event::Error(data) => exchange.errors.add(&data),
                Event::End(ending) => {
                    whole = ending == RequestEnd::Complete;
                    break;
                }
                Event::More => {
                    exchange.head = ahead;
                    return None;
                }
            }
        }
        let fits = self.left.is_none_or(|left| left == ahead.len() as u64);
        if whole && fits {
            self.settle();
            return Some(Body::full(ahead.freeze()));
        }
        // The response is broken. The body first delivers the bytes that have arrived, then the error.
        exchange.head = ahead;
        exchange.ended_badly = true;
        None
    }

    /// Reads the bytes that have arrived, so that the connection can return to its pool. Does not wait for more.
    pub(super) fn discard(&mut self) {
        self.left = None;
        let Some(exchange) = self.exchange.as_mut() else { return };
        loop {
            match exchange.reader.next(&mut exchange.connection.buffer) {
                Ok(Event::Output(_)) => {}
                Ok(Event::Error(data)) => exchange.errors.add(&data),
                Ok(Event::End(RequestEnd::Complete)) => return self.settle(),
                Ok(Event::End(_) | Event::More) | Err(_) => return self.exchange = None,
            }
        }
    }

    /// Ends the request: the connection may carry another one.
    fn settle(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let is_clean = exchange.connection.buffer.is_empty() && !exchange.deaf && exchange.upload.is_done();
        if is_clean && self.home.keep_alive {
            buffer::give_back(&mut exchange.connection.buffer);
            exchange.connection.since = Instant::now();
            self.home.keep(exchange.connection);
        }
    }

    /// Subtracts a piece from the announced length.
    fn count(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(data.len() as u64)
                .ok_or(BodyError::Framing("more output than its content-length says"))?;
        }
        Ok(data)
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(Ok(None)) };
        if let Poll::Ready(Err(error)) = exchange.poll_upload(cx) {
            return Poll::Ready(Err(BodyError::Request(Box::new(error))));
        }
        if !exchange.head.is_empty() {
            let data = exchange.head.split().freeze();
            return Poll::Ready(self.count(data).map(Some));
        }
        if exchange.ended_badly {
            return Poll::Ready(Err(BodyError::Incomplete));
        }
        loop {
            let connection = &mut exchange.connection;
            match exchange.reader.next(&mut connection.buffer) {
                Err(error) => {
                    tracing::debug!(%error, "the target's answer broke off");
                    return Poll::Ready(Err(BodyError::Framing("what the target sends is no FastCGI")));
                }
                Ok(Event::Output(data)) => {
                    connection.timer.clear();
                    return Poll::Ready(self.count(data).map(Some));
                }
                Ok(Event::Error(data)) => {
                    exchange.errors.add(&data);
                    continue;
                }
                Ok(Event::End(RequestEnd::Complete)) if self.left.is_none_or(|left| left == 0) => {
                    self.settle();
                    return Poll::Ready(Ok(None));
                }
                Ok(Event::End(_)) => return Poll::Ready(Err(BodyError::Incomplete)),
                Ok(Event::More) => {}
            }
            match connection.link.poll_fill(cx, &mut connection.buffer, buffer::BODY_BYTES) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(BodyError::Incomplete)),
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

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Poll::Ready(step) = this.poll_step(cx) else { return Poll::Pending };
        Poll::Ready(match step {
            Ok(data) => data.map(|data| Ok(Frame::data(data))),
            Err(error) => {
                this.exchange = None;
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
