//! Sends a request: its beginning and parameters, then its body in input records as the body arrives.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use gateway_core::http::body::{Body, BodyError};

use super::record;
use crate::buffer;
use crate::link::Sink;

/// A request that is being sent.
#[derive(Debug)]
pub(super) struct Upload {
    /// Bytes to write before `data`: the beginning of the request, then headers of records.
    head: Vec<u8>,
    /// Number of bytes of `head` that are written.
    written: usize,
    /// The unwritten content of the current record.
    data: Bytes,
    /// The part of the last body frame that belongs to later records.
    rest: Bytes,
    body: Body,
    /// Bytes of the body that are not yet framed.
    left: u64,
    stage: Stage,
    moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sending,
    /// All bytes are framed.
    Flushing,
    Done,
}

/// Which side stopped the sending.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Reading the body failed.
    Body(BodyError),
    /// Writing to the target failed.
    Peer(io::Error),
}

impl Upload {
    /// An upload that sends `head`, then `length` bytes of `body`.
    pub(super) fn new(head: Vec<u8>, body: Body, length: u64) -> Self {
        let (data, rest) = (Bytes::new(), Bytes::new());
        let mut upload =
            Self { head, written: 0, data, rest, body, left: length, stage: Stage::Sending, moved: false };
        if length == 0 {
            upload.end();
        }
        upload
    }

    /// Whether everything is sent.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether bytes were written since the last call.
    pub(super) fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Sends as much as possible now; ready when everything is sent.
    pub(super) fn poll_send<S: Sink>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut S,
    ) -> Poll<Result<(), Stopped>> {
        loop {
            // If the first piece of the body is available, it is sent in the same write as the beginning.
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

    /// Frames the next piece of the body. Returns false if none is available yet.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Result<bool, Stopped> {
        while self.rest.is_empty() {
            let Poll::Ready(frame) = self.body.poll_next(cx) else { return Ok(false) };
            // CGI has no trailers.
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
