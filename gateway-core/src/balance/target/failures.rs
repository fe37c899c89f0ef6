//! Failures of a target's traffic in the recent past, for operators. Balancing does not read them.
//!
//! Counters are atomics. The text of a failure is replaced at most once a second, so that a target that fails for every worker
//! costs none of them an allocation for each request.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::{Target, Vitals};
use crate::config::problem::shorten;

/// The time without a failure after which counting starts over.
const WINDOW: Duration = Duration::from_mins(1);
/// The time for which the text of a failure is kept although others follow, in milliseconds.
const TEXT_KEPT_MS: u64 = 1000;
/// Maximum length of the detail, in bytes, without the mark of a cut.
const MAX_DETAIL: usize = 300;

/// Allocated at the first failure.
#[derive(Debug, Default)]
pub(in crate::balance) struct FailureLog(OnceLock<Box<Log>>);

#[derive(Debug, Default)]
struct Log {
    count: AtomicU64,
    /// Milliseconds since the epoch.
    first: AtomicU64,
    last: AtomicU64,
    has_succeeded: AtomicBool,
    text_at: AtomicU64,
    text: ArcSwapOption<FailureText>,
}

#[derive(Debug)]
struct FailureText {
    reason: &'static str,
    detail: String,
}

/// Failures without a pause of more than a minute between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentFailures {
    /// Number of failed attempts.
    pub count: u64,
    /// Time since the first of them.
    pub first_ago: Duration,
    /// Time since the last of them.
    pub last_ago: Duration,
    /// Whether an attempt succeeded after the last of them.
    pub has_succeeded_since: bool,
    /// The reason of one of the last: `connect_failed`, `dns_failed`, …
    pub reason: &'static str,
    /// Its error message; may be empty.
    pub detail: String,
}

impl FailureLog {
    fn note(&self, reason: &'static str, detail: impl FnOnce() -> String, now: u64) {
        let log = self.0.get_or_init(Box::default);
        let before = log.last.swap(now, Relaxed);
        let window = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let is_new = log.count.load(Relaxed) == 0 || now.saturating_sub(before) > window;
        if is_new {
            log.first.store(now, Relaxed);
            log.count.store(1, Relaxed);
        } else {
            log.count.fetch_add(1, Relaxed);
        }
        log.has_succeeded.store(false, Relaxed);
        let text_at = log.text_at.load(Relaxed);
        if is_new || now.saturating_sub(text_at) >= TEXT_KEPT_MS {
            let replaced = log.text_at.compare_exchange(text_at, now, Relaxed, Relaxed);
            if replaced.is_ok() {
                let mut detail = detail();
                shorten(&mut detail, MAX_DETAIL);
                log.text.store(Some(Arc::new(FailureText { reason, detail })));
            }
        }
    }

    #[inline]
    fn succeeded(&self) {
        if let Some(log) = self.0.get()
            && !log.has_succeeded.load(Relaxed)
        {
            log.has_succeeded.store(true, Relaxed);
        }
    }

    fn recent(&self, now: u64) -> Option<RecentFailures> {
        let log = self.0.get()?;
        let text = log.text.load_full()?;
        let ago = |moment: &AtomicU64| Duration::from_millis(now.saturating_sub(moment.load(Relaxed)));
        Some(RecentFailures {
            count: log.count.load(Relaxed),
            first_ago: ago(&log.first),
            last_ago: ago(&log.last),
            has_succeeded_since: log.has_succeeded.load(Relaxed),
            reason: text.reason,
            detail: text.detail.clone(),
        })
    }
}

impl Target {
    /// Notes a failed attempt that the target is to blame for. `detail` makes the error message, and is not always called.
    pub fn note_failure(&self, reason: &'static str, detail: impl FnOnce() -> String, now: Instant) {
        let Vitals { failures, .. } = &**self.vitals();
        failures.note(reason, detail, self.vitals().millis(now));
    }

    /// Notes an exchange that no target of its upstream had room for, this one because of its limits.
    pub fn note_full(&self, now: Instant) {
        let Vitals { refused, .. } = &**self.vitals();
        refused.note("targets_full", String::new, self.vitals().millis(now));
    }

    /// The last exchanges that it had no room for; `None` if there has been room for all.
    pub fn recently_full(&self, now: Instant) -> Option<RecentFailures> {
        self.vitals().refused.recent(self.vitals().millis(now))
    }

    /// The last failed attempts, whenever they were; `None` if none has failed since the target exists.
    pub fn recent_failures(&self, now: Instant) -> Option<RecentFailures> {
        self.vitals().failures.recent(self.vitals().millis(now))
    }
}

impl Vitals {
    /// Notes that an attempt succeeded. Costs one load for a target that has never failed.
    #[inline]
    pub(in crate::balance) fn succeeded(&self) {
        self.failures.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> String {
        "connection refused".to_owned()
    }

    #[test]
    fn counts_failures_until_a_minute_passes_without_one() {
        let log = FailureLog::default();
        assert_eq!(log.recent(0), None);
        log.note("connect_failed", refused, 1_000);
        log.note("connect_failed", refused, 31_000);
        let recent = log.recent(41_000).unwrap();
        assert_eq!(
            (recent.count, recent.reason, &*recent.detail),
            (2, "connect_failed", "connection refused")
        );
        assert_eq!((recent.first_ago, recent.last_ago), (Duration::from_secs(40), Duration::from_secs(10)));
        log.note("dns_failed", || "ä".repeat(400), 92_000);
        let recent = log.recent(92_000).unwrap();
        assert_eq!(
            (recent.count, recent.reason, recent.detail),
            (1, "dns_failed", format!("{}…", "ä".repeat(150)))
        );
    }

    #[test]
    fn a_success_is_noted_until_the_next_failure() {
        let log = FailureLog::default();
        log.succeeded();
        log.note("connect_failed", refused, 1_000);
        assert!(!log.recent(1_000).unwrap().has_succeeded_since);
        log.succeeded();
        assert!(log.recent(1_000).unwrap().has_succeeded_since);
        log.note("connect_failed", refused, 1_001);
        assert!(!log.recent(1_001).unwrap().has_succeeded_since);
    }

    #[test]
    fn the_text_is_made_once_a_second() {
        let log = FailureLog::default();
        log.note("connect_failed", refused, 1_000);
        log.note("connect_failed", || panic!("made too often"), 1_999);
        log.note("connect_timeout", String::new, 2_000);
        assert_eq!(log.recent(2_000).unwrap().reason, "connect_timeout");
    }
}
