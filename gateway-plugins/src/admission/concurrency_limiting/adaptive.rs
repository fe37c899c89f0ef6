//! A limit that follows latency. Responses add to a window; whoever ends the window sets the limit anew.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use gateway_core::limit::epoch::Epoch;
use tokio::time::Instant;

/// How the limit is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Algorithm {
    /// By the latency of now against that of a longer time.
    Gradient {
        /// Times the usual latency that are still usual.
        tolerance: f64,
    },
    /// By a fixed latency.
    Aimd {
        /// Latency above which the limit is lowered.
        target: Duration,
    },
}

/// Within which bounds the limit moves, and when.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) algorithm: Algorithm,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) initial: u64,
    pub(super) interval: Duration,
    pub(super) min_samples: u64,
}

/// Share of the new limit that takes effect in one window.
const SMOOTHING: f64 = 0.2;
/// Windows over which the usual latency is averaged.
const LONG_WINDOWS: f64 = 60.0;
/// What is left of the limit when targets fail, or latency is above the target.
const BACKOFF: f64 = 0.9;

/// The state. Numbers of one window may get into the next when two threads meet at its end: the limit is an estimate.
#[derive(Debug)]
pub(super) struct Adaptive {
    rules: Rules,
    epoch: Epoch,
    /// When the window ends, in nanoseconds from the epoch.
    ends: AtomicU64,
    micros: AtomicU64,
    samples: AtomicU64,
    failures: AtomicU64,
    /// The usual latency in microseconds, and the limit; bits of an `f64`, written by whoever ends a window.
    usual: AtomicU64,
    limit: AtomicU64,
}

