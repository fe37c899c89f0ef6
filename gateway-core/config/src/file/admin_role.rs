//! Roles of the admin API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role of the admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdminRole {
    /// Sees everything except secrets.
    Read,
    /// Also changes objects.
    Write,
    /// Also imports, rolls back, and manages users.
    Admin,
}
