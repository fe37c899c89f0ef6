//! Histograms and counters with one writer: plain loads and stores, no locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A number that only its worker's thread raises, and anybody may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Two threads that add at once would lose one of the additions; each worker has counts of its own.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds in nanoseconds: OpenTelemetry's advice from 5 ms on, finer below, where a gateway's own answers and near
/// targets are.
pub(crate) const BOUNDS: [u64; 17] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
];

/// [`BOUNDS`] in seconds, as formats write them.
pub(crate) const SECONDS: [f64; BOUNDS.len()] = {
    let mut seconds = [0.0; BOUNDS.len()];
    let mut at = 0;
    while at < BOUNDS.len() {
        seconds[at] = BOUNDS[at] as f64 / 1e9;
        at += 1;
    }
    seconds
};

/// Buckets of a histogram, the one without a bound included.
pub(crate) const BUCKETS: usize = BOUNDS.len() + 1;

/// The bucket of a duration.
pub(crate) fn bucket_of(duration: Duration) -> usize {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    // Most durations are in the first few buckets.
    BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS.len())
}

/// Durations by size, written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Count; BUCKETS],
    nanos: Count,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        self.observe_in(bucket_of(duration), duration);
    }

    /// As [`Self::observe`], for a duration whose bucket is known: several histograms count the same one.
    pub(crate) fn observe_in(&self, bucket: usize, duration: Duration) {
        // 584 years fit.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket].add(1);
        self.nanos.add(nanos);
    }
}

/// The histograms of several workers, added up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Not cumulative.
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) nanos: u64,
}

impl Merged {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.value();
        }
        self.nanos = self.nanos.wrapping_add(histogram.nanos.value());
    }

    /// What was added after `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (count, before) in self.buckets.iter_mut().zip(&before.buckets) {
            *count = count.wrapping_sub(*before);
        }
        self.nanos = self.nanos.wrapping_sub(before.nanos);
        self
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::default();
        for nanos in [0, 500_000, 500_001, 10_000_000_000, 10_000_000_001] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let mut merged = Merged::default();
        merged.add(&histogram);
        assert_eq!(merged.buckets[0], 2);
        assert_eq!(merged.buckets[1], 1);
        assert_eq!(merged.buckets[BUCKETS - 2], 1);
        assert_eq!(merged.buckets[BUCKETS - 1], 1);
        assert_eq!(merged.count(), 5);
    }

    #[test]
    fn bounds_in_seconds_are_the_numbers_that_dashboards_name() {
        let written = SECONDS.map(|seconds| seconds.to_string()).join(" ");
        let named = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10";
        assert_eq!(written, named);
        assert!(BOUNDS.is_sorted());
    }
}
