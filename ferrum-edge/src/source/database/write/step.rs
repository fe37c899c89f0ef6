//! What a write does, one thing at a time.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;
use serde_json::{Map, Value};

use super::{Precondition, TargetAddress, TargetChange};

/// One thing to be done.
#[derive(Debug, Clone)]
pub(crate) enum WriteStep {
    /// Creates the object, or replaces it.
    Put { kind: ObjectKind, id: Id, document: Map<String, Value>, only: Precondition },
    /// Changes what the patch names (RFC 7396).
    Merge { kind: ObjectKind, id: Id, patch: Map<String, Value>, only: Precondition },
    /// Changes one target of an upstream.
    Target { id: Id, address: TargetAddress, change: TargetChange, only: Precondition },
    /// Removes the object, and with a proxy its own plugin configs.
    Delete { kind: ObjectKind, id: Id, only: Precondition },
}

impl WriteStep {
    /// What it is about.
    pub(crate) fn key(&self) -> (ObjectKind, &Id) {
        match self {
            Self::Put { kind, id, .. } | Self::Merge { kind, id, .. } | Self::Delete { kind, id, .. } => {
                (*kind, id)
            }
            Self::Target { id, .. } => (ObjectKind::Upstreams, id),
        }
    }

    pub(super) fn precondition(&self) -> Precondition {
        match self {
            Self::Put { only, .. }
            | Self::Merge { only, .. }
            | Self::Target { only, .. }
            | Self::Delete { only, .. } => *only,
        }
    }
}
