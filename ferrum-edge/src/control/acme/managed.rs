//! One certificate of a CA: what is stored, what was tried, and when it is due.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::config::model::{AcmeNames, AcmeRules, CertificateFiles};
use gateway_protocols::tls::server;

use super::bundle::Validity;
use super::failure::MAX_ASKED;
use super::renewal::{Window, due, spread};
use super::storage::{Attempts, Storage, StorageLock};
use crate::export::AcmeStatus;

/// One certificate, and what is known of it.
#[derive(Clone)]
pub(super) struct Managed {
    /// Where the configuration names it.
    pub(super) at: String,
    pub(super) files: CertificateFiles,
    pub(super) names: AcmeNames,
    stamp: Stamp,
    pub(super) held: Option<StoredCertificate>,
    /// Why what is stored can't be used.
    unusable: Option<String>,
    pub(super) attempts: Attempts,
    /// What could not be written to the storage, and holds here only.
    pub(super) unsaved: bool,
    pub(super) window: Option<Window>,
    /// When the CA is asked next when it would have it renewed.
    pub(super) asked_at: Option<SystemTime>,
    /// An operator wants it ordered now.
    pub(super) is_requested: bool,
}

/// A certificate that is stored.
#[derive(Debug, Clone)]
pub(super) struct StoredCertificate {
    pub(super) leaf: Vec<u8>,
    validity: Validity,
    spread: f64,
}

/// What tells one state of a file from another without reading it.
type Stamp = Option<(i64, i64, u64, u64)>;

impl Managed {
    pub(super) fn new(at: String, files: &CertificateFiles, names: &AcmeNames) -> Self {
        Self {
            at,
            files: files.clone(),
            names: names.clone(),
            stamp: None,
            held: None,
            unusable: None,
            attempts: Attempts::default(),
            unsaved: false,
            window: None,
            asked_at: None,
            is_requested: false,
        }
    }

    /// Reads what is stored, where that has changed. Waits for the disk.
    pub(super) fn read(&mut self, storage: &Storage, now: u64) {
        let stamp = stamp(&self.files.cert_path);
        if stamp != self.stamp || stamp.is_none() {
            // What could not be read is read again at the next look: what kept it from being read may leave no trace.
            self.stamp = None;
            match server::got(&self.files, &self.names) {
                Ok(key) => {
                    self.stamp = stamp;
                    self.unusable = None;
                    self.hold(key.and_then(|key| StoredCertificate::of(&key.cert[0])));
                }
                Err(error) => {
                    // One that was read before goes on being shown.
                    let remedy = "remove it or move it away, and another one is ordered";
                    self.unusable = Some(format!("the stored certificate can't be used: {error}; {remedy}"));
                }
            }
        }
        if !self.unsaved {
            // What can't be read says nothing; what was known before holds.
            if let Ok(attempts) = storage.read_attempts(&self.files.cert_path) {
                self.attempts = attempts.unwrap_or_default();
            }
        }
        self.unsaved |= self.attempts.limit(latest(now));
    }

    fn hold(&mut self, held: Option<StoredCertificate>) {
        let leaf = |held: &Option<StoredCertificate>| held.as_ref().map(|held| held.leaf.clone());
        if leaf(&held) == leaf(&self.held) {
            return;
        }
        (self.window, self.asked_at) = (None, None);
        if held.is_some() && self.unsaved {
            // Another gateway got it; what failed here before is over.
            (self.unsaved, self.attempts) = (false, Attempts::default());
        }
        self.held = held;
    }

    /// Writes what could not be written before, unless another gateway has noted to wait longer.
    pub(super) fn save(&mut self, storage: &Storage, now: u64, lock: &StorageLock) {
        let path = &self.files.cert_path;
        let theirs = storage.read_attempts(path).ok().flatten();
        let is_later = |theirs: &Attempts| {
            theirs.not_before > self.attempts.not_before && theirs.not_before <= Some(latest(now))
        };
        self.unsaved = match theirs.filter(is_later) {
            Some(theirs) => {
                self.attempts = theirs;
                false
            }
            None => storage.keep_attempts(path, &self.attempts, lock).is_err(),
        };
    }

    /// When it is to be ordered; `None` where that is up to an operator.
    pub(super) fn due(&self, rules: &AcmeRules) -> Option<SystemTime> {
        if self.unusable.is_some() {
            return None;
        }
        let not_before = self.attempts.not_before.and_then(moment).unwrap_or(UNIX_EPOCH);
        let due =
            self.held.as_ref().map(|held| due(held.validity, self.window, rules.renew_before, held.spread));
        Some(due.unwrap_or(UNIX_EPOCH).max(not_before))
    }

    pub(super) fn status(&self, rules: &AcmeRules) -> AcmeStatus {
        let failed = (self.attempts.failures > 0).then(|| self.attempts.problem.clone()).flatten();
        AcmeStatus {
            at: self.at.clone(),
            names: self.names.clone(),
            file: self.files.cert_path.clone(),
            ends_at: self.held.as_ref().map(|held| held.validity.to),
            next_order_at: self.due(rules),
            failures: self.attempts.failures,
            failed_at: self.attempts.failed_at.and_then(moment),
            problem: self.unusable.clone().or(failed),
        }
    }

    pub(super) fn shown(&self) -> String {
        self.names.join(", ")
    }
}

impl StoredCertificate {
    fn of(leaf: &[u8]) -> Option<Self> {
        Some(Self { leaf: leaf.to_vec(), validity: Validity::read(leaf)?, spread: spread(leaf) })
    }
}

fn stamp(path: &Path) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.mtime(), data.mtime_nsec(), data.size(), data.ino()))
}

fn moment(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Nobody is told to wait for longer: a later moment is of a clock that was wrong.
fn latest(now: u64) -> u64 {
    now.saturating_add(MAX_ASKED.as_secs())
}
