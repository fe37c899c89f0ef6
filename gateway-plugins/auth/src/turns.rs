//! So many at a time, and so many waiting.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gateway_core::plugin::world::blocking::Busy;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Lets so many do something at a time, and so many more wait for their turn.
pub(crate) struct Turns {
    running: Semaphore,
    waiting: AtomicUsize,
    max_waiting: usize,
}

impl Turns {
    pub(crate) fn new(at_a_time: usize, max_waiting: usize) -> Self {
        Self { running: Semaphore::new(at_a_time), waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Waits for a turn, which lasts until the permit is dropped.
    ///
    /// # Errors
    /// [`Busy`] when as many wait as may wait.
    pub(crate) async fn take(&self) -> Result<SemaphorePermit<'_>, Busy> {
        if let Ok(permit) = self.running.try_acquire() {
            return Ok(permit);
        }
        let _queued = self.queue()?;
        self.running.acquire().await.map_err(|_| Busy)
    }

    fn queue(&self) -> Result<Queued<'_>, Busy> {
        let queued = Queued(&self.waiting);
        // Also taken back on the way out with an error: `queued` is dropped.
        if self.waiting.fetch_add(1, Relaxed) >= self.max_waiting { Err(Busy) } else { Ok(queued) }
    }
}

/// A place in the queue; also given back when the request is gone.
struct Queued<'a>(&'a AtomicUsize);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
