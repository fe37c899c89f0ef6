//! A certificate and its key, read from files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::model::CertificateFiles;
use rustls::sign::CertifiedKey;

use super::pem::{self, PemError};

/// Why a frontend's certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// A file is of no use.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Certificate and key don't go together, or the rules contradict each other.
    #[error("{0}")]
    Unusable(String),
}

/// The two files of a certificate.
pub(super) type Pair = (PathBuf, PathBuf);
pub(super) type Keys = HashMap<Pair, Arc<CertifiedKey>>;

/// Reads the two files.
///
/// # Errors
/// When one is of no use, or they don't go together.
pub(super) fn certified_key(file: &CertificateFiles) -> Result<CertifiedKey, ServerTlsError> {
    let chain = pem::chain(&file.cert_path)?;
    let key = pem::key(&file.key_path)?;
    CertifiedKey::from_der(chain, key, &super::provider()).map_err(|error| {
        let (cert, key) = (file.cert_path.display(), file.key_path.display());
        ServerTlsError::Unusable(format!("{cert} and {key}: {error}"))
    })
}
