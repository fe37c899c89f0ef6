//! The time of day, which tests can set ahead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The time of day by which certificates are renewed.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Seconds ahead of this machine's clock; never any outside of tests.
    ahead: AtomicU64,
}

impl Clock {
    /// What time it is.
    pub(crate) fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.ahead.load(Ordering::Relaxed))
    }

    /// Sets it ahead of this machine's clock.
    #[cfg(test)]
    pub(crate) fn set_ahead(&self, by: Duration) {
        self.ahead.store(by.as_secs(), Ordering::Relaxed);
    }
}
