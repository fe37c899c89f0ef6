//! TLS over TCP with a client whose requests may come before its handshake is over (RFC 8446 §2.3).

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use gateway_core::http::handshake::Handshake;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The server's side of such a connection: read from and written to as soon as the client's keys are known, which for
/// one that comes back is with its first octets. Reading carries the handshake on.
#[derive(Debug)]
pub struct EarlyStream {
    tcp: TcpStream,
    session: ServerConnection,
    handshake: Arc<Handshake>,
    closing: bool,
}

/// A socket as rustls reads and writes it, without waiting.
struct Raw<'t>(&'t TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buf)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl EarlyStream {
    /// Waits for the end of the handshake, or until early data may be read.
    ///
    /// # Errors
    /// When the handshake fails; the client has been told why as far as it listens.
    pub(crate) async fn accept(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut stream = Self { tcp, session, handshake: Arc::default(), closing: false };
        std::future::poll_fn(|cx| {
            loop {
                // Our part of the handshake goes first: the client waits for it.
                ready!(stream.poll_send(cx))?;
                if !stream.session.is_handshaking() || stream.session.early_data().is_some() {
                    return Poll::Ready(Ok::<_, io::Error>(()));
                }
                ready!(stream.poll_receive(cx))?;
            }
        })
        .await?;
        Ok(stream)
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.tcp
    }

    /// The TLS session.
    pub(crate) fn session(&self) -> &ServerConnection {
        &self.session
    }

    /// How far the handshake is.
    pub(crate) fn handshake(&self) -> &Arc<Handshake> {
        &self.handshake
    }

    /// Carries the handshake on to its end.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            ready!(self.poll_send(cx))?;
            ready!(self.poll_receive(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what TLS has to say.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.session.write_tls(&mut Raw(&self.tcp)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let read = loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            match self.session.read_tls(&mut Raw(&self.tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        if let Err(error) = self.session.process_new_packets() {
            // What is wrong is said once; whether it arrives is not waited for.
            let _told = self.poll_send(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        if !self.session.is_handshaking() {
            if !self.handshake.is_over() {
                self.handshake.finish();
            }
        } else if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// What has been deciphered already; `None` is nothing yet.
    fn read(&mut self, buf: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        if let Some(mut early) = self.session.early_data() {
            // Early data comes before all else, also when it is read after the handshake.
            match early.read(buf.initialize_unfilled()) {
                Ok(0) => {}
                Ok(read) => {
                    buf.advance(read);
                    return Some(Ok(()));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        if self.session.is_handshaking() {
            return None;
        }
        let mut any = false;
        while buf.remaining() > 0 {
            let chunk = match self.session.reader().into_first_chunk() {
                Ok([]) => return Some(Ok(())),
                Ok(chunk) => chunk,
                // What came before is given out first.
                Err(_) if any => return Some(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => return Some(Err(error)),
            };
            let taken = chunk.len().min(buf.remaining());
            buf.put_slice(&chunk[..taken]);
            self.session.reader().consume(taken);
            any = true;
        }
        Some(Ok(()))
    }

    /// Has the session take something to write.
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // What was taken before goes first, so that there is room.
            ready!(self.poll_send(cx))?;
            let taken = take(&mut self.session)?;
            if taken > 0 {
                let _sent = self.poll_send(cx)?;
                return Poll::Ready(Ok(taken));
            }
            // Without early keys, nothing is taken before the handshake is over.
            if !self.session.is_handshaking() {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ready!(self.poll_receive(cx))?;
        }
    }
}

impl AsyncRead for EarlyStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(read) = this.read(buf) {
                return Poll::Ready(read);
            }
            // Tickets and alerts are for nobody else to write.
            let _sent = this.poll_send(cx)?;
            ready!(this.poll_receive(cx))?;
        }
    }
}

impl AsyncWrite for EarlyStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.get_mut().poll_give(cx, |session| session.writer().write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.get_mut().poll_give(cx, |session| session.writer().write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.closing, true) {
            this.session.send_close_notify();
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}
