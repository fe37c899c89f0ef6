//! Why an edge can't start, or can't keep what it has.

use std::io;
use std::path::{Path, PathBuf};

use gateway_core::config::problem::Problems;
use gateway_core::plugin::world::calls::CallError;
use gateway_fleet::{AuthorityError, FleetTlsError, LinkError, SealError};
use http::StatusCode;
use thiserror::Error;

use crate::source::database::LoadError;

/// Why an edge can't start.
#[derive(Debug, Error)]
pub(crate) enum EdgeError {
    /// Its files.
    #[error(transparent)]
    State(#[from] StateError),
    /// It is not enrolled, and was not invited.
    #[error(
        "this edge is not enrolled; make an invitation by `ferrum-edge fleet invite` on the control plane, and start it with FERRUM_EDGE_INVITATION"
    )]
    NotEnrolled,
    /// The control plane did not take it in.
    #[error("this edge could not be enrolled: {0}")]
    Enrolment(#[from] CertificateError),
    /// The operator's own first configuration can't be used.
    #[error("there is no configuration yet: {0}")]
    First(#[from] FirstError),
    /// There is no configuration anywhere, for this reason.
    #[error("there is no configuration yet: {0}")]
    NoConfiguration(String),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Why a file of an edge can't be used.
#[derive(Debug, Error)]
pub(crate) enum StateError {
    /// The folder of all of them.
    #[error("{} can't be used: {error}; set FERRUM_EDGE_STATE", .folder.display())]
    Folder { folder: PathBuf, error: io::Error },
    #[error("{} can't be {tried}: {error}", .path.display())]
    File { path: PathBuf, tried: &'static str, error: io::Error },
    #[error("{} can't be {tried}: {error}", .path.display())]
    Identity { path: PathBuf, tried: &'static str, error: serde_json::Error },
    /// The last good configuration.
    #[error("{}: {error}", .path.display())]
    Sealed { path: PathBuf, error: SealError },
    #[error("{0} has no key for the last good configuration")]
    NoSealKey(&'static str),
    #[error("this machine has no randomness for a key")]
    Randomness,
}

impl StateError {
    /// For `map_err`: what was tried with this file.
    pub(super) fn of(path: &Path, tried: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::File { path: path.to_owned(), tried, error }
    }
}

/// Why an edge has no certificate, or not another one.
#[derive(Debug, Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Tls(#[from] FleetTlsError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Why a first configuration can't be used.
#[derive(Debug, Error)]
pub(crate) enum FirstError {
    #[error("{place}: {error}")]
    File { place: String, error: io::Error },
    /// A URL that nothing can be fetched from.
    #[error("{0}")]
    Url(String),
    #[error("{url}: {error}")]
    Call { url: String, error: CallError },
    #[error("{url} answers {status}")]
    Status { url: String, status: StatusCode },
    #[error("{0} is not UTF-8")]
    NoText(String),
    #[error("{0}")]
    Problems(#[from] Problems),
    #[error("{place}: {kind}[{number}] needs an `id`")]
    NoId { place: String, kind: &'static str, number: usize },
}
