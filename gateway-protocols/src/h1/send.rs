//! Sending a message: its head, then its body as it comes, framed.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use gateway_core::http::body::{Body, BodyError, FilePiece};

use super::write::{self, Frame};
use crate::buffer;
use crate::link::Sink;

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Sender {
    /// What goes first: the head, then size lines.
    head: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    data: Bytes,
    tail: &'static [u8],
    body: Body,
    frame: Frame,
    /// Bytes of a body with a length that are still to come.
    left: u64,
    stage: SendStage,
    /// Body bytes taken from the body.
    pub(crate) sent: u64,
    moved: bool,
    /// What the kernel is to send of a file before anything else of the body.
    piece: Option<FilePiece>,
    /// Files can't be sent by the kernel from where this one is.
    reads_files: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendStage {
    Sending,
    /// Everything is written; TLS may hold some of it.
    Flushing,
    Done,
}

/// Which side stopped the sending.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The body could not be read.
    Body(BodyError),
    /// The peer takes no more.
    Peer(io::Error),
}

/// Bodies up to this size are copied behind the head, so that one plain write sends both.
const COPY_BYTES: usize = 2 << 10;
/// After so much of a file it is another connection's turn: a client that takes it as fast as the kernel sends it would keep the
/// worker for as long as the file is.
const TURN_BYTES: u64 = 2 << 20;

impl Sender {
    /// `head` is sent first, then `body` in `frame`.
    pub(crate) fn new(mut head: Vec<u8>, mut body: Body, frame: Frame) -> Self {
        let (mut left, mut stage) = (0, SendStage::Sending);
        let (mut data, mut sent) = (Bytes::new(), 0);
        match frame {
            Frame::Bare => stage = SendStage::Flushing,
            Frame::Length(length) => {
                left = length;
                if let Some(bytes) = body.take_full() {
                    sent = bytes.len() as u64;
                    stage = SendStage::Flushing;
                    match bytes.len() <= COPY_BYTES {
                        true => head.extend_from_slice(&bytes),
                        false => data = bytes,
                    }
                } else if left == 0 {
                    stage = SendStage::Flushing;
                }
            }
            Frame::Chunked | Frame::UntilClose => {}
        }
        let (piece, reads_files) = (None, false);
        Self {
            head,
            written: 0,
            data,
            tail: b"",
            body,
            frame,
            left,
            stage,
            sent,
            moved: false,
            piece,
            reads_files,
        }
    }

    /// Whether nothing has been written yet: all of a head of this length is still here.
    pub(crate) fn is_untouched(&self, head: usize) -> bool {
        self.written == 0 && self.sent == 0 && self.head.len() >= head
    }

