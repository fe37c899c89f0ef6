//! Files on their way into the folder. Blocks: for threads beside the workers.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use gateway_plugin_common::hex::hex;

/// A file that is being written, under a name that begins with a dot. Removed when it is dropped before it is shown.
pub(super) struct Hidden {
    file: File,
    hidden: PathBuf,
    /// Its name in the folder when it is shown.
    pub(super) name: String,
    digest: Context,
    is_shown: bool,
}

/// Makes the folder where it is not there.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Bytes that are free on the file system of the folder.
pub(super) fn free(folder: &Path) -> io::Result<u64> {
    let about = rustix::fs::statvfs(folder)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

impl Hidden {
    /// Makes a file with a random name. What is there already is never opened, nor followed.
    pub(super) fn create(folder: &Path, ending: &str) -> io::Result<Self> {
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::from(ErrorKind::Other))?;
        let random = u128::from_be_bytes(random);
        let hidden = folder.join(format!(".{random:032x}.part"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&hidden)?;
        let name = format!("{random:032x}.{ending}");
        Ok(Self { file, hidden, name, digest: Context::new(&SHA256), is_shown: false })
    }

    /// Writes more of it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.file.write_all(bytes)
    }

    /// All of it is written: on the disk, and with its mode. Says its SHA-256.
    pub(super) fn finish(&self, mode: u32) -> io::Result<String> {
        self.file.set_permissions(Permissions::from_mode(mode))?;
        self.file.sync_all()?;
        let digest = self.digest.clone().finish();
        Ok(hex(digest.as_ref()))
    }

    /// Gives it its name. Nothing is replaced.
    pub(super) fn show(&mut self, folder: &Path) -> io::Result<()> {
        let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::NOREPLACE);
        rustix::fs::renameat_with(cwd, &self.hidden, cwd, folder.join(&self.name), flags)?;
        self.hidden = folder.join(&self.name);
        Ok(())
    }

    /// It stays.
    pub(super) fn keep(&mut self) {
        self.is_shown = true;
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if !self.is_shown {
            drop(std::fs::remove_file(&self.hidden));
        }
    }
}
