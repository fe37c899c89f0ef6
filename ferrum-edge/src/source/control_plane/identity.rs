//! What an edge proves itself by, in a folder that only its user reads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gateway_fleet::Invitation;
use serde::{Deserialize, Serialize};

use super::error::StateError;

const IDENTITY: &str = "identity.json";
const LAST_GOOD: &str = "last-good";

/// The folder of an edge's files.
#[derive(Debug, Clone)]
pub(super) struct StateFolder(PathBuf);

/// Who an edge is.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct EdgeIdentity {
    pub(super) edge: String,
    pub(super) group: String,
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    pub(super) key: String,
    /// PEM.
    pub(super) roots: String,
    /// `HOST:PORT` of the control plane that took it in.
    pub(super) control_plane: String,
    /// Encrypts the last good configuration; 64 hexadecimal digits.
    seal: String,
    /// The digest of the invitation by which it enrolled; `None` of an earlier version.
    #[serde(default)]
    pub(super) invitation: Option<String>,
}

impl std::fmt::Debug for EdgeIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeIdentity").field("edge", &self.edge).finish_non_exhaustive()
    }
}

impl EdgeIdentity {
    /// A new one, with a new key for the last good configuration.
    pub(super) fn new(
        identity: gateway_fleet::NewIdentity,
        key: String,
        invitation: &Invitation,
    ) -> Result<Self, StateError> {
        let control_plane = invitation.address.clone();
        let mut seal = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut seal).map_err(|_| StateError::Randomness)?;
        let gateway_fleet::NewIdentity { edge, group, certificate, roots } = identity;
        let seal = seal.iter().map(|byte| format!("{byte:02x}")).collect();
        let invitation = Some(digest(invitation));
        Ok(Self { edge, group, certificate, key, roots, control_plane, seal, invitation })
    }

    /// The key that encrypts the last good configuration.
    pub(super) fn seal_key(&self) -> Result<[u8; 32], StateError> {
        let hash = gateway_fleet::Hash::from_hex(&self.seal);
        hash.map(|hash| *hash.as_bytes()).ok_or(StateError::NoSealKey(IDENTITY))
    }
}

/// What tells one invitation from another, without its code.
pub(super) fn digest(invitation: &Invitation) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, invitation.code.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl StateFolder {
    /// The folder, made if there is none.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let folder = path.to_owned();
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Ok(()) => Ok(Self(folder)),
            Err(error) => Err(StateError::Folder { folder, error }),
        }
    }

    /// The file of the last good configuration.
    pub(super) fn last_good(&self) -> PathBuf {
        self.0.join(LAST_GOOD)
    }

    /// The identity; `None` before enrolment.
    pub(super) fn identity(&self) -> Result<Option<EdgeIdentity>, StateError> {
        let path = self.0.join(IDENTITY);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::of(&path, "read")(error)),
        };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| StateError::Identity { path, tried: "read", error })
    }

    /// Keeps the identity.
    pub(super) fn keep(&self, identity: &EdgeIdentity) -> Result<(), StateError> {
        let path = self.0.join(IDENTITY);
        let written = |error| StateError::Identity { path: path.clone(), tried: "written", error };
        let text = serde_json::to_vec_pretty(identity).map_err(written)?;
        replace(&path, &text).map_err(StateError::of(&path, "written"))
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a file that is there as a whole or not at all, also after a power failure. Only this user may read it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    if let Err(error) = write_whole(&beside, bytes).and_then(|()| fs::rename(&beside, path)) {
        // On a full disk the part that was written would take the space of other files.
        drop(fs::remove_file(&beside));
        return Err(error);
    }
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
