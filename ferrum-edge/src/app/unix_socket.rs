//! Unix sockets that the gateway listens on: what is left of an earlier run is replaced, and the file has its mode before
//! anybody can connect.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use gateway_protocols::downstream::bind::Sharing;

/// The file of a Unix socket.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have taken it away, or put another one there.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Listens on a Unix socket whose file has this mode. A socket that nobody listens on any more is replaced; with sharing,
/// also one that somebody listens on. It does not block.
///
/// # Errors
/// When somebody listens there, without sharing, when something else is there, or when it can't be created.
pub(crate) fn bind(path: &Path, (mode, sharing): (u32, Sharing)) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else"));
        }
        Ok(_) if sharing == Sharing::Refused && UnixStream::connect(path).is_ok() => {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // Replaced in one step below.
        Ok(_) | Err(_) => {}
    }
    // Nobody else can connect before the mode is set: the folder it is made in is this user's alone.
    let listener = bound(path, mode)?;
    let file = SocketFile::of(path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// Binds in a folder of its own and moves the socket to its place with its mode set.
fn bound(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or_else(|| Path::new(".")).join(format!(".ferrum-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let made = folder.join("s");
    let listener = UnixListener::bind(&made).and_then(|listener| {
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(&made, path)?;
        Ok(listener)
    });
    drop(std::fs::remove_file(&made));
    drop(std::fs::remove_dir(&folder));
    listener
}
