//! One direction of a relay.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{RelayEnd, Shortcut, Shortened, scratch};

/// Looks at the bytes of a direction once they are written.
pub(crate) trait Watch {
    /// These went to the writer.
    fn passed(&mut self, bytes: &[u8]);

    /// What the writer is to get beyond that, now that the reader has ended.
    fn final_bytes(&mut self) -> Option<Vec<u8>> {
        None
    }
}

impl Watch for () {
    fn passed(&mut self, _bytes: &[u8]) {}
}

/// Full buffers in a row after which a shortcut is tried.
const BULK: u8 = 4;

/// One direction of a relay; it holds a buffer only while there is something in it.
#[derive(Default)]
pub(crate) struct Direction<W> {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    stage: RelayStage,
    unflushed: bool,
    /// Full buffers in a row.
    full: u8,
    pub(crate) watch: W,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RelayStage {
    #[default]
    Open,
    /// Bytes go past the buffer.
    Short,
    /// The reader has ended; the writer is to be told once everything is written.
    Closing,
    Closed,
}

impl<A: Watch> Direction<A> {
    /// Whether the reader has ended.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.stage, RelayStage::Closing | RelayStage::Closed)
    }

    /// What was read and not yet written.
    pub(crate) fn take_pending(&mut self) -> Vec<u8> {
        let pending = self.pending().to_vec();
        self.release();
        pending
    }

    fn pending(&self) -> &[u8] {
        self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end)).unwrap_or_default()
    }

    fn release(&mut self) {
        (self.start, self.end) = (0, 0);
        if let Some(buffer) = self.buffer.take() {
            scratch::give_back(buffer);
        }
    }

    /// Moves what can be moved.
    pub(crate) fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        shortcut: &mut impl Shortcut<R, W>,
        carried: &mut u64,
    ) -> Poll<Result<(), RelayEnd>> {
        loop {
            if self.start < self.end {
                ready!(self.poll_write(cx, writer, carried))?;
                continue;
            }
            match self.stage {
                RelayStage::Closed => return Poll::Ready(Ok(())),
                RelayStage::Closing => {
                    // The other side may have gone already; then there is nobody left to tell.
                    let _told = ready!(Pin::new(&mut *writer).poll_shutdown(cx));
                    self.stage = RelayStage::Closed;
                    self.release();
                }
                RelayStage::Short => match ready!(shortcut.poll_move(cx, reader, writer, carried))? {
                    Shortened::End => self.stage = RelayStage::Closing,
                    Shortened::Over => self.stage = RelayStage::Open,
                },
                RelayStage::Open => match self.poll_read(cx, reader) {
                    Poll::Ready(Ok(0)) => self.close(),
                    Poll::Ready(Ok(length)) => {
                        self.full = if length == scratch::SIZE { self.full + 1 } else { 0 };
                        if self.full >= BULK {
                            self.full = 0;
                            self.stage =
                                if shortcut_exists(shortcut) { RelayStage::Short } else { RelayStage::Open };
                        }
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayEnd::Reader)),
                    Poll::Pending => return self.poll_flush(cx, writer),
                },
            }
        }
    }

    fn close(&mut self) {
        self.stage = RelayStage::Closing;
        if let Some(bytes) = self.watch.final_bytes()
            && let Some(room) = self.buffer.as_deref_mut().and_then(|buffer| buffer.get_mut(..bytes.len()))
        {
            room.copy_from_slice(&bytes);
            (self.start, self.end) = (0, bytes.len());
        }
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
        carried: &mut u64,
    ) -> Poll<Result<(), RelayEnd>> {
        match ready!(Pin::new(writer).poll_write(cx, self.pending())) {
            Ok(0) | Err(_) => Poll::Ready(Err(RelayEnd::Writer)),
            Ok(written) => {
                let buffer = self.buffer.as_deref().unwrap_or_default();
                self.watch.passed(buffer.get(self.start..self.start + written).unwrap_or_default());
                self.start += written;
                *carried += written as u64;
                self.unflushed = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Nothing more can be read now: what the writer still holds goes out, and the buffer goes back.
    fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<Result<(), RelayEnd>> {
        self.release();
        if self.unflushed {
            match ready!(Pin::new(writer).poll_flush(cx)) {
                Ok(()) => self.unflushed = false,
                Err(_) => return Poll::Ready(Err(RelayEnd::Writer)),
            }
        }
        Poll::Pending
    }

    fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
    ) -> Poll<io::Result<usize>> {
        let buffer = self.buffer.get_or_insert_with(scratch::lend);
        let mut read = ReadBuf::new(buffer);
        match Pin::new(reader).poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) => {
                (self.start, self.end) = (0, read.filled().len());
                Poll::Ready(Ok(self.end))
            }
            other => other.map_ok(|()| 0),
        }
    }
}

impl<W> Drop for Direction<W> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            scratch::give_back(buffer);
        }
    }
}

fn shortcut_exists<R, W, S: Shortcut<R, W>>(_: &S) -> bool {
    S::EXISTS
}
