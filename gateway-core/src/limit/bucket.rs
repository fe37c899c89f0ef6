//! How often, evenly: a token bucket as one number (GCRA, the generic cell rate algorithm).
//!
//! The number is the moment at which the bucket would be full again. Every token taken moves it one interval into
//! the future; a request passes while that moment is no further away than the whole burst takes to refill.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::epoch::Epoch;
use super::window::Allowance;

/// A rule: a rate, and how much may come at once.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// Nanoseconds a token takes to come back.
    interval: u64,
    /// Nanoseconds the whole burst takes.
    capacity: u64,
    epoch: Epoch,
}

/// The state of one key under a rule: 8 bytes. New ones are full.
#[derive(Debug, Default)]
pub struct BucketState(AtomicU64);

impl Bucket {
    /// `rate` tokens in each `period`, and `burst` of them at once (1 at least). A rate of 0 passes nothing.
    pub fn new(rate: u32, period: Duration, burst: u32, epoch: Epoch) -> Self {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let interval = period.checked_div(u64::from(rate)).unwrap_or(u64::MAX).max(1);
        let capacity = if rate == 0 { 0 } else { interval.saturating_mul(u64::from(burst.max(1))) };
        Self { interval, capacity, epoch }
    }

    /// Takes `cost` tokens, or none.
    pub fn take(&self, state: &BucketState, cost: u32, now: Instant) -> Allowance {
        let now = self.epoch.nanos(now);
        let price = self.interval.saturating_mul(u64::from(cost));
        loop {
            let full_at = state.0.load(Relaxed);
            let after = full_at.max(now).saturating_add(price);
            let owed = after - now;
            if owed > self.capacity {
                return Allowance::Refused { retry_after: Duration::from_nanos(owed - self.capacity) };
            }
            if state.0.compare_exchange_weak(full_at, after, Relaxed, Relaxed).is_ok() {
                let remaining = (self.capacity - owed) / self.interval;
                return Allowance::Granted {
                    remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
                    reset: Duration::from_nanos(owed),
                };
            }
        }
    }

    /// Whether the bucket is full, so that a table may drop its state.
    pub fn is_idle(&self, state: &BucketState, now: Instant) -> bool {
        state.0.load(Relaxed) <= self.epoch.nanos(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    fn granted(allowance: Allowance) -> bool {
        matches!(allowance, Allowance::Granted { .. })
    }

    #[test]
    fn passes_a_burst_and_then_the_rate() {
        let now = Instant::now();
        let bucket = Bucket::new(10, Duration::from_secs(1), 3, Epoch::starting(now));
        let state = BucketState::default();
        let remaining = [(); 3].map(|()| match bucket.take(&state, 1, now) {
            Allowance::Granted { remaining, .. } => remaining,
            Allowance::Refused { .. } => panic!("refused within the burst"),
        });
        assert_eq!(remaining, [2, 1, 0]);
        let refused = Allowance::Refused { retry_after: Duration::from_millis(100) };
        assert_eq!(bucket.take(&state, 1, now), refused);
        let later = now + Duration::from_millis(100);
        assert!(granted(bucket.take(&state, 1, later)));
        assert!(!granted(bucket.take(&state, 1, later)));
        assert!(!bucket.is_idle(&state, later));
        assert!(bucket.is_idle(&state, later + Duration::from_millis(300)));
    }

    #[test]
    fn a_cost_beyond_the_burst_never_passes_and_spends_nothing() {
        let now = Instant::now();
        let bucket = Bucket::new(1, Duration::from_secs(1), 5, Epoch::starting(now));
        let state = BucketState::default();
        assert!(!granted(bucket.take(&state, 6, now)));
        assert!(!granted(bucket.take(&state, u32::MAX, now)));
        assert!(granted(bucket.take(&state, 5, now)));
    }

    #[test]
    fn a_rate_of_nothing_passes_nothing() {
        let now = Instant::now();
        let bucket = Bucket::new(0, Duration::from_secs(1), 5, Epoch::starting(now));
        assert!(!granted(bucket.take(&BucketState::default(), 1, now)));
    }

    #[test]
    fn threads_share_exactly_one_burst() {
        let now = Instant::now();
        let bucket = Bucket::new(1, Duration::from_secs(3600), 1000, Epoch::starting(now));
        let (state, passed) = (BucketState::default(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        passed.fetch_add(u32::from(granted(bucket.take(&state, 1, now))), Relaxed);
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), 1000);
    }
}
