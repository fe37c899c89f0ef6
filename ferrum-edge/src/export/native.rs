//! Native histograms: exponential buckets, eight for each doubling, beside the ones with written bounds.
//!
//! Only scrapers that take Prometheus' protobuf format see them. They are kept for the durations of all requests and of targets, not
//! for each proxy: one takes two kilobytes a worker.

use std::time::Duration;

use super::histogram::Count;

/// Eight buckets for each doubling (Prometheus' schema 3): a quantile is off by 4.4 % at most.
pub(super) const SCHEMA: i32 = 3;
const PER_DOUBLING: i64 = 8;
/// The index of the first bucket; its upper bound is 2^(-159/8) s, about 1 µs.
pub(super) const FIRST: i64 = -159;
/// The index of the last one, up to 2^(95/8) s, a little more than an hour. What takes longer is counted there too.
const LAST: i64 = 95;
/// Buckets, and the one for what is shorter than all of them.
const BUCKETS: usize = (LAST - FIRST + 2) as usize;
/// What is not longer than this many seconds is counted as nothing: 2^-20.
pub(super) const ZERO: f64 = 1.0 / 1_048_576.0;

/// The mantissas of 2^(n/8) from n = 0 on.
const MANTISSAS: [u64; 8] = [
    0,
    mantissa(1.090_507_732_665_257_7),
    mantissa(1.189_207_115_002_721),
    mantissa(1.296_839_554_651_009_6),
    mantissa(std::f64::consts::SQRT_2),
    mantissa(1.542_210_825_407_940_7),
    mantissa(1.681_792_830_507_429),
    mantissa(1.834_008_086_409_342_4),
];

const fn mantissa(number: f64) -> u64 {
    number.to_bits() & ((1 << 52) - 1)
}

/// Where a duration is counted: 0 is for what is too short, then come the buckets.
fn place(duration: Duration) -> usize {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let seconds = nanos as f64 * 1e-9;
    if seconds <= ZERO {
        return 0;
    }
    let bits = seconds.to_bits();
    // It is positive and not tiny: the exponent is all there is before the mantissa.
    let exponent = (bits >> 52) as i64 - 1023;
    let above = MANTISSAS.iter().filter(|bound| mantissa(seconds) > **bound).count() as i64;
    let index = (exponent * PER_DOUBLING + above).clamp(FIRST, LAST);
    usize::try_from(index - FIRST + 1).unwrap_or(0)
}

/// Durations by size, written by one thread.
pub(crate) struct Native(Box<[Count]>);

impl Default for Native {
    fn default() -> Self {
        Self(std::iter::repeat_with(Count::default).take(BUCKETS).collect())
    }
}

impl Native {
    pub(super) fn observe(&self, duration: Duration) {
        if let Some(count) = self.0.get(place(duration)) {
            count.add(1);
        }
    }
}

/// The histograms of several workers, added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedNative {
    /// What is too short for a bucket.
    pub(super) zero: u64,
    /// Not cumulative, from the first bucket on.
    pub(super) buckets: Vec<u64>,
}

impl MergedNative {
    pub(super) fn of<'n>(natives: impl Iterator<Item = &'n Native>) -> Self {
        let mut merged = Self { zero: 0, buckets: vec![0; BUCKETS - 1] };
        for native in natives {
            let mut counts = native.0.iter().map(Count::value);
            merged.zero += counts.next().unwrap_or(0);
            merged.buckets.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        merged
    }

    pub(super) fn count(&self) -> u64 {
        self.zero + self.buckets.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each duration is above the bound of the bucket before its own, and not above that of its own.
    #[test]
    fn durations_are_counted_between_their_bounds() {
        let bound = |index: i64| 2f64.powf(index as f64 / PER_DOUBLING as f64);
        for nanos in (0..63).flat_map(|n| [1u64 << n, (1 << n) + 1, (1 << n) + (1 << n) / 2]) {
            let (seconds, place) = (nanos as f64 * 1e-9, place(Duration::from_nanos(nanos)));
            if place == 0 {
                assert!(seconds <= ZERO, "{nanos}");
                continue;
            }
            let index = place as i64 - 1 + FIRST;
            assert!(seconds > bound(index - 1), "{nanos} in {index}");
            assert!(seconds <= bound(index) * (1.0 + 1e-12) || index == LAST, "{nanos} in {index}");
        }
        // A bound belongs to its own bucket.
        assert_eq!(place(Duration::from_secs(1)) as i64 - 1 + FIRST, 0);
        assert_eq!(place(Duration::from_millis(500)) as i64 - 1 + FIRST, -8);
        assert_eq!(place(Duration::ZERO), 0);
        assert_eq!(place(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn workers_are_added_up() {
        let (a, b) = (Native::default(), Native::default());
        a.observe(Duration::from_secs(1));
        b.observe(Duration::from_secs(1));
        b.observe(Duration::ZERO);
        let merged = MergedNative::of([&a, &b].into_iter());
        assert_eq!((merged.zero, merged.count()), (1, 3));
        assert_eq!(merged.buckets[(-FIRST) as usize], 2);
    }
}
