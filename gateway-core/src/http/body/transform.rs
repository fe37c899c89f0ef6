//! Bodies changed or watched while they pass.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Body, BodyError};

/// Changes a body while it passes. What it refuses with [`BodyError::Refused`] becomes the answer, where no answer has
/// begun yet.
pub trait Transform: Send + 'static {
    /// Some bytes came; what is to go on is put into `out`, now or later.
    ///
    /// # Errors
    /// Ends the body.
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError>;

    /// Nothing more has come yet: what was held back for the sake of more bytes can be put out. Called whenever the body has to
    /// wait.
    ///
    /// # Errors
    /// Ends the body.
    fn pause(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        let _ = out;
        Ok(())
    }

    /// The trailers came. They go on by themselves unless this does something else with them.
    ///
    /// # Errors
    /// Ends the body.
    fn trailers(&mut self, trailers: HeaderMap, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.trailers(trailers);
        Ok(())
    }

    /// The body is over, trailers included. Called once.
    ///
    /// # Errors
    /// Ends the body.
    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        let _ = out;
        Ok(())
    }
}

/// What a transform puts out.
#[derive(Debug, Default)]
pub struct TransformOutput {
    frames: VecDeque<Frame<Bytes>>,
    trailers: Option<HeaderMap>,
}

impl TransformOutput {
    /// These bytes go on.
    pub fn data(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.frames.push_back(Frame::data(bytes));
        }
    }

    /// These trailers go on, behind all bytes.
    pub fn trailers(&mut self, trailers: HeaderMap) {
        self.trailers = Some(trailers);
    }
}

impl Body {
    /// This body with every byte passed through `transform`. Its length is not known any more.
    #[must_use]
    pub fn transform(self, transform: impl Transform) -> Self {
        Self::stream(Transformed { body: self, transform, out: TransformOutput::default(), ended: false })
    }

    /// This body with each piece of data replaced by what `map` makes of it.
    #[must_use]
    pub fn map(self, map: impl FnMut(Bytes) -> Result<Bytes, BodyError> + Send + 'static) -> Self {
        self.transform(Map(map))
    }

    /// This body, shown to `see` while it passes: each piece of data, and `None` at its end. A body that is cut off is
    /// not seen to its end.
    #[must_use]
    pub fn tee(self, see: impl FnMut(Option<&Bytes>) + Send + 'static) -> Self {
        Self::stream(Tee { body: self, see, ended: false })
    }
}

struct Map<F>(F);

impl<F: FnMut(Bytes) -> Result<Bytes, BodyError> + Send + 'static> Transform for Map<F> {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.data((self.0)(data)?);
        Ok(())
    }
}

struct Transformed<T> {
    body: Body,
    transform: T,
    out: TransformOutput,
    ended: bool,
}

// Nothing in it is ever pinned in place.
impl<T> Unpin for Transformed<T> {}

impl<T: Transform> HttpBody for Transformed<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.out.frames.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.ended {
                return Poll::Ready(this.out.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let taken = match this.body.poll_next(cx) {
                Poll::Pending => match this.transform.pause(&mut this.out) {
                    Ok(()) if this.out.frames.is_empty() => return Poll::Pending,
                    paused => paused,
                },
                Poll::Ready(None) => {
                    this.ended = true;
                    this.transform.end(&mut this.out)
                }
                Poll::Ready(Some(Err(error))) => Err(error),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.transform.data(data, &mut this.out),
                    Err(frame) => {
                        this.transform.trailers(frame.into_trailers().unwrap_or_default(), &mut this.out)
                    }
                },
            };
            if let Err(error) = taken {
                this.ended = true;
                this.out = TransformOutput::default();
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.out.frames.is_empty() && self.out.trailers.is_none()
    }
}

struct Tee<F> {
    body: Body,
    see: F,
    ended: bool,
}

impl<F: FnMut(Option<&Bytes>)> Tee<F> {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            (self.see)(None);
        }
    }
}

impl<F> Unpin for Tee<F> {}

impl<F: FnMut(Option<&Bytes>) + Send> HttpBody for Tee<F> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = ready!(this.body.poll_next(cx));
        match &polled {
            None => this.end(),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    (this.see)(Some(data));
                }
                // Whoever sends by a known length does not ask for more after the last byte.
                if this.body.is_empty() {
                    this.end();
                }
            }
            Some(Err(_)) => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
