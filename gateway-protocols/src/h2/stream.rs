//! Streams and the table of them.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use slab::Slab;
use tokio::time::Instant;

use super::flow::Inflow;
use super::{Reason, Role};

/// A piece smaller than this, when it has to wait, is joined with the next: small pieces keep whole read buffers alive.
const SMALL_PIECE: usize = 1 << 10;

/// Why a stream came to an early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    /// The peer reset it.
    #[error("the peer reset the stream: {0}")]
    Reset(Reason),
    /// We had to reset it.
    #[error("the stream was reset: {0}")]
    Refused(Reason),
    /// The peer goes away and says that it has not looked at the stream (RFC 9113 §6.8).
    #[error("the peer went away before the stream")]
    Unprocessed,
    /// The connection is gone; what was said about it, if anything.
    #[error("the connection ended: {0}")]
    Lost(Reason),
    /// The connection was given up because the peer did not do this in time.
    #[error("the connection was given up: {0}")]
    TimedOut(&'static str),
    /// Nothing moved for too long.
    #[error("the stream stalled")]
    Late,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// The peer has not ended its side.
    pub(crate) receiving: bool,
    /// We have not ended our side.
    pub(crate) sending: bool,
    pub(crate) fate: Option<StreamError>,
    /// Whether it counts against the limit of streams at a time.
    pub(crate) counted: bool,
    /// The final head has come (to clients) or gone out (from servers).
    pub(crate) answered: bool,
    /// A client's response, until it is taken.
    pub(crate) head: Option<Response<()>>,
    /// Informational responses that came before it.
    pub(crate) interims: VecDeque<Response<()>>,
    pub(crate) pieces: Pieces,
    pub(crate) trailers: Option<HeaderMap>,
    /// Octets its content-length still promises.
    pub(crate) length: Option<u64>,
    /// Whether a response has no body whatever its fields say: it answers HEAD.
    pub(crate) bodiless: bool,
    pub(crate) inflow: Inflow,
    pub(crate) window: i64,
    pub(crate) reader: StreamWaiter,
    pub(crate) writer: StreamWaiter,
    /// Whoever wants to know of its end, besides.
    pub(crate) watcher: Option<Waker>,
    /// Those who hold it.
    pub(crate) handles: u32,
    /// Whether it stands in the queue of those who wait to send.
    pub(crate) queued: bool,
    /// Nobody reads it any more.
    pub(crate) deaf: bool,
    /// It is answered in full and nobody holds it: what still comes of its request is discarded.
    pub(crate) discard: Option<Discard>,
}

/// How much more of a request is read and forgotten, and until when.
#[derive(Debug)]
pub(crate) struct Discard {
    pub(crate) octets: usize,
    pub(crate) until: Instant,
}

/// One who waits for a stream, and until when.
#[derive(Debug, Default)]
pub(crate) struct StreamWaiter {
    waker: Option<Waker>,
    pub(crate) until: Option<Instant>,
    /// How long it waits where the other direction counts as well; zero where it does not.
    pub(crate) idle: Duration,
    /// It has waited too long.
    pub(crate) late: bool,
}

impl StreamWaiter {
    /// Wants to be woken.
    pub(crate) fn register(&mut self, cx: &Context<'_>) {
        register(&mut self.waker, cx);
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Something moved.
    pub(crate) fn moved(&mut self) {
        self.until = None;
    }

    /// Data was sent: a stream on which one side sends and the other one is silent is not idle.
    pub(crate) fn moved_opposite(&mut self) {
        if self.until.is_some() && !self.idle.is_zero() {
            self.until = Some(Instant::now() + self.idle);
        }
    }
}

/// Keeps a waker, unless it is the one there already.
pub(crate) fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *slot = Some(cx.waker().clone()),
    }
}

impl Stream {
    pub(crate) fn new(id: u32, inflow: Inflow, window: i64) -> Self {
        Self {
            id,
            receiving: true,
            sending: true,
            fate: None,
            counted: true,
            answered: false,
            head: None,
            interims: VecDeque::new(),
            pieces: Pieces::default(),
            trailers: None,
            length: None,
            bodiless: false,
            inflow,
            window,
            reader: StreamWaiter::default(),
            writer: StreamWaiter::default(),
            watcher: None,
            handles: 1,
            queued: false,
            deaf: false,
            discard: None,
        }
    }

