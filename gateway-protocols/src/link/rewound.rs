//! A stream whose beginning was read to find out what it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer;

/// A stream whose first bytes have been read already.
#[derive(Debug)]
pub struct Rewound<T> {
    ahead: BytesMut,
    inner: T,
}

impl<T> Rewound<T> {
    /// `ahead` is read before anything else.
    pub fn new(mut ahead: BytesMut, inner: T) -> Self {
        // With nothing in it, it would only keep its memory from others for as long as the connection lives.
        buffer::give_back(&mut ahead);
        Self { ahead, inner }
    }

    /// Whether nothing is left of what was read ahead.
    pub fn is_spent(&self) -> bool {
        self.ahead.is_empty()
    }

    /// What is below.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T> From<T> for Rewound<T> {
    fn from(inner: T) -> Self {
        Self::new(BytesMut::new(), inner)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let take = this.ahead.len().min(buf.remaining());
        buf.put_slice(&this.ahead[..take]);
        this.ahead.advance(take);
        if this.ahead.is_empty() {
            // Gives the memory back: the connection may live long.
            this.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
