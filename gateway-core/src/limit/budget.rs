//! The retry budget: retries are a share of requests, so that they cannot multiply the load on a target in trouble.

use std::time::Duration;

use tokio::time::Instant;

use super::epoch::Epoch;
use super::window::{Moment, Sliding};

/// The time over which requests and retries are compared.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Retries allowed a second whatever the share says, so that little traffic can be retried at all.
pub const FLOOR_PER_SECOND: u64 = 3;

/// Counts requests and retries over a sliding window. Lock-free; shared by all workers.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u32,
    /// Allowed within the window whatever the share says.
    floor: u64,
    epoch: Epoch,
    requests: Sliding,
    retries: Sliding,
}

impl RetryBudget {
    /// Retries may be `percent` of requests, and [`FLOOR_PER_SECOND`] in any case.
    pub fn new(percent: u32, now: Instant) -> Self {
        Self::with_floor(percent, FLOOR_PER_SECOND * WINDOW.as_secs(), now)
    }

    /// The same with so many within [`WINDOW`] in any case.
    pub fn with_floor(percent: u32, floor: u64, now: Instant) -> Self {
        Self {
            percent,
            floor,
            epoch: Epoch::starting(now),
            requests: Sliding::default(),
            retries: Sliding::default(),
        }
    }

    /// Counts a request. Call it once an exchange, before its first try.
    pub fn request(&self, now: Instant) {
        self.requests.add(1, self.moment(now));
    }

    /// Counts a retry and says whether it may be made; a refused one is not counted.
    pub fn retry(&self, now: Instant) -> bool {
        let at = self.moment(now);
        let share = self.requests.estimate(at).saturating_mul(u64::from(self.percent)) / 100;
        self.retries.add_within(1, share.max(self.floor), at).is_ok()
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::of(self.epoch.nanos(now), WINDOW.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::thread;

    use super::*;

    fn retries(budget: &RetryBudget, now: Instant) -> usize {
        (0..100_000).take_while(|_| budget.retry(now)).count()
    }

    #[test]
    fn little_traffic_has_the_floor() {
        let now = Instant::now();
        let budget = RetryBudget::new(0, now);
        assert_eq!(retries(&budget, now), 30);
        assert_eq!(retries(&budget, now + WINDOW * 2), 30);
    }

    #[test]
    fn much_traffic_has_its_share() {
        let now = Instant::now();
        let budget = RetryBudget::new(20, now);
        (0..10_000).for_each(|_| budget.request(now));
        assert_eq!(retries(&budget, now), 2000);
        assert!(!budget.retry(now));
    }

    #[test]
    fn requests_and_retries_grow_old_together() {
        let now = Instant::now();
        let budget = RetryBudget::new(20, now);
        (0..1000).for_each(|_| budget.request(now));
        assert_eq!(retries(&budget, now), 200);
        // Half of the first period is still in the window: 500 requests, 100 retries.
        let later = now + WINDOW + WINDOW / 2;
        (0..1000).for_each(|_| budget.request(later));
        assert_eq!(retries(&budget, later), 200);
    }

    #[test]
    fn threads_never_overdraw() {
        let now = Instant::now();
        let budget = RetryBudget::new(10, now);
        let granted = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..2000).for_each(|_| budget.request(now)));
            }
        });
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        granted.fetch_add(u32::from(budget.retry(now)), Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.into_inner(), 1600);
    }
}
