//! How an edge stands with its control plane.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gateway_fleet::{Findings, Position};

/// How an edge stands with its control plane, for status.
#[derive(Debug, Clone, Default)]
pub(crate) struct EdgeStanding {
    pub(crate) edge: String,
    pub(crate) name: String,
    pub(crate) group: String,
    /// The control plane that it is connected to.
    pub(crate) connected: Option<String>,
    /// Since when it is, or is not.
    pub(crate) since: Option<SystemTime>,
    /// Why it is not.
    pub(crate) problem: Option<String>,
    pub(crate) served: Option<Position>,
    pub(crate) findings: Findings,
    pub(crate) refused: Option<(Position, String)>,
    pub(crate) revoked: Option<String>,
    /// Seconds since 1970.
    pub(crate) certificate_ends: u64,
    /// The last good configuration on the disk.
    pub(crate) kept: Option<Position>,
    /// Why a newer one could not be kept.
    pub(crate) unsaved: Option<String>,
}

/// Shared by the agent and the admin API.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedStanding(Arc<Mutex<EdgeStanding>>);

impl SharedStanding {
    /// As it is now.
    pub(crate) fn get(&self) -> EdgeStanding {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut EdgeStanding)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
