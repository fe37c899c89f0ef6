//! One connection's bytes, plain or encrypted, whole or as two halves.

mod rewound;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use atomic_refcell::AtomicRefCell;
use bytes::BytesMut;
use gateway_core::http::body::FilePiece;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;
use tokio_util::io::poll_read_buf;

use crate::buffer::{self, HEAD_BYTES};
use crate::tls::early::EarlyStream;
pub use rewound::Rewound;

/// A connection.
#[derive(Debug)]
pub enum Link {
    /// TCP as it is.
    Tcp(TcpStream),
    /// TLS over TCP, either side of it.
    Tls(Box<Tls>),
}

/// TLS over TCP.
#[derive(Debug)]
pub enum Tls {
    /// Used once the handshake is over.
    Shaken(TlsStream<Rewound<TcpStream>>),
    /// With a client that may send requests before.
    Early(EarlyStream),
}

impl Tls {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Shaken(tls) => tls.get_ref().0.get_ref(),
            Self::Early(early) => early.socket(),
        }
    }

    fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Shaken(tls) => tls.get_ref().1.alpn_protocol(),
            Self::Early(early) => early.session().alpn_protocol(),
        }
    }
}

impl From<TlsStream<Rewound<TcpStream>>> for Link {
    fn from(tls: TlsStream<Rewound<TcpStream>>) -> Self {
        Self::Tls(Box::new(Tls::Shaken(tls)))
    }
}

impl From<EarlyStream> for Link {
    fn from(early: EarlyStream) -> Self {
        Self::Tls(Box::new(Tls::Early(early)))
    }
}

impl AsyncRead for Tls {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Shaken(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::Early(early) => Pin::new(early).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Tls {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Shaken(tls) => Pin::new(tls).poll_write(cx, buf),
            Self::Early(early) => Pin::new(early).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Shaken(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Self::Early(early) => Pin::new(early).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Shaken(tls) => Pin::new(tls).poll_flush(cx),
            Self::Early(early) => Pin::new(early).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Shaken(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Early(early) => Pin::new(early).poll_shutdown(cx),
        }
    }
}

impl Link {
    /// The TCP socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// The other end's address.
    ///
    /// # Errors
    /// When the socket is no longer connected.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }

    /// What ALPN settled on.
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Tcp(_) => None,
            Self::Tls(tls) => tls.alpn(),
        }
    }

    /// Reads what is there into `buffer`, with room for `wanted` bytes or so; `Ok(0)` is the end of the stream. While
    /// nothing is there, an empty buffer is given back.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => {
                if !is_small(buffer, wanted) {
                    ready!(poll_arrival(tcp, cx, buffer))?;
                }
                poll_fill(Pin::new(tcp), cx, buffer, wanted)
            }
            Self::Tls(tls) => poll_fill(Pin::new(tls.as_mut()), cx, buffer, wanted),
        }
    }

    /// Whether the other end has neither closed nor said anything, without waiting for either. Readiness was used up by
    /// the last read, so this costs no system call on a plain connection where nothing has happened. What TLS has to say
    /// goes into `buffer`.
    pub fn is_silent(&mut self, buffer: &mut BytesMut) -> bool {
        match self {
            Self::Tcp(tcp) => {
                matches!(tcp.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(_) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                self.poll_fill(&mut cx, buffer, HEAD_BYTES).is_pending()
            }
        }
    }

    /// Two halves that may be held by different owners within one task.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tcp(tcp) => {
                let (read, write) = tcp.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Tls(tls) => {
                let tls: SharedTls = Arc::new(AtomicRefCell::new(tls));
                (ReadHalf::Tls(tls.clone()), WriteHalf::Tls(tls))
            }
        }
    }

    /// The whole again; `None` when the halves are not of one link.
    pub fn unsplit(read: ReadHalf, write: WriteHalf) -> Option<Self> {
        match (read, write) {
            (ReadHalf::Tcp(read), WriteHalf::Tcp(write)) => read.reunite(write).ok().map(Self::Tcp),
            (ReadHalf::Tls(read), WriteHalf::Tls(write)) => {
                drop(read);
                Arc::try_unwrap(write).ok().map(|cell| Self::Tls(cell.into_inner()))
            }
            _ => None,
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // A TCP socket has nothing to flush.
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
        }
    }
}

/// Both halves of a TLS link need the one session. They live in one task, so the cell is never contended: it checks,
/// it never waits.
type SharedTls = Arc<AtomicRefCell<Box<Tls>>>;

/// The half of a link that reads.
#[derive(Debug)]
pub enum ReadHalf {
    /// Of a plain link.
    Tcp(OwnedReadHalf),
    /// Of an encrypted one.
    Tls(SharedTls),
}

/// The half of a link that writes.
#[derive(Debug)]
pub enum WriteHalf {
    /// Of a plain link.
    Tcp(OwnedWriteHalf),
    /// Of an encrypted one.
    Tls(SharedTls),
}

/// Both halves polled at once, from two tasks: never done by this crate, and an error rather than a panic.
fn contended() -> io::Error {
    io::Error::other("the halves of a link were used by two tasks at once")
}

