//! File with the process ID of the gateway that runs, and taking that gateway's place.

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
    #[error(
        "{path} holds something else than a process id, and would be lost; name another pid file, or remove it"
    )]
    Foreign { path: String },
    #[error(
        "another gateway runs with the pid file {path}, process {pid}; stop it, name another pid file, or take its place with --replace"
    )]
    Running { path: String, pid: i32 },
    #[error("the gateway of {path} can't be replaced: {source}")]
    Stranger { path: String, source: NotSignalled },
}

/// Bytes of a pid file; a process id has ten digits at most.
const MAX_BYTES: u64 = 64;

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

/// Writes this process's id into a pid file again, whose gateway has ended. The [`PidFile`] of this gateway removes it.
///
/// # Errors
/// [`PidFileError::Unwritable`]
pub(super) fn put_back(path: &Path) -> Result<(), PidFileError> {
    let made = beside(path, &format!(".{}", std::process::id()));
    let written =
        fs::write(&made, format!("{}\n", std::process::id())).and_then(|()| fs::rename(&made, path));
    written.map_err(|source| PidFileError::Unwritable { path: path.display().to_string(), source })
}

/// What another gateway's pid file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherGateway {
    /// This one must not start.
    Refused,
    /// This one takes its place.
    Replaced,
}

/// Refuses to start with a pid file that is something else, and with another gateway's, unless that is to be replaced.
///
/// # Errors
/// [`PidFileError::Foreign`], [`PidFileError::Running`], [`PidFileError::Unreadable`]
pub(super) fn check(path: &Path, other: OtherGateway) -> Result<(), PidFileError> {
    let shown = || path.display().to_string();
    let unreadable = |source| PidFileError::Unreadable { path: shown(), source };
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(unreadable)?,
    };
    let is_small_file = about.is_file() && about.len() <= MAX_BYTES;
    if !is_small_file || !fs::read(path).map_err(unreadable)?.trim_ascii().iter().all(u8::is_ascii_digit) {
        return Err(PidFileError::Foreign { path: shown() });
    }
    match running(path) {
        Ok(Some(running)) if other == OtherGateway::Refused => {
            Err(PidFileError::Running { path: shown(), pid: running.pid() })
        }
        // An empty one, or one of a process that is no gateway, is left over.
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pid_file_is_written_over() {
        let folder = std::env::temp_dir().join(format!("ferrum-pid-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pid");
        assert!(check(&path, OtherGateway::Refused).is_ok(), "there is none");
        // One above the highest id that Linux gives.
        let (ours, nobody) = (format!("{}\n", std::process::id()), "4194304\n");
        for free in ["", "\n", nobody, &ours] {
            fs::write(&path, free).unwrap();
            assert!(
                check(&path, OtherGateway::Refused).is_ok() && check(&path, OtherGateway::Replaced).is_ok(),
                "{free:?}"
            );
        }
        for foreign in ["precious", "-1", "12 34", "1.5", "12\nx", &"1".repeat(65)] {
            fs::write(&path, foreign).unwrap();
            for other in [OtherGateway::Refused, OtherGateway::Replaced] {
                let refused = check(&path, other).expect_err("it is no pid file");
                assert!(matches!(refused, PidFileError::Foreign { .. }), "{foreign}: {refused}");
            }
        }
        assert!(
            matches!(check(&folder, OtherGateway::Refused), Err(PidFileError::Foreign { .. })),
            "a folder"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
