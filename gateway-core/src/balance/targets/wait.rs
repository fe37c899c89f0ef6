//! Waiting for a target with room.

use std::sync::atomic::{Ordering::SeqCst, fence};

use tokio::time::{Instant, timeout_at};

use super::Targets;
use super::pick::Pick;
use crate::balance::ask::Ask;
use crate::balance::queue::QueueLimits;

impl Targets {
    /// Picks a target, and waits for one where all have as many exchanges as they may have and the upstream has a queue.
    ///
    /// `None` as [`Targets::pick`] says it, when the queue is full, or when the time to wait is over.
    pub async fn wait<'t>(&'t self, ask: &Ask<'t, '_>) -> Option<Pick<'t>> {
        let QueueLimits { queue, most, time } = self.waiting()?;
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
