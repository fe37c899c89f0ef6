//! A Redis server for one test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A running server; ended, and its folder removed, when dropped.
pub(crate) struct Redis {
    child: Child,
    folder: PathBuf,
    pub(crate) port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Redis {
    /// Settings under `gateway`, with this server as the connection `main`, whose answers may take so long.
    pub(crate) fn settings(&self, timeout: &str) -> String {
        format!("  redis: {{main: {{urls: ['redis://127.0.0.1:{}'], timeout: {timeout}}}}}", self.port)
    }

    /// Freezes it, or has it go on: it takes connections and does not answer.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Starts a server and waits until it says that it is ready.
    pub(crate) fn start() -> Self {
        Self::start_at(super::stream::free_port())
    }

    /// As [`Self::start`], on this port.
    pub(crate) fn start_at(port: u16) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ferrum-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut child = Command::new(test_servers::program("redis-server"))
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .args([port.to_string().as_str(), "--dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let redis = Self { child, folder, port };
        let is_ready = |line: String| line.contains("Ready to accept connections");
        assert!(lines.by_ref().map_while(Result::ok).any(is_ready), "redis-server does not start");
        // What it says further must not fill the pipe up.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        redis
    }
}
