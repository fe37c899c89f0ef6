//! What became of a command.

use redis::RedisError;

/// Errors of a server that answers: whoever asked learns that there is no answer, and the connection stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    OutOfMemory,
    NoPermission,
    WrongType,
    ScriptRuns,
}

impl Refusal {
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        Some(match error.code()? {
            "OOM" => Self::OutOfMemory,
            "NOPERM" => Self::NoPermission,
            "WRONGTYPE" => Self::WrongType,
            "BUSY" => Self::ScriptRuns,
            _ => return None,
        })
    }
}

/// Why a command was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("no answer in time")]
    Late,
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// What became of a command.
pub(super) enum CommandOutcome {
    Answered,
    /// The server answers, and does not carry it out.
    Refused(Refusal, RedisError),
    /// One node of several failed.
    NodeFailed(CommandError),
    /// The connection is of no more use.
    Lost(CommandError),
}

impl CommandOutcome {
    pub(super) fn failed(error: CommandError, has_nodes: bool) -> Self {
        if has_nodes { Self::NodeFailed(error) } else { Self::Lost(error) }
    }
}
