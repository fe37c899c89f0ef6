//! Where exchanges wait while every target has as many as it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::pick::Pick;
use super::targets::{Ask, Targets};

/// Who waits for a target of one upstream, over all workers. The first to come is the first to be woken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: AtomicU32,
    notify: Notify,
}

/// A place in the queue, given back when dropped.
struct Place<'q>(&'q Queue);

impl Drop for Place<'_> {
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

    fn enter(&self, most: u32) -> Option<Place<'_>> {
        let entered =
            self.waiting.fetch_update(SeqCst, SeqCst, |waiting| (waiting < most).then_some(waiting + 1));
        entered.is_ok().then(|| Place(self))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(SeqCst)
    }
}

/// How many may wait, and for how long.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) queue: Arc<Queue>,
    pub(super) most: u32,
    pub(super) time: Duration,
}

impl Targets {
    /// Picks a target, and waits for one where all have as many exchanges as they may have and the upstream has a queue.
    ///
    /// `None` as [`Targets::pick`] says it, when the queue is full, or when the time to wait is over.
    pub async fn wait<'t>(&'t self, ask: &Ask<'t, '_>) -> Option<Pick<'t>> {
        let Waiting { queue, most, time } = self.waiting()?;
        if !self.is_full(ask) {
            return None;
        }
        let place = queue.enter(*most)?;
        let deadline = Instant::now() + *time;
        loop {
            let mut notified = std::pin::pin!(queue.notify.notified());
            notified.as_mut().enable();
            fence(SeqCst);
            let now = Ask { now: Instant::now(), ..*ask };
            if let Some(pick) = self.pick(&now) {
                drop(place);
                return Some(pick);
            }
            timeout_at(deadline, notified).await.ok()?;
        }
    }
}
