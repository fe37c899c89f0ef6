//! How fast a target answered of late: an exponentially weighted average in one integer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Samples until the average is believed.
pub(super) const WARM_UP: u64 = 5;

/// The weight of a new sample is 3/10.
const ALPHA: (u64, u64) = (3, 10);

/// An average nobody refreshes counts for half after so long, so that a target once slow is tried again some day.
const HALF_LIFE_MS: u64 = 5_000;

/// The least a failure counts for, in microseconds.
const PENALTY: u64 = 100_000;

/// A failure counts for at least so many times the average.
const PENALTY_FACTOR: u64 = 4;

/// 32 bits of microseconds, 24 bits of tenths of a second at the last sample, 8 bits counting samples.
///
/// The stamp wraps after 19 days; an average exactly that old passes for fresh until its next sample.
#[derive(Debug, Default)]
pub(super) struct Latency(AtomicU64);

#[derive(Debug, Clone, Copy)]
struct Parts {
    micros: u64,
    stamp: u64,
    samples: u64,
}

const STAMP_MS: u64 = 100;
const STAMP_MASK: u64 = (1 << 24) - 1;
const MAX_MICROS: u64 = (1 << 32) - 1;

impl Latency {
    /// Takes the time a good answer needed.
    pub(super) fn sample(&self, took: Duration, now_ms: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.update(now_ms, |_| micros);
    }

    /// Takes the time after which an answer was still to come.
    pub(super) fn at_least(&self, waited: Duration, now_ms: u64) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.update(now_ms, |parts| parts.micros.max(micros));
    }

    /// Takes a failure.
    pub(super) fn penalise(&self, now_ms: u64) {
        self.update(now_ms, |parts| (parts.micros * PENALTY_FACTOR).max(PENALTY));
    }

    /// The average as it was at the last sample; `None` before the first.
    pub(super) fn average(&self) -> Option<Duration> {
        let parts = Parts::unpack(self.0.load(Relaxed));
        (parts.samples > 0).then(|| Duration::from_micros(parts.micros))
    }

    /// Whether the target needs more samples than are already under way.
    pub(super) fn is_cold(&self, in_flight: u64) -> bool {
        Parts::unpack(self.0.load(Relaxed)).samples + in_flight < WARM_UP
    }

    /// The time the next exchange is expected to take, in microseconds, behind those in flight.
    pub(super) fn expected(&self, in_flight: u64, now_ms: u64) -> u64 {
        let parts = Parts::unpack(self.0.load(Relaxed));
        if parts.samples == 0 {
            return u64::MAX;
        }
        let age = (now_ms / STAMP_MS).wrapping_sub(parts.stamp) & STAMP_MASK;
        parts.aged(age * STAMP_MS).saturating_mul(in_flight.saturating_add(1))
    }

    /// A sample that loses a race is dropped: the average is none the worse for it.
    fn update(&self, now_ms: u64, sample: impl FnOnce(Parts) -> u64) {
        let raw = self.0.load(Relaxed);
        let old = Parts::unpack(raw);
        let sample = sample(old).clamp(1, MAX_MICROS);
        let micros = match old.samples {
            0 => sample,
            _ => (old.micros * (ALPHA.1 - ALPHA.0) + sample * ALPHA.0) / ALPHA.1,
        };
        let new = Parts {
            micros: micros.max(1),
            stamp: (now_ms / STAMP_MS) & STAMP_MASK,
            samples: (old.samples + 1).min(WARM_UP),
        };
        self.0.compare_exchange(raw, new.pack(), Relaxed, Relaxed).unwrap_or_else(|winner| winner);
    }
}

impl Parts {
    fn unpack(raw: u64) -> Self {
        Self { micros: raw >> 32, stamp: raw >> 8 & STAMP_MASK, samples: raw & 0xFF }
    }

    fn pack(self) -> u64 {
        self.micros << 32 | self.stamp << 8 | self.samples
    }

    /// The average after so many milliseconds without a sample: halves, with straight lines in between.
    fn aged(self, age_ms: u64) -> u64 {
        let halves = u32::try_from(age_ms / HALF_LIFE_MS).unwrap_or(u32::MAX);
        let micros = self.micros.checked_shr(halves).unwrap_or(0);
        let rest = age_ms % HALF_LIFE_MS;
        (micros - micros * rest / (2 * HALF_LIFE_MS)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_samples_by_three_tenths() {
        let latency = Latency::default();
        assert_eq!(latency.average(), None);
        latency.sample(Duration::from_micros(1000), 0);
        assert_eq!(latency.average(), Some(Duration::from_micros(1000)));
        latency.sample(Duration::from_micros(2000), 0);
        assert_eq!(latency.average(), Some(Duration::from_micros(1300)));
    }

    #[test]
    fn hostile_samples_stay_in_range() {
        let latency = Latency::default();
        latency.sample(Duration::MAX, u64::MAX);
        latency.penalise(u64::MAX);
        latency.sample(Duration::ZERO, 0);
        assert!(latency.average().unwrap() <= Duration::from_micros(MAX_MICROS));
        assert!(latency.expected(u64::from(u32::MAX), u64::MAX) > 0);
    }

    #[test]
    fn an_average_nobody_refreshes_halves() {
        let latency = Latency::default();
        latency.sample(Duration::from_micros(8000), 0);
        let ages = [0, 2500, 5000, 10_000, 15_000].map(|now| latency.expected(0, now));
        assert_eq!(ages, [8000, 6000, 4000, 2000, 1000]);
        assert_eq!(latency.expected(0, 10_000_000), 1);
    }

    #[test]
    fn warm_up_counts_what_is_under_way() {
        let latency = Latency::default();
        assert!(latency.is_cold(4));
        assert!(!latency.is_cold(5));
        for _ in 0..4 {
            latency.sample(Duration::from_millis(1), 0);
        }
        assert!(latency.is_cold(0) && !latency.is_cold(1));
        latency.sample(Duration::from_millis(1), 0);
        assert!(!latency.is_cold(0));
    }

    #[test]
    fn a_failure_costs_and_is_forgiven() {
        let latency = Latency::default();
        (0..20).for_each(|_| latency.sample(Duration::from_millis(1), 0));
        latency.penalise(0);
        assert!(latency.expected(0, 0) > 30_000);
        (0..30).for_each(|_| latency.sample(Duration::from_millis(1), 0));
        assert!(latency.expected(0, 0) < 1_100);
    }
}
