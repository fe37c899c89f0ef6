//! A timeout that costs almost nothing while it doesn't fire.
//!
//! Registering a timer for every request would be one of the larger costs of a small request. Here the deadline is a
//! plain value that moves freely; the real timer is armed once, and when it fires too early it is armed again for
//! what is left. So a busy connection touches the timer wheel once a timeout, not once a request.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Where a timeout is off, its end is as far away as makes no difference.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// When `after` from now is; zero is a timeout that is off.
pub fn deadline(after: Duration) -> Instant {
    Instant::now() + if after.is_zero() { FAR } else { after }
}

/// When something last moved, seen from another place.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastActivity(Arc<AtomicU64>);

/// From where those moments are counted.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl LastActivity {
    /// Something moves now.
    pub(crate) fn note(&self) {
        let nanos = Instant::now().saturating_duration_since(*START).as_nanos();
        self.0.store(u64::try_from(nanos).unwrap_or(u64::MAX).max(1), Relaxed);
    }

    /// The moment, if there was one.
    pub(crate) fn get(&self) -> Option<Instant> {
        let nanos = self.0.load(Relaxed);
        (nanos > 0).then(|| *START + Duration::from_nanos(nanos))
    }
}

/// A deadline that may be moved for free.
#[derive(Debug, Default)]
pub struct Timer {
    deadline: Option<Instant>,
    armed: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    /// Sets the deadline to `after` from now; zero switches the timer off.
    pub fn set(&mut self, after: Duration) {
        self.deadline = (!after.is_zero()).then(|| Instant::now() + after);
    }

    /// Sets the deadline to `after` from `start`, for those who know the time already; zero switches the timer off.
    pub fn set_from(&mut self, start: Instant, after: Duration) {
        self.deadline = (!after.is_zero()).then(|| start + after);
    }

    /// As [`Timer::set`], for those who know the deadline already.
    pub fn set_at(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Whether a deadline is set.
    pub fn is_set(&self) -> bool {
        self.deadline.is_some()
    }

    /// Switches the timer off.
    pub fn clear(&mut self) {
        self.deadline = None;
    }

    /// Ready once the deadline has passed. To be polled only after everything else was pending.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        loop {
            let armed = self.armed.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if armed.deadline() > deadline {
                // Only an earlier deadline makes the armed timer too late.
                armed.as_mut().reset(deadline);
            }
            if armed.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= deadline {
                self.deadline = None;
                self.armed = None;
                return Poll::Ready(());
            }
            armed.as_mut().reset(deadline);
        }
    }
}
