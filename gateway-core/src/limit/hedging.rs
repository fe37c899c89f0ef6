//! Whether and when a request is sent to another target as well: the rules, the budget, and how long answers take.

mod times;

use std::time::Duration;

use tokio::time::Instant;

use crate::config::model::Hedging;
use crate::limit::budget::RetryBudget;
use times::Times;

/// No delay is shorter.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// Hedges within the budget's window that are allowed whatever the share says.
const FLOOR: u64 = 1;

/// What a proxy's hedging knows. Shared by all workers, and kept over reloads.
#[derive(Debug)]
pub struct Hedger {
    rules: Hedging,
    budget: RetryBudget,
    times: Times,
}

/// What became of an exchange's hedges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hedged {
    /// Hedges that were sent.
    pub sent: u32,
    /// The hedge whose answer was taken, as the number of its attempt.
    pub won: Option<u32>,
    /// Whether one was not sent because the budget was spent.
    pub withheld: bool,
}

impl Hedger {
    /// Nothing is known yet.
    pub fn new(rules: Hedging, now: Instant) -> Self {
        let budget = RetryBudget::with_floor(rules.budget_percent, FLOOR, now);
        Self { rules, budget, times: Times::starting(now) }
    }

    /// As configured.
    pub fn rules(&self) -> &Hedging {
        &self.rules
    }

    /// Counts a request that may be hedged.
    pub(crate) fn begin(&self, now: Instant) {
        self.budget.request(now);
    }

    /// Counts a hedge and says whether it may be sent.
    pub(crate) fn spend(&self, now: Instant) -> bool {
        self.budget.retry(now)
    }

    /// How long to wait for an answer.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let known = self.rules.percentile.and_then(|percent| self.times.percentile(percent, now));
        known.unwrap_or(self.rules.delay).max(MIN_DELAY)
    }

    /// Takes how long the first attempt took, or took at least.
    pub(crate) fn took(&self, time: Duration, now: Instant) {
        if self.rules.percentile.is_some() {
            self.times.add(time, now);
        }
    }
}
