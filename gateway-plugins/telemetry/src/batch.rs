//! Items on their way to an observer: bounded in number and bytes, every loss counted.
//!
//! A worker writes an item straight into an open chunk; there are several, so that workers seldom meet. A full chunk, or
//! any when a sender asks, is handed over whole. When too much waits, new items are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway_core::plugin::world::meters::Counter;
use tokio::sync::Notify;

/// Open chunks; a thread always writes into the same.
const SHARDS: usize = 16;

/// How much may wait, and how much is sent at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Items that may wait.
    pub items: usize,
    /// Bytes that may wait.
    pub bytes: usize,
    /// Items of one chunk.
    pub chunk_items: usize,
    /// Bytes from which on a chunk is full.
    pub chunk_bytes: usize,
}

/// Items that are sent together.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The items, one behind the other.
    pub bytes: Vec<u8>,
    /// How many.
    pub items: usize,
}

/// The queue.
#[derive(Debug)]
pub struct Batches {
    limits: Limits,
    separator: Option<u8>,
    open: [Mutex<Chunk>; SHARDS],
    ready: Mutex<VecDeque<Chunk>>,
    /// The buffer of a chunk that was sent, for the next one.
    spare: Mutex<Vec<u8>>,
    items: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicU64,
    full: Notify,
    unsent: Option<Counter>,
}

/// Items that are being written.
pub struct Items<'b> {
    bytes: &'b mut Vec<u8>,
    separator: Option<u8>,
    added: usize,
}

impl Items<'_> {
    /// One more, which `write` appends to the buffer.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.bytes.is_empty()
            && let Some(separator) = self.separator
        {
            self.bytes.push(separator);
        }
        write(self.bytes);
        self.added += 1;
    }
}

impl Batches {
    /// An empty queue. The separator stands between items.
    pub fn new(limits: Limits, separator: Option<u8>) -> Self {
        Self {
            limits,
            separator,
            open: Default::default(),
            ready: Mutex::default(),
            spare: Mutex::default(),
            items: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            full: Notify::new(),
            unsent: None,
        }
    }

    /// The same, which counts what is left when it is dropped: what came when nobody was there any more to send it.
    #[must_use]
    pub fn counting_unsent(mut self, unsent: Counter) -> Self {
        self.unsent = Some(unsent);
        self
    }

    /// Items that may wait.
    pub fn capacity(&self) -> usize {
        self.limits.items
    }

    /// Takes an item that `write` appends to the buffer. Says whether there was room; what has none is counted as lost.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.push_all(1, |items| items.add(write))
    }

    /// Takes so many items that belong together, each of which `write` has to add. Says whether there was room for all of them;
    /// else none is taken, and all are counted as lost.
    pub fn push_all(&self, count: usize, write: impl FnOnce(&mut Items<'_>)) -> bool {
        if self.items.fetch_add(count, Relaxed) + count > self.limits.items {
            return self.lose(count);
        }
        let mut chunk = lock(&self.open[shard()]);
        let before = chunk.bytes.len();
        let mut items = Items { bytes: &mut chunk.bytes, separator: self.separator, added: 0 };
        write(&mut items);
        debug_assert_eq!(items.added, count, "the limits go by what is said to come");
        let written = chunk.bytes.len() - before;
        if self.bytes.fetch_add(written, Relaxed) + written > self.limits.bytes {
            chunk.bytes.truncate(before);
            self.bytes.fetch_sub(written, Relaxed);
            return self.lose(count);
        }
        chunk.items += count;
        if chunk.items >= self.limits.chunk_items || chunk.bytes.len() >= self.limits.chunk_bytes {
            // As much as the last one needed, so that the next does not grow by copying.
            let mut bytes = std::mem::take(&mut *lock(&self.spare));
            bytes.reserve(chunk.bytes.len());
            let next = Chunk { bytes, items: 0 };
            let full = std::mem::replace(&mut *chunk, next);
            drop(chunk);
            lock(&self.ready).push_back(full);
            self.full.notify_one();
        }
        true
    }

    fn lose(&self, count: usize) -> bool {
        self.items.fetch_sub(count, Relaxed);
        self.lost.fetch_add(count as u64, Relaxed);
        false
    }

    /// Waits for a full chunk.
    pub async fn full(&self) {
        self.full.notified().await;
    }

    /// The next chunk, also one that is not full; `None` when nothing waits.
    pub fn take(&self) -> Option<Chunk> {
        let ready = lock(&self.ready).pop_front();
        let chunk = ready.or_else(|| self.gathered())?;
        self.items.fetch_sub(chunk.items, Relaxed);
        self.bytes.fetch_sub(chunk.bytes.len(), Relaxed);
        Some(chunk)
    }

    /// Takes back a chunk that was sent: its memory is used again.
    pub fn recycle(&self, chunk: Chunk) {
        let mut bytes = chunk.bytes;
        // A single item may have been much larger than a chunk.
        if bytes.capacity() <= 2 * self.limits.chunk_bytes {
            bytes.clear();
            *lock(&self.spare) = bytes;
        }
    }

    /// A full chunk, if there is one.
    pub fn take_full(&self) -> Option<Chunk> {
        let chunk = lock(&self.ready).pop_front()?;
        self.items.fetch_sub(chunk.items, Relaxed);
        self.bytes.fetch_sub(chunk.bytes.len(), Relaxed);
        Some(chunk)
    }

    /// Open chunks put together, as many as make one.
    fn gathered(&self) -> Option<Chunk> {
        let mut gathered = Chunk::default();
        for open in &self.open {
            let mut open = lock(open);
            let is_room = gathered.items == 0
                || gathered.items + open.items <= self.limits.chunk_items
                    && gathered.bytes.len() + open.bytes.len() <= self.limits.chunk_bytes;
            if open.items == 0 || !is_room {
                continue;
            }
            if gathered.items == 0 {
                gathered = std::mem::take(&mut *open);
                continue;
            }
            if let Some(separator) = self.separator {
                gathered.bytes.push(separator);
                // Counted like those between the items of one chunk.
                self.bytes.fetch_add(1, Relaxed);
            }
            gathered.bytes.append(&mut open.bytes);
            gathered.items += std::mem::take(&mut open.items);
        }
        (gathered.items > 0).then_some(gathered)
    }

    /// Items that wait.
    pub fn waiting(&self) -> usize {
        self.items.load(Relaxed)
    }

    /// Items that were dropped for want of room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Some(unsent) = &self.unsent {
            unsent.add(self.waiting() as u64);
        }
    }
}

