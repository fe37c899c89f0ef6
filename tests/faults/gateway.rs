//! The gateway as a child process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::run::Violation;

/// Far longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// Lines of its log that are kept to be shown.
const KEPT_LINES: usize = 60;

/// What of a gateway stays the same when it is started again.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) folder: PathBuf,
    pub(crate) database: String,
    /// Descriptors that it may have; 0 is as many as this process.
    pub(crate) descriptors: u64,
    /// The library that fakes its clock, and the file that says what time it is.
    pub(crate) clock: Option<(PathBuf, PathBuf)>,
    /// Whether it has a resolver configuration of its own.
    pub(crate) own_names: bool,
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    stall: Arc<AtomicBool>,
}

impl Gateway {
    /// Starts it and waits until it serves.
    pub(crate) fn start(plan: &Plan, token: &str) -> Result<Self, Violation> {
        let mut command = Command::new("sh");
        let limit = match plan.descriptors {
            0 => String::new(),
            n => format!("ulimit -n {n}; "),
        };
        command.arg("-c").arg(format!("{limit}exec \"$@\"")).arg("sh");
        if plan.own_names {
            let mounted = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
            command.args(["unshare", "-m", "sh", "-c", mounted, "sh"]);
        }
        command.arg(env!("CARGO_BIN_EXE_ferrum-edge"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FERRUM_") {
                command.env_remove(&name);
            }
        }
        if let Some((library, file)) = &plan.clock {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", file);
            // Timers go by the monotonic clock, which does not jump on real machines either.
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.args(["run", "-v", "--mode", "database", "--db-url", &plan.database]);
        command.env("FERRUM_ADMIN_TOKEN", token).current_dir(&plan.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pipe = child.stderr.take().unwrap();
        // As small as it gets, so that it is soon full.
        _ = rustix::pipe::fcntl_setpipe_size(&pipe, 4096);
        let (log, stall) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (started, starts) = mpsc::channel();
        let (kept, stalled) = (log.clone(), stall.clone());
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                while stalled.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
                if let Ok(record) = serde_json::from_str::<Value>(&line)
                    && record["message"] == "serving"
                {
                    drop(started.send(record));
                }
                let mut kept = kept.lock().unwrap();
                // What says of a panic is never forgotten.
                if kept.len() >= KEPT_LINES && !kept[0].contains("panic") {
                    kept.remove(0);
                }
                kept.push(line);
            }
        });
        let Ok(record) = starts.recv_timeout(LONG) else {
            let ended = child.try_wait().ok().flatten();
            drop(child.kill());
            drop(child.wait());
            return Err(Violation(format!("it does not start ({ended:?}):\n{}", joined(&log))));
        };
        let address = |name: &str| record[name].as_str().unwrap().parse().unwrap();
        let (http, https, admin) = (address("http"), address("https"), address("admin"));
        Ok(Self { http, https, admin, child, log, stall })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // One that is gone is noticed elsewhere.
        _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Whether its log is read.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.stall.store(is_stalled, Ordering::Relaxed);
    }

    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Ends it in an orderly way.
    pub(crate) fn stop(&mut self) -> Result<(), Violation> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + LONG;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.said(&format!("SIGTERM ended it with {status}"))),
                None if Instant::now() > deadline => return Err(self.said("it goes on after SIGTERM")),
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Whether it is alive and has not panicked.
    pub(crate) fn is_well(&mut self) -> Result<(), Violation> {
        if let Some(status) = self.child.try_wait().unwrap() {
            return Err(self.said(&format!("it ended by itself with {status}")));
        }
        match self.log.lock().unwrap().iter().any(|line| line.contains("panicked")) {
            true => Err(self.said("something panicked")),
            false => Ok(()),
        }
    }

    /// A violation with the end of its log.
    pub(crate) fn said(&self, what: &str) -> Violation {
        // What it said last has to come through the pipe first.
        self.stall(false);
        thread::sleep(Duration::from_millis(200));
        Violation(format!("{what}; its log ends with\n{}", joined(&self.log)))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stall(false);
        self.kill();
    }
}

fn joined(log: &Mutex<Vec<String>>) -> String {
    log.lock().map(|lines| lines.join("\n")).unwrap_or_default()
}

/// The library that fakes clocks, where it is installed (Debian: `libfaketime`).
pub(crate) fn fake_clock() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    let mut paths = found.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    paths.find(|path| Path::is_file(path))
}
