//! The end of a WebSocket that neither side asked for: a Close frame to each, at the end of whatever frame is under
//! way, and a while to answer it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{self, Scanner};
use super::{Codes, Switched};
use crate::stream::relay::{Direction, Watch};

/// How long both sides have to end the frame under way and to answer (RFC 6455 §7.1.1 leaves it open).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes read at a time of what nobody is to get any more.
const READ: usize = 2048;

/// One direction of a WebSocket that is being ended.
#[derive(Default)]
pub(super) struct ClosingDirection {
    /// What has been written so far.
    written: Scanner,
    /// Bytes that are ready to be written.
    pending: Vec<u8>,
    /// Bytes that are read and not yet understood; they begin with a frame.
    unread: Vec<u8>,
    /// Whether the reader has ended.
    ended: bool,
    /// What the reader has sent since it is only waited for.
    heard: Scanner,
    close_handshake: Vec<u8>,
    stage: CloseStage,
}

/// Both directions.
#[derive(Default)]
pub(super) struct Halfway {
    pub(super) up: ClosingDirection,
    pub(super) down: ClosingDirection,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum CloseStage {
    /// The frame under way goes on to its end.
    #[default]
    Frame,
    CloseFrame,
    Flush,
    /// The reader's frames go nowhere; its Close is waited for.
    Answer,
    Done,
}

/// Sends a Close frame to both ends and closes them.
pub(super) async fn say(ends: Switched<'_>, halves: Halfway, codes: Codes) {
    let Switched { client, target } = ends;
    let Halfway { mut up, mut down } = halves;
    up.close_handshake = frame::close(codes.target, true);
    down.close_handshake = frame::close(codes.client, false);
    let speaking = poll_fn(|cx| {
        let up = up.poll(cx, client, target);
        let down = down.poll(cx, target, client);
        if up.is_ready() && down.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    });
    if tokio::time::timeout(CLOSE_TIMEOUT, speaking).await.is_err() {
        // Who does not answer in time is cut off.
        return;
    }
    // An end that has gone already needs no Close frame.
    let _closed = tokio::time::timeout(
        CLOSE_TIMEOUT,
        poll_fn(|cx| {
            let client = Pin::new(&mut *client).poll_shutdown(cx).map(drop);
            let target = Pin::new(&mut *target).poll_shutdown(cx).map(drop);
            if client.is_ready() && target.is_ready() { Poll::Ready(()) } else { Poll::Pending }
        }),
    )
    .await;
}

impl ClosingDirection {
    /// What is left of one direction of a tunnel.
    pub(super) fn of_tunnel<W: Watch>(written: Scanner, direction: &mut Direction<W>) -> Self {
        Self { written, pending: direction.take_pending(), ended: direction.is_ended(), ..Self::default() }
    }

    /// What is left of one direction that was read by messages: what is to be written, and what was not understood yet.
    pub(super) fn of_messages(written: Scanner, pending: Vec<u8>, unread: Vec<u8>, ended: bool) -> Self {
        Self { written, pending, unread, ended, ..Self::default() }
    }

    /// Ready once the writer has its Close frame and the reader has sent its own, or either is gone.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<()> {
        loop {
            match self.stage {
                CloseStage::Frame if self.written.is_closed() => self.stage = CloseStage::Flush,
                CloseStage::Frame if self.written.at_boundary() => self.stage = CloseStage::CloseFrame,
                CloseStage::Frame if !self.pending.is_empty() => {
                    let mut ahead = self.written.clone();
                    let most = ahead.take_frame(&self.pending);
                    let piece = self.pending.get(..most).unwrap_or_default();
                    let Some(written) = ready!(write(cx, writer, piece)) else { return self.give_up() };
                    self.written.passed(piece.get(..written).unwrap_or_default());
                    self.pending.drain(..written);
                }
                CloseStage::Frame => {
                    if !ready!(self.poll_read(cx, reader)) {
                        // Half a frame is all the writer will ever get: a Close frame would not be understood.
                        return self.give_up();
                    }
                }
                CloseStage::CloseFrame if self.close_handshake.is_empty() => self.stage = CloseStage::Flush,
                CloseStage::CloseFrame => {
                    let Some(written) = ready!(write(cx, writer, &self.close_handshake)) else {
                        return self.give_up();
                    };
                    self.close_handshake.drain(..written);
                }
                CloseStage::Flush => {
                    if ready!(Pin::new(&mut *writer).poll_flush(cx)).is_err() {
                        return self.give_up();
                    }
                    if self.written.is_closed() {
                        // It was the reader's own Close that went there.
                        return self.give_up();
                    }
                    self.stage = CloseStage::Answer;
                }
                CloseStage::Answer => {
                    self.heard.passed(&std::mem::take(&mut self.pending));
                    self.heard.passed(&std::mem::take(&mut self.unread));
                    if self.heard.is_closed() || !ready!(self.poll_read(cx, reader)) {
                        return self.give_up();
                    }
                }
                CloseStage::Done => return Poll::Ready(()),
            }
        }
    }

    fn give_up(&mut self) -> Poll<()> {
        self.stage = CloseStage::Done;
        Poll::Ready(())
    }

    /// Reads on; false at the end of what there is to read.
    fn poll_read<R: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, reader: &mut R) -> Poll<bool> {
        if self.ended {
            return Poll::Ready(false);
        }
        let mut buffer = [0; READ];
        let mut read = ReadBuf::new(&mut buffer);
        let result = ready!(Pin::new(reader).poll_read(cx, &mut read));
        self.ended = result.is_err() || read.filled().is_empty();
        self.pending.extend_from_slice(read.filled());
        Poll::Ready(!self.ended)
    }
}

/// `None` when the writer takes no more.
fn write<W: AsyncWrite + Unpin>(cx: &mut Context<'_>, writer: &mut W, bytes: &[u8]) -> Poll<Option<usize>> {
    Pin::new(writer).poll_write(cx, bytes).map(|written| written.ok().filter(|written| *written > 0))
}
