//! A connection that one session or tunnel has for itself.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use gateway_core::balance::ConnectionPlace;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::Link;

/// A connection to a target, counted among the target's as long as it is held.
#[derive(Debug)]
pub struct Placed {
    pub(crate) link: Link,
    _place: Option<ConnectionPlace>,
}

impl Placed {
    pub(crate) fn new(link: Link, place: Option<ConnectionPlace>) -> Self {
        Self { link, _place: place }
    }
}

impl AsyncRead for Placed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().link).poll_read(cx, buf)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().link).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().link).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.link.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().link).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().link).poll_shutdown(cx)
    }
}
