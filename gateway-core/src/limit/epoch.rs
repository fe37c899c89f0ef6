//! A fixed moment that instants are counted from, so that a point in time fits into an atomic integer.

use tokio::time::Instant;

/// The moment a group of state machines counts time from.
///
/// State that outlives a reload must keep its epoch: numbers counted from two epochs cannot be compared.
#[derive(Debug, Clone, Copy)]
pub struct Epoch(Instant);

impl Epoch {
    /// An epoch that begins at `now`.
    pub fn starting(now: Instant) -> Self {
        Self(now)
    }

    /// The moment itself.
    pub fn start(self) -> Instant {
        self.0
    }

    /// Nanoseconds from the epoch to `now`; 0 for an earlier moment, and no more than 584 years.
    pub fn nanos(self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whole milliseconds from the epoch to `now`; 0 for an earlier moment.
    pub fn millis(self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.0).as_millis()).unwrap_or(u64::MAX)
    }
}
