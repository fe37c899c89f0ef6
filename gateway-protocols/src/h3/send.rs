//! Sending a body on an HTTP/3 stream.

use std::future::Future;
use std::time::Duration;

use ::h3::error::{Code, StreamError};
use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use http::HeaderMap;

use crate::h1::chunked::keep_trailing;

/// The sending side of a request stream, ours or towards a target; the h3 crate has two types for it.
pub(crate) trait Outgoing: Send {
    /// Sends some of a body.
    fn data(&mut self, data: Bytes) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Sends trailers.
    fn trailers(&mut self, trailers: HeaderMap) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Ends the message.
    fn end(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Says that what was sent is not the whole.
    fn abort(&mut self, code: Code);
}

macro_rules! outgoing {
    ($stream:ty) => {
        impl Outgoing for $stream {
            async fn data(&mut self, data: Bytes) -> Result<(), StreamError> {
                self.send_data(data).await
            }

            async fn trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
                self.send_trailers(trailers).await
            }

            async fn end(&mut self) -> Result<(), StreamError> {
                self.finish().await
            }

            fn abort(&mut self, code: Code) {
                self.stop_stream(code);
            }
        }
    };
}

outgoing!(::h3::server::RequestStream<::h3_quinn::SendStream<Bytes>, Bytes>);
outgoing!(::h3::client::RequestStream<::h3_quinn::SendStream<Bytes>, Bytes>);

/// A sending side that says so when its message does not come to its end: QUIC would end the stream in order
/// when it is dropped, and half a message without a length would look whole.
pub(crate) struct Whole<S: Outgoing> {
    pub(crate) stream: S,
    code: Code,
    ended: bool,
}

impl<S: Outgoing> Whole<S> {
    /// Aborts with `code` unless all is sent.
    pub(crate) fn new(stream: S, code: Code) -> Self {
        Self { stream, code, ended: false }
    }
}

impl<S: Outgoing> Drop for Whole<S> {
    fn drop(&mut self) {
        if !self.ended {
            self.stream.abort(self.code);
        }
    }
}

/// Which side ended the sending early.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The body could not be read.
    Body(BodyError),
    /// The stream is closed or stalled.
    Stream,
}

/// Sends all of `body`; `sent` counts along. A peer that takes nothing for `idle` is given up.
pub(crate) async fn send_body<S: Outgoing>(
    whole: &mut Whole<S>,
    mut body: Body,
    idle: Duration,
    sent: &mut u64,
) -> Result<(), SendError> {
    let stream = &mut whole.stream;
    while let Some(frame) = body.frame().await {
        match frame.map_err(SendError::Body)?.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                let length = data.len() as u64;
                within(idle, stream.data(data)).await?;
                *sent += length;
            }
            Err(frame) => {
                let mut trailers = frame.into_trailers().unwrap_or_default();
                keep_trailing(&mut trailers);
                within(idle, stream.trailers(trailers)).await?;
            }
        }
    }
    within(idle, stream.end()).await?;
    whole.ended = true;
    Ok(())
}

async fn within(
    idle: Duration,
    sending: impl Future<Output = Result<(), StreamError>>,
) -> Result<(), SendError> {
    let sent = match idle.is_zero() {
        true => sending.await,
        false => tokio::time::timeout(idle, sending).await.map_err(|_| SendError::Stream)?,
    };
    sent.map_err(|error| {
        tracing::debug!(%error, "a stream ended before its body");
        SendError::Stream
    })
}
