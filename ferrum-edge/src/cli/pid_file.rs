//! The file with the process id of the gateway that runs, and taking that gateway's place.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::Pid;

use super::process::{self, NotSignalled, Running};

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
pub(super) struct PidFile(PathBuf);

impl PidFile {
    pub(super) fn write(path: &Path) -> Result<Self, PidFileError> {
        fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|source| PidFileError::Unwritable { path: path.display().to_string(), source })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_ours =
            read(&self.0).is_ok_and(|pid| u32::try_from(pid).is_ok_and(|pid| pid == std::process::id()));
        if !is_ours {
            return;
        }
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the pid file stays behind");
        }
    }
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

/// The gateway that runs by a pid file; `None` when there is no file, or its process has ended.
///
/// # Errors
/// A file that can't be read, and a process that is not a running gateway.
pub(super) fn running(path: &Path) -> Result<Option<Running>, PidFileError> {
    let pid = match read(path) {
        Err(PidFileError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        read => read?,
    };
    let shown = || path.display().to_string();
    let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| PidFileError::NotOne { path: shown() })?;
    match process::find(pid) {
        Ok(running) => Ok(Some(running)),
        Err(NotSignalled::Gone(_)) => Ok(None),
        Err(source) => Err(PidFileError::Stranger { path: shown(), source }),
    }
}
