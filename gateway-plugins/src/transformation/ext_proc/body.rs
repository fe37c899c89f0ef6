//! Bodies on their way through a processor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gateway_core::http::body::{Body, BodyError, Transform, TransformOutput};
use gateway_core::http::reply::Reply;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};

use super::{Core, Direction, ProcessorExchange};

/// Bytes of a piece.
const MAX_PIECE: usize = 64 << 10;

/// A body whose pieces, or trailers, the processor gets as they come.
pub(super) struct Streamed {
    pub(super) inner: Body,
    pub(super) core: Arc<Core>,
    pub(super) visit: Arc<ProcessorExchange>,
    pub(super) way: Direction,
    pub(super) pieces: bool,
    pub(super) trailers: bool,
    step: Option<BoxFuture<'static, Stepped>>,
    rest: Bytes,
    told_end: bool,
    over: bool,
}

/// What came of a piece.
type Stepped = Result<Option<Frame<Bytes>>, Box<Reply>>;

impl Streamed {
    pub(super) fn new(
        inner: Body,
        core: Arc<Core>,
        visit: Arc<ProcessorExchange>,
        way: Direction,
        pieces: bool,
        trailers: bool,
    ) -> Self {
        let rest = Bytes::new();
        Self { inner, core, visit, way, pieces, trailers, step: None, rest, told_end: false, over: false }
    }

    fn piece(&mut self, piece: Bytes, is_end: bool) {
        self.told_end |= is_end;
        let (core, visit, way) = (self.core.clone(), self.visit.clone(), self.way);
        self.step = Some(Box::pin(async move {
            let changed = core.body(&visit, way, piece, is_end, None).await?;
            Ok((!changed.is_empty()).then(|| Frame::data(changed)))
        }));
    }

    fn last(&mut self, trailers: HeaderMap) {
        let (core, visit, way) = (self.core.clone(), self.visit.clone(), self.way);
        self.told_end = true;
        self.step = Some(Box::pin(async move {
            let changed = core.trailers(&visit, way, trailers).await?;
            Ok((!changed.is_empty()).then(|| Frame::trailers(changed)))
        }));
    }
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(step) = &mut this.step {
                let stepped = ready!(step.as_mut().poll(cx));
                this.step = None;
                match stepped {
                    Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Ok(None) => {}
                    Err(reply) => {
                        this.over = true;
                        return Poll::Ready(Some(Err(BodyError::Refused(reply))));
                    }
                }
            }
            if this.over {
                return Poll::Ready(None);
            }
            if !this.rest.is_empty() {
                let piece = this.rest.split_to(this.rest.len().min(MAX_PIECE));
                let is_end = this.rest.is_empty() && this.inner.is_empty();
                this.piece(piece, is_end);
                continue;
            }
            match ready!(this.inner.poll_next(cx)) {
                Some(Err(error)) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if this.pieces && !this.visit.is_over() => this.rest = data,
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(frame) if this.trailers => this.last(frame.into_trailers().unwrap_or_default()),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                None if this.pieces && !this.told_end && !this.visit.is_over() => {
                    this.piece(Bytes::new(), true)
                }
                None => this.over = true,
            }
        }
    }
}

/// Puts other bytes in the place of a body's first.
pub(super) struct Replaced {
    pub(super) skip: usize,
    pub(super) first: Option<Bytes>,
}

impl Transform for Replaced {
    fn data(&mut self, mut data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        if let Some(first) = self.first.take() {
            out.data(first);
        }
        let skipped = data.split_to(self.skip.min(data.len()));
        self.skip -= skipped.len();
        out.data(data);
        Ok(())
    }

    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        if let Some(first) = self.first.take() {
            out.data(first);
        }
        Ok(())
    }
}
