//! Native histograms: exponential buckets, eight for each doubling, beside the ones with written bounds.
//!
//! Only scrapers that take Prometheus' protobuf format see them. One takes two kilobytes a worker; those of a proxy are [`Sparse`]: they
//! allocate the buckets that durations fall into, a part at a time.

use std::sync::OnceLock;
use std::time::Duration;

use gateway_core::metrics::ExponentialHistogram;

use super::histogram::Count;

/// Eight buckets for each doubling (Prometheus' schema 3): a quantile is off by 4.4 % at most.
const SCALE: i32 = 3;
const PER_DOUBLING: i64 = 8;
/// The index of the first bucket; its upper bound is 2^(-159/8) s, about 1 µs.
const FIRST: i64 = -159;
/// The index of the last one, up to 2^(95/8) s, a little more than an hour. What takes longer is counted there too.
const LAST: i64 = 95;
/// Buckets, and the one for what is shorter than all of them.
const BUCKETS: usize = (LAST - FIRST + 2) as usize;
/// What is not longer than this many seconds is counted as nothing: 2^-20.
const ZERO: f64 = 1.0 / 1_048_576.0;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BucketIndex(usize);

/// The place of a duration.
pub(super) fn place(duration: Duration) -> BucketIndex {
    BucketIndex(index_of(duration))
}

fn index_of(duration: Duration) -> usize {
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
    pub(super) fn count(&self, BucketIndex(place): BucketIndex) {
        if let Some(count) = self.0.get(place) {
            count.add(1);
        }
    }
}

/// Buckets that are allocated together: four doublings.
const PART: usize = 32;

/// The same with only those parts allocated that something was counted in: 128 bytes, and 256 a part. One proxy's durations are seldom
/// in more than two.
#[derive(Debug, Default)]
pub(crate) struct Sparse([OnceLock<Box<[Count; PART]>>; BUCKETS / PART]);

impl Sparse {
    pub(super) fn count(&self, BucketIndex(place): BucketIndex) {
        if let Some(part) = self.0.get(place / PART) {
            part.get_or_init(Box::default)[place % PART].add(1);
        }
    }

    fn add_to(&self, sums: &mut [u64; BUCKETS]) {
        let parts = sums.chunks_exact_mut(PART).zip(&self.0);
        for (sums, part) in parts.filter_map(|(sums, part)| Some((sums, part.get()?))) {
            sums.iter_mut().zip(&**part).for_each(|(sum, count)| *sum += count.value());
        }
    }
}

/// What a sparse histogram had counted at some moment: places and counts.
pub(super) type Before = Box<[(u8, u64)]>;

/// The histograms of several workers, added up.
pub(super) fn merged<'n>(natives: impl Iterator<Item = &'n Native>) -> ExponentialHistogram {
    let mut sums = [0; BUCKETS];
    for native in natives {
        sums.iter_mut().zip(&native.0).for_each(|(sum, count)| *sum += count.value());
    }
    trimmed(&sums)
}

/// The same of sparse ones: what was counted after `before`.
pub(super) fn merged_since<'n>(
    sparse: impl Iterator<Item = &'n Sparse>,
    before: &Before,
) -> ExponentialHistogram {
    let mut sums = added(sparse);
    for (place, count) in before {
        sums[usize::from(*place)] = sums[usize::from(*place)].wrapping_sub(*count);
    }
    trimmed(&sums)
}

/// Without empty buckets at either end.
fn trimmed(sums: &[u64; BUCKETS]) -> ExponentialHistogram {
    let [zero, buckets @ ..] = sums;
    let skipped = buckets.iter().take_while(|count| **count == 0).count();
    let end = buckets.iter().rposition(|count| *count > 0).map_or(skipped, |last| last + 1);
    let buckets = buckets.get(skipped..end).unwrap_or_default().to_vec();
    let first = FIRST + skipped as i64;
    ExponentialHistogram { scale: SCALE, zero_threshold: ZERO, zero: *zero, first, buckets }
}

