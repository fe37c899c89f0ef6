//! Read buffers, lent while something arrives: an idle connection has none.
//!
//! A buffer's bytes are handed on as slices that share it (header values, pieces of bodies); once they are gone it can
//! be used again. Each worker keeps a few of both sizes, so that neither memory nor the allocator is asked for every
//! message.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;

/// Bytes of a buffer for a message's head.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
/// Bytes of a buffer for a body of which more is known to come.
pub(crate) const BODY_BYTES: usize = 64 << 10;
/// With less room than this left, a read would take many small pieces.
const MIN_ROOM: usize = 2 << 10;
/// Buffers a worker keeps of each size.
const MAX_SMALL: usize = 256;
const MAX_LARGE: usize = 16;
/// Buffers a worker remembers until their slices are gone.
const MAX_LENT: usize = 64;

#[derive(Default)]
struct Kept {
    small: Vec<BytesMut>,
    large: Vec<BytesMut>,
    /// Given back while slices of them were still in use, the oldest first.
    lent: VecDeque<BytesMut>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Makes room for a read that may bring `wanted` bytes.
pub(crate) fn prepare(buffer: &mut BytesMut, wanted: usize) {
    let size = if wanted > HEAD_BYTES { BODY_BYTES } else { HEAD_BYTES };
    if buffer.capacity() == 0
        && let Some(kept) = KEPT.with_borrow_mut(|kept| match size {
            BODY_BYTES => kept.large.pop(),
            _ => kept.small.pop().or_else(|| kept.returned()),
        })
    {
        *buffer = kept;
        return;
    }
    let enough = if size == BODY_BYTES { BODY_BYTES / 4 } else { MIN_ROOM };
    if buffer.capacity() - buffer.len() < enough {
        buffer.reserve(size);
    }
}

impl Kept {
    /// The buffer lent longest, if its slices are gone by now.
    fn returned(&mut self) -> Option<BytesMut> {
        let mut buffer = self.lent.pop_front()?;
        if buffer.try_reclaim(HEAD_BYTES) {
            return Some(buffer);
        }
        self.lent.push_front(buffer);
        None
    }
}

/// Takes an empty buffer back.
pub(crate) fn give_back(buffer: &mut BytesMut) {
    if !buffer.is_empty() || buffer.capacity() == 0 {
        return;
    }
    let mut buffer = std::mem::take(buffer);
    // Works only when no slice of it is left.
    if buffer.try_reclaim(BODY_BYTES) {
        KEPT.with_borrow_mut(|kept| {
            if kept.large.len() < MAX_LARGE {
                kept.large.push(buffer);
            }
        });
    } else if buffer.try_reclaim(HEAD_BYTES) {
        KEPT.with_borrow_mut(|kept| {
            if kept.small.len() < MAX_SMALL {
                kept.small.push(buffer);
            }
        });
    } else if buffer.capacity() <= HEAD_BYTES {
        // Whoever waits longest is most likely to have its slices back. Beyond the limit the last slice frees it.
        KEPT.with_borrow_mut(|kept| {
            if kept.lent.len() >= MAX_LENT {
                drop(kept.lent.pop_front());
            }
            kept.lent.push_back(buffer);
        });
    }
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
    fn there_is_room_for_what_is_wanted() {
        let mut buffer = BytesMut::new();
        prepare(&mut buffer, 100_000);
        assert!(buffer.capacity() >= BODY_BYTES);
        buffer.extend_from_slice(&vec![0; buffer.capacity() - 10]);
        prepare(&mut buffer, 100);
        assert!(buffer.capacity() - buffer.len() >= MIN_ROOM);
    }
}
