//! A stored response: its head, its body, and since when it is stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::key::Variant;
use super::policy::Policy;

/// What an entry costs besides its bytes: maps, counts, allocations.
pub(super) const OVERHEAD: u64 = 320;
/// What a header field costs besides its bytes.
const FIELD: u64 = 64;

/// A stored response.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) head: Arc<Head>,
    pub(super) body: Bytes,
    /// When a purge marked it stale, in milliseconds since it was received, plus one; zero is not at all.
    stale_since: AtomicU64,
}

/// A response's head, with what is known about it.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) policy: Policy,
    pub(super) received: Instant,
    pub(super) variant: Variant,
    pub(super) tags: Box<[Box<str>]>,
}

impl Head {
    /// How old the response is.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.policy.initial_age + now.saturating_duration_since(self.received)
    }

    fn weight(&self) -> u64 {
        let headers: u64 = (self.headers.iter())
            .map(|(name, value)| (name.as_str().len() + value.len()) as u64 + FIELD)
            .sum();
        let tags: u64 = self.tags.iter().map(|tag| tag.len() as u64 + 16).sum();
        let variant: u64 = (self.variant.iter())
            .map(|(_, value)| value.as_ref().map_or(0, |value| value.len() as u64) + FIELD)
            .sum();
        headers + tags + variant
    }
}

impl Stored {
    /// A response, whole.
    pub(super) fn new(head: Arc<Head>, body: Bytes) -> Self {
        Self { head, body, stale_since: AtomicU64::new(0) }
    }

    /// For how long it has been marked stale.
    pub(super) fn stale_for(&self, now: Instant) -> Option<Duration> {
        let since = self.stale_since.load(Relaxed).checked_sub(1)?;
        Some(now.saturating_duration_since(self.head.received + Duration::from_millis(since)))
    }

    pub(super) fn mark_stale(&self, now: Instant) {
        self.mark_stale_after(now.saturating_duration_since(self.head.received));
    }

    /// It is stale since so long after it was received.
    pub(super) fn mark_stale_after(&self, after: Duration) {
        let since = u64::try_from(after.as_millis()).unwrap_or(u64::MAX - 1).saturating_add(1);
        // Marked twice, it is stale since the first time.
        _ = self.stale_since.compare_exchange(0, since, Relaxed, Relaxed);
    }

    /// What it counts for in memory, in bytes.
    pub(super) fn weight(&self) -> u64 {
        OVERHEAD + self.body.len() as u64 + self.head.weight()
    }
}
