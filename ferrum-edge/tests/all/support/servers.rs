//! Real PostgreSQL and MariaDB servers in temporary folders, ended when the tests end, however they do.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrum_edge::store::Engine;

/// Runs the server, and when nobody holds its standard input any more ends it and removes its folder. `$1` is the
/// signal that ends it, `$2` the folder, or nothing where it is to be kept.
const SUPERVISOR: &str = r#"
signal=$1; folder=$2; shift 2
trap : HUP INT TERM
"$@" </dev/null >&2 &
echo $!
cat >/dev/null
kill -"$signal" $! 2>/dev/null
wait
[ -z "$folder" ] || rm -rf "$folder"
"#;

/// A server.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) port: u16,
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    supervisor: Child,
    /// Closing it ends the server.
    hold: Option<ChildStdin>,
    pid: String,
}

/// The server all tests of this binary share.
pub(crate) fn shared(engine: Engine) -> &'static Server {
    static POSTGRES: OnceLock<Server> = OnceLock::new();
    static MARIADB: OnceLock<Server> = OnceLock::new();
    let cell = if engine == Engine::Postgres { &POSTGRES } else { &MARIADB };
    cell.get_or_init(|| Server::start(engine))
}

impl Server {
    pub(crate) fn start(engine: Engine) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferrum-{}-{}-{number}", engine.as_str(), std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        if let Some((user, group)) = other_user(engine) {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let mut server = Self { engine, port: 0, folder, running: None };
        server.initialise();
        // A port that was free may be taken by somebody else in between.
        for _ in 0..5 {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.run() {
                return server;
            }
        }
        panic!("{engine:?} does not start in {}", server.folder.display());
    }

    /// The address of a database in it.
    pub(crate) fn url(&self, database: &str) -> String {
        self.url_by(self.port, database)
    }

    /// The same by way of another port.
    pub(crate) fn url_by(&self, port: u16, database: &str) -> String {
        match self.engine {
            Engine::Postgres => format!("postgres://ferrum:hush-hush@127.0.0.1:{port}/{database}"),
            _ => format!("mysql://root@127.0.0.1:{port}/{database}"),
        }
    }

    fn initialise(&self) {
        let data = self.data();
        let arguments: Vec<OsString> = match self.engine {
            Engine::Postgres => {
                let mut of = vec![program("initdb"), "-D".into(), data.into()];
                let rest = ["-A", "trust", "-U", "ferrum", "-E", "UTF8", "--locale=C", "--no-sync"];
                of.extend(rest.map(OsString::from));
                of
            }
            _ => vec![
                program("mariadb-install-db"),
                "--no-defaults".into(),
                joined("--datadir=", &data),
                "--auth-root-authentication-method=normal".into(),
                "--skip-test-db".into(),
            ],
        };
        let output = self.as_user(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts it; whether it is ready for connections.
    pub(crate) fn run(&mut self) -> bool {
        let (data, port) = (self.data(), self.port);
        let (ready, signal, arguments): (_, _, Vec<OsString>) = match self.engine {
            Engine::Postgres => {
                let mut of = vec![
                    program("postgres"),
                    "-D".into(),
                    data.into(),
                    "-k".into(),
                    self.folder.clone().into(),
                ];
                of.extend(["-h", "127.0.0.1", "-p", &port.to_string()].map(OsString::from));
                // What a crash of the machine would take is no matter here, and disks are slow at times.
                of.extend(["-c", "fsync=off"].map(OsString::from));
                ("ready to accept connections", "QUIT", of)
            }
            _ => {
                let mut of = vec![program("mariadbd"), "--no-defaults".into(), joined("--datadir=", &data)];
                of.push(joined("--socket=", &self.folder.join("socket")));
                of.push(joined("--pid-file=", &self.folder.join("pid")));
                of.extend([format!("--port={port}"), "--bind-address=127.0.0.1".into()].map(OsString::from));
                of.push("--innodb-buffer-pool-size=64M".into());
                // Also here: what is handed to the system survives the server's end.
                of.push("--innodb-flush-log-at-trx-commit=2".into());
                ("ready for connections", "KILL", of)
            }
        };
        let mut server = self.user_prefix();
        server.extend(arguments);
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", SUPERVISOR, "supervisor", signal]).arg(&self.folder).args(server);
        supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut supervisor = supervisor.current_dir("/").spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let mut said = BufReader::new(supervisor.stderr.take().unwrap()).lines();
        let is_ready = said.by_ref().map_while(Result::ok).any(|line| line.contains(ready));
        // What it says later has to go somewhere.
        std::thread::spawn(move || said.for_each(drop));
        let hold = supervisor.stdin.take();
        let pid = pid.trim().to_owned();
        if is_ready {
            self.running = Some(Running { supervisor, hold, pid });
        } else {
            drop(hold);
            supervisor.wait().unwrap();
        }
        is_ready
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = &self.running.as_ref().unwrap().pid;
        assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
    }

    /// Ends it at once, as a crash would, keeping its data; [`Self::run`] starts it anew.
    pub(crate) fn kill(&mut self) {
        let kept = self.folder.with_extension("kept");
        self.signal(if self.engine == Engine::Postgres { "QUIT" } else { "KILL" });
        // The supervisor removes the folder of the server that it runs, so that one has another name for this moment.
        let mut running = self.running.take().unwrap();
        fs::rename(&self.folder, &kept).unwrap();
        drop(running.hold.take());
        running.supervisor.wait().unwrap();
        fs::rename(&kept, &self.folder).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A command as the user whom the server runs as.
    pub(crate) fn as_user(&self, arguments: Vec<OsString>) -> Command {
        let mut all = self.user_prefix();
        all.extend(arguments);
        let mut command = Command::new(all.remove(0));
        command.args(all).current_dir("/");
        command
    }

    /// Servers refuse to be root.
    fn user_prefix(&self) -> Vec<OsString> {
        let Some((user, group)) = other_user(self.engine) else { return Vec::new() };
        let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
        ["setpriv".to_owned(), user, group, "--clear-groups".to_owned()].map(OsString::from).to_vec()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.hold.take());
            running.supervisor.wait().unwrap();
        }
    }
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(path);
    joined
}

/// Whom to be instead of root.
fn other_user(engine: Engine) -> Option<(u32, u32)> {
    if !is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
        Some((fields.next()?, fields.next()?))
    };
    find(if engine == Engine::Postgres { "postgres" } else { "mysql" }).or_else(|| find("nobody"))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// A program that a server or its tests need.
pub(crate) fn program(name: &str) -> OsString {
    test_servers::program(name).into()
}
