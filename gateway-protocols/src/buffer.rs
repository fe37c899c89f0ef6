//! Buffers, lent while something arrives or leaves: an idle connection has none.
//!
//! Small messages are read into a worker's one scratch buffer, and what came is copied into memory of its size: an exchange
//! that waits for its target holds its head and no room beside it. Large ones are read into buffers whose bytes are handed
//! on as slices that share them (pieces of bodies); once those are gone a buffer can be used again. Each worker keeps a few
//! of both sizes, so that neither memory nor the allocator is asked for every message.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of a buffer for a message's head.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
/// Bytes of a buffer for a body of which more is known to come: 64 KiB with the head before them, since such pieces are
/// common.
pub(crate) const BODY_BYTES: usize = 80 << 10;
/// With less room than this left, a read would take many small pieces.
const MIN_ROOM: usize = 2 << 10;
/// Buffers a worker keeps of each size.
const MAX_SMALL: usize = 256;
const MAX_LARGE: usize = 16;
/// Buffers a worker remembers until their slices are gone.
const MAX_LENT: usize = 24;
/// How many of them are looked at at a time.
const LOOKS: usize = 4;
/// Bytes of the buffer that small messages are read into.
const SCRATCH_BYTES: usize = 16 << 10;
/// Buffers for heads on their way out that a worker keeps, and the bytes of the largest.
const MAX_OUTGOING: usize = 64;
const MAX_OUTGOING_BYTES: usize = 4 << 10;
/// Bytes of such a buffer to begin with.
const OUTGOING_BYTES: usize = 512;

#[derive(Default)]
struct BufferPool {
    small: Vec<BytesMut>,
    large: Vec<BytesMut>,
    /// Given back while slices of them were still in use, whatever their size.
    lent: VecDeque<BytesMut>,
    /// Which of the small ones was looked at last.
    looked_at: usize,
}

impl BufferPool {
    /// Puts buffers that have come back where those of their size are kept. One that is still in use, such as that of a head whose
    /// exchange goes on, does not keep the others from it.
    fn collect_returned(&mut self) {
        for _ in 0..LOOKS.min(self.lent.len()) {
            let Some(mut buffer) = self.lent.pop_front() else { return };
            // Any room before what is left of it can be had only when no slice is in use.
            if !buffer.try_reclaim(buffer.capacity() + 1) {
                self.lent.push_back(buffer);
            // That got back what was asked for, which may be less than there is.
            } else if buffer.try_reclaim(BODY_BYTES) {
                self.keep_large(buffer);
            } else if buffer.try_reclaim(HEAD_BYTES) {
                self.keep_small(buffer);
            }
        }
    }

    fn keep_large(&mut self, buffer: BytesMut) {
        if self.large.len() < MAX_LARGE {
            self.large.push(buffer);
        }
    }

    fn keep_small(&mut self, buffer: BytesMut) {
        if self.small.len() < MAX_SMALL {
            self.small.push(buffer);
        }
    }

    /// Remembers a buffer whose slices are in use. Beyond the limit the last slice frees it.
    fn remember(&mut self, buffer: BytesMut) {
        self.collect_returned();
        if self.lent.len() >= MAX_LENT {
            drop(self.lent.pop_front());
        }
        self.lent.push_back(buffer);
    }

    /// Finds large buffers among the small ones: with a small one's room behind slices that are in use they look like those.
    fn collect_large(&mut self) {
        for _ in 0..LOOKS.min(self.small.len()) {
            self.looked_at = (self.looked_at + 1) % self.small.len();
            if self.small[self.looked_at].try_reclaim(BODY_BYTES) {
                let buffer = self.small.swap_remove(self.looked_at);
                return self.keep_large(buffer);
            }
        }
    }

    fn take(&mut self, size: usize) -> Option<BytesMut> {
        if size != BODY_BYTES {
            if self.small.is_empty() {
                self.collect_returned();
            }
            return self.small.pop();
        }
        if self.large.is_empty() {
            self.collect_returned();
            self.collect_large();
        }
        self.large.pop()
    }
}

