//! SIGUSR2: the program is started anew beside this process, to take its place. So a package upgrade, or a new binary, needs no
//! other command than a signal, and the service manager sees the new process among those of the service.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use crate::export::Telemetry;

/// The process that is to take this one's place.
pub(super) struct Successor {
    /// This process was started so that another one may take its place.
    may_start: bool,
    is_starting: Arc<AtomicBool>,
    telemetry: Arc<Telemetry>,
}

impl Successor {
    /// `telemetry` receives the failure of a successor, which `/v1/status` shows.
    pub(super) fn new(may_start: bool, telemetry: Arc<Telemetry>) -> Self {
        Self { may_start, is_starting: Arc::default(), telemetry }
    }

    /// Starts the program of this process, as it is on disk now, with the same arguments. Its `--replace` does the rest: it takes the
    /// listeners over, and ends this process once it serves. One that can't start leaves this process as it is.
    pub(super) fn start(&self) {
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
                self.watch(child);
            }
            Err(error) => tracing::error!(%error, program = ?program, "no successor can be started"),
        }
    }

    /// Whether a successor runs that has not taken over yet.
    fn is_starting(&self) -> bool {
        self.is_starting.load(Ordering::Acquire)
    }

    /// Waits for the end of a successor. One that takes over ends this process first; every other end is a failed upgrade.
    fn watch(&self, mut child: Child) {
        let (telemetry, is_starting) = (self.telemetry.clone(), self.is_starting.clone());
        self.is_starting.store(true, Ordering::Release);
        let watching = std::thread::Builder::new().name("successor".to_owned()).spawn(move || {
            let why = match child.wait() {
                Ok(status) => format!("it ended with {status}; its own log names the cause"),
                Err(error) => format!("it can't be waited for: {error}"),
            };
            tracing::error!(pid = child.id(), %why, "the successor did not take over; this process continues");
            let failure = &telemetry.control.successor_failure;
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some((SystemTime::now(), why));
            is_starting.store(false, Ordering::Release);
        });
        if let Err(error) = watching {
            self.is_starting.store(false, Ordering::Release);
            tracing::error!(%error, "the successor can't be watched");
        }
    }
}
