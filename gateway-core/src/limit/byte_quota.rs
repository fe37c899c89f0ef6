//! How many bytes in all, until somebody resets the count: what a quota of a month or a day has left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes that may be used. No more is ever granted than is left, over all workers.
#[derive(Debug, Default)]
pub struct ByteQuota {
    limit: AtomicU64,
    used: AtomicU64,
    /// Nothing is granted any more, whatever is left.
    expired: AtomicBool,
}

/// The word for a session that a quota ended.
pub const EXHAUSTED: &str = "quota_exceeded";
/// The word for a session whose quota is past its date.
pub const EXPIRED: &str = "quota_expired";

impl ByteQuota {
    /// A quota of `limit` bytes, of which `used` are gone.
    pub fn new(limit: u64, used: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(used), expired: AtomicBool::new(false) }
    }

    /// Bytes used. Includes those granted to sessions that have not moved them yet.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Sets how many may be used. What was used stays used.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// Grants nothing any more, or again.
    pub fn set_expired(&self, expired: bool) {
        self.expired.store(expired, Relaxed);
    }

    /// Whether it is past its date.
    pub fn is_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    /// Counts bytes as used that others used.
    pub fn add(&self, bytes: u64) {
        let _added = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_add(bytes)));
    }

    /// Takes back bytes that were granted and not used, or that a new period forgives.
    pub fn give_back(&self, bytes: u64) {
        let _less = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(bytes)));
    }

    /// Why nothing is granted.
    pub fn closed(&self) -> Option<&'static str> {
        match self.is_expired() {
            true => Some(EXPIRED),
            false => (self.used() >= self.limit()).then_some(EXHAUSTED),
        }
    }

    /// Grants as many of these bytes as are left.
    ///
    /// # Errors
    /// The word for the record, when none is.
    pub(crate) fn take(&self, bytes: u64) -> Result<u64, &'static str> {
        if self.is_expired() {
            return Err(EXPIRED);
        }
        let limit = self.limit();
        let add = |used: u64| (used < limit).then(|| used + bytes.min(limit - used));
        let before = self.used.fetch_update(Relaxed, Relaxed, add).map_err(|_| EXHAUSTED)?;
        Ok(bytes.min(limit - before))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn grants_what_is_left_and_no_more() {
        let quota = ByteQuota::new(100, 30);
        assert_eq!(quota.take(50), Ok(50));
        assert_eq!(quota.take(50), Ok(20));
        assert_eq!((quota.take(1), quota.closed()), (Err(EXHAUSTED), Some(EXHAUSTED)));
        quota.give_back(5);
        assert_eq!((quota.take(9), quota.used()), (Ok(5), 100));
        quota.set_limit(101);
        assert_eq!(quota.take(9), Ok(1));
        quota.set_limit(1000);
        quota.set_expired(true);
        assert_eq!((quota.take(1), quota.closed()), (Err(EXPIRED), Some(EXPIRED)));
        quota.set_expired(false);
        assert_eq!((quota.take(1), quota.closed()), (Ok(1), None));
    }

    #[test]
    fn threads_use_exactly_the_limit() {
        let quota = ByteQuota::new(100_003, 0);
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Ok(bytes) = quota.take(7) {
                        granted.fetch_add(bytes, Relaxed);
                    }
                });
            }
        });
        assert_eq!((granted.into_inner(), quota.used()), (100_003, 100_003));
    }
}
