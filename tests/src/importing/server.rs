//! The originals: nginx, HAProxy and Caddy as processes of a test.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrum_edge::import::Format;
pub(super) use test_servers::ports::free_port;

/// A running original in a folder of its own. Dropping it ends it.
pub(super) struct Original {
    running: Child,
    pub(super) address: SocketAddr,
    folder: PathBuf,
}

/// A folder that is nobody else's.
pub(super) fn folder(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("ferrum-import-{name}-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A Caddyfile as Caddy's JSON.
pub(super) fn adapted(text: &str, folder: &Path) -> String {
    let file = folder.join("Caddyfile");
    fs::write(&file, text).expect("a file");
    let mut command = Command::new(test_servers::program("caddy"));
    command.args(["adapt", "--adapter", "caddyfile", "--config"]).arg(&file).env("HOME", folder);
    let output = command.stdin(Stdio::null()).output().expect("caddy adapt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text")
}

impl Original {
    /// Starts the program whose configuration this is, on this port.
    pub(super) fn start(format: Format, text: &str, folder: &Path, port: u16) -> Self {
        let file = folder.join(match format {
            Format::Nginx => "nginx.conf",
            Format::Haproxy => "haproxy.cfg",
            _ => "Caddyfile",
        });
        fs::write(&file, text).expect("a file");
        let log = fs::File::create(folder.join("log")).expect("a log");
        let mut command = match format {
            Format::Nginx => {
                let mut command = Command::new(test_servers::program("nginx"));
                let settings = "daemon off; master_process off; pid nginx.pid; error_log stderr warn;";
                command.arg("-p").arg(folder).arg("-c").arg(&file).args(["-g", settings]);
                command
            }
            Format::Haproxy => {
                let mut command = Command::new(test_servers::program("haproxy"));
                command.args(["-db", "-q", "-f"]).arg(&file);
                command
            }
            _ => {
                let mut command = Command::new(test_servers::program("caddy"));
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
                command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
                command
            }
        };
        let running = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{format:?}: {error}"));
        let mut original =
            Self { running, address: ([127, 0, 0, 1], port).into(), folder: folder.to_owned() };
        original.wait();
        original
    }

    /// Until it listens. A program that was just installed is read from a cold disk beside other tests: that takes seconds.
    fn wait(&mut self) {
        // A datagram that nobody sends, as a pause.
        let quiet = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        quiet.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        for _ in 0..3000 {
            let ended = self.running.try_wait().expect("a process");
            assert!(ended.is_none(), "it does not start: {}", self.log());
            if TcpStream::connect_timeout(&self.address, Duration::from_millis(200)).is_ok() {
                return;
            }
            drop(quiet.recv(&mut [0; 1]));
        }
        panic!("it does not listen on {}: {}", self.address, self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        drop(self.running.kill());
        drop(self.running.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}