fn added<'n>(sparse: impl Iterator<Item = &'n Sparse>) -> [u64; BUCKETS] {
    let mut sums = [0; BUCKETS];
    sparse.for_each(|sparse| sparse.add_to(&mut sums));
    sums
}

/// What was counted so far, for [`merged_since`].
pub(super) fn so_far<'n>(sparse: impl Iterator<Item = &'n Sparse>) -> Before {
    let sums = added(sparse);
    let counted = (0..=u8::MAX).zip(sums).filter(|(_, count)| *count > 0);
    counted.collect()
}

// A place fits the byte of `Before`, and parts leave no place out.
const _: () = assert!(BUCKETS == 256 && BUCKETS.is_multiple_of(PART));

#[cfg(test)]
mod tests {
    use super::*;

    /// Each duration is above the bound of the bucket before its own, and not above that of its own.
    #[test]
    fn durations_are_counted_between_their_bounds() {
        let bound = |index: i64| 2f64.powf(index as f64 / PER_DOUBLING as f64);
        for nanos in (0..63).flat_map(|n| [1u64 << n, (1 << n) + 1, (1 << n) + (1 << n) / 2]) {
            let (seconds, place) = (nanos as f64 * 1e-9, index_of(Duration::from_nanos(nanos)));
            if place == 0 {
                assert!(seconds <= ZERO, "{nanos}");
                continue;
            }
            let index = place as i64 - 1 + FIRST;
            assert!(seconds > bound(index - 1), "{nanos} in {index}");
            assert!(seconds <= bound(index) * (1.0 + 1e-12) || index == LAST, "{nanos} in {index}");
        }
        // A bound belongs to its own bucket.
        assert_eq!(index_of(Duration::from_secs(1)) as i64 - 1 + FIRST, 0);
        assert_eq!(index_of(Duration::from_millis(500)) as i64 - 1 + FIRST, -8);
        assert_eq!(index_of(Duration::ZERO), 0);
        assert_eq!(index_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn workers_are_added_up() {
        let (a, b) = (Native::default(), Native::default());
        a.count(place(Duration::from_secs(1)));
        b.count(place(Duration::from_secs(1)));
        b.count(place(Duration::ZERO));
        let sum = merged([&a, &b].into_iter());
        assert_eq!((sum.zero, sum.count()), (1, 3));
        assert_eq!((sum.first, &sum.buckets[..]), (0, &[2][..]));
        let none = merged([&Native::default()].into_iter());
        assert_eq!((none.count(), none.buckets.len()), (0, 0));
    }

    /// A sparse one counts as the other does, wherever a duration falls.
    #[test]
    fn a_sparse_histogram_says_the_same() {
        let (dense, sparse) = (Native::default(), Sparse::default());
        for n in 0..63 {
            for place in [place(Duration::from_nanos(1 << n)), place(Duration::from_nanos(3 << n))] {
                dense.count(place);
                sparse.count(place);
            }
        }
        let all = merged([&dense].into_iter());
        assert_eq!(merged_since([&sparse].into_iter(), &Before::default()), all);
        let before = so_far([&sparse].into_iter());
        sparse.count(place(Duration::from_secs(1)));
        let later = merged_since([&sparse].into_iter(), &before);
        assert_eq!((later.count(), later.first, later.buckets), (1, 0, vec![1]));
    }

    #[test]
    fn a_sparse_histogram_allocates_what_it_counts_in() {
        let sparse = Sparse::default();
        assert!(size_of::<Sparse>() <= 128);
        let parts = || sparse.0.iter().filter(|part| part.get().is_some()).count();
        assert_eq!(parts(), 0);
        for millis in [2, 3, 4, 5] {
            sparse.count(place(Duration::from_millis(millis)));
        }
        assert!(parts() <= 2, "{}", parts());
    }
}
