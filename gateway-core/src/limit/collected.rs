//! How much of bodies a gateway may hold in memory at one time, over all plugins that collect them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::model::MAX_COLLECTED;

/// One gateway's ceiling of collected bodies. A clone is the same ceiling.
#[derive(Debug, Clone)]
pub struct CollectedBodies(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: AtomicU64,
    held: AtomicU64,
}

thread_local! {
    /// A thread serves one gateway.
    static CURRENT: RefCell<CollectedBodies> = RefCell::new(CollectedBodies::new(MAX_COLLECTED));
}

impl CollectedBodies {
    /// A ceiling of so many bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Counts { limit: AtomicU64::new(limit), held: AtomicU64::new(0) }))
    }

    /// Sets the ceiling anew. What is held already stays.
    pub fn resize(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Bytes now held.
    pub fn held(&self) -> u64 {
        self.0.held.load(Relaxed)
    }

    /// Bodies that are collected on this thread count against this ceiling from now on.
    pub fn count_on_this_thread(&self) {
        CURRENT.with(|current| current.replace(self.clone()));
    }

    /// The ceiling of this thread's gateway; one of its own on a thread of none.
    pub(crate) fn of_this_thread() -> Self {
        CURRENT.with(|current| current.borrow().clone())
    }

    fn take(&self, bytes: u64) -> bool {
        let held = self.0.held.fetch_add(bytes, Relaxed);
        let is_free = held.saturating_add(bytes) <= self.0.limit.load(Relaxed);
        if !is_free {
            self.give_back(bytes);
        }
        is_free
    }

    fn give_back(&self, bytes: u64) {
        self.0.held.fetch_sub(bytes, Relaxed);
    }
}

/// Room for some bytes below the ceiling of a gateway; given back when dropped, on whatever thread.
#[derive(Debug)]
pub(crate) struct CollectedRoom {
    ceiling: CollectedBodies,
    bytes: u64,
}

impl CollectedRoom {
    /// No room yet, below the ceiling of this thread's gateway.
    pub(crate) fn new() -> Self {
        Self { ceiling: CollectedBodies::of_this_thread(), bytes: 0 }
    }

    /// Makes it larger by so many bytes. False at the ceiling; the room stays as it is.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let is_free = self.ceiling.take(bytes);
        self.bytes += if is_free { bytes } else { 0 };
        is_free
    }

    /// Whether it has room for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for CollectedRoom {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ceiling.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_have_ceilings_of_their_own() {
        let (small, large) = (CollectedBodies::new(10), CollectedBodies::new(100));
        let on = |ceiling: &CollectedBodies, bytes: usize| {
            ceiling.count_on_this_thread();
            let mut room = CollectedRoom::new();
            room.grow(bytes).then_some(room)
        };
        let held = on(&small, 10).expect("is free");
        assert!(on(&small, 1).is_none(), "the small one is full");
        let other = on(&large, 90).expect("the large one holds nothing of it");
        assert_eq!((small.held(), large.held()), (10, 90));
        // It is given back where it was taken, whoever's thread drops it.
        drop(held);
        assert_eq!((small.held(), large.held()), (0, 90));
        small.resize(20);
        assert!(on(&small, 20).is_some());
        assert!(on(&large, 11).is_none());
        drop(other);
        std::thread::spawn(|| assert_eq!(CollectedBodies::of_this_thread().held(), 0))
            .join()
            .expect("ends well");
        assert_eq!((small.held(), large.held()), (0, 0));
    }
}
