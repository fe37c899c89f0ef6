//! A TLS connection that records whether the peer has revoked this client's certificate. In TLS 1.3, the alert arrives after the
//! handshake, and higher layers only report a closed connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The connection, and whether the alert has arrived.
pub(super) struct ObservedStream {
    pub(super) inner: TlsStream<TcpStream>,
    pub(super) is_revoked: Arc<AtomicBool>,
}

impl ObservedStream {
    fn observe<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && super::is_revoked(error)
        {
            self.is_revoked.store(true, Ordering::Relaxed);
        }
        polled
    }
}

/// The alert that a server sends for a revoked client certificate.
pub(super) const REVOKED: rustls::Error = rustls::Error::AlertReceived(AlertDescription::CertificateRevoked);

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.observe(polled)
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.observe(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.observe(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
