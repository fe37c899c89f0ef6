//! Roles of the admin API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role of the admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdminRole {
    /// See everything but secrets.
    Read,
    /// Change objects.
    Write,
    /// Import, roll back, and administer users.
    Admin,
}
