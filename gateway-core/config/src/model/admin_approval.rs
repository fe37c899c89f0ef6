//! Changes that another user has to approve.

use std::time::Duration;

/// Which changes of the database's objects wait until another user approves them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminApproval {
    /// The names of the roles whose changes need an approval.
    pub roles: Box<[&'static str]>,
    /// Patterns of ids, each perhaps with the name of a kind and a slash before it.
    pub objects: Box<[Box<str>]>,
    /// Approving needs the role `admin`; else `write`.
    pub by_admin: bool,
    /// How long a change waits.
    pub expires_after: Duration,
}
