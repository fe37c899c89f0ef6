//! Bodies that arrive on a stream, and bodies that are sent on one.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::grpc_status;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::StreamError;
use super::reader::MessageReader;
use super::writer::Writer;
use crate::h1::chunked::keep_trailing;

/// Octets that wait before whoever sends a body has to wait.
const MAX_QUEUED: usize = 64 << 10;
/// Pieces looked at in advance, to see whether they are all.
const MAX_AHEAD: usize = 2;

/// Pulls data and trailers. QUIC's windows open as fast as they are taken: what nobody takes is not asked for.
#[derive(Debug)]
pub(crate) struct RecvBody {
    reader: MessageReader,
    ahead: VecDeque<Bytes>,
    /// What is left of a declared length.
    length: Option<u64>,
    idle: Duration,
    data_done: bool,
}

/// The rest of a message.
pub(crate) enum MessageRest {
    /// All of it is at hand.
    Whole(Body),
    /// It is pulled.
    Pulled(Body),
}

impl From<MessageRest> for Body {
    fn from(rest: MessageRest) -> Self {
        match rest {
            MessageRest::Whole(body) | MessageRest::Pulled(body) => body,
        }
    }
}

/// The rest of a message, after its head.
pub(crate) fn rest(
    mut reader: MessageReader,
    length: Option<u64>,
    idle: Duration,
    cx: &mut Context<'_>,
) -> MessageRest {
    let mut ahead = VecDeque::new();
    while ahead.len() < MAX_AHEAD {
        match reader.poll_data(cx, idle) {
            Poll::Ready(Some(Ok(data))) => ahead.push_back(data),
            Poll::Ready(None) if ahead.len() < MAX_AHEAD && reader.is_done() => {
                return MessageRest::Whole(ahead.pop_front().map_or(Body::empty(), Body::full));
            }
            // An error is the reader's fate and comes again when the body is pulled.
            Poll::Ready(_) | Poll::Pending => break,
        }
    }
    MessageRest::Pulled(Body::stream(RecvBody { reader, ahead, length, idle, data_done: false }))
}

/// A body error from a stream's.
fn body_error(error: StreamError) -> BodyError {
    match error {
        StreamError::Late => BodyError::Idle,
        StreamError::Refused(_) => BodyError::Framing("HTTP/3 message error"),
        StreamError::Reset(_) | StreamError::Lost(_) => BodyError::Incomplete,
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
            let next = match this.ahead.pop_front() {
                Some(data) => Some(Ok(data)),
                None => ready!(this.reader.poll_data(cx, this.idle)),
            };
            match next {
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
        Poll::Ready(this.reader.trailers().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.reader.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A body on its way out.
pub(crate) struct SendBody {
    body: Body,
    idle: Duration,
    handed_over: bool,
    done: bool,
    /// Body bytes handed to the stream.
    pub(crate) sent: u64,
    /// The gRPC status in the trailers, once they were handed over.
    pub(crate) grpc_status: Option<u16>,
}

/// Which side ended the sending early.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The body could not be read.
    Body(BodyError),
    /// The stream is closed; the body is not to blame.
    Stream,
    /// The peer takes nothing for too long.
    Late,
}

impl SendBody {
    pub(crate) fn new(body: Body, idle: Duration) -> Self {
        Self { body, idle, handed_over: false, done: false, sent: 0, grpc_status: None }
    }

    /// Sends what can be sent now; ready when QUIC has all of it. What is there at once goes out at once, with the head
    /// that waits before it and the end of the stream.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut Writer,
    ) -> Poll<Result<(), SendError>> {
        while !self.done {
            if self.handed_over || writer.queued() >= MAX_QUEUED {
                ready!(writer.poll_flush(cx, self.idle)).map_err(stream_error)?;
                self.done = self.handed_over;
                continue;
            }
            let Poll::Ready(frame) = self.body.poll_next(cx) else {
                return match writer.poll_flush(cx, self.idle) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(stream_error(error))),
                    _ => Poll::Pending,
                };
            };
            match frame.transpose().map_err(SendError::Body)?.map(Frame::into_data) {
                None => self.hand_over(writer),
                Some(Ok(data)) => {
                    self.sent += data.len() as u64;
                    if !data.is_empty() {
                        writer.data(data);
                    }
                    if self.body.is_empty() {
                        self.hand_over(writer);
                    }
                }
                Some(Err(frame)) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    keep_trailing(&mut trailers);
                    self.grpc_status = grpc_status(&trailers);
                    writer.trailers(&trailers);
                    self.hand_over(writer);
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn hand_over(&mut self, writer: &mut Writer) {
        writer.end();
        self.handed_over = true;
    }
}

fn stream_error(error: StreamError) -> SendError {
    tracing::debug!(%error, "a stream ended before its body");
    if matches!(error, StreamError::Late) { SendError::Late } else { SendError::Stream }
}
