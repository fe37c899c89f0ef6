//! Latencies of a running round, coarse enough to be counted beside it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Eighths of powers of two up to an hour in nanoseconds.
const BUCKETS: usize = 43 * 8;

/// Latencies that one thread counts and others look at.
#[derive(Debug)]
pub struct LiveLatency {
    counts: Box<[AtomicU32]>,
}

impl Default for LiveLatency {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl LiveLatency {
    /// Counts a latency. Only one thread may call this.
    pub fn record(&self, nanoseconds: u64) {
        if let Some(count) = self.counts.get(bucket(nanoseconds)) {
            // One writer: no other count is lost between both.
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// These percentiles of what several threads counted, in microseconds, within an eighth; `None` where nothing was counted.
#[must_use]
pub fn percentiles<const N: usize>(all: &[LiveLatency], wanted: [f64; N]) -> Option<[f64; N]> {
    let mut counts = vec![0_u64; BUCKETS];
    for (sum, place) in counts.iter_mut().zip(0..) {
        let each = all.iter().filter_map(|one| one.counts.get(place));
        *sum = each.map(|count| u64::from(count.load(Ordering::Relaxed))).sum();
    }
    let total: u64 = counts.iter().sum();
    (total > 0).then(|| wanted.map(|percentile| at(&counts, total, percentile)))
}

#[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
fn at(counts: &[u64], total: u64, percentile: f64) -> f64 {
    let needed = percentile / 100.0 * total as f64;
    let mut sum = 0.0;
    for (place, count) in counts.iter().enumerate() {
        sum += *count as f64;
        if sum >= needed && *count > 0 {
            return upper(place) as f64 / 1e3;
        }
    }
    0.0
}

/// The bucket of a latency.
fn bucket(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(8);
    let exponent = value.ilog2();
    let eighth = (value >> (exponent - 3)) & 7;
    let place = u64::from(exponent - 3) * 8 + eighth;
    usize::try_from(place).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Where a bucket ends.
fn upper(place: usize) -> u64 {
    let (exponent, eighth) = (place / 8, place as u64 % 8);
    (8 + eighth + 1) << exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_within_an_eighth() {
        let threads = [LiveLatency::default(), LiveLatency::default()];
        assert_eq!(percentiles(&threads, [50.0]), None);
        for n in 1..=1000_u64 {
            threads[usize::from(n % 2 == 0)].record(n * 1000);
        }
        let [p50, p99, max] = percentiles(&threads, [50.0, 99.0, 100.0]).expect("latencies");
        for (found, right) in [(p50, 500.0), (p99, 990.0), (max, 1000.0)] {
            assert!(found >= right && found <= right * 1.13, "{found} for {right}");
        }
        threads[0].record(u64::MAX);
        threads[0].record(0);
    }
}
