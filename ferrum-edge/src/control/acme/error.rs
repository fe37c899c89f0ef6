//! What fails on this machine while certificates are got: the storage, keys, and what a CA's certificate turns out to be.

use std::io;
use std::path::{Path, PathBuf};

use gateway_core::config::problem::Problems;
use gateway_core::plugin::world::calls::{CallError, EndpointError};
use gateway_protocols::tls::server::ServerTlsError;
use thiserror::Error;

/// What the storage could not do.
#[derive(Debug, Error)]
pub(crate) enum StorageError {
    /// With a file or folder of the storage; the text is what was tried.
    #[error("{} can't be {}: {error}", .path.display(), .tried)]
    File { path: PathBuf, tried: &'static str, error: io::Error },
    /// The account's file holds something else, which is left as it is.
    #[error("{}: {error}; put it right, or move it away", .path.display())]
    Account { path: PathBuf, error: DocumentError },
    /// Another document of the storage.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// What the CA calls a token could lead out of the folder.
    #[error("the CA's token has characters that tokens may not have")]
    Token,
}

impl StorageError {
    /// For `map_err`: what was tried with this file or folder.
    pub(super) fn of(path: &Path, tried: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::File { path: path.to_owned(), tried, error }
    }
}

/// Why a document can't be read or written.
#[derive(Debug, Error)]
pub(crate) enum DocumentError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("it is not what the gateway wrote: {0}")]
    Foreign(#[source] serde_json::Error),
    #[error("it can't be written as JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
}

/// Why requests can't be signed.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum KeyError {
    #[error("a key for the account could not be made")]
    Made,
    #[error("the account's key can't be read")]
    Read,
    #[error("a request could not be signed")]
    Signed,
    #[error("`external_account.hmac_key` is not in base64url")]
    ExternalAccount,
}

/// Why a certificate could not be asked for, or is not what was asked for.
#[derive(Debug, Error)]
pub(super) enum CertificateError {
    #[error("a request for a certificate could not be made: {0}")]
    Request(#[from] rcgen::Error),
    #[error("a certificate for a challenge could not be made: {0}")]
    Challenge(#[source] rcgen::Error),
    #[error("a key could not be read back: {0}")]
    Key(&'static str),
    #[error("the CA's certificate can't be read: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the CA's answer has no certificate")]
    Empty,
    #[error("the CA's certificate can't be read")]
    Unreadable,
    #[error("the CA's certificate is not for `{0}`")]
    OtherName(Box<str>),
    #[error("the CA's certificate is not valid now; look at this machine's clock")]
    NotValidNow,
    #[error("the certificates that the CA sent are not one chain")]
    NoChain,
    #[error("the CA's certificate is not for the key it was asked for: {0}")]
    OtherKey(#[from] rustls::Error),
}

/// Why the challenges of the moment can't be answered.
#[derive(Debug, Error)]
pub(super) enum AnswerError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
}

/// Why a CA could not be asked.
#[derive(Debug, Error)]
pub(super) enum TransportError {
    #[error("`{0}` is not an https URL")]
    NotEncrypted(String),
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error("{0}")]
    Client(Problems),
    #[error("{0}")]
    Call(CallError),
}
