//! The commands, one file each, and what they share.

use std::path::PathBuf;

use crate::backend::BackendError;
use crate::driver::Fault;
use crate::plan::TargetError;
use crate::text_files::FileError;
use crate::tls::TlsError;

pub mod backend;
pub mod bulk;
pub mod clients;
pub mod compare;
pub mod fleet;
pub mod matrix;
pub mod measure;
pub mod output;
pub mod relay;
pub mod replay;
pub mod report;
pub mod run;
pub mod scale;
pub mod search;
pub mod stand;
pub mod sweep;
pub mod urls;

/// All rows could be quoted, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Valid,
    Void,
}

/// Why a command gave up. Wrong answers are no reason: they make rows void.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("the relay ended: {0}")]
    Relay(#[source] std::io::Error),
    #[error("the round could not be run: {0}")]
    Round(#[from] Fault),
    #[error(transparent)]
    Bulk(#[from] crate::bulk::BulkError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Load(#[from] crate::load_args::LoadError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Rules(#[from] crate::peers::firewall::RulesError),
    #[error(transparent)]
    Stand(#[from] stand::StandError),
    #[error(transparent)]
    Process(#[from] crate::process::ProcessError),
    #[error(transparent)]
    Table(#[from] crate::replay::TableError),
    #[error(transparent)]
    Content(#[from] crate::replay::content::ContentError),
    #[error(transparent)]
    Tokens(#[from] crate::replay::tokens::TokenError),
    #[error(transparent)]
    Fleet(#[from] crate::fleet::FleetError),
    #[error(transparent)]
    Scale(#[from] crate::scale::ScaleError),
    #[error("cannot make the directory {path}: {source}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot write to standard output: {0}")]
    Output(#[source] std::io::Error),
    #[error("cannot pin to core {core}: {source}")]
    Pin { core: usize, source: rustix::io::Errno },
    #[error("{0}")]
    Usage(String),
}
