//! Buffers lent while bytes are on their way: an end at rest holds none, and a busy worker uses the same warm few.

use std::cell::RefCell;

/// Bytes read at a time.
pub(super) const SIZE: usize = 16 << 10;
/// Buffers a worker keeps.
const MAX_KEPT: usize = 32;

thread_local! {
    static KEPT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`SIZE`] bytes; what is in it means nothing.
pub(crate) fn lend() -> Box<[u8]> {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; SIZE].into_boxed_slice())
}

/// Takes a buffer back.
pub(crate) fn give_back(buffer: Box<[u8]>) {
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < MAX_KEPT {
            kept.push(buffer);
        }
    });
}
