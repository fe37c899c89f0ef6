//! The folder in which an account, certificates and challenges are kept, which several gateways may share.
//!
//! Only who holds the lock writes; everybody reads. Files are put in place whole, and only their owner may read them. What
//! can't be read is left alone: it may be somebody else's.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{DocumentError, StorageError};

/// Bytes of a file that are read.
const MAX_BYTES: u64 = 1 << 20;
/// Challenges that are read; one order has at most a hundred.
const MAX_CHALLENGES: usize = 1000;
/// How the name of a file that is not whole yet ends.
const UNFINISHED: &str = ".new";

/// A CA's folder. Everything here waits for the disk.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    folder: PathBuf,
}

/// The right to write; given back when dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct StorageLock {
    _file: File,
}

/// The account.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredAccount {
    /// The directory that it is at.
    pub(crate) directory_url: String,
    /// What the CA calls it; `None` before it is registered.
    pub(crate) account_url: Option<String>,
    /// Where the CA was told to write to.
    pub(crate) email: Option<String>,
    /// Its key, PKCS #8 in base64url.
    pub(crate) private_key: String,
}

/// What became of the orders for a certificate.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Attempts {
    /// Those of the failures for which the CA could be asked.
    pub(crate) refusals: u32,
    /// The last failures in a row for which it could not.
    pub(crate) unreachable: u32,
    /// Orders in a row that were begun and of which no end is known.
    pub(crate) begun: u32,
    /// How many failed since the last one that did not.
    pub(crate) failures: u32,
    /// When the last one failed, in seconds since 1970.
    pub(crate) failed_at: Option<u64>,
    /// Why.
    pub(crate) problem: Option<String>,
    /// When the next one may be made at the earliest.
    pub(crate) not_before: Option<u64>,
}

impl Attempts {
    /// Takes back what only a wrong clock can have written: nobody is left alone beyond `latest`, in seconds since 1970.
    /// Says whether anything changed.
    pub(crate) fn limit(&mut self, latest: u64) -> bool {
        let before = (self.not_before, self.failed_at);
        self.not_before = self.not_before.map(|at| at.min(latest));
        self.failed_at = self.failed_at.map(|at| at.min(latest));
        before != (self.not_before, self.failed_at)
    }
}

/// An order that the CA may have issued a certificate for already.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredOrder {
    /// What the CA calls it.
    pub(crate) url: String,
    pub(crate) names: Vec<Box<str>>,
    /// The certificate's key, PKCS #8 in PEM.
    pub(crate) private_key: String,
    /// When it was kept, in seconds since 1970.
    pub(crate) kept_at: u64,
}

/// A challenge under way.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct StoredChallenge {
    /// `http-01` or `tls-alpn-01`.
    pub(crate) kind: String,
    /// The name that is checked.
    pub(crate) name: String,
    pub(crate) token: String,
    /// What the token is answered with.
    pub(crate) authorization: String,
}

