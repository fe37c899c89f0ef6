//! A body that arrives on a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::Reason;
use super::handle::Handle;
use super::stream::StreamError;

/// Pulls data and trailers. The window opens as fast as they are taken: what nobody takes is not asked for.
#[derive(Debug)]
pub(crate) struct RecvBody {
    stream: Handle,
    length: Option<u64>,
    idle: Duration,
    data_done: bool,
}

impl RecvBody {
    pub(crate) fn new(stream: Handle, length: Option<u64>, idle: Duration) -> Self {
        Self { stream, length, idle, data_done: false }
    }
}

impl RecvBody {
    /// The stream it comes on.
    pub(crate) fn stream(&self) -> &Handle {
        &self.stream
    }
}

/// What is left of a message on a stream: bytes at hand where all of it is there, else whatever is pulled.
pub(crate) fn body(stream: &Handle, length: Option<u64>, idle: Duration) -> Body {
    complete(stream, length).unwrap_or_else(|| Body::stream(RecvBody::new(stream.clone(), length, idle)))
}

/// The rest of a message, where all of it is there.
pub(crate) fn complete(stream: &Handle, length: Option<u64>) -> Option<Body> {
    Some(match stream.whole()? {
        (data, None) => Body::full(data),
        (data, Some(trailers)) => Body::trailed(data, trailers, length),
    })
}

/// A body error from a stream's.
pub(crate) fn body_error(error: StreamError) -> BodyError {
    match error {
        StreamError::Late | StreamError::TimedOut(_) => BodyError::Idle,
        StreamError::Reset(reason) | StreamError::Refused(reason) if reason == Reason::PROTOCOL_ERROR => {
            BodyError::Framing("HTTP/2 protocol error")
        }
        _ => BodyError::Incomplete,
    }
}

impl HttpBody for RecvBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.data_done {
            match ready!(this.stream.poll_data(cx, this.idle)) {
                Some(Ok(data)) => {
                    if let Some(left) = &mut this.length {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(body_error(error)))),
                None => this.data_done = true,
            }
        }
        Poll::Ready(this.stream.trailers().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for RecvBody {
    fn drop(&mut self) {
        if !self.data_done {
            self.stream.deafen();
        }
    }
}
