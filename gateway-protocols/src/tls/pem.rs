//! Certificates and keys from PEM files.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use gateway_core::certificate::revocation_list_validity;
use rustix::fs::OFlags;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};

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

/// Octets of a file that are read.
const MAX_BYTES: u64 = 64 << 20;

/// The content of a file. A pipe or a device is refused: whoever checks a configuration would wait for it for ever.
fn read(path: &Path) -> Result<Vec<u8>, PemError> {
    let unreadable = |source| PemError::Unreadable { path: path.to_owned(), source };
    let unusable = |reason| PemError::Unusable { path: path.to_owned(), reason };
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(unusable("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unusable(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
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
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| match is_encrypted(&text) {
        true => PemError::Unusable {
            path: path.to_owned(),
            reason: "the private key is encrypted, and the gateway has no passphrase for it".to_owned(),
        },
        false => PemError::Missing { path: path.to_owned(), wanted: "private key" },
    })
}

/// Whether a PEM file has a private key that only a passphrase opens: PKCS #8's, or OpenSSL's older form.
fn is_encrypted(text: &[u8]) -> bool {
    let has = |mark: &[u8]| memchr::memmem::find(text, mark).is_some();
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}

/// Files of one folder with revocation lists, and octets of one of them.
const MAX_LISTS: (usize, u64) = (1000, 64 << 20);

/// The files with revocation lists that a path stands for: itself, or those in the folder, without hidden ones.
///
/// # Errors
/// When the folder can't be read, or has none or too many.
pub fn revocation_files(path: &Path) -> Result<Vec<PathBuf>, PemError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |source| PemError::Unreadable { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden || file.is_dir() {
            continue;
        }
        if files.len() == MAX_LISTS.0 {
            let reason = format!("there are more than {} files in this folder", MAX_LISTS.0);
            return Err(PemError::Unusable { path: path.to_owned(), reason });
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(PemError::Missing { path: path.to_owned(), wanted: "revocation list" });
    }
    files.sort_unstable();
    Ok(files)
}

/// The revocation lists of one file, with the seconds since 1970 from when and to when each is to be gone by.
///
/// # Errors
/// When it has none, or one of no use.
pub fn revocation_list(path: &Path) -> Result<Vec<RevocationList>, PemError> {
    let unusable = |reason: String| PemError::Unusable { path: path.to_owned(), reason };
    let unreadable = |source| PemError::Unreadable { path: path.to_owned(), source };
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_LISTS.1 {
        return Err(unusable(format!("it is larger than {} MiB", MAX_LISTS.1 >> 20)));
    }
    let text = read(path)?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&text).map(|der| {
        let der = der.map_err(|error| unusable(error.to_string()))?;
        let (from, to) = revocation_list_validity(&der).ok_or_else(|| {
            unusable("a revocation list can't be read, or does not say when it ends".to_owned())
        })?;
        Ok(RevocationList { der, from, to })
    });
    let lists: Vec<_> = lists.collect::<Result<_, _>>()?;
    if lists.is_empty() {
        return Err(PemError::Missing { path: path.to_owned(), wanted: "revocation list" });
    }
    Ok(lists)
}

/// A revocation list (CRL).
#[derive(Debug)]
pub struct RevocationList {
    /// The list.
    pub der: CertificateRevocationListDer<'static>,
    /// When it was made, in seconds since 1970.
    pub from: i64,
    /// When the next one is to be there, in seconds since 1970.
    pub to: i64,
}

/// The revocation lists in a file or folder, the newest first: of two of one issuer that one counts.
///
/// # Errors
/// When a file is of no use, or holds a list that has ended.
pub fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    let mut all = Vec::new();
    for file in revocation_files(path)? {
        let lists = revocation_list(&file)?;
        if lists.iter().any(|list| list.to <= now) {
            let reason = "the revocation list has ended (nextUpdate); get a new one of its CA".to_owned();
            return Err(PemError::Unusable { path: file, reason });
        }
        all.extend(lists);
    }
    all.sort_by_key(|list| std::cmp::Reverse(list.from));
    Ok(all.into_iter().map(|list| list.der).collect())
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
