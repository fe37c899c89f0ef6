//! SIGUSR2: the program is started anew beside this process, to take its place. So a package upgrade, or a new binary, needs no
//! other command than a signal, and the service manager sees the new process among those of the service.

use std::process::{Child, Command, Stdio};

/// The process that is to take this one's place.
pub(super) struct Successor {
    /// This process was started so that another one may take its place.
    may_start: bool,
    child: Option<Child>,
}

impl Successor {
    pub(super) fn new(may_start: bool) -> Self {
        Self { may_start, child: None }
    }

    /// Starts the program of this process, as it is on disk now, with the same arguments. Its `--replace` does the rest: it takes the
    /// listeners over, and ends this process once it serves. One that can't start leaves this process as it is.
    pub(super) fn start(&mut self) {
        if !self.may_start {
            tracing::error!("SIGUSR2 is ignored: start the gateway with --pid-file and --replace");
            return;
        }
        if self.is_starting() {
            tracing::warn!("SIGUSR2 is ignored: a successor is starting");
            return;
        }
        let mut arguments = std::env::args_os();
        let Some(program) = arguments.next() else {
            tracing::error!("SIGUSR2 is ignored: the name of the program is not known");
            return;
        };
        let mut command = Command::new(&program);
        // The watchdog's variable names the process that it is for.
        command.args(arguments).env_remove("WATCHDOG_PID").stdin(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                tracing::info!(pid = child.id(), program = ?program, "a successor starts");
                self.child = Some(child);
            }
            Err(error) => tracing::error!(%error, program = ?program, "no successor can be started"),
        }
    }

    /// Whether a successor runs that has not taken over yet. One that failed is reaped.
    fn is_starting(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                tracing::error!(%status, "the last successor did not start");
                self.child = None;
                false
            }
            Err(error) => {
                tracing::error!(%error, "the last successor can't be waited for");
                self.child = None;
                false
            }
        }
    }
}