    /// Whether no more frames of it go either way.
    pub(crate) fn is_closed(&self) -> bool {
        self.fate.is_some() || !(self.receiving || self.sending)
    }

    /// Tells everyone who waits.
    pub(crate) fn wake(&self) {
        self.reader.wake();
        self.writer.wake();
        if let Some(waker) = &self.watcher {
            waker.wake_by_ref();
        }
    }
}

/// Pieces of a body that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: Bytes,
    rest: VecDeque<Bytes>,
    bytes: usize,
}

impl Pieces {
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len();
        let last = match self.rest.back_mut() {
            Some(last) => last,
            None if self.first.is_empty() => {
                self.first = data;
                return;
            }
            None => &mut self.first,
        };
        if last.len() < SMALL_PIECE && data.len() < SMALL_PIECE {
            let mut joined = BytesMut::with_capacity(last.len() + data.len());
            joined.extend_from_slice(last);
            joined.extend_from_slice(&data);
            *last = joined.freeze();
        } else {
            self.rest.push_back(data);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        if self.first.is_empty() {
            return None;
        }
        let next = self.rest.pop_front().unwrap_or_default();
        let data = std::mem::replace(&mut self.first, next);
        self.bytes -= data.len();
        Some(data)
    }

    /// Everything there is, when it is one piece or nothing.
    pub(crate) fn is_single(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// All streams of a connection that anybody still cares for.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slab: Slab<Stream>,
    by_id: HashMap<u32, usize, foldhash::fast::RandomState>,
    /// Those that count against the limit.
    pub(crate) active: usize,
    /// The last few we reset: frames of them may still be on their way (RFC 9113 §5.1).
    reset: VecDeque<u32>,
}

/// Streams we reset that are remembered.
const MAX_REMEMBERED: usize = 256;

impl Streams {
    pub(crate) fn insert(&mut self, stream: Stream) -> usize {
        let id = stream.id;
        self.active += usize::from(stream.counted);
        let key = self.slab.insert(stream);
        self.by_id.insert(id, key);
        key
    }

    pub(crate) fn remove(&mut self, key: usize) {
        if let Some(stream) = self.slab.try_remove(key) {
            self.active -= usize::from(stream.counted);
            self.by_id.remove(&stream.id);
        }
    }

    pub(crate) fn key(&self, id: u32) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn of(&mut self, key: usize) -> Option<&mut Stream> {
        self.slab.get_mut(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Stream)> {
        self.slab.iter_mut()
    }

    /// Forgets those whose rest would be discarded: nothing more comes.
    pub(crate) fn forget_discarded(&mut self) {
        let discarded = self.slab.iter().filter(|(_, stream)| stream.discard.is_some()).map(|(key, _)| key);
        discarded.collect::<Vec<_>>().into_iter().for_each(|key| self.remove(key));
    }

    /// Remembers that we reset it.
    pub(crate) fn remember(&mut self, id: u32) {
        if self.reset.len() == MAX_REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    /// The peer knows that it is reset: whatever it sends from now on is an error.
    pub(crate) fn forget(&mut self, id: u32) {
        self.reset.retain(|known| *known != id);
    }

    /// Whether we reset it a short while ago.
    pub(crate) fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Gives memory back while nothing happens.
    pub(crate) fn rest(&mut self) {
        if self.slab.is_empty() {
            self.slab = Slab::new();
            self.by_id = HashMap::default();
        }
    }
}

/// Whether a stream with this number is one the peer opens.
pub(crate) fn is_peers(role: Role, id: u32) -> bool {
    (id % 2 == 1) == (role == Role::Server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_that_wait_are_joined() {
        let mut pieces = Pieces::default();
        for number in 0..100_u8 {
            pieces.push(vec![number; 10].into());
        }
        assert_eq!(pieces.bytes(), 1000);
        assert!(pieces.rest.is_empty());
        pieces.push(vec![0; 5000].into());
        pieces.push(vec![1; 5000].into());
        let lengths: Vec<usize> = std::iter::from_fn(|| pieces.pop()).map(|data| data.len()).collect();
        assert_eq!(lengths, [1000, 5000, 5000]);
        assert_eq!(pieces.bytes(), 0);
    }

    #[test]
    fn numbers() {
        assert!(is_peers(Role::Server, 1));
        assert!(!is_peers(Role::Server, 2));
        assert!(is_peers(Role::Client, 2));
    }
}
