//! An answer that is stored while its client gets it.
//!
//! A task of its own reads it, at most as much as may be stored, so that a slow client holds up nobody and one that leaves ends
//! nothing. When there turns out to be more, the client goes on with the rest as it comes from the target.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the task tells the client's side. There are never more bytes in it than may be stored.
enum RecordedPiece {
    Data(Bytes),
    End(Option<HeaderMap>),
    /// All of it from the beginning, whatever was read of it.
    Again(Body),
}

/// The side of the task that reads.
pub(super) struct RecordingReader {
    body: Body,
    pieces: UnboundedSender<RecordedPiece>,
    is_over: Arc<AtomicBool>,
}

/// What was read.
pub(super) enum Read {
    /// All of it.
    Whole(Bytes, Option<HeaderMap>),
    /// It is longer than may be stored, or there is no room now; the client has the rest.
    TooLong,
    /// It was cut off.
    CutOff,
}

/// Two sides of a body: the one that reads, and the one for the client.
pub(super) fn split(body: Body) -> (RecordingReader, Body) {
    let (pieces, received) = unbounded_channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let left = body.exact_length();
    let (teller, silent) = (pieces.clone(), is_over.clone());
    let body = body.tee(move |piece| {
        if let Some(piece) = piece.filter(|_| !silent.load(Relaxed)) {
            // The client may be gone.
            drop(teller.send(RecordedPiece::Data(piece.clone())));
        }
    });
    let client = Following { received, got: 0, left, again: None, has_ended: false };
    (RecordingReader { body, pieces, is_over }, Body::stream(client))
}

impl RecordingReader {
    /// Reads at most so many bytes.
    pub(super) async fn read(mut self, limit: u64) -> Read {
        match self.body.collect(limit).await {
            Ok((bytes, trailers)) => {
                drop(self.pieces.send(RecordedPiece::End(trailers.clone())));
                Read::Whole(bytes, trailers)
            }
            Err(BodyError::TooLarge { .. } | BodyError::NoRoom) => {
                self.is_over.store(true, Relaxed);
                drop(self.pieces.send(RecordedPiece::Again(self.body)));
                Read::TooLong
            }
            Err(_) => Read::CutOff,
        }
    }
}

/// The client's side.
struct Following {
    received: UnboundedReceiver<RecordedPiece>,
    /// Bytes the client has got of what was read.
    got: usize,
    /// Bytes to come, where that is known.
    left: Option<u64>,
    again: Option<Body>,
    has_ended: bool,
}

impl Following {
    fn data(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl HttpBody for Following {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(again) = &mut this.again {
                let frame = match ready!(again.poll_next(cx)) {
                    Some(Ok(frame)) => frame,
                    other => return Poll::Ready(other),
                };
                let Some(data) = frame.data_ref() else { return Poll::Ready(Some(Ok(frame))) };
                let known = this.got.min(data.len());
                this.got -= known;
                let new = data.slice(known..);
                if new.is_empty() {
                    continue;
                }
                return this.data(new);
            }
            if this.has_ended {
                return Poll::Ready(None);
            }
            match ready!(this.received.poll_recv(cx)) {
                Some(RecordedPiece::Data(data)) => {
                    this.got += data.len();
                    return this.data(data);
                }
                Some(RecordedPiece::End(trailers)) => {
                    this.has_ended = true;
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
                Some(RecordedPiece::Again(body)) => this.again = Some(body),
                None => return Poll::Ready(Some(Err(BodyError::Incomplete))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.again {
            Some(body) => self.got == 0 && body.is_empty(),
            None => self.has_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
