//! Files of the machine: read with a limit, replaced as a whole.

use std::io;
use std::path::Path;

use bytes::Bytes;

/// Reads and replaces files. Implemented by the program; `gateway-core` itself opens none.
///
/// Every call blocks: use it while a plugin is built, in a task, or within
/// [`World::run_blocking`](super::World::run_blocking), never in a hook.
pub trait Files: Send + Sync {
    /// The whole file, of at most `limit` bytes.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::FileTooLarge`] beyond the limit.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Bytes>;

    /// When the file was last changed, in nanoseconds since 1970, to see whether it must be read again.
    ///
    /// # Errors
    /// What the system says.
    fn modified(&self, path: &Path) -> io::Result<u128>;

    /// The files of a folder, by name, at most `limit`.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, folder: &Path, limit: usize) -> io::Result<Vec<String>>;

    /// Puts these bytes in the place of a file, or makes it: whatever happens, there is the file before or the whole new one.
    /// Nobody but the gateway's user may read it.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::Unsupported`] where files can't be written.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let _ = (path, bytes);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// There are no files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path, _limit: u64) -> io::Result<Bytes> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn modified(&self, _path: &Path) -> io::Result<u128> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _folder: &Path, _limit: usize) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