thread_local! {
    static KEPT: RefCell<BufferPool> = RefCell::default();
    static SCRATCH: RefCell<[u8; SCRATCH_BYTES]> = const { RefCell::new([0; SCRATCH_BYTES]) };
    static OUTGOING: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Reads once into the scratch buffer, and what came into `buffer`, which is empty; `Ok(0)` is the end of the stream.
pub(crate) fn poll_small<R: AsyncRead>(
    reader: Pin<&mut R>,
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    give_back(buffer);
    SCRATCH.with_borrow_mut(|scratch| {
        let mut read = ReadBuf::new(scratch);
        ready!(reader.poll_read(cx, &mut read))?;
        let came = read.filled();
        if !came.is_empty() {
            *buffer = BytesMut::from(came);
        }
        Poll::Ready(Ok(came.len()))
    })
}

/// An empty buffer for a head to be written into.
pub(crate) fn outgoing() -> Vec<u8> {
    OUTGOING.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(OUTGOING_BYTES))
}

/// Takes such a buffer back.
pub(crate) fn sent(mut buffer: Vec<u8>) {
    buffer.clear();
    OUTGOING.with_borrow_mut(|kept| {
        if kept.len() < MAX_OUTGOING && (1..=MAX_OUTGOING_BYTES).contains(&buffer.capacity()) {
            kept.push(buffer);
        }
    });
}

/// The room for a connection's next message, given what the last took with its head: who sends large messages mostly
/// sends more of them, and a read that is too small costs another read and another write.
pub(crate) fn room_after(message: u64) -> usize {
    if message > (HEAD_BYTES - MIN_ROOM) as u64 { BODY_BYTES } else { HEAD_BYTES }
}

/// Makes room for a read that may bring `wanted` bytes.
pub(crate) fn prepare(buffer: &mut BytesMut, wanted: usize) {
    let (size, enough) = match wanted > HEAD_BYTES {
        true => (BODY_BYTES, BODY_BYTES / 4),
        false => (HEAD_BYTES, MIN_ROOM),
    };
    if buffer.capacity() - buffer.len() >= enough {
        return;
    }
    give_back(buffer);
    if buffer.capacity() == 0
        && let Some(kept) = KEPT.with_borrow_mut(|kept| kept.take(size))
    {
        *buffer = kept;
        return;
    }
    buffer.reserve(size);
}

