//! Bytes from one TCP socket to another without a copy: splice(2) through a pipe, while they come in bulk.
//!
//! Few bytes at a time cost more this way than by reading and writing them, so the relay comes here only after several
//! full buffers in a row, and goes back when little comes. Where bytes are metered, no more is pulled into the pipe than may pass.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use gateway_core::stream::metered::Metered;
use gateway_core::stream::relay::{RelayEnd, Shortcut, Shortened};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::link::Rewound;

/// Bytes a pipe holds, where the system allows it: with the usual 64 KiB most of the gain is lost to turns.
const PIPE_BYTES: usize = 256 << 10;
/// Pipes a worker has open at a time; whoever comes after that copies.
const MAX_PIPES: usize = 64;
/// Pipes a worker keeps while nobody uses them.
const MAX_KEPT: usize = 16;
/// Fewer bytes at a time than this are not bulk.
const SMALL: usize = 16 << 10;
/// Times in a row that little may come.
const MAX_SMALL: u8 = 4;

#[derive(Default)]
struct Pipes {
    kept: Vec<Pipe>,
    open: usize,
}

thread_local! {
    static PIPES: RefCell<Pipes> = RefCell::default();
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// An empty pipe; `None` when there are as many as there may be.
    fn lend() -> Option<Self> {
        PIPES.with_borrow_mut(|pipes| {
            if let Some(pipe) = pipes.kept.pop() {
                return Some(pipe);
            }
            if pipes.open >= MAX_PIPES {
                return None;
            }
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            // A smaller one does its work too.
            let _size = fcntl_setpipe_size(&write, PIPE_BYTES);
            pipes.open += 1;
            Some(Self { read, write })
        })
    }

    /// Takes a pipe back; one with something left in it can't be used again.
    fn give_back(self, empty: bool) {
        // At the thread's end there is nothing left to give it back to.
        let _kept = PIPES.try_with(|pipes| {
            let mut pipes = pipes.borrow_mut();
            if empty && pipes.kept.len() < MAX_KEPT {
                pipes.kept.push(self);
            } else {
                pipes.open -= 1;
            }
        });
    }
}

/// An end that is a socket of its own.
pub(super) trait Socket: Unpin {
    /// The socket to read from; `None` while bytes that were read from it before are still to be read again.
    fn reader(&self) -> Option<&TcpStream>;
    /// The socket to write to.
    fn writer(&self) -> &TcpStream;
}

impl Socket for &mut TcpStream {
    fn reader(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn writer(&self) -> &TcpStream {
        self
    }
}

impl Socket for Rewound<&mut TcpStream> {
    fn reader(&self) -> Option<&TcpStream> {
        self.is_spent().then(|| self.writer())
    }

    fn writer(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// One direction's way through a pipe.
#[derive(Default)]
pub(super) struct Splice {
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: usize,
    /// Times in a row that little came.
    little: u8,
}

impl Splice {
    fn release(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.give_back(self.held == 0);
        }
    }

    fn poll_pull(&self, cx: &mut Context<'_>, reader: &TcpStream, most: usize) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(reader.poll_read_ready(cx))?;
            let pulled = reader.try_io(Interest::READABLE, || {
                Ok(splice(reader, None, &pipe.write, None, most, SpliceFlags::NONBLOCK)?)
            });
            match pulled {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_push(&self, cx: &mut Context<'_>, writer: &TcpStream) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(writer.poll_write_ready(cx))?;
            let pushed = writer.try_io(Interest::WRITABLE, || {
                Ok(splice(&pipe.read, None, writer, None, self.held, SpliceFlags::NONBLOCK)?)
            });
            match pushed {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }
}

impl<R: Socket, W: Socket> Shortcut<Metered<'_, R>, Metered<'_, W>> for Splice {
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut Metered<'_, R>,
        writer: &mut Metered<'_, W>,
        carried: &mut u64,
    ) -> Poll<Result<Shortened, RelayEnd>> {
        loop {
            if self.held > 0 {
                match ready!(self.poll_push(cx, writer.inner.writer())) {
                    Ok(pushed @ 1..) => {
                        self.held -= pushed;
                        writer.wrote(pushed);
                        *carried += pushed as u64;
                    }
                    _ => return Poll::Ready(Err(RelayEnd::Writer)),
                }
                continue;
            }
            if self.little >= MAX_SMALL {
                self.little = 0;
                self.release();
                return Poll::Ready(Ok(Shortened::Over));
            }
            let most = match reader.poll_allow(cx, PIPE_BYTES) {
                Poll::Ready(Ok(most)) => most,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayEnd::Reader)),
                Poll::Pending => {
                    self.release();
                    return Poll::Pending;
                }
            };
            if self.pipe.is_none() {
                self.pipe = Pipe::lend();
                if self.pipe.is_none() {
                    return Poll::Ready(Ok(Shortened::Over));
                }
            }
            let Some(from) = reader.inner.reader() else { return Poll::Ready(Ok(Shortened::Over)) };
            match self.poll_pull(cx, from, most) {
                Poll::Ready(Ok(0)) => {
                    reader.release();
                    self.release();
                    return Poll::Ready(Ok(Shortened::End));
                }
                Poll::Ready(Ok(pulled)) => {
                    reader.spend(pulled);
                    self.held = pulled;
                    // The end of what a meter granted is no sign that little comes.
                    let is_little = pulled < SMALL && pulled < most;
                    self.little = if is_little { self.little + 1 } else { 0 };
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayEnd::Reader)),
                Poll::Pending => {
                    // Others may need both while nothing comes here.
                    reader.release();
                    self.release();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Drop for Splice {
    fn drop(&mut self) {
        self.release();
    }
}
