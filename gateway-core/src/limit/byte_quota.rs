//! A byte quota, such as that of a month or a day: grants at most its limit until the count is reset.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::byte_rate::{MAX_TURN, MIN_TURN};

/// The share of what is left that one reservation takes at most.
const TURN_SHARE: u64 = 8;

/// Bytes that may be used. No more is ever granted than is left, over all workers.
///
/// Streams reserve bytes before they read them, and give back what they did not read. A quota is exhausted only once its bytes were
/// used: while others hold reservations, whoever finds nothing left waits for what they give back.
#[derive(Debug, Default)]
pub struct ByteQuota {
    limit: AtomicU64,
    /// Used or reserved.
    claimed: AtomicU64,
    /// Of those, reserved.
    reserved: AtomicU64,
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
        Self { limit: AtomicU64::new(limit), claimed: AtomicU64::new(used), ..Self::default() }
    }

    /// Bytes used.
    pub fn used(&self) -> u64 {
        // In this order: what turns from reserved to used in between counts as reserved still.
        let reserved = self.reserved.load(SeqCst);
        self.claimed.load(SeqCst).saturating_sub(reserved)
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> u64 {
        self.limit.load(SeqCst)
    }

    /// Sets how many may be used. What was used stays used.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, SeqCst);
    }

    /// Grants nothing any more, or again.
    pub fn set_expired(&self, expired: bool) {
        self.expired.store(expired, SeqCst);
    }

    /// Whether it is past its date.
    pub fn is_expired(&self) -> bool {
        self.expired.load(SeqCst)
    }

    /// Counts bytes as used that others used.
    pub fn add(&self, bytes: u64) {
        let _added = self.claimed.fetch_update(SeqCst, SeqCst, |claimed| Some(claimed.saturating_add(bytes)));
    }

    /// Forgives bytes that were used.
    pub fn forgive(&self, bytes: u64) {
        let _less = self.claimed.fetch_update(SeqCst, SeqCst, |claimed| Some(claimed.saturating_sub(bytes)));
    }

    /// Why nothing is granted.
    pub fn closed(&self) -> Option<&'static str> {
        match self.is_expired() {
            true => Some(EXPIRED),
            false => (self.used() >= self.limit()).then_some(EXHAUSTED),
        }
    }

    /// Bytes that one reservation should be for: the fewer are left, the fewer, so that nobody holds the rest while others wait.
    pub(crate) fn bytes_per_turn(&self) -> u64 {
        let left = self.limit().saturating_sub(self.claimed.load(SeqCst));
        (left / TURN_SHARE).clamp(MIN_TURN, MAX_TURN)
    }

    /// Reserves as many of these bytes as are left: none while others have reserved the rest.
    ///
    /// # Errors
    /// The word for the record, when all were used.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<u64, &'static str> {
        if self.is_expired() {
            return Err(EXPIRED);
        }
        let limit = self.limit();
        // Reserved before it is claimed and claimed until it is not reserved: nobody sees a claim without its reservation.
        self.reserved.fetch_add(bytes, SeqCst);
        let add = |claimed: u64| (claimed < limit).then(|| claimed + bytes.min(limit - claimed));
        let before = self.claimed.fetch_update(SeqCst, SeqCst, add);
        let granted = before.map_or(0, |before| bytes.min(limit - before));
        let others = self.reserved.fetch_sub(bytes - granted, SeqCst) - (bytes - granted);
        let is_exhausted = granted == 0 && others == 0 && self.claimed.load(SeqCst) >= limit;
        if is_exhausted { Err(EXHAUSTED) } else { Ok(granted) }
    }

    /// Reserved bytes were used.
    pub(crate) fn spend(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, SeqCst);
    }

    /// Reserved bytes were not used.
    pub(crate) fn refund(&self, bytes: u64) {
        self.forgive(bytes);
        self.reserved.fetch_sub(bytes, SeqCst);
    }

    /// Uses all of these bytes, or none.
    ///
    /// # Errors
    /// The word for the record when they are not left; `None` where others may still give some back.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Option<&'static str>> {
        if self.is_expired() {
            return Err(Some(EXPIRED));
        }
        let limit = self.limit();
        let add = |claimed: u64| claimed.checked_add(bytes).filter(|after| *after <= limit);
        let taken = self.claimed.fetch_update(SeqCst, SeqCst, add);
        taken.map(drop).map_err(|_| (self.reserved.load(SeqCst) == 0).then_some(EXHAUSTED))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn grants_what_is_left_and_no_more() {
        let quota = ByteQuota::new(100, 30);
        assert_eq!((quota.reserve(50), quota.used()), (Ok(50), 30));
        assert_eq!(quota.reserve(50), Ok(20));
        assert_eq!((quota.reserve(1), quota.closed()), (Ok(0), None), "others may give some back");
        assert_eq!(quota.take(1), Err(None));
        quota.spend(50);
        quota.refund(5);
        quota.spend(15);
        assert_eq!((quota.used(), quota.take(6), quota.take(5)), (95, Err(Some(EXHAUSTED)), Ok(())));
        assert_eq!((quota.reserve(1), quota.closed()), (Err(EXHAUSTED), Some(EXHAUSTED)));
        quota.set_limit(1000);
        quota.set_expired(true);
        assert_eq!((quota.reserve(1), quota.closed()), (Err(EXPIRED), Some(EXPIRED)));
        quota.set_expired(false);
        assert_eq!((quota.take(1), quota.closed()), (Ok(()), None));
    }

    #[test]
    fn threads_use_exactly_the_limit() {
        let quota = ByteQuota::new(100_003, 0);
        let used = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Ok(granted) = quota.reserve(7) {
                        let spent = granted.min(5);
                        quota.spend(spent);
                        quota.refund(granted - spent);
                        used.fetch_add(spent, SeqCst);
                    }
                });
            }
        });
        assert_eq!((used.into_inner(), quota.used()), (100_003, 100_003));
    }
}
