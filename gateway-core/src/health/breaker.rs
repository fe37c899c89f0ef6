//! Circuit breakers: one for each target of a proxy, so that a target in trouble is left alone for a while.
//!
//! - *Closed* lets everything through and counts failures in a row; `failure_threshold` of them open it. A success
//!   sets the count back to zero.
//! - *Open* lets nothing through for `open_for`.
//! - *Half open* begins with the first exchange asking after that. It lets `half_open_max_requests` probes through
//!   at a time; `success_threshold` successes close it, one failure opens it again for the full time.
//!
//! An outcome counts only in the period its exchange was let through in: a straggler from before the breaker opened
//! neither opens nor closes it again, and gives back no slot it doesn't hold. A probe's slot comes back when its
//! [`Permit`] is settled or dropped, whichever way the exchange ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::statuses::Statuses;
use crate::config::model::CircuitBreaker;
use crate::limit::epoch::Epoch;

mod word;

use word::{BreakerState, MAX_COUNT, Word};

/// The breakers of one proxy, by the index of its targets.
#[derive(Debug)]
pub struct Breakers {
    rules: Rules,
    epoch: Epoch,
    list: Box<[(u64, Arc<AtomicU64>)]>,
}

#[derive(Debug)]
struct Rules {
    failures: u32,
    successes: u32,
    probes: u32,
    open_for_ms: u64,
    statuses: Statuses,
    connection_errors: bool,
}

/// A breaker changed; worth a log line and a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    /// Nothing more is let through for a while.
    Opened,
    /// The target is trusted again.
    Closed,
}

/// One breaker as the admin API shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerStatus {
    /// Lets everything through.
    Closed {
        /// Failures in a row so far.
        failures: u32,
    },
    /// Lets nothing through.
    Open {
        /// Time left; zero when the next exchange will be a probe.
        remaining: Duration,
    },
    /// Lets probes through.
    HalfOpen {
        /// Probes under way.
        probes: u32,
        /// Probes that went well.
        successes: u32,
    },
}

/// How an exchange speaks for or against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The target works.
    Success,
    /// The target does not.
    Failure,
    /// Says nothing about the target.
    Neutral,
}

impl Breakers {
    /// Breakers for the targets of these keys, in their order; targets that had one in `previous` keep its state.
    pub fn build(
        rules: &CircuitBreaker,
        targets: impl IntoIterator<Item = u64>,
        previous: Option<&Self>,
        now: Instant,
    ) -> Self {
        let mut known: foldhash::HashMap<u64, Arc<AtomicU64>> =
            previous.map(|old| old.list.iter().cloned().collect()).unwrap_or_default();
        let list = targets.into_iter().map(|key| {
            let state = known.remove(&key);
            (key, state.unwrap_or_else(|| Arc::new(AtomicU64::new(Word::CLOSED.pack()))))
        });
        Self {
            rules: Rules {
                failures: rules.failure_threshold.clamp(1, MAX_COUNT),
                successes: rules.success_threshold.clamp(1, MAX_COUNT),
                probes: rules.half_open_max_requests.clamp(1, MAX_COUNT),
                open_for_ms: u64::try_from(rules.open_for.as_millis()).unwrap_or(u64::MAX).max(1),
                statuses: Statuses::new(&rules.status_codes),
                connection_errors: rules.trip_on_connection_errors,
            },
            epoch: previous.map_or_else(|| Epoch::starting(now), |old| old.epoch),
            list: list.collect(),
        }
    }

    /// Whether a response with this status counts as failure.
    pub fn is_failure(&self, status: StatusCode) -> bool {
        self.rules.statuses.contains(status)
    }

    /// Whether a failure to connect counts.
    pub fn counts_connection_errors(&self) -> bool {
        self.rules.connection_errors
    }

    /// Whether [`Self::admit`] would let an exchange through. One atomic read while the breaker is closed.
    pub fn admits(&self, index: usize, now: Instant) -> bool {
        let Some(cell) = self.cell(index) else { return true };
        match Word::unpack(cell.load(Relaxed)).state {
            BreakerState::Closed { .. } => true,
            BreakerState::Open { until_ms } => self.epoch.millis(now) >= until_ms,
            BreakerState::HalfOpen { probes, .. } => probes < self.rules.probes,
        }
    }

