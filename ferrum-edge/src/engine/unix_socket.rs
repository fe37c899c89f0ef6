//! Unix sockets that the gateway listens on: what is left of an earlier run is replaced, and the file has its mode before
//! anybody can connect.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gateway_protocols::downstream::bind::Sharing;

/// The file of a Unix socket.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Where it is until it is placed, in a folder of its own.
    made: Option<PathBuf>,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Where clients find it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to its place, where it replaces what is there in one step.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn place(&mut self) -> io::Result<()> {
        if let Some(made) = &self.made {
            std::fs::rename(made, &self.path)?;
            drop(made.parent().map(std::fs::remove_dir));
            self.made = None;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            drop(std::fs::remove_file(made));
            drop(made.parent().map(std::fs::remove_dir));
        } else if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Somebody else may have taken it away, or put another one there.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Listens on a Unix socket whose file has this mode, and has yet to be placed. A socket that nobody listens on any more is
/// replaced; with sharing, also one that somebody listens on. It does not block.
///
/// # Errors
/// When somebody listens there, without sharing, when something else is there, or when it can't be created.
pub(crate) fn bind(path: &Path, mode: u32, sharing: Sharing) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else"));
        }
        Ok(_) if sharing == Sharing::Refused && UnixStream::connect(path).is_ok() => {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(_) | Err(_) => {}
    }
    // Nobody else can connect before the mode is set: the folder it is made in is this user's alone.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let name = format!(".ferrum-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let folder = parent.unwrap_or_else(|| Path::new(".")).join(name);
    DirBuilder::new().mode(0o700).create(&folder)?;
    // Removes the folder, too, where it can't be bound.
    let mut file = SocketFile { path: path.to_owned(), made: Some(folder.join("s")), identity: (0, 0) };
    let made = folder.join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode))?;
    file.identity = identity(&made)?;
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}
