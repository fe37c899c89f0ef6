//! One end of a byte stream whose bytes are held back by a pacer before they are read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::cut::Cut;
use super::pacer::Pacer;
use crate::http::tunnel::Duplex;

/// What becomes of a reader whose quota has nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// It fails: the relay ends.
    Fail,
    /// It reads nothing more: whoever looks at the cut ends the session in its own way.
    Wait,
}

/// An end whose reads are metered; writes pass.
pub struct Metered<'s, S> {
    /// The end itself.
    pub inner: S,
    pacer: Pacer,
    cut: &'s Cut,
    at_end: AtEnd,
}

impl<'s, S> Metered<'s, S> {
    pub(crate) fn new(inner: S, pacer: Pacer, cut: &'s Cut, at_end: AtEnd) -> Self {
        Self { inner, pacer, cut, at_end }
    }

    /// How many of at most `most` bytes may be read now. Whoever reads past this wrapper, as splice(2) does, tells it by
    /// [`Self::spend`] or [`Self::release`].
    ///
    /// # Errors
    /// When a quota has nothing left; the cut says why.
    pub fn poll_allow(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        if self.cut.reason().is_some() {
            return self.end();
        }
        match ready!(self.pacer.poll_allow(cx, most as u64)) {
            Ok(bytes) => Poll::Ready(Ok(usize::try_from(bytes).unwrap_or(most))),
            Err(reason) => {
                self.cut.note(reason);
                // Whoever watches the cut has polled it before.
                cx.waker().wake_by_ref();
                self.end()
            }
        }
    }

    fn end(&self) -> Poll<io::Result<usize>> {
        match self.at_end {
            AtEnd::Fail => Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
            AtEnd::Wait => Poll::Pending,
        }
    }

    /// So many bytes were read.
    pub fn spend(&mut self, bytes: usize) {
        self.pacer.spend(bytes as u64);
    }

    /// So many bytes were written to it.
    pub fn wrote(&self, bytes: usize) {
        self.pacer.wrote(bytes as u64);
    }

    /// There is nothing to read now.
    pub fn release(&mut self) {
        self.pacer.release();
    }
}

impl<S: Duplex> AsyncRead for Metered<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.pacer.is_free() && this.cut.reason().is_none() {
            return Pin::new(&mut this.inner).poll_read(cx, buffer);
        }
        let most = ready!(this.poll_allow(cx, buffer.remaining()))?;
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        let polled = Pin::new(&mut this.inner).poll_read(cx, &mut part);
        let length = part.filled().len();
        match &polled {
            Poll::Ready(Ok(())) if length > 0 => {
                buffer.advance(length);
                this.spend(length);
            }
            // Others may use what this end has no bytes for.
            Poll::Ready(_) | Poll::Pending => this.release(),
        }
        polled
    }
}

impl<S: Duplex> AsyncWrite for Metered<'_, S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, bytes))?;
        this.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
