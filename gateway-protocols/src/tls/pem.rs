//! Certificates and keys from PEM files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It can't be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds nothing of the kind.
    #[error("{path}: no {wanted} in this PEM file")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// What it holds is not usable.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn read(path: &Path) -> Result<Vec<u8>, PemError> {
    fs::read(path).map_err(|source| PemError::Unreadable { path: path.to_owned(), source })
}

/// A certificate chain, leaf first.
///
/// # Errors
/// When the file has none.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let text = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| PemError::Unusable { path: path.to_owned(), reason: error.to_string() })?;
    if chain.is_empty() {
        return Err(PemError::Missing { path: path.to_owned(), wanted: "certificate" });
    }
    Ok(chain)
}

/// A private key.
///
/// # Errors
/// When the file has none.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| PemError::Missing { path: path.to_owned(), wanted: "private key" })
}

/// Trusted roots.
///
/// # Errors
/// When the file has none, or one that can't be a root.
pub fn roots(path: &Path) -> Result<RootCertStore, PemError> {
    let mut store = RootCertStore::empty();
    for certificate in chain(path)? {
        store
            .add(certificate)
            .map_err(|error| PemError::Unusable { path: path.to_owned(), reason: error.to_string() })?;
    }
    Ok(store)
}
