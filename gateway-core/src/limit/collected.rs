//! How much of bodies a gateway may hold in memory at one time, over all plugins that collect them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::config::model::MAX_COLLECTED;

/// One gateway's ceiling of collected bodies. A clone is the same ceiling.
#[derive(Debug, Clone)]
pub struct CollectedBodies(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: AtomicU64,
    held: AtomicU64,
    /// Bytes that bodies may still take before memory is short; [`NO_LIMIT`] where it has none.
    memory: AtomicI64,
}

/// Memory without a limit.
const NO_LIMIT: i64 = i64::MAX;

thread_local! {
    /// A thread serves one gateway.
    static CURRENT: RefCell<CollectedBodies> = RefCell::new(CollectedBodies::new(MAX_COLLECTED));
}

impl CollectedBodies {
    /// A ceiling of so many bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Counts {
            limit: AtomicU64::new(limit),
            held: AtomicU64::new(0),
            memory: AtomicI64::new(NO_LIMIT),
        }))
    }

    /// Sets the ceiling anew. What is held already stays.
    pub fn resize(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Says how many bytes bodies may take from now on before memory is short; `None` for any number. What they take afterwards counts
    /// at once, not only when memory is looked at again.
    pub fn set_memory(&self, left: Option<u64>) {
        let left = left.map_or(NO_LIMIT, |left| i64::try_from(left).unwrap_or(NO_LIMIT));
        self.0.memory.store(left, Relaxed);
    }

    /// Memory for a body that is to come; `None` where memory is short.
    pub fn expect(&self, bytes: u64) -> Option<ExpectedBody> {
        let is_counted = self.take_memory(bytes)?;
        Some(ExpectedBody { bytes, counted_by: is_counted.then(|| self.clone()) })
    }

    /// Whether it counts; `None` where there is none left.
    fn take_memory(&self, bytes: u64) -> Option<bool> {
        if self.0.memory.load(Relaxed) == NO_LIMIT {
            return Some(false);
        }
        let bytes = i64::try_from(bytes).unwrap_or(NO_LIMIT / 2);
        if self.0.memory.fetch_sub(bytes, Relaxed) >= bytes {
            return Some(true);
        }
        self.0.memory.fetch_add(bytes, Relaxed);
        None
    }

    fn return_memory(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(0);
        // Without a limit since, nothing is returned to it.
        let add = |left: i64| (left != NO_LIMIT).then(|| left.saturating_add(bytes).min(NO_LIMIT - 1));
        _ = self.0.memory.try_update(Relaxed, Relaxed, add);
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
        let Some(is_counted) = self.take_memory(bytes) else { return false };
        let held = self.0.held.fetch_add(bytes, Relaxed);
        let is_free = held.saturating_add(bytes) <= self.0.limit.load(Relaxed);
        if !is_free {
            self.0.held.fetch_sub(bytes, Relaxed);
            self.return_memory(if is_counted { bytes } else { 0 });
        }
        is_free
    }

    fn give_back(&self, bytes: u64) {
        self.0.held.fetch_sub(bytes, Relaxed);
        self.return_memory(bytes);
    }
}

/// Memory for a body that has not come yet; given back when dropped.
#[derive(Debug)]
pub struct ExpectedBody {
    bytes: u64,
    counted_by: Option<CollectedBodies>,
}

impl Drop for ExpectedBody {
    fn drop(&mut self) {
        if let Some(ceiling) = &self.counted_by {
            ceiling.return_memory(self.bytes);
        }
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
    fn bodies_count_before_memory_is_looked_at() {
        let ceiling = CollectedBodies::new(1000);
        assert!(ceiling.expect(u64::MAX).is_some(), "memory has no limit");
        ceiling.set_memory(Some(100));
        let first = ceiling.expect(60).expect("is free");
        assert!(ceiling.expect(41).is_none());
        ceiling.count_on_this_thread();
        let mut room = CollectedRoom::new();
        assert!(room.grow(40) && !room.grow(1), "what is collected counts as well");
        assert_eq!(ceiling.held(), 40);
        drop((first, room));
        let all = ceiling.expect(100).expect("all is given back");
        ceiling.set_memory(None);
        drop(all);
        assert!(ceiling.expect(u64::MAX).is_some());
        ceiling.set_memory(Some(0));
        assert!(ceiling.expect(1).is_none());
        ceiling.resize(10);
        ceiling.set_memory(Some(50));
        assert!(!CollectedRoom::new().grow(11), "above the ceiling");
        assert!(ceiling.expect(50).is_some(), "what is refused takes nothing");
    }

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
