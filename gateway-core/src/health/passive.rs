//! Health by watching traffic: too many failures within a window take a target out for a while.
//!
//! A success costs nothing here: failures leave the window by growing old, not by being forgiven. Only a success
//! of an exchange that was routed to the target *although* it was down brings it back early.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::HealthChange;
use super::statuses::Statuses;
use crate::config::model::PassiveHealth;
use crate::limit::epoch::Epoch;

/// The most failures a window remembers; higher thresholds behave like this one.
pub const MAX_THRESHOLD: u32 = 1024;

/// How long a target stays out when the rules say "until a probe finds it well" and nobody probes.
pub const DEFAULT_HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// `down_until` of a target that comes back only by a probe.
const UNTIL_PROBED: u64 = u64::MAX;

/// What traffic taught about one target.
#[derive(Debug)]
pub struct Passive {
    rules: PassiveHealth,
    statuses: Statuses,
    epoch: Epoch,
    /// How many good probes in a row bring the target back, when probes decide.
    probes_needed: Option<u32>,
    /// Milliseconds since the epoch; 0 is healthy.
    down_until: AtomicU64,
    good_probes: AtomicU32,
    /// Times it went out in a row, without being well for a window in between.
    times_out: AtomicU32,
    failures: Failures,
    /// Why it went out the last time, as [`FailureKind::code`].
    cause: AtomicU32,
}

/// What counts as a failure of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// It answered with this status.
    Status(StatusCode),
    /// No connection to it could be opened.
    Connect,
    /// The connection broke, or brought no valid answer.
    Broken,
    /// It did not answer in time.
    TimedOut,
}

impl FailureKind {
    fn code(self) -> u32 {
        match self {
            Self::Connect => 1,
            Self::Broken => 2,
            Self::TimedOut => 3,
            Self::Status(status) => u32::from(status.as_u16()),
        }
    }

    fn of_code(code: u32) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Self::Connect),
            2 => Some(Self::Broken),
            3 => Some(Self::TimedOut),
            status => {
                u16::try_from(status).ok().and_then(|code| StatusCode::from_u16(code).ok()).map(Self::Status)
            }
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "it answered {}", status.as_u16()),
            Self::Connect => f.write_str("no connection"),
            Self::Broken => f.write_str("the connection broke"),
            Self::TimedOut => f.write_str("no answer in time"),
        }
    }
}

impl Passive {
    /// A healthy target. `probes` is the healthy threshold of active health checks, when there are any.
    pub fn new(rules: &PassiveHealth, probes: Option<u32>, epoch: Epoch) -> Self {
        Self {
            statuses: Statuses::new(&rules.unhealthy_status_codes),
            epoch,
            probes_needed: probes.filter(|_| rules.healthy_after.is_zero()),
            down_until: AtomicU64::new(0),
            good_probes: AtomicU32::new(0),
            times_out: AtomicU32::new(0),
            failures: Failures::new(rules.unhealthy_threshold),
            rules: rules.clone(),
            cause: AtomicU32::new(0),
        }
    }

    /// The failure that put it out the last time; `None` when it never was.
    pub fn cause(&self) -> Option<FailureKind> {
        FailureKind::of_code(self.cause.load(Relaxed))
    }

    /// The rules it was made with.
    pub fn rules(&self) -> &PassiveHealth {
        &self.rules
    }

    /// Whether these rules would make no difference to its state.
    pub fn is_current(&self, rules: &PassiveHealth, probes: Option<u32>) -> bool {
        self.rules == *rules && self.probes_needed == probes.filter(|_| rules.healthy_after.is_zero())
    }

    /// Whether a response with this status is a failure.
    pub fn is_failure(&self, status: StatusCode) -> bool {
        self.statuses.contains(status)
    }

    /// Whether the target is out at this moment. One atomic read while it is healthy.
    pub fn is_down(&self, now: Instant) -> bool {
        let until = self.down_until.load(Relaxed);
        until != 0 && (until == UNTIL_PROBED || self.epoch.millis(now) < until)
    }

    /// Time until the target is tried again: `None` when it is healthy, `Some(None)` when a probe decides.
    pub fn out_for(&self, now: Instant) -> Option<Option<Duration>> {
        match self.down_until.load(Relaxed) {
            0 => None,
            UNTIL_PROBED => Some(None),
            until => {
                let left = until.saturating_sub(self.epoch.millis(now));
                (left > 0).then(|| Some(Duration::from_millis(left)))
            }
        }
    }

