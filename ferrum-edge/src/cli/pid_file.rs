//! The file with the process id of the gateway that runs, and taking that gateway's place.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::Pid;

use super::process::{self, GatewayProcess, NotSignalled};

/// Why a pid file can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PidFileError {
    #[error("the pid file {path} can't be written: {source}")]
    Unwritable { path: String, source: io::Error },
    #[error("the pid file {path} can't be read: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error("{path} holds no process id")]
    NotOne { path: String },
    #[error("the gateway of {path} can't be replaced: {source}")]
    Stranger { path: String, source: NotSignalled },
}

/// The file of this gateway; removed when it ends, unless another one has taken its place.
pub(super) struct PidFile {
    path: PathBuf,
    /// Where it is until it is placed.
    made: Option<PathBuf>,
}

impl PidFile {
    /// Writes it beside its place, so that what can't be written stops a start before it changes anything.
    ///
    /// # Errors
    /// [`PidFileError::Unwritable`]
    pub(super) fn write(path: &Path) -> Result<Self, PidFileError> {
        let made = beside(path, &format!(".{}", std::process::id()));
        let file = Self { path: path.to_owned(), made: Some(made.clone()) };
        fs::write(made, format!("{}\n", std::process::id())).map_err(|source| file.unwritable(source))?;
        Ok(file)
    }

    /// Moves it to its place.
    ///
    /// # Errors
    /// [`PidFileError::Unwritable`]
    pub(super) fn place(&mut self) -> Result<(), PidFileError> {
        if let Some(made) = &self.made {
            fs::rename(made, &self.path).map_err(|source| self.unwritable(source))?;
            self.made = None;
        }
        Ok(())
    }

    fn unwritable(&self, source: io::Error) -> PidFileError {
        PidFileError::Unwritable { path: self.path.display().to_string(), source }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            return drop(fs::remove_file(made));
        }
        let is_ours =
            read(&self.path).is_ok_and(|pid| u32::try_from(pid).is_ok_and(|pid| pid == std::process::id()));
        if !is_ours {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the pid file stays behind");
        }
    }
}

/// A file that belongs to a pid file.
pub(super) fn beside(pid_file: &Path, ending: &str) -> PathBuf {
    let mut path = pid_file.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The process id in a file.
///
/// # Errors
/// [`PidFileError::Unreadable`], [`PidFileError::NotOne`]
pub(super) fn read(path: &Path) -> Result<i32, PidFileError> {
    let shown = || path.display().to_string();
    let text =
        fs::read_to_string(path).map_err(|source| PidFileError::Unreadable { path: shown(), source })?;
    text.trim().parse().map_err(|_| PidFileError::NotOne { path: shown() })
}

/// The gateway that runs by a pid file; `None` when there is no file, or its process has ended or is this one.
///
/// # Errors
/// A file that can't be read, and a process that is not a running gateway.
pub(super) fn running(path: &Path) -> Result<Option<GatewayProcess>, PidFileError> {
    let pid = match read(path) {
        Err(PidFileError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        read => read?,
    };
    // In a container each run may have the same id: a file with ours is of one that has ended.
    if u32::try_from(pid).is_ok_and(|pid| pid == std::process::id()) {
        return Ok(None);
    }
    let shown = || path.display().to_string();
    let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| PidFileError::NotOne { path: shown() })?;
    match process::find(pid) {
        Ok(running) => Ok(Some(running)),
        Err(NotSignalled::Gone(_)) => Ok(None),
        Err(source) => Err(PidFileError::Stranger { path: shown(), source }),
    }
}
