//! Usage that gateways keep in the database of their configuration, beside it and not in its history.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// The answer of a store, or why it did not answer.
pub type UsageAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, UsageError>> + Send + 'a>>;

/// Why a store did not answer.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The database failed, or refused.
    #[error(transparent)]
    Database(Box<dyn Error + Send + Sync>),
    /// The gateway ends before the answer came.
    #[error("the gateway ends")]
    Ending,
}

/// What all gateways together have used of one key in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUsage {
    /// The key, as its plugin config hashes it.
    pub key: u64,
    /// When the period ends, in seconds since 1970.
    pub period_end: u64,
    /// The key, for people; at most 1,024 bytes are kept.
    pub label: Box<str>,
    /// Bytes.
    pub used: u64,
}

/// What one gateway has to add to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageChange {
    /// The key, its period, its label, and the bytes that are added.
    pub added: KeyUsage,
    /// Bytes that count as used if this gateway dies before its next change. Replaces its last claim.
    pub claim: u64,
    /// Sets what all gateways have used to zero before the bytes are added.
    pub resets: bool,
}

/// How fine a history is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryStep {
    /// Minutes, kept for 7 days.
    Minute,
    /// Hours, kept for 90 days.
    Hour,
}

impl HistoryStep {
    /// Seconds of a step.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// How many steps are kept.
    pub const fn steps_kept(self) -> u64 {
        match self {
            Self::Minute => 7 * 24 * 60,
            Self::Hour => 90 * 24,
        }
    }
}

/// Bytes of one key in one minute or hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The key.
    pub key: u64,
    /// The key, for people.
    pub label: Box<str>,
    /// How long.
    pub step: HistoryStep,
    /// Which, counted from 1970.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Keeps usage by plugin config. Implemented by the program for database mode.
///
/// An answer that is lost while the database commits may have been carried out: what is told again then counts twice. What a
/// gateway that died had claimed counts as used from 10 s after its last change on.
pub trait UsageStore: Send + Sync {
    /// What was used when the gateway started; `None` where the database did not answer then.
    fn known_at_start(&self, config: &str) -> Option<Vec<KeyUsage>>;

    /// Makes the changes, all or none, and answers with the usage of every key whose period has not ended.
    fn exchange<'a>(
        &'a self,
        config: &'a str,
        changes: Vec<UsageChange>,
        now: u64,
    ) -> UsageAnswer<'a, Vec<KeyUsage>>;

    /// Adds to the history, all or nothing, and removes what is older than is kept.
    fn add_history<'a>(
        &'a self,
        config: &'a str,
        entries: Vec<HistoryEntry>,
        now: u64,
    ) -> UsageAnswer<'a, ()>;

    /// The history of all keys, at most `limit` entries, the newest first.
    fn history<'a>(&'a self, config: &'a str, limit: usize) -> UsageAnswer<'a, Vec<HistoryEntry>>;
}

/// The store in use, if there is one.
#[derive(Default)]
pub(super) struct UsageStores(Mutex<Option<Arc<dyn UsageStore>>>);

impl UsageStores {
    pub(super) fn put(&self, store: Arc<dyn UsageStore>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    }

    pub(super) fn get(&self) -> Option<Arc<dyn UsageStore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
