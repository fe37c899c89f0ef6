//! How often within the last minute, or any other time: a sliding window over two fixed ones.
//!
//! What came in the previous period counts by the share of it that the window still covers. That is exact for an
//! even flow, and never lets through more than twice the limit within any window.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::epoch::Epoch;

/// A rule: so many within so long.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    limit: u32,
    period_nanos: u64,
    epoch: Epoch,
}

/// The state of one key under a rule: 16 bytes.
#[derive(Debug, Default)]
pub struct WindowState {
    current: Sliding,
}

/// What a request was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// It passes.
    Granted {
        /// How many more would pass at this moment.
        remaining: u32,
        /// Until the limit is whole again, if nothing more comes.
        reset: Duration,
    },
    /// It does not.
    Refused {
        /// When one would pass, if nothing else comes meanwhile.
        retry_after: Duration,
    },
}

impl Window {
    /// `limit` within `period`. State lives longer than rules: pass the epoch on when the rule is made anew.
    pub fn new(limit: u32, period: Duration, epoch: Epoch) -> Self {
        // A millisecond at least, so that the number of the period fits for 49 days at the very least.
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        Self { limit, period_nanos: period, epoch }
    }

    /// Counts `cost` against the limit, or refuses and counts nothing.
    pub fn take(&self, state: &WindowState, cost: u32, now: Instant) -> Allowance {
        let at = self.moment(now);
        match state.current.add_within(cost, u64::from(self.limit), at) {
            Ok(used) => Allowance::Granted {
                remaining: u32::try_from(u64::from(self.limit).saturating_sub(used)).unwrap_or(0),
                reset: Duration::from_nanos(at.left.saturating_add(self.period_nanos)),
            },
            Err(()) => Allowance::Refused { retry_after: self.retry_after(&state.current, cost, at) },
        }
    }

    /// Whether the state has nothing left to remember, so that a table may drop it.
    pub fn is_idle(&self, state: &WindowState, now: Instant) -> bool {
        state.current.estimate(self.moment(now)) == 0
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::of(self.epoch.nanos(now), self.period_nanos)
    }

    /// The previous period's share shrinks evenly; after it is gone, the current one begins to shrink.
    fn retry_after(&self, sliding: &Sliding, cost: u32, at: Moment) -> Duration {
        let (previous, current) = sliding.counts(at.period);
        let room = u64::from(self.limit).saturating_sub(u64::from(cost));
        let shrinking = |count: u64, room: u64| {
            // The share that may be left is room / count.
            u128::from(self.period_nanos) * u128::from(room) / u128::from(count.max(1))
        };
        let nanos = match room.checked_sub(current) {
            Some(room) => u128::from(at.left).saturating_sub(shrinking(previous, room)),
            None => u128::from(at.left) + u128::from(self.period_nanos) - shrinking(current, room),
        };
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
    }
}

/// A moment within the periods of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    period: u32,
    /// Nanoseconds until the next period.
    left: u64,
    length: u64,
}

impl Moment {
    pub(super) fn of(nanos: u64, length: u64) -> Self {
        // Periods are counted from 1, so that a state never touched belongs to none of them; 32 bits wrap.
        Self { period: (nanos / length) as u32 + 1, left: length - nanos % length, length }
    }
}

/// Counts of this period and the one before, each as 32 bits of period and 32 bits of count.
#[derive(Debug, Default)]
pub(super) struct Sliding {
    current: AtomicU64,
    previous: AtomicU64,
}

/// Counts stop here; a limit is a `u32`, so that nobody who is refused anyway can tell.
const MAX_COUNT: u64 = u32::MAX as u64;

impl Sliding {
    /// What the window holds, its previous period by share.
    pub(super) fn estimate(&self, at: Moment) -> u64 {
        let (previous, current) = self.counts(at.period);
        weigh(previous, current, at)
    }

    /// Counts without a limit.
    pub(super) fn add(&self, count: u32, at: Moment) {
        let raw = self.current.load(Relaxed);
        // The common case without a loop. Should the period end in between, the count goes to the next one.
        let fits = raw & MAX_COUNT < MAX_COUNT / 2 && u64::from(count) < MAX_COUNT / 4;
        if fits && (raw >> 32) as u32 == at.period {
            self.current.fetch_add(u64::from(count), Relaxed);
            return;
        }
        self.add_within(count, u64::MAX, at).unwrap_or_default();
    }

    /// Counts unless the window would then hold more than `limit`; says what it holds.
    pub(super) fn add_within(&self, count: u32, limit: u64, at: Moment) -> Result<u64, ()> {
        loop {
            let raw = self.current.load(Relaxed);
            let (previous, current) = self.counts_with(raw, at.period);
            let after = (current + u64::from(count)).min(MAX_COUNT);
            let used = weigh(previous, after, at);
            if used > limit {
                return Err(());
            }
            if (raw >> 32) as u32 != at.period {
                // Before the swap, and only forwards: whoever comes late with an older sum changes nothing.
                self.previous.fetch_max(raw, Relaxed);
            }
            let next = u64::from(at.period) << 32 | after;
            if self.current.compare_exchange_weak(raw, next, Relaxed, Relaxed).is_ok() {
                return Ok(used);
            }
        }
    }

    fn counts(&self, period: u32) -> (u64, u64) {
        self.counts_with(self.current.load(Relaxed), period)
    }

    /// The counts of the period before this one and of this one.
    fn counts_with(&self, raw: u64, period: u32) -> (u64, u64) {
        let of = |raw: u64, period: u32| if (raw >> 32) as u32 == period { raw & MAX_COUNT } else { 0 };
        let before = period.wrapping_sub(1);
        let previous = self.previous.load(Relaxed);
        (of(previous, before).max(of(raw, before)), of(raw, period))
    }
}

fn weigh(previous: u64, current: u64, at: Moment) -> u64 {
    // Rounded up: a limit of one is one also when the share is a fraction.
    let share = (u128::from(previous) * u128::from(at.left)).div_ceil(u128::from(at.length));
    current + share as u64
}

#[cfg(test)]
mod tests;