    /// Lets one exchange through to the target, or not. A target without a breaker is always let through.
    pub fn admit(&self, index: usize, now: Instant) -> Option<Permit<'_>> {
        let Some(cell) = self.cell(index) else {
            return Some(Permit { held: None, probe: false, generation: 0 });
        };
        loop {
            let raw = cell.load(Relaxed);
            let word = Word::unpack(raw);
            let next = match word.state {
                BreakerState::Closed { .. } => return Some(self.permit(cell, word.generation, false)),
                BreakerState::Open { until_ms } if self.epoch.millis(now) < until_ms => return None,
                BreakerState::Open { .. } => word.next(BreakerState::HalfOpen { probes: 1, successes: 0 }),
                BreakerState::HalfOpen { probes, .. } if probes >= self.rules.probes => return None,
                BreakerState::HalfOpen { probes, successes } => {
                    word.with(BreakerState::HalfOpen { probes: probes + 1, successes })
                }
            };
            if cell.compare_exchange_weak(raw, next.pack(), Relaxed, Relaxed).is_ok() {
                return Some(self.permit(cell, next.generation, true));
            }
        }
    }

    /// One breaker at this moment; `None` for an index that has none.
    pub fn status(&self, index: usize, now: Instant) -> Option<BreakerStatus> {
        Some(match Word::unpack(self.cell(index)?.load(Relaxed)).state {
            BreakerState::Closed { failures } => BreakerStatus::Closed { failures },
            BreakerState::Open { until_ms } => {
                let left = until_ms.saturating_sub(self.epoch.millis(now));
                BreakerStatus::Open { remaining: Duration::from_millis(left) }
            }
            BreakerState::HalfOpen { probes, successes } => BreakerStatus::HalfOpen { probes, successes },
        })
    }

    fn cell(&self, index: usize) -> Option<&AtomicU64> {
        self.list.get(index).map(|(_, cell)| &**cell)
    }

    fn permit<'b>(&'b self, cell: &'b AtomicU64, generation: u32, probe: bool) -> Permit<'b> {
        Permit { held: Some((self, cell)), probe, generation }
    }

    /// The word after an outcome in the period it belongs to; `None` when nothing changes.
    fn after(&self, word: Word, verdict: Verdict, now: Instant) -> Option<Word> {
        let open = || {
            let until_ms = self.epoch.millis(now).saturating_add(self.rules.open_for_ms);
            word.next(BreakerState::Open { until_ms: until_ms.min(word::MAX_MILLIS) })
        };
        match (word.state, verdict) {
            (BreakerState::Closed { failures: 0 }, Verdict::Success) => None,
            (BreakerState::Closed { .. }, Verdict::Success) => {
                Some(word.with(BreakerState::Closed { failures: 0 }))
            }
            (BreakerState::Closed { failures }, Verdict::Failure) if failures + 1 >= self.rules.failures => {
                Some(open())
            }
            (BreakerState::Closed { failures }, Verdict::Failure) => {
                Some(word.with(BreakerState::Closed { failures: failures + 1 }))
            }
            (BreakerState::HalfOpen { .. }, Verdict::Failure) => Some(open()),
            (BreakerState::HalfOpen { successes, .. }, Verdict::Success)
                if successes + 1 >= self.rules.successes =>
            {
                Some(word.next(BreakerState::Closed { failures: 0 }))
            }
            (BreakerState::HalfOpen { probes, successes }, verdict) => {
                let successes = successes + u32::from(verdict == Verdict::Success);
                Some(word.with(BreakerState::HalfOpen { probes: probes.saturating_sub(1), successes }))
            }
            (BreakerState::Closed { .. }, Verdict::Neutral) | (BreakerState::Open { .. }, _) => None,
        }
    }
}

/// One exchange let through by a breaker. Dropping it unsettled is neutral.
#[derive(Debug)]
#[must_use = "dropping it gives the probe's slot back"]
pub struct Permit<'b> {
    held: Option<(&'b Breakers, &'b AtomicU64)>,
    probe: bool,
    generation: u32,
}

impl Permit<'_> {
    /// Whether it holds one of the half-open slots.
    pub fn is_probe(&self) -> bool {
        self.probe
    }

    /// Tells the breaker how the exchange went. Only reads when there is nothing to change.
    pub fn settle(mut self, verdict: Verdict, now: Instant) -> Option<BreakerChange> {
        let (breakers, cell) = self.held.take()?;
        self.settle_in(breakers, cell, verdict, now)
    }

    fn settle_in(
        &self,
        breakers: &Breakers,
        cell: &AtomicU64,
        verdict: Verdict,
        now: Instant,
    ) -> Option<BreakerChange> {
        loop {
            let raw = cell.load(Relaxed);
            let word = Word::unpack(raw);
            if word.generation != self.generation {
                return None;
            }
            let next = breakers.after(word, verdict, now)?;
            if cell.compare_exchange_weak(raw, next.pack(), Relaxed, Relaxed).is_ok() {
                return match next.state {
                    BreakerState::Open { .. } => Some(BreakerChange::Opened),
                    BreakerState::Closed { .. } if self.probe => Some(BreakerChange::Closed),
                    _ => None,
                };
            }
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.probe {
            return;
        }
        if let Some((breakers, cell)) = self.held.take() {
            // A neutral outcome looks at no clock.
            self.settle_in(breakers, cell, Verdict::Neutral, breakers.epoch.start());
        }
    }
}

#[cfg(test)]
mod tests;
