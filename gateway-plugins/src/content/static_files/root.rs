//! Opening files beneath a folder, and nowhere else.
//!
//! The kernel resolves each path with `openat2` and `RESOLVE_BENEATH`: symbolic links and `..` that would lead outside
//! fail there, whatever somebody renames meanwhile. What a path was checked for and what is opened are one and the same.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tokio::time::Instant;

/// How often a path is tried that something is renamed under while it is resolved.
const TRIES: usize = 8;

/// A folder whose files are served.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    folder: ArcSwap<OwnedFd>,
    follows_links: bool,
    born: Instant,
    /// Milliseconds after `born` at which the folder was last opened.
    opened: AtomicU64,
}

/// Whether the disk may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It may: not on a worker.
    May,
    /// Only what is in the kernel's caches; [`io::ErrorKind::WouldBlock`] otherwise.
    Never,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    /// Nanoseconds since 1970, of its contents.
    pub(super) modified: i128,
    /// The same of anything about it.
    changed: i128,
    inode: u64,
    device: u64,
}

/// What a path leads to.
#[derive(Debug)]
pub(super) enum Node {
    File(Arc<OwnedFd>, Stamp),
    Folder(OwnedFd),
}

impl Stamp {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types differ between machines"
    )]
    fn of(stat: &Stat) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            inode: stat.st_ino as u64,
            device: stat.st_dev as u64,
        }
    }

    /// Whether contents of this state are still those of `earlier`. What else changes, such as its names, does not matter.
    pub(super) fn holds(&self, earlier: Self) -> bool {
        Self { changed: earlier.changed, ..*self } == earlier
    }

    /// When its contents were last changed, in whole seconds, as `Last-Modified` says it.
    pub(super) fn modified_second(&self) -> SystemTime {
        let seconds = u64::try_from(self.modified.max(0) / 1_000_000_000).unwrap_or(0);
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// What an entity tag is made of.
    pub(super) fn tag(&self) -> String {
        format!("{:x}-{:x}-{:x}", self.size, self.modified, self.inode)
    }
}

impl Root {
    /// Opens the folder.
    ///
    /// # Errors
    /// What the system says; also where it has no `openat2` (Linux 5.6).
    pub(super) fn open(path: &Path, follows_links: bool) -> io::Result<Self> {
        let folder = ArcSwap::from_pointee(open_folder(path)?);
        let root = Self {
            path: path.to_owned(),
            folder,
            follows_links,
            born: Instant::now(),
            opened: AtomicU64::new(0),
        };
        root.find("", Wait::May)?;
        Ok(root)
    }

    /// For how long the folder has been open.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let age = now.saturating_duration_since(self.born);
        age.saturating_sub(Duration::from_millis(self.opened.load(Relaxed)))
    }

    /// Opens the folder anew, since its path may lead to another one by now.
    ///
    /// # Errors
    /// What the system says; the folder stays what it was.
    pub(super) fn reopen(&self, now: Instant) -> io::Result<()> {
        self.folder.store(Arc::new(open_folder(&self.path)?));
        let opened = now.saturating_duration_since(self.born).as_millis();
        self.opened.store(u64::try_from(opened).unwrap_or(u64::MAX), Relaxed);
        Ok(())
    }

    /// What `path` leads to; it is relative and has no `..`.
    ///
    /// # Errors
    /// What the system says. What lies outside, or is neither file nor folder, is not found.
    pub(super) fn find(&self, path: &str, wait: Wait) -> io::Result<Node> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if !self.follows_links {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        if wait == Wait::Never {
            resolve |= ResolveFlags::CACHED;
        }
        // A pipe or a device must not be waited for either.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = if path.is_empty() { "." } else { path };
        let folder = self.folder.load();
        let mut tries = 0;
        let opened = loop {
            match rustix::fs::openat2(&**folder, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if wait == Wait::May && tries < TRIES => tries += 1,
                Err(error) => return Err(meant(error)),
                Ok(opened) => break opened,
            }
        };
        let stat = rustix::fs::fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Node::File(Arc::new(opened), Stamp::of(&stat))),
            FileType::Directory => Ok(Node::Folder(opened)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// An error as it is answered: what leads outside is not there.
fn meant(error: Errno) -> io::Error {
    match error {
        Errno::AGAIN => io::ErrorKind::WouldBlock.into(),
        Errno::XDEV
        | Errno::LOOP
        | Errno::NOENT
        | Errno::NOTDIR
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::INVAL => io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}

/// The state of an open file.
///
/// # Errors
/// What the system says.
pub(super) fn stamp(file: &OwnedFd) -> io::Result<Stamp> {
    Ok(Stamp::of(&rustix::fs::fstat(file)?))
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirectoryEntry {
    /// Folders first.
    pub(super) is_file: bool,
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

/// The files and folders of a folder, folders first, by name; at most `limit`. Links are left out, as are names that are
/// no text, and hidden ones unless asked for.
///
/// # Errors
/// What the system says.
pub(super) fn list(folder: &OwnedFd, hidden: bool, limit: usize) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") || (name.starts_with('.') && !hidden) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_file = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::Directory => false,
            _ => continue,
        };
        if entries.len() == limit {
            break;
        }
        let stamp = Stamp::of(&stat);
        let modified = stamp.modified_second();
        entries.push(DirectoryEntry { is_file, name: name.to_owned(), size: stamp.size, modified });
    }
    entries.sort();
    Ok(entries)
}
