//! Child processes of a test: started on a core of their own if asked, ended when dropped, with the last lines they wrote kept.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::Ports;

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    /// How long it may take to accept, and to end.
    limits: (Duration, Duration),
}

/// Why a server is not running.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start {name}: {source}")]
    Start { name: String, source: io::Error },
    #[error("{name} ended at once: {words}")]
    Ended { name: String, words: String },
    #[error("{name} does not answer on {address} after {seconds} s: {words}")]
    Silent { name: String, address: SocketAddr, seconds: u64, words: String },
    #[error("the backend said `{0}` instead of its ports")]
    Ports(String),
}

/// How long a server may take until it accepts.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked until then.
const LOOK: Duration = Duration::from_millis(2);
const STOP_LIMIT: Duration = Duration::from_secs(3);

impl Server {
    /// Starts a program; its output goes to a file in `directory`. With cores given, it and all its threads and
    /// children run there and nowhere else.
    ///
    /// # Errors
    /// No such program.
    pub fn start(
        name: &str,
        command: &[String],
        directory: &Path,
        cores: &[usize],
    ) -> Result<Self, ProcessError> {
        let fail = |source| ProcessError::Start { name: name.to_owned(), source };
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).map_err(fail)?;
        let started = Instant::now();
        let child = pinned(command, cores)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(fail)?)
            .stderr(output)
            .spawn()
            .map_err(fail)?;
        Ok(Self { name: name.to_owned(), child, log, started, limits: (START_LIMIT, STOP_LIMIT) })
    }

    /// With other limits: how long it may take to accept, and to end.
    #[must_use]
    pub fn within(mut self, start: Duration, stop: Duration) -> Self {
        self.limits = (start, stop);
        self
    }

    /// The process, or with pinning the one that `taskset` became.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server accepts connections there; returns how long after its start it did.
    ///
    /// # Errors
    /// It ended, or it does not accept in time.
    pub fn wait_listening(&mut self, address: SocketAddr) -> Result<Duration, ProcessError> {
        let begun = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            self.check_alive()?;
            if begun.elapsed() > self.limits.0 {
                return Err(ProcessError::Silent {
                    name: self.name.clone(),
                    address,
                    seconds: self.limits.0.as_secs(),
                    words: self.last_lines(),
                });
            }
            thread::sleep(LOOK);
        }
        let took = self.started.elapsed();
        // Another program may hold the port while ours has failed on it.
        thread::sleep(Duration::from_millis(50));
        self.check_alive().map(|()| took)
    }

    /// Tells whether the process still runs.
    ///
    /// # Errors
    /// It ended; the last lines it wrote are in the error.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(ProcessError::Ended { name: self.name.clone(), words: self.last_lines() }),
        }
    }

    /// The last lines the program wrote.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(6)..).unwrap_or_default().join(" / ");
        if last.is_empty() { "it wrote nothing".to_owned() } else { last }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // Gently first: a killed master would leave its workers behind. It may have ended already.
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        let begun = Instant::now();
        while begun.elapsed() < self.limits.1 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Our echo servers in a process of their own.
#[derive(Debug)]
pub struct BackendProcess {
    pub ports: Ports,
    child: Child,
}

impl BackendProcess {
    /// Starts `proto_bench backend` with these further arguments.
    ///
    /// # Errors
    /// It cannot be started or does not print its ports.
    pub fn start(arguments: &[&str], cores: &[usize]) -> Result<Self, ProcessError> {
        let fail = |source| ProcessError::Start { name: "the backend".to_owned(), source };
        let own = own_program().map_err(fail)?;
        let mut command =
            vec![own.to_string_lossy().into_owned(), "backend".to_owned(), "--exit-with-stdin".to_owned()];
        command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let mut child =
            pinned(&command, cores).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(fail)?;
        }
        match serde_json::from_str(&line) {
            Ok(ports) => Ok(Self { ports, child }),
            Err(_) => {
                child.kill().ok();
                child.wait().ok();
                Err(ProcessError::Ports(line.trim().to_owned()))
            }
        }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BackendProcess {
    fn drop(&mut self) {
        // The end of its input is the end of the backend.
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}

/// This program's own file; under `cargo test` the test binary is running, with the program one directory up.
fn own_program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let is_us = own.file_stem().is_some_and(|name| name == "proto_bench");
    if is_us {
        return Ok(own);
    }
    let beside = own.parent().and_then(Path::parent).map(|directory| directory.join("proto_bench"));
    beside.filter(|path| path.exists()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The command, to run on these cores if any are given, and to end with this process even if that is killed. The two helpers
/// replace themselves by the program, so its pid is the child's, and no thread of it ever starts elsewhere.
fn pinned(command: &[String], cores: &[usize]) -> Command {
    let mut words: Vec<String> = Vec::new();
    if find("setpriv").is_some() {
        words.extend(["setpriv", "--pdeathsig", "TERM", "--"].map(str::to_owned));
    }
    if !cores.is_empty() {
        let list: Vec<String> = cores.iter().map(usize::to_string).collect();
        words.extend(["taskset".to_owned(), "-c".to_owned(), list.join(",")]);
    }
    words.extend_from_slice(command);
    let (program, arguments) =
        words.split_first().map_or(("", &[] as &[String]), |(first, rest)| (first, rest));
    let mut started = Command::new(program);
    started.args(arguments);
    started
}

/// Looks for a program: a path as given, else in the search path and where Debian keeps servers.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// Pins this process's current thread, and all threads it starts from now on.
///
/// # Errors
/// None of them is there.
pub fn pin_self(cores: &[usize]) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().filter(|core| **core < rustix::thread::CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    rustix::thread::sched_setaffinity(None, &set)
}
