//! Sending a request: its beginning and parameters, then its body in records of input as it comes.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use gateway_core::http::body::{Body, BodyError};

use super::record;
use crate::buffer;
use crate::link::Sink;

/// A request on its way out.
#[derive(Debug)]
pub(super) struct Upload {
    /// Written first: the beginning of the request, then headers of records.
    head: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
    /// The content of the record under way.
    data: Bytes,
    /// What of the body's last piece is for further records.
    rest: Bytes,
    body: Body,
    /// Bytes of the body that are still to come.
    left: u64,
    stage: Stage,
    moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sending,
    /// Everything is framed.
    Flushing,
    Done,
}

/// Which side stopped the sending.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The body could not be read.
    Body(BodyError),
    /// The target takes no more.
    Peer(io::Error),
}

impl Upload {
    /// `head` goes first, then `length` bytes of `body`.
    pub(super) fn new(head: Vec<u8>, body: Body, length: u64) -> Self {
        let (data, rest) = (Bytes::new(), Bytes::new());
        let mut upload =
            Self { head, written: 0, data, rest, body, left: length, stage: Stage::Sending, moved: false };
        if length == 0 {
            upload.end();
        }
        upload
    }

    /// Whether everything is on its way.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether bytes moved since last asked.
    pub(super) fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Sends what can be sent now; ready when all of it is.
    pub(super) fn poll_send<S: Sink>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut S,
    ) -> Poll<Result<(), Stopped>> {
        loop {
            // The beginning waits for the first piece of the body where that is at hand: one write for both.
            let starved = self.stage == Stage::Sending && self.data.is_empty() && !self.poll_frame(cx)?;
            ready!(self.poll_write(cx, sink)).map_err(Stopped::Peer)?;
            match self.stage {
                Stage::Done => return Poll::Ready(Ok(())),
                Stage::Flushing => {
                    ready!(sink.poll_flush(cx)).map_err(Stopped::Peer)?;
                    self.stage = Stage::Done;
                    buffer::sent(std::mem::take(&mut self.head));
                }
                Stage::Sending if starved => return Poll::Pending,
                Stage::Sending => {}
            }
        }
    }

    /// Frames the next piece of the body; false where none is there yet.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Result<bool, Stopped> {
        while self.rest.is_empty() {
            let Poll::Ready(frame) = self.body.poll_next(cx) else { return Ok(false) };
            // Trailers have no place in CGI.
            match frame.transpose().map_err(Stopped::Body)?.map(http_body::Frame::into_data) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(_)) => {}
                None if self.left > 0 => return Err(Stopped::Body(BodyError::Incomplete)),
                None => {
                    self.end();
                    return Ok(true);
                }
            }
        }
        let data = self.rest.split_to(self.rest.len().min(record::MAX_CONTENT));
        let Some(left) = self.left.checked_sub(data.len() as u64) else {
            return Err(Stopped::Body(BodyError::Framing("more bytes than the length says")));
        };
        self.left = left;
        record::stdin(&mut self.head, data.len());
        self.data = data;
        Ok(true)
    }

    fn end(&mut self) {
        record::stdin(&mut self.head, 0);
        self.stage = Stage::Flushing;
    }

    fn poll_write<S: Sink>(&mut self, cx: &mut Context<'_>, sink: &mut S) -> Poll<io::Result<()>> {
        loop {
            let head = self.head.get(self.written..).unwrap_or_default();
            let slices = [IoSlice::new(head), IoSlice::new(&self.data)];
            let slices = match (head.is_empty(), self.data.is_empty()) {
                (true, true) => return Poll::Ready(Ok(())),
                (false, true) => &slices[..1],
                (true, false) => &slices[1..],
                (false, false) => &slices[..],
            };
            let written = ready!(sink.poll_write(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.moved = true;
            let of_head = written.min(head.len());
            self.written += of_head;
            if self.written == self.head.len() {
                self.written = 0;
                self.head.clear();
            }
            self.data.advance((written - of_head).min(self.data.len()));
        }
    }
}
