//! The octets of a connection: one read brings many frames, one write takes all that are ready.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::handle::Cell;
use super::{H2Error, Reason};
use crate::buffer;

/// A connection's stream of octets.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    buffer: BytesMut,
    /// What was written may still be held by TLS.
    unflushed: bool,
}

/// What goes wrong when two use a connection at once; never done by this crate.
fn contended() -> io::Error {
    io::Error::other("a connection was used by two tasks at once")
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    pub(crate) fn new(io: T) -> Self {
        Self { io, buffer: BytesMut::new(), unflushed: false }
    }

    /// Writes what waits; ready when nothing does.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, cell: &Cell) -> Poll<io::Result<()>> {
        let mut connection = cell.try_borrow_mut().map_err(|_| contended())?;
        let mut wrote = false;
        while !connection.output().is_empty() {
            let output = connection.output();
            let slices = output.slices();
            let written = match &slices[..] {
                // One slice goes out by `send`, which costs the kernel less than `writev`.
                [one] => Pin::new(&mut self.io).poll_write(cx, one),
                several => Pin::new(&mut self.io).poll_write_vectored(cx, several),
            };
            drop(slices);
            match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    output.advance(written);
                    wrote = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if wrote {
                        connection.written();
                    }
                    connection.blocked(Instant::now);
                    return Poll::Pending;
                }
            }
        }
        if wrote {
            connection.written();
            self.unflushed = true;
        }
        drop(connection);
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and has the connection take in what came; false at the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, cell: &Cell) -> Poll<io::Result<bool>> {
        let wanted = {
            let connection = cell.try_borrow().map_err(|_| contended())?;
            if !connection.may_read() {
                return Poll::Pending;
            }
            connection.wanted(&self.buffer)
        };
        buffer::prepare(&mut self.buffer, wanted);
        let read = poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buffer);
        if let Poll::Ready(Ok(1..)) = read {
            let mut connection = cell.try_borrow_mut().map_err(|_| contended())?;
            connection.receive(&mut self.buffer, Instant::now());
        }
        if self.buffer.is_empty() {
            buffer::give_back(&mut self.buffer);
        }
        read.map_ok(|bytes| bytes > 0)
    }

    /// Ends our side of the stream, then reads on until the peer has ended its own: closing with something unread
    /// would have what was said last thrown away.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>, shut: &mut bool) -> Poll<()> {
        if !*shut {
            if ready!(Pin::new(&mut self.io).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            *shut = true;
        }
        loop {
            self.buffer.clear();
            buffer::prepare(&mut self.buffer, 0);
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buffer) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// The fault of a stream of octets that ended.
pub(crate) fn ended(result: io::Result<bool>) -> H2Error {
    if let Err(error) = result {
        tracing::debug!(%error, "an HTTP/2 connection broke");
    }
    H2Error::new(Reason::NO_ERROR, "the stream of octets ended")
}
