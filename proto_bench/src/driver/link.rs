//! A connected byte stream, plain or TLS: what every TCP-borne driver starts from.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Fault;
use crate::plan::Plan;
use crate::tls;

/// Opens links of one plan.
pub struct Linker {
    address: SocketAddr,
    fresh: bool,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// One connected stream.
pub enum Link {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Linker {
    /// Prepares TLS where the plan's target asks for it.
    ///
    /// # Errors
    /// An unreadable root certificate or a host that is not a valid server name.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let tls = if plan.target.tls {
            let config = tls::client_config(plan.target.protocol.alpn(), plan.verify_tls.as_deref())
                .map_err(Fault::handshake)?;
            let name = ServerName::try_from(plan.target.host.clone()).map_err(Fault::handshake)?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        Ok(Self { address: plan.address(), fresh: plan.message.fresh, tls })
    }

    /// Connects; returns the link and what the TLS handshake agreed on.
    pub async fn open(&self) -> Result<(Link, Option<String>), Fault> {
        let stream = TcpStream::connect(self.address).await.map_err(Fault::Connect)?;
        stream.set_nodelay(true)?;
        if self.fresh {
            // A reset at the end instead of TIME_WAIT: thousands of new connections a second would otherwise run
            // out of local ports within seconds.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        }
        let Some((connector, name)) = &self.tls else { return Ok((Link::Plain(stream), None)) };
        let stream = connector.connect(name.clone(), stream).await.map_err(Fault::handshake)?;
        let negotiated = tls::negotiated(stream.get_ref().1);
        Ok((Link::Tls(Box::new(stream)), Some(negotiated)))
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
