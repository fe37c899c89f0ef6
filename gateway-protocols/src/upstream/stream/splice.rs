//! Bytes from one TCP socket to another without a copy: splice(2) through a pipe, while they come in bulk.
//!
//! Few bytes at a time cost more this way than by reading and writing them, so the relay comes here only after several
//! full buffers in a row, and goes back when little comes.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use gateway_core::stream::relay::{RelayEnd, Shortcut, Shortened};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

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

    fn poll_pull(&self, cx: &mut Context<'_>, reader: &TcpStream) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(reader.poll_read_ready(cx))?;
            let pulled = reader.try_io(Interest::READABLE, || {
                Ok(splice(reader, None, &pipe.write, None, PIPE_BYTES, SpliceFlags::NONBLOCK)?)
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

impl Shortcut<TcpStream, TcpStream> for Splice {
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut TcpStream,
        writer: &mut TcpStream,
        carried: &mut u64,
    ) -> Poll<Result<Shortened, RelayEnd>> {
        loop {
            if self.held > 0 {
                match ready!(self.poll_push(cx, writer)) {
                    Ok(pushed @ 1..) => {
                        self.held -= pushed;
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
            if self.pipe.is_none() {
                self.pipe = Pipe::lend();
                if self.pipe.is_none() {
                    return Poll::Ready(Ok(Shortened::Over));
                }
            }
            match self.poll_pull(cx, reader) {
                Poll::Ready(Ok(0)) => {
                    self.release();
                    return Poll::Ready(Ok(Shortened::End));
                }
                Poll::Ready(Ok(pulled)) => {
                    self.held = pulled;
                    self.little = if pulled < SMALL { self.little + 1 } else { 0 };
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayEnd::Reader)),
                Poll::Pending => {
                    // Others may need it while nothing comes here.
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
