//! `reload`: SIGHUP to a running gateway, and what came of it.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Pid;
use serde_json::Value;

use super::address::AdminAddress;
use super::admin::{Admin, AdminResponse};
use super::running::Wanted;
use super::{BAD_CONFIG, FAILED, MISUSED, SpecArgs, pid_file, print, process};
use crate::source::warnings::restart_needed;

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// Process ID of the gateway; without it, the command uses the admin API
    #[arg(long, value_name = "PID", conflicts_with = "pid_file")]
    pid: Option<i32>,
    /// File with the process ID
    #[arg(long, env = "FERRUM_PID_FILE", value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// The gateway's admin listener: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH [env: FERRUM_ADMIN_URL] [default: that of
    /// ./ferrum.yaml, else of the gateway that runs here, else 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
    #[command(flatten)]
    spec: SpecArgs,
}

/// How long a reload may take until we stop waiting.
const TIMEOUT: Duration = Duration::from_secs(60);
/// From one look at the status to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Signals, waits, and says which revision is in use or why the new configuration was refused.
pub(super) fn reload(args: &ReloadArgs) -> u8 {
    let given = args.pid_file.as_deref().map(pid_file::read).transpose().map(|of_file| of_file.or(args.pid));
    let pid = given.as_ref().ok().copied().flatten();
    let admin = match Admin::find(&Wanted { admin: args.admin.as_ref(), pid, spec: args.spec.clone() }) {
        Ok(admin) => admin,
        Err(code) => return code,
    };
    let address = admin.address();
    let before = status(&admin);
    let pid = match given {
        Ok(Some(pid)) => Some(pid),
        Ok(None) => before.as_ref().ok().and_then(|status| status.get("pid")?.as_i64()?.try_into().ok()),
        Err(error) => {
            print::error(error);
            return FAILED;
        }
    };
    let Some(pid) = pid.filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        if let Err(error) = &before {
            print::error(format_args!("No gateway answers at {address}: {error}"));
        }
        print::error("Specify the gateway: --pid PID, --pid-file FILE or --admin ADDRESS");
        return MISUSED;
    };
    let told = process::ids(pid);
    if let Err(error) = process::hang_up(pid) {
        print::error(error);
        return FAILED;
    }
    match before {
        Ok(before) if is_other(&before, &told) => say_other(&before, address),
        Ok(before) => wait(&admin, address, &ConfigurationState::of(&before), &told),
        Err(error) => {
            print::error(format_args!(
                "Told the process, but nobody answers at {address} ({error}); its log says whether it reloaded."
            ));
            FAILED
        }
    }
}

/// What a status says about configurations.
#[derive(PartialEq, Eq)]
struct ConfigurationState {
    revision: u64,
    /// In database mode the revision is the database's, and stays; a gateway of an earlier version does not tell.
    reloads: Option<u64>,
    refused: u64,
}

impl ConfigurationState {
    fn of(status: &Value) -> Self {
        let number = |name: &str| status["config"][name].as_u64().unwrap_or_default();
        let reloads = status["config"]["reloads"].as_u64();
        Self { revision: number("revision"), reloads, refused: number("refused") }
    }

    fn is_reloaded(&self, before: &Self) -> bool {
        match (self.reloads, before.reloads) {
            (Some(now), Some(before)) => now != before,
            _ => self.revision != before.revision,
        }
    }
}

/// Whether a status is another process's than the one that was told to reload.
fn is_other(status: &Value, told: &[i64]) -> bool {
    status["pid"].as_i64().is_some_and(|pid| !told.contains(&pid))
}

fn say_other(status: &Value, address: &AdminAddress) -> u8 {
    print::error(format_args!(
        "The process got the signal, but another process answers at {address}, {}; the log of the former says whether it reloaded.",
        status["pid"]
    ));
    print::error("Specify the address of the former: --admin ADDRESS");
    FAILED
}

/// Looks until the status shows what became of the reload.
fn wait(admin: &Admin, address: &AdminAddress, before: &ConfigurationState, told: &[i64]) -> u8 {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = match status(admin) {
            Ok(status) => status,
            Err(error) => {
                print::error(format_args!("The gateway stopped answering at {address}: {error}"));
                return FAILED;
            }
        };
        if is_other(&status, told) {
            return say_other(&status, address);
        }
        let now = ConfigurationState::of(&status);
        if now.is_reloaded(before) {
            print::line(format_args!("Revision {} is in use.", now.revision));
            let fixed = status["config"]["restart_needed"].as_array();
            for setting in fixed.into_iter().flatten().filter_map(Value::as_str) {
                print::line(format_args!("warning: {}", restart_needed(setting)));
            }
            return 0;
        }
        if now.refused != before.refused {
            print::error(format_args!("Refused; revision {} stays in use:", now.revision));
            let problems = status["config"]["last_refusal"]["problems"].as_array();
            for problem in problems.into_iter().flatten().filter_map(Value::as_str) {
                print::error(problem);
            }
            return BAD_CONFIG;
        }
        if Instant::now() > deadline {
            print::error(format_args!("Nothing changed within {TIMEOUT:?}; the gateway's log may say why."));
            return FAILED;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks for the status document.
fn status(admin: &Admin) -> io::Result<Value> {
    match admin.exchange("GET", "/v1/status", None)? {
        AdminResponse { status: 200, body } => Ok(body),
        AdminResponse { status: 401 | 403, .. } => {
            let needed = "it shows its status only with a token; set FERRUM_ADMIN_TOKEN";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, needed))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "this is not an admin listener")),
    }
}
