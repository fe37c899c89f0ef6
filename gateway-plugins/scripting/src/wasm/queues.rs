//! Shared queues: first in, first out, of limited length, by name.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

/// Queues that one plugin config may have.
const MAX_QUEUES: usize = 32;

/// The queues of one plugin config.
pub(super) struct Queues {
    all: Mutex<Vec<Queue>>,
    max_length: usize,
}

struct Queue {
    name: Box<[u8]>,
    entries: VecDeque<Bytes>,
    ready: Arc<Notify>,
}

/// Why something can't be done with a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueError {
    Unknown,
    Empty,
    Full,
}

impl Queues {
    pub(super) fn new(max_length: usize) -> Self {
        Self { all: Mutex::default(), max_length }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Queue>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of this name, made where there is none. Numbers begin at 1.
    pub(super) fn register(&self, name: &[u8]) -> Result<u32, QueueError> {
        if let Some(known) = self.resolve(name) {
            return Ok(known);
        }
        let mut all = self.all();
        if all.len() >= MAX_QUEUES {
            return Err(QueueError::Full);
        }
        all.push(Queue { name: name.into(), entries: VecDeque::new(), ready: Arc::default() });
        u32::try_from(all.len()).map_err(|_| QueueError::Full)
    }

    pub(super) fn resolve(&self, name: &[u8]) -> Option<u32> {
        let found = self.all().iter().position(|queue| *queue.name == *name)?;
        u32::try_from(found + 1).ok()
    }

    fn with<T>(
        &self,
        id: u32,
        with: impl FnOnce(&mut Queue) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let mut all = self.all();
        place.and_then(|place| all.get_mut(place)).map_or(Err(QueueError::Unknown), with)
    }

    pub(super) fn push(&self, id: u32, entry: Bytes) -> Result<(), QueueError> {
        self.with(id, |queue| {
            if queue.entries.len() >= self.max_length {
                return Err(QueueError::Full);
            }
            queue.entries.push_back(entry);
            queue.ready.notify_one();
            Ok(())
        })
    }

    pub(super) fn pop(&self, id: u32) -> Result<Bytes, QueueError> {
        self.with(id, |queue| queue.entries.pop_front().ok_or(QueueError::Empty))
    }

    /// Comes when something was put into this queue.
    pub(super) fn ready(&self, id: u32) -> Option<Arc<Notify>> {
        self.with(id, |queue| Ok(queue.ready.clone())).ok()
    }
}
