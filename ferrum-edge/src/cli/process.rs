//! Signals to a gateway that runs already, and never to another program that was given its process id.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Why a process gets no signal.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSignalled {
    #[error("no process has the id {0}")]
    Gone(i32),
    #[error("process {pid} runs {program}, which is not this program: it gets no signal")]
    Stranger { pid: i32, program: String },
    #[error("process {0} is this program, but not a running gateway: it does not wait for SIGHUP")]
    NotWaiting(i32),
    #[error("process {pid} can't be looked at, so it gets no signal: {source}")]
    Unknown { pid: i32, source: io::Error },
    #[error("process {pid} can't be signalled: {source}")]
    Refused { pid: i32, source: io::Error },
}

/// A process that was found to be a running gateway. It is held, so that its id can't pass to another.
pub(super) struct GatewayProcess {
    number: i32,
    held: OwnedFd,
}

impl GatewayProcess {
    /// The process id.
    pub(super) fn pid(&self) -> i32 {
        self.number
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), NotSignalled> {
        pidfd_send_signal(&self.held, signal)
            .map_err(|error| NotSignalled::Refused { pid: self.number, source: error.into() })
    }
}

/// Whether a process is stopped, by SIGSTOP or a debugger.
pub(super) fn is_stopped(number: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
    matches!(state.trim_start().chars().next(), Some('T' | 't'))
}

/// Sends SIGHUP to a gateway.
pub(super) fn hang_up(pid: Pid) -> Result<(), NotSignalled> {
    find(pid)?.signal(Signal::HUP)
}

/// The ids of a process: the one it has here, and those it has in the containers it runs in.
pub(super) fn ids(pid: Pid) -> Vec<i64> {
    let number = pid.as_raw_nonzero().get();
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let inner = inner.split_whitespace().filter_map(|id| id.parse().ok());
    std::iter::once(i64::from(number)).chain(inner).collect()
}

/// Looks whether this process is a running gateway.
pub(super) fn find(pid: Pid) -> Result<GatewayProcess, NotSignalled> {
    let number = pid.as_raw_nonzero().get();
    let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| match error {
        rustix::io::Errno::SRCH => NotSignalled::Gone(number),
        error => NotSignalled::Unknown { pid: number, source: error.into() },
    })?;
    let unknown = |source| NotSignalled::Unknown { pid: number, source };
    let process = PathBuf::from(format!("/proc/{number}"));
    let theirs = fs::read_link(process.join("exe")).map_err(unknown)?;
    if !is_this_program(&process.join("exe"), &theirs).map_err(unknown)? {
        return Err(NotSignalled::Stranger { pid: number, program: theirs.display().to_string() });
    }
    if !waits_for_hup(&fs::read_to_string(process.join("status")).map_err(unknown)?) {
        return Err(NotSignalled::NotWaiting(number));
    }
    Ok(GatewayProcess { number, held })
}

/// Whether a process runs this program's file, or one of its name: another version, or one that was replaced since.
fn is_this_program(link: &Path, theirs: &Path) -> io::Result<bool> {
    let ours = std::env::current_exe()?;
    let same_file = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if let (Ok(a), Ok(b)) = (fs::metadata(link), fs::metadata(&ours))
        && same_file(a, b)
    {
        return Ok(true);
    }
    Ok(name(theirs).is_some() && name(theirs) == name(&ours))
}

/// A program's name, also of one whose file was replaced.
fn name(path: &Path) -> Option<OsString> {
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).into())
}

/// Whether a process catches SIGHUP, by its status; who doesn't would be ended by it.
fn waits_for_hup(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_stranger_gets_no_signal() {
        let mut stranger = Command::new("sleep").arg("600").spawn().expect("there is a sleep");
        let pid = Pid::from_child(&stranger);
        let refused = hang_up(pid).expect_err("it is another program");
        assert!(matches!(refused, NotSignalled::Stranger { .. }), "{refused}");
        assert!(stranger.try_wait().expect("is ours").is_none(), "it goes on");
        stranger.kill().expect("is ours");
        stranger.wait().expect("is ours");
        assert!(matches!(
            hang_up(pid),
            Err(NotSignalled::Gone(_) | NotSignalled::Unknown { .. } | NotSignalled::Stranger { .. })
        ));
    }

    #[test]
    fn this_program_gets_none_while_it_does_not_wait_for_one() {
        let refused = hang_up(rustix::process::getpid()).expect_err("a test catches no SIGHUP");
        assert!(matches!(refused, NotSignalled::NotWaiting(_)), "{refused}");
    }

    #[test]
    fn masks_and_names() {
        assert!(waits_for_hup("Name:\tx\nSigCgt:\t0000000000000001\n"));
        assert!(!waits_for_hup("Name:\tx\nSigCgt:\t0000000000000ffe\n"));
        assert!(!waits_for_hup(""));
        assert_eq!(name(Path::new("/usr/bin/x (deleted)")), name(Path::new("/opt/x")));
    }
}
