//! The program as a child process, in a folder of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder that goes when its test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Whole or not at all, so that nobody reads half a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("half"), text).unwrap();
        self.rename("half", name);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// The text; empty while there is no such file.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The program, without the settings of whoever runs the tests.
pub(crate) fn ferrum_edge(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrum-edge"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("FERRUM_") || text == "RUST_LOG" || text == "NOTIFY_SOCKET" {
            command.env_remove(&name);
        }
    }
    command.env("FERRUM_STATE", folder.path("state"));
    command.current_dir(&folder.0).stdin(Stdio::null());
    command
}

/// A configuration whose only proxy answers `text`.
pub(crate) fn spec(workers: usize, text: &str) -> String {
    format!(
        "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: {workers} }}
proxies:
  - {{ id: all, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9,
      plugins: [{{ plugin_config_id: answer }}] }}
plugin_configs:
  - {{ id: answer, plugin_name: request_termination, scope: proxy_group,
      config: {{ status_code: 200, content_type: text/plain, body: {text} }} }}
"
    )
}

/// What the reader of a gateway's log does once the gateway serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogReader {
    /// Reads on.
    Reads,
    /// Closes the pipe.
    Leaves,
    /// Keeps the pipe and reads nothing.
    Stalls,
}

/// A running gateway; stopped when its test ends.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<String>>,
    /// Reads its log until the end.
    reading: Option<thread::JoinHandle<()>>,
}

impl Gateway {
    /// Runs `ferrum.yaml` and waits until it says where it listens.
    pub(crate) fn start(folder: &Folder, adjust: impl FnOnce(&mut Command)) -> Self {
        Self::start_with(folder, LogReader::Reads, adjust)
    }

    /// As [`Gateway::start`], with another reader of its log.
    pub(crate) fn start_with(folder: &Folder, reader: LogReader, adjust: impl FnOnce(&mut Command)) -> Self {
        let mut command = ferrum_edge(folder);
        command.args(["run", "-v"]).stdout(Stdio::null()).stderr(Stdio::piped());
        adjust(&mut command);
        let mut child = command.spawn().unwrap();
        let pipe = child.stderr.take().unwrap();
        if reader == LogReader::Stalls {
            // As small as it gets, so that it is soon full.
            rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
        }
        let mut lines = BufReader::new(pipe).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (started, starts) = mpsc::channel();
        let kept = log.clone();
        let reading = thread::spawn(move || {
            for line in lines.by_ref().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&format!("{line}\n"));
                if let Ok(record) = serde_json::from_str::<Value>(&line)
                    && record["message"] == "serving"
                {
                    // A successor writes to the same pipe after the test has stopped listening.
                    drop(started.send(record));
                    match reader {
                        LogReader::Reads => {}
                        LogReader::Leaves => return,
                        // Until the test's process ends; the pipe stays open.
                        LogReader::Stalls => return std::mem::forget(lines),
                    }
                }
            }
        });
        let record = starts.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("{}", log.lock().unwrap()));
        // A control plane has no listener for traffic.
        let address = |name: &str| match record[name].as_str().unwrap() {
            "off" => SocketAddr::from(([0, 0, 0, 0], 0)),
            address => address.parse().unwrap(),
        };
        Self { http: address("http"), admin: address("admin"), child, log, reading: Some(reading) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let signal = match name {
            "HUP" => rustix::process::Signal::HUP,
            "KILL" => rustix::process::Signal::KILL,
            "INT" => rustix::process::Signal::INT,
            "CONT" => rustix::process::Signal::CONT,
            "STOP" => rustix::process::Signal::STOP,
            "QUIT" => rustix::process::Signal::QUIT,
            "TERM" => rustix::process::Signal::TERM,
            "USR1" => rustix::process::Signal::USR1,
            "USR2" => rustix::process::Signal::USR2,
            other => panic!("{other} is not sent here"),
        };
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut code = None;
        until("the process ends", || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            status.is_some()
        });
        // What it wrote last may not be read yet.
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        code
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn status(&self) -> Value {
        let answer = get(self.admin, "/v1/status");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One answer, head and body.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits for something another process does.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}