impl Adaptive {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        Self {
            epoch: Epoch::starting(now),
            ends: AtomicU64::new(nanos(rules.interval)),
            micros: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            usual: AtomicU64::new(0),
            limit: AtomicU64::new(as_f64(rules.initial).to_bits()),
            rules,
        }
    }

    /// A response came after this time, or failed to come. `peak` is the most that one caller had under way of late. Says
    /// the limit where it is set anew.
    pub(super) fn observe(&self, took: Duration, failed: bool, peak: u64, now: Instant) -> Option<u64> {
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
        let samples = self.samples.fetch_add(1, Relaxed) + 1;
        if failed {
            self.failures.fetch_add(1, Relaxed);
        }
        let (now, ends) = (self.epoch.nanos(now), self.ends.load(Relaxed));
        if now < ends || samples < self.rules.min_samples {
            return None;
        }
        let next = now.saturating_add(nanos(self.rules.interval));
        self.ends.compare_exchange(ends, next, Relaxed, Relaxed).ok()?;
        let samples = self.samples.swap(0, Relaxed).max(1);
        let latency = as_f64(self.micros.swap(0, Relaxed)) / as_f64(samples);
        let failed = self.failures.swap(0, Relaxed) > 0;
        let limit = f64::from_bits(self.limit.load(Relaxed));
        let bounded = self
            .next(limit, latency.max(1.0), failed, as_f64(peak))
            .clamp(as_f64(self.rules.min), as_f64(self.rules.max));
        self.limit.store(bounded.to_bits(), Relaxed);
        Some(whole(bounded))
    }

    fn next(&self, limit: f64, latency: f64, failed: bool, peak: f64) -> f64 {
        // A limit that is not used says nothing about what is above it.
        let used = peak * 2.0 >= limit;
        match self.rules.algorithm {
            _ if failed => limit * BACKOFF,
            Algorithm::Aimd { target }
                if latency > as_f64(u64::try_from(target.as_micros()).unwrap_or(u64::MAX)) =>
            {
                limit * BACKOFF
            }
            Algorithm::Aimd { .. } => limit + if used { 1.0 } else { 0.0 },
            Algorithm::Gradient { tolerance } => {
                let usual = self.usual(latency);
                let gradient = (tolerance * usual / latency).clamp(0.5, 1.0);
                let wanted = limit * gradient + limit.sqrt();
                let next = limit + (wanted - limit) * SMOOTHING;
                if used || next < limit { next } else { limit }
            }
        }
    }

    /// The usual latency, with that of this window in it.
    fn usual(&self, latency: f64) -> f64 {
        let before = f64::from_bits(self.usual.load(Relaxed));
        let usual = match before {
            0.0 => latency,
            // Targets that have become much faster: what was usual was a time of trouble.
            before if before > latency * 2.0 => before * 0.95,
            before => before + (latency - before) / LONG_WINDOWS,
        };
        self.usual.store(usual.to_bits(), Relaxed);
        usual
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "an estimate of latencies and of limits up to a million")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1 to a million")]
fn whole(limit: f64) -> u64 {
    limit as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(algorithm: Algorithm) -> Rules {
        let interval = Duration::from_millis(100);
        Rules { algorithm, min: 4, max: 200, initial: 20, interval, min_samples: 5 }
    }

    /// Has windows of ten responses of this latency pass, with as much under way as the limit allows; the limits.
    fn windows(adaptive: &Adaptive, now: &mut Instant, count: usize, latency: Duration) -> Vec<u64> {
        let mut limits = Vec::new();
        for _ in 0..count {
            *now += Duration::from_millis(101);
            let peak = whole(f64::from_bits(adaptive.limit.load(Relaxed)));
            limits.extend((0..10).filter_map(|_| adaptive.observe(latency, false, peak, *now)));
        }
        limits
    }

    #[test]
    fn a_window_with_too_few_responses_goes_on() {
        for (min_samples, expected) in [(1, 1), (5, 5), (8, 8)] {
            let mut now = Instant::now();
            let rules = Rules { min_samples, ..rules(Algorithm::Gradient { tolerance: 1.5 }) };
            let adaptive = Adaptive::new(rules, now);
            now += Duration::from_millis(101);
            let changed =
                (1..=10).find(|_| adaptive.observe(Duration::from_millis(10), false, 20, now).is_some());
            assert_eq!(changed, Some(expected));
        }
    }

    #[test]
    fn gradient_grows_while_latency_is_usual_and_shrinks_when_it_rises() {
        let mut now = Instant::now();
        let adaptive = Adaptive::new(rules(Algorithm::Gradient { tolerance: 1.5 }), now);
        let fast = windows(&adaptive, &mut now, 100, Duration::from_millis(10));
        assert!(fast.is_sorted() && fast.last().is_some_and(|limit| *limit == 200), "{fast:?}");
        let slow = windows(&adaptive, &mut now, 20, Duration::from_millis(100));
        assert!(slow.last().is_some_and(|limit| *limit < 60), "{slow:?}");
        let again = windows(&adaptive, &mut now, 100, Duration::from_millis(10));
        assert!(again.last().is_some_and(|limit| *limit > 150), "{again:?}");
    }

    #[test]
    fn tolerance_says_what_is_still_usual() {
        let limit_at = |tolerance| {
            let mut now = Instant::now();
            let adaptive = Adaptive::new(rules(Algorithm::Gradient { tolerance }), now);
            windows(&adaptive, &mut now, 20, Duration::from_millis(10));
            *windows(&adaptive, &mut now, 10, Duration::from_millis(30)).last().expect("a limit")
        };
        assert!(limit_at(4.0) > limit_at(1.0) + 10);
    }

    #[test]
    fn aimd_goes_by_its_target() {
        let mut now = Instant::now();
        let adaptive = Adaptive::new(rules(Algorithm::Aimd { target: Duration::from_millis(50) }), now);
        assert_eq!(windows(&adaptive, &mut now, 3, Duration::from_millis(49)), [21, 22, 23]);
        assert_eq!(windows(&adaptive, &mut now, 2, Duration::from_millis(60)), [20, 18]);
        let floor = windows(&adaptive, &mut now, 50, Duration::from_millis(60));
        assert_eq!(floor.last(), Some(&4), "never below its minimum");
    }

    #[test]
    fn failures_lower_it_and_an_unused_limit_stays() {
        let mut now = Instant::now();
        let adaptive = Adaptive::new(rules(Algorithm::Gradient { tolerance: 1.5 }), now);
        now += Duration::from_millis(101);
        let failed: Vec<_> =
            (0..5).filter_map(|_| adaptive.observe(Duration::from_millis(1), true, 20, now)).collect();
        assert_eq!(failed, [18]);
        now += Duration::from_millis(101);
        let unused: Vec<_> =
            (0..5).filter_map(|_| adaptive.observe(Duration::from_millis(1), false, 2, now)).collect();
        assert_eq!(unused, [18]);
    }

    #[test]
    fn a_window_needs_its_time_and_its_samples() {
        let now = Instant::now();
        let adaptive = Adaptive::new(rules(Algorithm::Gradient { tolerance: 1.5 }), now);
        assert!(
            (0..50).all(|_| adaptive.observe(Duration::from_millis(1), false, 20, now).is_none()),
            "not before its time"
        );
        let adaptive = Adaptive::new(rules(Algorithm::Gradient { tolerance: 1.5 }), now);
        let later = now + Duration::from_secs(1);
        assert_eq!(
            [(); 5].map(|()| adaptive.observe(Duration::from_millis(1), false, 20, later).is_some()),
            [false, false, false, false, true]
        );
    }
}