    /// When it came back by itself, in milliseconds since the epoch; 0 when it was never out or somebody brought it back.
    pub(crate) fn back_since(&self, now_millis: u64) -> u64 {
        let until = self.down_until.load(Relaxed);
        if until <= now_millis { until } else { 0 }
    }

    /// Counts a failure; failures of a target that is already out change nothing. `others_out` counts the targets of the
    /// group that are out, and how many there are in all.
    pub fn failed(
        &self,
        kind: FailureKind,
        now: Instant,
        others_out: impl FnOnce() -> (usize, usize),
    ) -> Option<HealthChange> {
        let before = self.down_until.load(Relaxed);
        if self.is_down(now) || !self.failures.add(self.epoch.millis(now), self.rules.window) {
            return None;
        }
        let (out, all) = others_out();
        let most = (all * usize::from(self.rules.max_ejected_percent)).div_ceil(100);
        if out >= most {
            return None;
        }
        self.good_probes.store(0, Relaxed);
        let times = self.times_out(before, now);
        let deadline = self.deadline(now, times);
        let won = self.down_until.compare_exchange(before, deadline, Relaxed, Relaxed).is_ok();
        if won {
            self.times_out.store(times, Relaxed);
            self.cause.store(kind.code(), Relaxed);
            // Whoever comes back starts with a clean sheet.
            self.failures.clear();
        }
        won.then_some(HealthChange::Failed)
    }

    /// A target routed to although it was down has answered well: it is back.
    pub fn recovered(&self, now: Instant) -> Option<HealthChange> {
        self.is_down(now).then(|| self.down_until.store(0, Relaxed)).map(|()| HealthChange::Recovered)
    }

    /// Takes one probe's result; matters only to a target that waits for probes.
    pub fn probed(&self, good: bool) -> Option<HealthChange> {
        let needed = self.probes_needed?;
        if self.down_until.load(Relaxed) != UNTIL_PROBED {
            return None;
        }
        if !good {
            self.good_probes.store(0, Relaxed);
            return None;
        }
        if self.good_probes.fetch_add(1, Relaxed).saturating_add(1) < needed {
            return None;
        }
        self.down_until.store(0, Relaxed);
        Some(HealthChange::Recovered)
    }

    /// Times out in a row with the one that begins now; `before` is when it came back the last time.
    fn times_out(&self, before: u64, now: Instant) -> u32 {
        let window = u64::try_from(self.rules.window.as_millis()).unwrap_or(u64::MAX);
        let is_again = before != 0 && self.epoch.millis(now).saturating_sub(before) <= window;
        if is_again { self.times_out.load(Relaxed).saturating_add(1) } else { 1 }
    }

    fn deadline(&self, now: Instant, times: u32) -> u64 {
        if self.probes_needed.is_some() {
            return UNTIL_PROBED;
        }
        let after = self.rules.healthy_after;
        let after = if after.is_zero() { DEFAULT_HEALTHY_AFTER } else { after };
        let after = after.saturating_mul(times).min(self.rules.healthy_after_max.max(after));
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.epoch.millis(now).saturating_add(after.max(1)).min(UNTIL_PROBED - 1)
    }
}

/// The moments of the last failures, as many as the threshold, so that the count over a sliding window is exact.
#[derive(Debug)]
struct Failures {
    next: AtomicU64,
    /// Milliseconds since the epoch plus one; 0 is no failure.
    moments: Box<[AtomicU64]>,
}

impl Failures {
    fn new(threshold: u32) -> Self {
        let moments = (0..threshold.clamp(1, MAX_THRESHOLD)).map(|_| AtomicU64::new(0)).collect();
        Self { next: AtomicU64::new(0), moments }
    }

    /// Remembers a failure and says whether the threshold is now reached within the window.
    ///
    /// Failures that race may each see the other's slot one round old and miss the threshold by one; the next
    /// failure then reaches it.
    fn add(&self, now: u64, window: Duration) -> bool {
        let size = self.moments.len() as u64;
        let turn = self.next.fetch_add(1, Relaxed);
        self.moments[(turn % size) as usize].store(now.saturating_add(1), Relaxed);
        let oldest = self.moments[((turn + 1) % size) as usize].load(Relaxed);
        let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        oldest != 0 && now.saturating_add(1).saturating_sub(oldest) <= window
    }

    fn clear(&self) {
        for moment in &self.moments {
            moment.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
