//! Connections of the admin API whose other end has to go on reading and sending.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take nothing of an answer that is ready for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may be behind [`MIN_RATE`] with a request's body.
const GRACE: Duration = Duration::from_secs(20);
/// Bytes a second that a request's body has to come with on average.
const MIN_RATE: u64 = 4 << 10;

/// A connection that fails when its client takes nothing for [`WRITE_TIMEOUT`].
#[derive(Debug)]
pub(super) struct SteadyConnection<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> SteadyConnection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }

    /// What became of a write: a client that has taken nothing for too long is gone.
    fn watched<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let begin = || Box::pin(sleep_until(Instant::now() + WRITE_TIMEOUT));
        match self.stalled.get_or_insert_with(begin).as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SteadyConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SteadyConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.watched(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watched(cx, result)
    }
}

/// A request's body that fails when it comes too slowly: it holds one of few places.
pub(super) struct SteadyBody {
    body: Body,
    begun: Instant,
    received: u64,
    late: Option<Pin<Box<Sleep>>>,
}

impl SteadyBody {
    pub(super) fn new(body: Body) -> Self {
        Self { body, begun: Instant::now(), received: 0, late: None }
    }
}

impl hyper::body::Body for SteadyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.late = None;
            if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                self.received += data.len() as u64;
            }
            return Poll::Ready(frame);
        }
        let due = self.begun + GRACE + Duration::from_secs(self.received / MIN_RATE);
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(due)));
        match late.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_gone() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut connection = SteadyConnection::new(near);
        connection.write_all(b"12345678").await.unwrap();
        let begun = Instant::now();
        let error = connection.write_all(b"9").await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        far.read_exact(&mut [0; 8]).await.unwrap();
        connection.write_all(b"9").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_ends() {
        let stream = futures_util::stream::pending::<Result<Bytes, io::Error>>();
        let begun = Instant::now();
        let body = Body::new(SteadyBody::new(Body::from_stream(stream)));
        assert!(axum::body::to_bytes(body, 10).await.is_err());
        assert_eq!(begun.elapsed(), GRACE);
    }
}