impl Storage {
    /// The folder, which need not exist yet.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Makes the folder where there is none, for this user alone, and takes the lock; `None` while another gateway has it.
    /// What a gateway left behind that ended while it had the lock is removed.
    pub(crate) fn lock(&self) -> Result<Option<StorageLock>, StorageError> {
        for folder in ["certificates", "challenges", "attempts", "orders"] {
            let folder = self.folder.join(folder);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(StorageError::of(&folder, "made"))?;
        }
        let path = self.folder.join("lock");
        let failed = StorageError::of(&path, "locked");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(&failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        self.tidy().map_err(StorageError::of(&self.folder, "tidied up"))?;
        Ok(Some(StorageLock { _file: file }))
    }

    fn tidy(&self) -> io::Result<()> {
        for folder in ["", "certificates", "challenges", "attempts", "orders"] {
            for entry in fs::read_dir(self.folder.join(folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // Whatever else is there is somebody else's, such as what NFS keeps of open files.
                if name.ends_with(UNFINISHED) || (folder == "challenges" && is_token(&name)) {
                    remove(&entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// The account; `None` where there is none yet.
    pub(crate) fn account(&self) -> Result<Option<StoredAccount>, StorageError> {
        let path = self.folder.join("account.json");
        read(&path).map_err(|error| StorageError::Account { path, error })
    }

    pub(crate) fn keep_account(
        &self,
        account: &StoredAccount,
        _lock: &StorageLock,
    ) -> Result<(), StorageError> {
        write(&self.folder.join("account.json"), &json(account)?)
    }

    /// Keeps a certificate: its key and its chain.
    pub(crate) fn keep_certificate(
        &self,
        path: &Path,
        pem: &str,
        _lock: &StorageLock,
    ) -> Result<(), StorageError> {
        write(path, pem.as_bytes())
    }

    /// What became of the orders for the certificate in this file. What can't be read is as if there had been none.
    pub(crate) fn attempts(&self, certificate: &Path) -> Attempts {
        self.read_attempts(certificate).ok().flatten().unwrap_or_default()
    }

    /// The same; `None` where none are noted.
    pub(crate) fn read_attempts(&self, certificate: &Path) -> Result<Option<Attempts>, StorageError> {
        Ok(read(&self.of("attempts", certificate))?)
    }

    pub(crate) fn keep_attempts(
        &self,
        certificate: &Path,
        attempts: &Attempts,
        _lock: &StorageLock,
    ) -> Result<(), StorageError> {
        write(&self.of("attempts", certificate), &json(attempts)?)
    }

    /// The order for the certificate in this file that may have been carried out, and whose certificate is not stored.
    pub(crate) fn order(&self, certificate: &Path) -> Result<Option<StoredOrder>, StorageError> {
        let order: Option<StoredOrder> = read(&self.of("orders", certificate))?;
        let stored = fs::read_to_string(certificate).unwrap_or_default();
        Ok(order.filter(|order| !stored.contains(order.private_key.trim())))
    }

    pub(crate) fn keep_order(
        &self,
        certificate: &Path,
        order: &StoredOrder,
        _lock: &StorageLock,
    ) -> Result<(), StorageError> {
        write(&self.of("orders", certificate), &json(order)?)
    }

    /// Removes the order, if there is one.
    pub(crate) fn end_order(&self, certificate: &Path, _lock: &StorageLock) -> Result<(), StorageError> {
        let path = self.of("orders", certificate);
        remove(&path).map_err(StorageError::of(&path, "removed"))
    }

    fn of(&self, folder: &str, certificate: &Path) -> PathBuf {
        let name = certificate.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        self.folder.join(folder).join(name + ".json")
    }

    pub(crate) fn keep_challenge(
        &self,
        challenge: &StoredChallenge,
        _lock: &StorageLock,
    ) -> Result<(), StorageError> {
        if !is_token(&challenge.token) {
            return Err(StorageError::Token);
        }
        write(&self.folder.join("challenges").join(&challenge.token), &json(challenge)?)
    }

    /// Removes every challenge.
    pub(crate) fn end_challenges(&self, _lock: &StorageLock) -> Result<(), StorageError> {
        self.tidy().map_err(StorageError::of(&self.folder.join("challenges"), "tidied up"))
    }

    /// The challenges under way, of whichever gateway.
    pub(crate) fn challenges(&self) -> Result<Vec<StoredChallenge>, StorageError> {
        let folder = self.folder.join("challenges");
        let failed = StorageError::of(&folder, "read");
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&failed)?,
        };
        let mut challenges = Vec::new();
        for entry in entries.take(MAX_CHALLENGES) {
            let path = entry.map_err(&failed)?.path();
            let is_whole = path.file_name().and_then(|name| name.to_str()).is_some_and(is_token);
            // One that goes away meanwhile, or is of somebody else, is answered by nobody.
            if let Some(challenge) = is_whole.then(|| read::<StoredChallenge>(&path).ok().flatten()).flatten()
            {
                challenges.push(challenge);
            }
        }
        Ok(challenges)
    }
}

/// Tokens are in base64url (RFC 8555, section 8), and so can't lead out of a folder.
fn is_token(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= 200 && text.chars().all(plain)
}

/// Removes a file. One that is gone already, that is in use over NFS, or that is no file keeps nobody from anything.
fn remove(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{IsADirectory, NotFound, ResourceBusy};
    match fs::remove_file(path) {
        Err(error) if matches!(error.kind(), NotFound | ResourceBusy | IsADirectory) => Ok(()),
        removed => removed,
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, DocumentError> {
    serde_json::to_vec_pretty(value).map_err(DocumentError::Unwritable)
}

/// A document; `None` where there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DocumentError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    serde_json::from_str(&text).map(Some).map_err(DocumentError::Foreign)
}

/// Puts a file in place, whole, for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let written = || -> io::Result<()> {
        // One that is left from before may have been made with other rights.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        // What is renamed before it is on the disk may be empty after a power failure.
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(StorageError::of(path, "written"))
}