/// Takes an empty buffer back, also one that only keeps the memory of a message from others.
pub(crate) fn give_back(buffer: &mut BytesMut) {
    if !buffer.is_empty() {
        return;
    }
    let mut buffer = std::mem::take(buffer);
    if buffer.capacity() == 0 {
        return;
    }
    // Works only when no slice of it is left.
    KEPT.with_borrow_mut(|kept| {
        if buffer.try_reclaim(BODY_BYTES) {
            kept.keep_large(buffer);
        } else if buffer.capacity() <= HEAD_BYTES && buffer.try_reclaim(HEAD_BYTES) {
            kept.keep_small(buffer);
        } else {
            kept.remember(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_once_their_slices_are_gone() {
        let mut buffer = BytesMut::new();
        prepare(&mut buffer, 1);
        let first = buffer.as_ptr();
        buffer.extend_from_slice(b"head");
        let slice = buffer.split().freeze();
        give_back(&mut buffer);
        let mut other = BytesMut::new();
        prepare(&mut other, 1);
        assert_ne!(other.as_ptr(), first, "a slice still shares it");
        drop(slice);
        let second = other.as_ptr();
        give_back(&mut other);
        prepare(&mut buffer, 1);
        assert_eq!(buffer.as_ptr(), second);
    }

    #[test]
    fn buffers_given_back_too_early_are_used_once_their_slices_are_gone() {
        for wanted in [HEAD_BYTES, BODY_BYTES] {
            let mut buffer = BytesMut::new();
            prepare(&mut buffer, wanted);
            let first = buffer.as_ptr();
            buffer.extend_from_slice(b"head");
            let slice = buffer.split().freeze();
            give_back(&mut buffer);
            drop(slice);
            prepare(&mut buffer, wanted);
            assert_eq!(buffer.as_ptr(), first);
            assert!(buffer.capacity() >= wanted);
        }
    }

    #[test]
    fn full_buffers_are_used_again() {
        let mut slice = bytes::Bytes::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4 * MAX_LENT {
            let mut buffer = BytesMut::new();
            prepare(&mut buffer, BODY_BYTES);
            seen.insert(buffer.as_ptr() as usize);
            buffer.resize(buffer.capacity(), 7);
            // The slice before is gone once this one is there.
            slice = buffer.split().freeze();
            give_back(&mut buffer);
        }
        assert!(seen.len() <= 3, "{} buffers for one body", seen.len());
        drop(slice);
        // Memory of a few bytes keeps none of the others from their use.
        for _ in 0..MAX_LENT {
            let mut few = BytesMut::with_capacity(64);
            few.extend_from_slice(b"few");
            let slice = few.split().freeze();
            give_back(&mut few);
            drop(slice);
        }
        KEPT.with_borrow(|kept| assert!(kept.lent.len() <= 1, "{} lent", kept.lent.len()));
    }

    /// The answer's head goes on being used while its body passes.
    #[test]
    fn a_buffer_that_stays_in_use_keeps_no_other_from_being_used_again() {
        let mut held = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut slice = bytes::Bytes::new();
        for round in 0..4 * MAX_LENT {
            let mut buffer = BytesMut::new();
            prepare(&mut buffer, BODY_BYTES);
            seen.insert(buffer.as_ptr() as usize);
            // Some leave room, some are full.
            let bytes = if round % 3 == 0 { buffer.capacity() - 3 * MIN_ROOM } else { buffer.capacity() };
            buffer.resize(bytes, 7);
            slice = buffer.split().freeze();
            if round == 0 || round == 5 {
                held.push(slice.clone());
            }
            give_back(&mut buffer);
        }
        assert!(seen.len() <= 5, "{} buffers for one body", seen.len());
        drop((held, slice));
    }

    /// A slow target's pieces may leave as much room as a small buffer has.
    #[test]
    fn large_buffers_are_not_kept_as_small_ones() {
        let mut seen = std::collections::BTreeSet::new();
        let mut held = VecDeque::new();
        let mut buffer = BytesMut::new();
        for _ in 0..500 {
            prepare(&mut buffer, BODY_BYTES);
            let is_last = buffer.capacity() < 4 * HEAD_BYTES;
            buffer.resize(if is_last { buffer.capacity() - HEAD_BYTES } else { HEAD_BYTES }, 7);
            let piece = buffer.split().freeze();
            seen.insert(piece.as_ptr() as usize / BODY_BYTES);
            held.push_back(piece);
            if held.len() > 3 {
                held.pop_front();
            }
        }
        assert!(seen.len() < 12, "{} places of memory for one body", seen.len());
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut slices = Vec::new();
        for _ in 0..2 * MAX_LENT {
            for wanted in [HEAD_BYTES, BODY_BYTES] {
                let mut buffer = BytesMut::new();
                prepare(&mut buffer, wanted);
                buffer.extend_from_slice(b"head");
                slices.push(buffer.split().freeze());
                give_back(&mut buffer);
            }
        }
        KEPT.with_borrow(|kept| assert_eq!(kept.lent.len(), MAX_LENT));
    }

    #[test]
    fn large_messages_get_large_buffers() {
        assert_eq!((room_after(0), room_after(64)), (HEAD_BYTES, HEAD_BYTES));
        assert_eq!((room_after(16 << 10), room_after(u64::MAX)), (BODY_BYTES, BODY_BYTES));
    }

    #[test]
    fn there_is_room_for_what_is_wanted() {
        let mut buffer = BytesMut::new();
        prepare(&mut buffer, 100_000);
        assert!(buffer.capacity() >= BODY_BYTES);
        buffer.extend_from_slice(&vec![0; buffer.capacity() - 10]);
        prepare(&mut buffer, 100);
        assert!(buffer.capacity() - buffer.len() >= MIN_ROOM);
    }
}
