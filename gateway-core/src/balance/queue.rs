//! Where exchanges wait while every target has as many as it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use std::time::Duration;

use tokio::sync::Notify;

/// Who waits for a target of one upstream, over all workers. The first to come is the first to be woken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: AtomicU32,
    pub(super) notify: Notify,
}

/// A place in the queue, given back when dropped.
pub(super) struct QueueSlot<'q>(&'q Queue);

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Queue {
    /// Wakes the first in line: a target has room again.
    pub(super) fn wake(&self) {
        // Together with the fence of a waiter: either it sees the room, or it is seen here.
        fence(SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.notify.notify_one();
        }
    }

    pub(super) fn enter(&self, most: u32) -> Option<QueueSlot<'_>> {
        let entered =
            self.waiting.fetch_update(SeqCst, SeqCst, |waiting| (waiting < most).then_some(waiting + 1));
        entered.is_ok().then(|| QueueSlot(self))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(SeqCst)
    }
}

/// How many may wait, and for how long.
#[derive(Debug, Clone)]
pub(super) struct QueueLimits {
    pub(super) queue: Arc<Queue>,
    pub(super) most: u32,
    pub(super) time: Duration,
}
