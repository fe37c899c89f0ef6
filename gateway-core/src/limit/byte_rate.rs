//! A byte rate, shared fairly by all sessions that use it: a token bucket from which streams reserve turns.
//!
//! The state is one point in time, at which all reserved bytes are paid for. A reservation moves this point by the price of its bytes. It
//! may be used as soon as the point before it is at most a burst away. Competing streams are therefore served in the order of their
//! reservations, each with the same number of bytes. They share the rate evenly, without a lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::epoch::Epoch;

/// Parts of a nanosecond in which moments are counted: whole ones are too coarse for single bytes at high rates.
const TICKS: u64 = 64;
/// The fewest bytes of a turn.
pub(crate) const MIN_TURN: u64 = 1448;
/// The most bytes of a turn: what a pipe of splice(2) holds.
pub(crate) const MAX_TURN: u64 = 256 << 10;
/// All turns of one round together take about this share of a second's bytes.
const ROUNDS_PER_SECOND: u64 = 100;
/// The smallest burst, in bytes.
const MIN_BURST: u64 = 4096;
/// The share of a second that comes at once where no burst is configured: bytes counted over 10 s then stay within 0.25 % of the rate.
const DEFAULT_BURST_SHARE: u64 = 40;

/// A rate with a burst, which may both change while it is in use.
#[derive(Debug)]
pub struct ByteRate {
    /// Bytes a second; never 0.
    rate: AtomicU64,
    /// Bytes.
    burst: AtomicU64,
    /// Ticks from the epoch.
    paid_at: AtomicU64,
    /// Reservations that are waited for.
    waiting: AtomicUsize,
    /// Counts up with each change of the rate.
    version: AtomicU64,
    epoch: Epoch,
}

impl ByteRate {
    /// `rate` bytes a second, at least 1, and `burst` bytes at once.
    pub fn new(rate: u64, burst: u64, epoch: Epoch) -> Self {
        Self {
            rate: AtomicU64::new(rate.max(1)),
            burst: AtomicU64::new(burst),
            paid_at: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            epoch,
        }
    }

    /// The burst of a rate for which none is configured: 25 ms of the rate, at least 4 KiB.
    pub fn default_burst(rate: u64) -> u64 {
        (rate / DEFAULT_BURST_SHARE).max(MIN_BURST)
    }

    /// Sets another rate and burst. What was used stays used: bytes still owed are owed at the new rate.
    pub fn set(&self, rate: u64, burst: u64, now: Instant) {
        let (rate, old) = (rate.max(1), self.rate());
        self.burst.store(burst, Relaxed);
        if rate == old {
            return;
        }
        let now = self.ticks(now);
        let owed_anew = |paid_at: u64| {
            let owed = u128::from(paid_at.saturating_sub(now)) * u128::from(old) / u128::from(rate);
            Some(now.saturating_add(clamp(owed)))
        };
        self.rate.store(rate, Relaxed);
        let _set = self.paid_at.fetch_update(Relaxed, Relaxed, owed_anew);
        self.version.fetch_add(1, Relaxed);
    }

    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Bytes at once.
    pub fn burst(&self) -> u64 {
        self.burst.load(Relaxed)
    }

    /// Changes whenever the rate does, so that those who wait learn of it.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Bytes that one reservation should be for: fewer where many wait, so that their turns come soon.
    pub(crate) fn bytes_per_turn(&self) -> u64 {
        let waiting = self.waiting.load(Relaxed) as u64;
        (self.rate() / ROUNDS_PER_SECOND / (waiting + 1)).clamp(MIN_TURN, MAX_TURN)
    }

