//! How long recent answers took, as a histogram over the last minute.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::limit::epoch::Epoch;

/// Two of these are looked at: the one that is filled and the one before.
const PERIOD: Duration = Duration::from_secs(30);
/// Fewer say nothing.
const ENOUGH: u64 = 100;
/// A percentile is looked up anew after so long.
const KEPT: Duration = Duration::from_millis(500);
/// Buckets to each power of two: what is said is at most an eighth too much.
const STEPS: u32 = 3;
/// Times up to some two minutes.
const BUCKETS: usize = 27 << STEPS;

/// Counts of times. Lock-free; where two threads begin a new period at once, some times may be lost.
#[derive(Debug)]
pub(super) struct Times {
    epoch: Epoch,
    halves: [HalfWindow; 2],
    /// The percentile that was looked up last, in microseconds; 0 where too little was known.
    known: AtomicU64,
    /// When that has to be looked up anew, in milliseconds since the epoch.
    until: AtomicU64,
}

#[derive(Debug)]
struct HalfWindow {
    /// Counted from 1.
    period: AtomicU64,
    counts: Box<[AtomicU32]>,
}

impl Times {
    pub(super) fn starting(now: Instant) -> Self {
        let half = || HalfWindow {
            period: AtomicU64::new(0),
            counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
        };
        Self {
            epoch: Epoch::starting(now),
            halves: [half(), half()],
            known: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    pub(super) fn add(&self, time: Duration, now: Instant) {
        let period = self.period(now);
        let half = &self.halves[usize::from(period % 2 == 1)];
        let before = half.period.load(Relaxed);
        if before != period && half.period.compare_exchange(before, period, Relaxed, Relaxed).is_ok() {
            half.counts.iter().for_each(|count| count.store(0, Relaxed));
        }
        if let Some(count) = half.counts.get(bucket(time)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// What so many percent of recent times are not longer than; `None` where too few are known.
    pub(super) fn percentile(&self, percent: u8, now: Instant) -> Option<Duration> {
        let at = self.epoch.millis(now);
        if at >= self.until.load(Relaxed) {
            let found = self.look(percent, now).map_or(0, |micros| micros.max(1));
            self.known.store(found, Relaxed);
            self.until.store(at + KEPT.as_millis() as u64, Relaxed);
        }
        let micros = self.known.load(Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    fn look(&self, percent: u8, now: Instant) -> Option<u64> {
        let period = self.period(now);
        let is_recent = |half: &&HalfWindow| half.period.load(Relaxed) + 1 >= period;
        let recent = || self.halves.iter().filter(is_recent);
        let count = |n: usize| -> u64 {
            recent().filter_map(|half| half.counts.get(n)).map(|count| u64::from(count.load(Relaxed))).sum()
        };
        let all: u64 = (0..BUCKETS).map(count).sum();
        if all < ENOUGH {
            return None;
        }
        let wanted = (all * u64::from(percent)).div_ceil(100);
        let mut seen = 0;
        for n in 0..BUCKETS {
            seen += count(n);
            if seen >= wanted {
                return Some(end_of(n));
            }
        }
        None
    }

    fn period(&self, now: Instant) -> u64 {
        self.epoch.millis(now) / PERIOD.as_millis() as u64 + 1
    }
}

/// The bucket of a time: its power of two in microseconds, and the eighth of that.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = micros.ilog2();
    // The bits behind the first one.
    let step = if power >= STEPS { micros >> (power - STEPS) } else { micros << (STEPS - power) };
    let step = step as usize & ((1 << STEPS) - 1);
    ((power as usize) << STEPS | step).min(BUCKETS - 1)
}

/// The longest time of a bucket, in microseconds.
fn end_of(bucket: usize) -> u64 {
    let (power, step) = (bucket >> STEPS, bucket as u64 & ((1 << STEPS) - 1));
    (((1 << STEPS) + step + 1) << power) >> STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_an_eighth_wide_and_in_order() {
        let mut last = 0;
        for micros in (1..200_000).step_by(7).chain([1_000_000, 60_000_000, 130_000_000]) {
            let at = bucket(Duration::from_micros(micros));
            assert!(at >= last && at < BUCKETS, "{micros}");
            last = at;
            let end = end_of(at);
            assert!(end >= micros && (end <= micros + 1 || end <= micros + micros / 7), "{micros} {end}");
        }
        assert_eq!(bucket(Duration::ZERO), bucket(Duration::from_micros(1)));
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_needs_enough_and_follows_the_last_minute() {
        let start = Instant::now();
        let times = Times::starting(start);
        (0..99).for_each(|_| times.add(Duration::from_millis(10), start));
        assert_eq!(times.percentile(95, start), None);
        times.add(Duration::from_millis(10), start);
        let now = start + KEPT;
        let near = |wanted: u64, now| {
            let found = times.percentile(95, now).unwrap().as_millis() as u64;
            assert!((wanted..=wanted + wanted / 7).contains(&found), "{found} instead of {wanted}");
        };
        near(10, now);
        // One in ten takes 80 ms.
        (0..900).for_each(|n| times.add(Duration::from_millis(if n % 10 == 0 { 80 } else { 10 }), now));
        near(80, now + KEPT);
        let later = now + PERIOD * 2;
        (0..200).for_each(|_| times.add(Duration::from_millis(20), later));
        near(20, later + KEPT);
        assert_eq!(times.percentile(95, later + PERIOD * 3), None, "old times are forgotten");
    }
}