impl ReadHalf {
    /// Reads what is there into `buffer`, with room for `wanted` bytes or so; `Ok(0)` is the end of the stream. While
    /// nothing is there, an empty buffer is given back.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(half) => {
                if !is_small(buffer, wanted) {
                    ready!(poll_arrival(half.as_ref(), cx, buffer))?;
                }
                poll_fill(Pin::new(half), cx, buffer, wanted)
            }
            Self::Tls(cell) => {
                let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
                poll_fill(Pin::new(tls.as_mut()), cx, buffer, wanted)
            }
        }
    }

    /// Carries a TLS handshake that is still under way on to its end.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Tls(cell) = self else { return Poll::Ready(Ok(())) };
        let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
        match &mut **tls {
            Tls::Shaken(_) => Poll::Ready(Ok(())),
            Tls::Early(early) => early.poll_finish(cx),
        }
    }

    /// Writes a few bytes ahead of whatever the write half will write: an interim response.
    pub fn poll_write_ahead(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(half) => {
                let socket: &TcpStream = half.as_ref();
                loop {
                    ready!(socket.poll_write_ready(cx))?;
                    match socket.try_write(bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        other => return Poll::Ready(other),
                    }
                }
            }
            Self::Tls(cell) => {
                let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
                let written = ready!(Pin::new(tls.as_mut()).poll_write(cx, bytes))?;
                // An interim response that waits in a buffer would be waited for in vain.
                let _flushed = Pin::new(tls.as_mut()).poll_flush(cx)?;
                Poll::Ready(Ok(written))
            }
        }
    }
}

impl WriteHalf {
    /// Ends our side of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => Pin::new(half).poll_shutdown(cx),
            Self::Tls(cell) => {
                let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
                Pin::new(tls.as_mut()).poll_shutdown(cx)
            }
        }
    }
}

/// Where bytes go: a whole link, or the half of one that writes.
pub trait Sink {
    /// Writes some of the slices.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Pushes out what TLS still holds.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether the kernel can send files here, since nothing is encrypted.
    fn sends_files(&self) -> bool;

    /// Has the kernel send some of a file; zero where the file ends before the piece. Only where [`Sink::sends_files`].
    fn poll_send_file(&mut self, cx: &mut Context<'_>, piece: &FilePiece) -> Poll<io::Result<usize>>;
}

impl Sink for Link {
    fn sends_files(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    fn poll_send_file(&mut self, cx: &mut Context<'_>, piece: &FilePiece) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => send_file(tcp, cx, piece),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => write_slices(Pin::new(tcp), cx, slices),
            Self::Tls(tls) => write_slices(Pin::new(tls.as_mut()), cx, slices),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(self), cx)
    }
}

impl Sink for WriteHalf {
    fn sends_files(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    fn poll_send_file(&mut self, cx: &mut Context<'_>, piece: &FilePiece) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(half) => send_file(half.as_ref(), cx, piece),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(half) => write_slices(Pin::new(half), cx, slices),
            Self::Tls(cell) => {
                let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
                write_slices(Pin::new(tls.as_mut()), cx, slices)
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // A TCP socket has nothing to flush.
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(cell) => {
                let Ok(mut tls) = cell.try_borrow_mut() else { return Poll::Ready(Err(contended())) };
                Pin::new(tls.as_mut()).poll_flush(cx)
            }
        }
    }
}

/// One slice goes out by `send`, which costs the kernel less than `writev`.
fn write_slices<W: AsyncWrite>(
    writer: Pin<&mut W>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match slices {
        [one] => writer.poll_write(cx, one),
        several => writer.poll_write_vectored(cx, several),
    }
}

/// One `sendfile`, as soon as the socket takes something.
fn send_file(tcp: &TcpStream, cx: &mut Context<'_>, piece: &FilePiece) -> Poll<io::Result<usize>> {
    let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
    loop {
        ready!(tcp.poll_write_ready(cx))?;
        let mut from = piece.from;
        let sent = tcp.try_io(Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(tcp, &piece.file, Some(&mut from), length)?)
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return Poll::Ready(sent),
        }
    }
}

/// Waits until there may be something to read. Asked before room is made, which would be given back at once where there is
/// nothing.
fn poll_arrival(tcp: &TcpStream, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<()>> {
    let arrival = tcp.poll_read_ready(cx);
    if arrival.is_pending() {
        buffer::give_back(buffer);
    }
    arrival
}

/// Whether a read may go through the worker's scratch buffer.
fn is_small(buffer: &BytesMut, wanted: usize) -> bool {
    buffer.is_empty() && wanted <= HEAD_BYTES
}

/// One read into the buffer's spare capacity.
fn poll_fill<R: AsyncRead>(
    reader: Pin<&mut R>,
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
    wanted: usize,
) -> Poll<io::Result<usize>> {
    if is_small(buffer, wanted) {
        return buffer::poll_small(reader, cx, buffer);
    }
    buffer::prepare(buffer, wanted);
    let read = poll_read_buf(reader, cx, buffer);
    if buffer.is_empty() {
        buffer::give_back(buffer);
    }
    read
}
