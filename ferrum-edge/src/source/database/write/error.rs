//! Why nothing was written.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::problem::Problems;

use crate::engine::error::StartError;
use crate::store::StoreError;
use crate::store::seal::SealError;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The objects are wrong.
    #[error("{0}")]
    Invalid(Problems),
    /// The object does not exist.
    #[error("there is no {} `{id}`", kind.singular())]
    NotFound { kind: ObjectKind, id: String, at: String },
    /// The upstream has no such target.
    #[error("the upstream `{upstream}` has no target `{target}`")]
    NoTarget { upstream: String, target: String },
    /// There is one already.
    #[error("there is a {} `{id}` already", kind.singular())]
    Exists { kind: ObjectKind, id: String, at: String },
    /// A condition of the request's own does not hold.
    #[error("{0}")]
    Condition(Box<Self>),
    /// It was changed by somebody else meanwhile.
    #[error("the {} `{id}` was changed by revision {revision}", kind.singular())]
    Changed { kind: ObjectKind, id: String, revision: u64, at: String },
    /// The configuration as a whole was changed by somebody else meanwhile.
    #[error("the newest revision is {revision}, not {expected}")]
    Moved { expected: u64, revision: u64 },
    /// Secrets can't be kept, or not be read; each with the place of its object.
    #[error("{}", .0.iter().map(|(_, source)| source.to_string()).collect::<Vec<_>>().join("; "))]
    Seal(Vec<(String, SealError)>),
    /// A port can't be listened on.
    #[error(transparent)]
    Port(#[from] StartError),
    /// The store did not take it.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The caller's grants do not cover it.
    #[error("{0}")]
    OutOfScope(String),
    /// It can't be approved, rejected or withdrawn.
    #[error("{0}")]
    Approval(#[from] ApprovalError),
    /// It would have to wait for an approval, and too many changes do.
    #[error("{all} changes wait for an approval, {own} of them yours")]
    TooManyPending { all: u64, own: u64 },
    /// It would have to wait for an approval, and is too large to be kept.
    #[error("a change of {objects} objects with {bytes} bytes is too large to wait for an approval")]
    TooLargeToPend { objects: usize, bytes: usize },
    /// The gateway ends.
    #[error("the gateway stops")]
    Stopping,
}

/// Why a change is not approved, rejected or withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApprovalError {
    #[error("There is no change {0}, or your grants do not cover its objects")]
    Unknown(u64),
    #[error("The change {0} is {1} already")]
    Decided(u64, &'static str),
    #[error("The author does not approve or reject a change; another user does. You can withdraw it")]
    Own,
    #[error("Only {0} withdraws this change; reject it instead")]
    NotOwn(String),
    #[error(
        "A token names no person, so it approves and rejects nothing; log in as a user, or use a JWT with `sub`"
    )]
    NoPerson,
    #[error("This needs the role {0}, and yours is {1}")]
    Role(&'static str, &'static str),
    #[error("Your grants do not cover {0}")]
    Grants(String),
    #[error(
        "Only the operator, with a token of the role admin or the Unix socket, applies a change in an emergency"
    )]
    NoOperator,
    #[error("An emergency needs a reason: send `note`")]
    NoReason,
    #[error("{} `{id}` was changed after the change {number} was made; withdraw it and make it again", kind.singular())]
    Base { number: u64, kind: ObjectKind, id: String },
}

impl ApprovalError {
    /// Stable, for machines.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "not_found",
            Self::Decided(..) => "decided",
            Self::Own => "own_change",
            Self::NotOwn(_) => "not_own_change",
            Self::NoPerson => "no_person",
            Self::Role(..) => "forbidden",
            Self::Grants(_) => "out_of_scope",
            Self::NoOperator => "no_operator",
            Self::NoReason => "no_reason",
            Self::Base { .. } => "base_changed",
        }
    }
}