    /// Reserves so many bytes; says how long to wait before they are used.
    pub(crate) fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let (now, price) = (self.ticks(now), self.price(bytes));
        let add = |paid_at: u64| Some(paid_at.max(now).saturating_add(price));
        let before = self.paid_at.fetch_update(Relaxed, Relaxed, add).unwrap_or_default().max(now);
        let wait = (before - now).saturating_sub(self.price(self.burst()));
        Duration::from_nanos(wait.div_ceil(TICKS))
    }

    /// Takes so many at once, unless that would be more than a burst. What is larger than a burst passes where nothing is owed.
    pub(crate) fn take(&self, many: u64, now: Instant) -> bool {
        let (now, price, burst) = (self.ticks(now), self.price(many), self.price(self.burst()));
        let add = |paid_at: u64| {
            let from = paid_at.max(now);
            let fits = from == now || (from - now).saturating_add(price) <= burst;
            fits.then(|| from.saturating_add(price))
        };
        self.paid_at.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Gives back bytes that were reserved or taken, and not used.
    pub(crate) fn refund(&self, bytes: u64) {
        if bytes > 0 {
            let price = self.price(bytes);
            let less = |paid_at: u64| Some(paid_at.saturating_sub(price));
            let _refunded = self.paid_at.fetch_update(Relaxed, Relaxed, less);
        }
    }

    pub(crate) fn begin_wait(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Whether nothing is owed, so that a table may forget it.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.paid_at.load(Relaxed) <= self.ticks(now)
    }

    fn ticks(&self, now: Instant) -> u64 {
        self.epoch.nanos(now).saturating_mul(TICKS)
    }

    /// What so many bytes cost, in ticks.
    fn price(&self, bytes: u64) -> u64 {
        clamp(u128::from(bytes) * u128::from(1_000_000_000 * TICKS) / u128::from(self.rate()))
    }
}

fn clamp(ticks: u128) -> u64 {
    // Half of all, so that sums never overflow.
    u64::try_from(ticks).unwrap_or(u64::MAX).min(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(rate: u64, burst: u64, now: Instant) -> ByteRate {
        ByteRate::new(rate, burst, Epoch::starting(now))
    }

    #[test]
    fn reservations_wait_their_turn_behind_a_burst() {
        let now = Instant::now();
        let rate = rate(1000, 500, now);
        assert_eq!(rate.reserve(500, now), Duration::ZERO);
        assert_eq!(rate.reserve(500, now), Duration::ZERO);
        assert_eq!(rate.reserve(100, now), Duration::from_millis(500));
        assert_eq!(rate.reserve(100, now), Duration::from_millis(600));
        // What one of them leaves comes to those who reserve later.
        rate.refund(100);
        assert_eq!(rate.reserve(100, now), Duration::from_millis(600));
        assert_eq!(rate.reserve(100, now + 10 * SECOND), Duration::ZERO);
    }

    #[test]
    fn takes_a_burst_and_then_the_rate() {
        let now = Instant::now();
        let rate = rate(10, 3, now);
        let taken = |at| (0..10).filter(|_| rate.take(1, at)).count();
        assert_eq!(taken(now), 3);
        assert_eq!(taken(now + SECOND / 5), 2);
        assert!(!rate.is_idle(now + SECOND / 5));
        assert!(rate.is_idle(now + 2 * SECOND));
        assert_eq!(taken(now + 60 * SECOND), 3, "no more than a burst is saved up");
    }

    #[test]
    fn a_change_keeps_what_is_owed() {
        let now = Instant::now();
        let rate = rate(1000, 0, now);
        assert_eq!(rate.reserve(1000, now), Duration::ZERO);
        rate.set(10_000, 0, now);
        assert_eq!(rate.reserve(1, now), SECOND / 10);
        rate.set(100, 0, now);
        let wait = rate.reserve(1, now);
        assert!((Duration::from_millis(10_000)..Duration::from_millis(10_011)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn small_amounts_of_high_rates_are_counted_exactly() {
        let now = Instant::now();
        // 100 Gbit/s.
        let rate = rate(12_500_000_000, 1, now);
        (0..1_000_000).for_each(|_| _ = rate.reserve(1250, now));
        let wait = rate.reserve(1, now);
        assert!((Duration::from_micros(99_900)..Duration::from_micros(100_100)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn turns_are_shorter_where_many_wait() {
        let rate = rate(10_000_000, 0, Instant::now());
        assert_eq!(rate.bytes_per_turn(), 100_000);
        (0..9).for_each(|_| rate.begin_wait());
        assert_eq!(rate.bytes_per_turn(), 10_000);
        (0..1000).for_each(|_| rate.begin_wait());
        assert_eq!(rate.bytes_per_turn(), MIN_TURN);
        (0..1009).for_each(|_| rate.end_wait());
        assert_eq!(rate.bytes_per_turn(), 100_000);
    }
}
