//! Changes that another user has to approve, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::admin_role::AdminRole;
use crate::units::Seconds;

/// Changes of the database's objects that wait until another user approves them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminApproval {
    /// Roles whose changes need an approval: `write`, `admin` or both. Default both.
    #[schemars(length(max = 2))]
    pub roles: Option<Vec<AdminRole>>,
    /// Objects whose changes need an approval: patterns of IDs in which `*` is any text, such as `shop-*`; with a kind
    /// before a slash, such as `consumers/*`, for that kind only. A change of another object that alters a proxy needs
    /// an approval if the proxy does. Default `["*"]`.
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub objects: Option<Vec<String>>,
    /// Role that a user needs to approve or reject changes: `write` or `admin`. An approval also needs the role that
    /// the change needs. Default `write`.
    pub approver_role: Option<AdminRole>,
    /// How long a change waits for an approval, 1 minute to 90 days. Default 7 days.
    #[schemars(range(min = 60, max = 7_776_000))]
    pub expires_after: Option<Seconds>,
}
