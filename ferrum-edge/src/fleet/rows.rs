//! The fleet's rows in the database.

use gateway_fleet::CodeHash;
use serde::{Deserialize, Serialize};

/// Certificates of an edge that are accepted at a time: the newest, and those that it may still use while it renews.
pub(super) const MAX_CERTIFICATES: usize = 4;
/// The kind of rows of edges.
pub(super) const EDGE: &str = "edge";
/// The kind of rows of invitations.
pub(super) const INVITATION: &str = "invitation";
/// The kind of rows of groups for which not everything is meant.
pub(super) const GROUP: &str = "group";
/// The kind of rows of which there is one each.
pub(super) const SETTING: &str = "setting";
/// The row of the authority.
pub(super) const AUTHORITY: &str = "authority";
/// The row of the epoch.
pub(super) const EPOCH: &str = "epoch";

/// An edge that was enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EdgeRow {
    /// A label for people; changing it changes nothing else.
    pub(crate) name: String,
    pub(crate) group: String,
    /// Certificates that are accepted; none of a revoked edge.
    pub(crate) certificates: Vec<AcceptedCertificate>,
    /// Seconds since 1970.
    pub(crate) enrolled: u64,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<u64>,
}

impl EdgeRow {
    /// Accepts another certificate from this time on. If there are too many, the oldest is accepted no more, but never the one
    /// `in_use`: an edge that can't keep what it gets asks again and again, and has only that one.
    pub(super) fn accept(&mut self, new: AcceptedCertificate, in_use: &str, time: u64) {
        self.certificates.retain(|certificate| certificate.not_after > time);
        while self.certificates.len() >= MAX_CERTIFICATES {
            let replaceable = self.certificates.iter().position(|certificate| certificate.serial != in_use);
            let Some(oldest) = replaceable else { break };
            self.certificates.remove(oldest);
        }
        self.certificates.push(new);
    }
}

/// A certificate of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcceptedCertificate {
    /// In hexadecimal.
    pub(crate) serial: String,
    /// Seconds since 1970.
    pub(crate) not_after: u64,
}

/// What is meant for a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupRow {
    /// Ids of proxies, in which `*` stands for any text.
    pub(crate) proxies: Vec<String>,
    /// Workspaces whose objects it gets as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) workspaces: Vec<String>,
}

/// An invitation that was not used yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InvitationRow {
    pub(super) code: CodeHash,
    /// Seconds since 1970.
    pub(super) expires: u64,
    pub(super) name: String,
    pub(super) group: String,
    /// The edge that enrols again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edge: Option<String>,
}

/// The authority that was made for this fleet.
#[derive(Serialize, Deserialize)]
pub(super) struct AuthorityRow {
    /// PEM.
    pub(super) certificate: String,
    /// PEM, encrypted by `FERRUM_DB_ENCRYPTION_KEY`.
    pub(super) key: String,
}

/// The epoch of the store's revisions.
#[derive(Serialize, Deserialize)]
pub(super) struct EpochRow {
    pub(super) epoch: String,
}
