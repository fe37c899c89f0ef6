//! A sparse histogram of durations with a precision of three digits: 128 buckets per power of two of microseconds.

use std::collections::BTreeMap;
use std::time::Duration;

/// Binary logarithm of the number of buckets per power of two. A value differs by at most 0.4 % from the middle of its bucket.
const PARTS_LOG2: u32 = 7;
const PARTS: u64 = 1 << PARTS_LOG2;
/// Longer durations (about twelve days) are counted as this value.
const MAX_MICROS: u64 = (1 << 40) - 1;

/// Counts by bucket number, as computed by [`part_of`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FineHistogram(pub(crate) BTreeMap<u32, u64>);

/// The bucket of a duration.
pub(crate) fn part_of(duration: Duration) -> u32 {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(MAX_MICROS);
    if micros < PARTS {
        return micros as u32;
    }
    let power = micros.ilog2();
    let part = (micros >> (power - PARTS_LOG2)) - PARTS;
    (power - PARTS_LOG2 + 1) * PARTS as u32 + part as u32
}

/// The middle of a bucket, in seconds.
#[cfg(any(test, feature = "top"))]
pub(crate) fn middle(part: u32) -> f64 {
    let (power, part) = (part / PARTS as u32, u64::from(part) % PARTS);
    let (low, width) = match power {
        0 => (part, 1),
        power => ((PARTS + part) << (power - 1), 1_u64 << (power - 1)),
    };
    // A bucket of one microsecond represents exactly that value.
    let half = if width > 1 { width as f64 / 2.0 } else { 0.0 };
    (low as f64 + half) / 1e6
}

impl FineHistogram {
    /// Counts a duration.
    pub(crate) fn observe(&mut self, duration: Duration) {
        *self.0.entry(part_of(duration)).or_default() += 1;
    }

    /// The duration in seconds at this quantile, within 0.4 %; `None` if nothing was counted.
    #[cfg(any(test, feature = "top"))]
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.0.values().sum();
        let rank = ((share * total as f64).ceil() as u64).max(1);
        let mut sum = 0;
        self.0.iter().find_map(|(part, count)| {
            sum += count;
            (sum >= rank).then(|| middle(*part))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_three_digits() {
        assert_eq!(FineHistogram::default().quantile(0.5), None);
        for micros in [1_u64, 7, 127, 128, 999, 1_000_000, 1_003_217, 59_999_999, 3_600_000_000] {
            let mut all = FineHistogram::default();
            (0..10).for_each(|_| all.observe(Duration::from_micros(micros)));
            let seconds = micros as f64 / 1e6;
            for share in [0.0, 0.5, 0.99, 1.0] {
                let got = all.quantile(share).unwrap();
                assert!((got - seconds).abs() <= seconds * 0.004, "{micros}: {got}");
            }
        }
        let mut mixed = FineHistogram::default();
        (1..=100).for_each(|n| mixed.observe(Duration::from_millis(n)));
        assert!((mixed.quantile(0.5).unwrap() - 0.050).abs() < 0.0003);
        assert!((mixed.quantile(0.99).unwrap() - 0.099).abs() < 0.0005);
        assert!(part_of(Duration::MAX) > part_of(Duration::from_secs(100_000)));
    }

    #[test]
    fn parts_rise_without_a_gap() {
        let mut last = 0;
        for micros in 0..100_000 {
            let part = part_of(Duration::from_micros(micros));
            assert!(part == last || part == last + 1, "{micros}");
            last = part;
        }
    }
}
