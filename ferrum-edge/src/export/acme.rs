//! How certificates stand that the gateway gets by itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gateway_core::config::model::AcmeNames;
use gateway_core::config::warning::Warning;

/// What became of orders, and how each certificate stands.
#[derive(Default)]
pub(crate) struct AcmeCounts {
    pub(crate) issued: AtomicU64,
    pub(crate) failed: AtomicU64,
    statuses: Mutex<Vec<AcmeStatus>>,
    /// Files of certificates that an operator wants renewed now. No more than there are certificates.
    renewals: Mutex<BTreeSet<PathBuf>>,
}

/// How a certificate stands that the gateway gets by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcmeStatus {
    /// Where the configuration names it.
    pub(crate) at: String,
    pub(crate) names: AcmeNames,
    /// Where it is kept.
    pub(crate) file: PathBuf,
    /// When the one that is stored ends; `None` while there is none.
    pub(crate) ends_at: Option<SystemTime>,
    /// When the next one is ordered; `None` where that is up to an operator.
    pub(crate) next_order_at: Option<SystemTime>,
    /// How many orders failed in a row.
    pub(crate) failures: u32,
    /// When the last of them failed.
    pub(crate) failed_at: Option<SystemTime>,
    /// Why, or what else is in the way.
    pub(crate) problem: Option<String>,
}

/// How a certificate stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcmeStanding {
    /// It is in use.
    Good,
    /// The first one is not there yet.
    Missing,
    /// The last order failed; the one before it, if there is one, is in use.
    Failing,
}

impl AcmeStanding {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Missing => "missing",
            Self::Failing => "failing",
        }
    }
}

impl AcmeCounts {
    /// Notes that the certificate with this name is to be ordered at the next look; its names, or `None` where there is none.
    pub(crate) fn request_renewal(&self, name: &str) -> Option<AcmeNames> {
        let statuses = self.statuses();
        let has = |status: &&AcmeStatus| status.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let found = statuses.iter().find(has)?;
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        renewals.insert(found.file.clone());
        Some(found.names.clone())
    }

    /// Whether the certificate of this file is to be ordered now; asked once for each request.
    pub(crate) fn take_renewal(&self, file: &Path) -> bool {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner).remove(file)
    }

    pub(crate) fn statuses(&self) -> MutexGuard<'_, Vec<AcmeStatus>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcmeStatus {
    pub(crate) fn standing(&self) -> AcmeStanding {
        match (&self.problem, self.ends_at) {
            (Some(_), _) => AcmeStanding::Failing,
            (None, None) => AcmeStanding::Missing,
            (None, Some(_)) => AcmeStanding::Good,
        }
    }

    /// What is warned of.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let problem = self.problem.as_ref()?;
        let consequence = match self.ends_at {
            Some(_) => "the certificate before goes on being used",
            None => "TLS handshakes for its names are refused, unless another certificate covers them",
        };
        Some(Warning {
            code: "acme_failing",
            path: self.at.clone(),
            message: format!("{problem}; {consequence}"),
            remedy: "see `acme` in /v1/status; `ferrum-edge doctor` looks for causes",
        })
    }
}
