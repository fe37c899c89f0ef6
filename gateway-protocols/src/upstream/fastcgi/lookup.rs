//! Looks up scripts. The gateway never forwards a path that leads to no file below the root, because the target may then run
//! another file.
//!
//! A script that was found is not looked up again for up to a second.
//!
//! The kernel resolves each path below the root, including symbolic links (`openat2`). The worker itself makes the lookup if the
//! kernel's caches can answer it. Otherwise another thread waits for the disk.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_core::cgi::no_script;
use gateway_core::config::model::Scripts;
use gateway_core::http::cgi_request::{CgiRequest, Script};
use gateway_core::http::reply::{Cause, Reply};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tokio::time::Instant;

use super::stderr::may_log;

/// How long a folder stays open. Its path may be a link that a deployment has switched since.
const REOPEN: Duration = Duration::from_secs(1);
/// How long a lookup on disk may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of folders that a worker keeps open.
const MAX_OPEN: usize = 256;
/// Maximum number of scripts of a folder that a worker remembers.
const MAX_FOUND: usize = 1024;
/// How often a lookup is repeated if a rename interrupts it.
const TRIES: usize = 8;

/// A folder, the time at which it was opened, and the scripts that were found in it since. The gateway may forward a deleted
/// script until it opens the folder again. The target opens the file itself and then finds none.
struct OpenFolder {
    folder: OwnedFd,
    opened: Instant,
    found: HashSet<Box<[u8]>>,
}

impl OpenFolder {
    /// Looks up a script in what was found, then in the kernel's caches.
    fn look(&mut self, name: &[u8]) -> io::Result<Look> {
        if self.found.contains(name) {
            return Ok(Look::There);
        }
        let look = look(&self.folder, name, ResolveFlags::CACHED)?;
        if matches!(look, Look::There) && self.found.len() < MAX_FOUND {
            self.found.insert(name.into());
        }
        Ok(look)
    }
}

thread_local! {
    /// The open folders of a worker, by path.
    static OPEN: RefCell<HashMap<PathBuf, OpenFolder>> = RefCell::default();
}

/// The result of a lookup.
enum Look {
    /// A regular file.
    There,
    Nothing,
    /// The kernel's caches do not contain the answer.
    Unknown,
}

/// The first candidate script that exists.
///
/// # Errors
/// No script exists, or the folder cannot be read.
pub(super) async fn script<'r>(
    places: &Scripts,
    request: &'r CgiRequest,
    now: Instant,
) -> Result<&'r Script, Box<Reply>> {
    let Some(root) = places.local_root.as_deref() else {
        return request.scripts.first().ok_or_else(no_script);
    };
    match quick_look(root, request, now) {
        Some(found) => found.and_then(|n| request.scripts.get(n)).ok_or_else(no_script),
        None => match slow_look(root, request, now).await {
            Ok(found) => found.and_then(|n| request.scripts.get(n)).ok_or_else(no_script),
            Err(error) => {
                if may_log(now) {
                    tracing::warn!(root = %root.display(), %error, "the folder of the scripts can't be read");
                }
                let reply = Reply::new(Cause::Quarantined).reason("scripts_unreadable");
                Err(Box::new(reply.detail("the scripts can't be read")))
            }
        },
    }
}

/// A lookup in what is remembered and in the kernel's caches; `None` if only the disk can answer it.
fn quick_look(root: &Path, request: &CgiRequest, now: Instant) -> Option<Option<usize>> {
    OPEN.with_borrow_mut(|open| {
        let folder = open.get_mut(root)?;
        if now.saturating_duration_since(folder.opened) >= REOPEN {
            return None;
        }
        for (n, script) in request.scripts.iter().enumerate() {
            match folder.look(&script.name) {
                Ok(Look::There) => return Some(Some(n)),
                Ok(Look::Nothing) => {}
                Ok(Look::Unknown) | Err(_) => return None,
            }
        }
        Some(None)
    })
}

async fn slow_look(root: &Path, request: &CgiRequest, now: Instant) -> io::Result<Option<usize>> {
    let path = root.to_owned();
    let names: Vec<Vec<u8>> = request.scripts.iter().map(|script| script.name.clone()).collect();
    let looking = tokio::task::spawn_blocking(move || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty())?;
        for (n, name) in names.iter().enumerate() {
            if matches!(look(&folder, name, ResolveFlags::empty())?, Look::There) {
                return io::Result::Ok((folder, Some(n)));
            }
        }
        Ok((folder, None))
    });
    let looked = tokio::time::timeout(LOOK_TIMEOUT, looking).await.map_err(|_| io::ErrorKind::TimedOut)?;
    let (folder, found) = looked.map_err(io::Error::other)??;
    OPEN.with_borrow_mut(|open| {
        if open.len() >= MAX_OPEN && !open.contains_key(root) {
            open.clear();
        }
        open.insert(root.to_owned(), OpenFolder { folder, opened: now, found: HashSet::new() });
    });
    Ok(found)
}

/// Looks up `name`, which starts with a slash, below the folder.
fn look(folder: &OwnedFd, name: &[u8], resolve: ResolveFlags) -> io::Result<Look> {
    let name = name.strip_prefix(b"/").unwrap_or(name);
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        // The descriptor is only for a lookup (`O_PATH`), so read permission on the file is not necessary.
        match rustix::fs::openat2(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(file) => {
                let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
                return Ok(if kind == FileType::RegularFile { Look::There } else { Look::Nothing });
            }
            Err(Errno::AGAIN) if resolve.contains(ResolveFlags::CACHED) => return Ok(Look::Unknown),
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            Err(
                Errno::XDEV | Errno::LOOP | Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ACCESS,
            ) => return Ok(Look::Nothing),
            Err(error) => return Err(error.into()),
        }
    }
}