/// The open chunk of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed) % SHARDS;
    }
    MINE.with(|mine| *mine)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn limits(items: usize, bytes: usize) -> Limits {
        Limits { items, bytes, chunk_items: 4, chunk_bytes: 100 }
    }

    #[test]
    fn items_come_out_in_chunks_with_separators_between() {
        let batches = Batches::new(limits(100, 1000), Some(b','));
        for n in 0..6_u8 {
            assert!(batches.push(|out| out.push(b'0' + n)));
        }
        let full = batches.take_full().unwrap();
        assert_eq!((full.items, full.bytes.as_slice()), (4, &b"0,1,2,3"[..]));
        assert!(batches.take_full().is_none());
        let rest = batches.take().unwrap();
        assert_eq!((rest.items, rest.bytes.as_slice()), (2, &b"4,5"[..]));
        assert!(batches.take().is_none());
        assert_eq!((batches.waiting(), batches.lost()), (0, 0));
    }

    #[test]
    fn what_has_no_room_is_lost_and_counted() {
        let batches = Batches::new(limits(3, 1000), None);
        let took = (0..5).filter(|_| batches.push(|out| out.push(b'x'))).count();
        assert_eq!((took, batches.lost(), batches.waiting()), (3, 2, 3));
        assert_eq!(batches.take().unwrap().items, 3);
        assert!(batches.push(|out| out.push(b'y')), "there is room again");
        let batches = Batches::new(limits(100, 10), Some(b','));
        assert!(batches.push(|out| out.extend_from_slice(b"12345")));
        assert!(!batches.push(|out| out.extend_from_slice(b"1234567")), "too many bytes");
        assert!(batches.push(|out| out.extend_from_slice(b"6789")));
        assert_eq!(batches.take().unwrap().bytes, b"12345,6789");
        assert_eq!((batches.lost(), batches.bytes.load(Relaxed)), (1, 0));
    }

    #[test]
    fn items_that_belong_together_are_taken_or_lost_together() {
        let batches = Batches::new(limits(3, 1000), Some(b','));
        let both = |items: &mut Items<'_>| (0..2).for_each(|n| items.add(|out| out.push(b'0' + n)));
        assert!(batches.push_all(2, both));
        assert!(!batches.push_all(2, both), "there is room for one");
        assert!(batches.push(|out| out.push(b'x')));
        let chunk = batches.take().unwrap();
        assert_eq!((chunk.items, chunk.bytes.as_slice()), (3, &b"0,1,x"[..]));
        assert_eq!((batches.waiting(), batches.lost()), (0, 2));
        let batches = Batches::new(limits(3, 2), Some(b','));
        assert!(!batches.push_all(2, both), "too many bytes");
        assert_eq!((batches.waiting(), batches.lost(), batches.bytes.load(Relaxed)), (0, 2, 0));
    }

    #[test]
    fn the_memory_of_a_chunk_is_used_again_unless_it_is_large() {
        let batches = Batches::new(limits(100, 10_000), None);
        let fill = |bytes: usize| {
            (0..4).for_each(|_| assert!(batches.push(|out| out.extend(std::iter::repeat_n(b'x', bytes)))));
            batches.take_full().unwrap()
        };
        let first = fill(20);
        let place = first.bytes.as_ptr();
        // The next one is open already, and has memory of its own.
        batches.recycle(first);
        let second = fill(20);
        assert_ne!(second.bytes.as_ptr(), place);
        assert_eq!(fill(20).bytes.as_ptr(), place);
        batches.recycle(Chunk { bytes: Vec::with_capacity(1000), items: 0 });
        assert_eq!(lock(&batches.spare).capacity(), 0, "ten times as much as a chunk may have");
    }

    #[test]
    fn what_nobody_sends_is_counted() {
        let unsent = Counter::default();
        let batches = Batches::new(limits(3, 1000), None).counting_unsent(unsent.clone());
        (0..5).for_each(|_| _ = batches.push(|out| out.push(b'x')));
        drop(batches);
        assert_eq!(unsent.get(), 3, "those that had no room were counted when they came");
    }

    #[test]
    fn threads_lose_nothing_that_is_not_counted() {
        let batches = Arc::new(Batches::new(limits(500, 100_000), Some(b'\n')));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let batches = batches.clone();
                std::thread::spawn(move || (0..200).for_each(|_| _ = batches.push(|out| out.extend(b"item"))))
            })
            .collect();
        let mut got = 0;
        while got < 300 {
            got += batches.take().map_or(0, |chunk| chunk.items);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        while let Some(chunk) = batches.take() {
            assert_eq!(chunk.bytes.split(|byte| *byte == b'\n').count(), chunk.items);
            got += chunk.items;
        }
        assert_eq!(got as u64 + batches.lost(), 1600);
        assert_eq!((batches.waiting(), batches.bytes.load(Relaxed)), (0, 0));
    }
}