    /// Whether everything is on its way.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == SendStage::Done
    }

    /// Whether framed bytes wait for the peer to take them.
    pub(crate) fn is_blocked(&self) -> bool {
        !(self.written == self.head.len() && self.data.is_empty() && self.tail.is_empty())
            || self.stage == SendStage::Flushing
            || self.piece.is_some()
    }

    /// Whether bytes moved since last asked.
    pub(crate) fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Sends what can be sent now; ready when all of it is.
    pub(crate) fn poll_send<S: Sink>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut S,
    ) -> Poll<Result<(), Stopped>> {
        let before = self.sent;
        loop {
            // The head waits for the first piece of the body where that is at hand: one write for both.
            let mut starved = false;
            if self.stage == SendStage::Sending && self.data.is_empty() && self.tail.is_empty() {
                if sink.sends_files() && self.has_piece() {
                    ready!(self.poll_write(cx, sink)).map_err(Stopped::Peer)?;
                    if self.sent - before >= TURN_BYTES {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    ready!(self.poll_send_file(cx, sink))?;
                    continue;
                }
                match self.body.poll_next(cx) {
                    Poll::Ready(frame) => {
                        self.take(frame.transpose().map_err(Stopped::Body)?).map_err(Stopped::Body)?;
                    }
                    Poll::Pending => starved = true,
                }
            }
            ready!(self.poll_write(cx, sink)).map_err(Stopped::Peer)?;
            match self.stage {
                SendStage::Done => return Poll::Ready(Ok(())),
                SendStage::Flushing => {
                    ready!(sink.poll_flush(cx)).map_err(Stopped::Peer)?;
                    self.stage = SendStage::Done;
                    buffer::sent(std::mem::take(&mut self.head));
                }
                SendStage::Sending if starved => {
                    // What was written must not wait in TLS while the body is slow.
                    let _flushed = sink.poll_flush(cx).map_err(Stopped::Peer)?;
                    return Poll::Pending;
                }
                SendStage::Sending => {}
            }
        }
    }

    /// Whether a piece of a file comes next that the kernel can send.
    fn has_piece(&mut self) -> bool {
        if self.piece.is_none() && !self.reads_files && matches!(self.frame, Frame::Length(_)) {
            self.piece = self.body.cached_piece().filter(|piece| piece.length <= self.left);
        }
        self.piece.is_some()
    }

    /// Has the kernel send a piece of a file.
    fn poll_send_file<S: Sink>(&mut self, cx: &mut Context<'_>, sink: &mut S) -> Poll<Result<(), Stopped>> {
        let Some(piece) = &mut self.piece else { return Poll::Ready(Ok(())) };
        match ready!(sink.poll_send_file(cx, piece)) {
            // The file has become shorter than it was said to be.
            Ok(0) => return Poll::Ready(Err(Stopped::Body(BodyError::Incomplete))),
            Ok(sent) => {
                let sent = sent as u64;
                piece.from += sent;
                piece.length = piece.length.saturating_sub(sent);
                if piece.length == 0 {
                    self.piece = None;
                }
                self.moved = true;
                self.body.advance(sent);
                self.sent += sent;
                self.left = self.left.saturating_sub(sent);
                if self.left == 0 && self.body.is_empty() {
                    self.stage = SendStage::Flushing;
                }
            }
            // Whoever is at fault, the file or the peer, says so where the file is read and written.
            Err(_) => (self.piece, self.reads_files) = (None, true),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write<S: Sink>(&mut self, cx: &mut Context<'_>, sink: &mut S) -> Poll<io::Result<()>> {
        loop {
            let parts = [&self.head[self.written..], &self.data[..], self.tail];
            let mut slices = [IoSlice::new(b""); 3];
            let mut filled = 0;
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                slices[filled] = IoSlice::new(part);
                filled += 1;
            }
            if filled == 0 {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(sink.poll_write(cx, &slices[..filled]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.moved = true;
            self.advance(written);
        }
    }

    fn advance(&mut self, written: usize) {
        let of_head = written.min(self.head.len() - self.written);
        self.written += of_head;
        if self.written == self.head.len() {
            self.written = 0;
            self.head.clear();
        }
        let of_data = (written - of_head).min(self.data.len());
        self.data.advance(of_data);
        self.tail = self.tail.get(written - of_head - of_data..).unwrap_or_default();
    }

    /// Frames the next piece of the body.
    fn take(&mut self, frame: Option<http_body::Frame<Bytes>>) -> Result<(), BodyError> {
        let trailers = match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) if data.is_empty() => return Ok(()),
            Some(Ok(data)) => return self.take_data(data),
            Some(Err(frame)) => frame.into_trailers().ok(),
            None => None,
        };
        self.stage = SendStage::Flushing;
        match self.frame {
            Frame::Chunked => write::last_chunk(&mut self.head, trailers.as_ref()),
            Frame::Length(_) if self.left > 0 => return Err(BodyError::Incomplete),
            _ => {}
        }
        Ok(())
    }

    fn take_data(&mut self, data: Bytes) -> Result<(), BodyError> {
        self.sent += data.len() as u64;
        match self.frame {
            Frame::Chunked => {
                write::chunk_size(&mut self.head, data.len());
                self.tail = b"\r\n";
            }
            Frame::Length(_) => {
                let Some(left) = self.left.checked_sub(data.len() as u64) else {
                    return Err(BodyError::Framing("more bytes than the length says"));
                };
                self.left = left;
            }
            Frame::Bare | Frame::UntilClose => {}
        }
        self.data = data;
        // The end of the body is often known with its last piece; one write then sends everything.
        if self.body.is_empty() {
            match self.frame {
                Frame::Chunked => {
                    self.tail = b"\r\n0\r\n\r\n";
                    self.stage = SendStage::Flushing;
                }
                Frame::Length(_) if self.left == 0 => self.stage = SendStage::Flushing,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
