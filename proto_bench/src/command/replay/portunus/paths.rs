//! The ways from sender to sink.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::table::{Row, Subject};
use crate::bulk::{BulkError, BulkOutcome, BulkPlan, Carrier, Sink};
use crate::command::stand::{Stand, StandError};
use crate::process::{ProcessError, Server};

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    #[error("{0} is not installed here")]
    Missing(&'static str),
    #[error(transparent)]
    Stand(#[from] StandError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Bulk(#[from] BulkError),
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the machine allows no redirect in a network namespace: {0}")]
    Namespace(String),
}

/// A way that is open.
pub(super) enum Path {
    Direct,
    /// Through a program that listens there.
    Program(SocketAddr, Server),
    /// Rounds run in a process of their own, in a network namespace.
    Namespace {
        unshare: PathBuf,
        own: PathBuf,
    },
}

impl Path {
    /// Where senders connect; `None` for the sink itself.
    pub(super) fn listen(&self) -> Option<SocketAddr> {
        match self {
            Self::Program(listen, _) => Some(*listen),
            Self::Direct | Self::Namespace { .. } => None,
        }
    }

    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Program(_, server) => Some(server),
            Self::Direct | Self::Namespace { .. } => None,
        }
    }

    /// Runs one round.
    pub(super) fn round(&mut self, sink: &Sink, plan: &BulkPlan) -> Result<BulkOutcome, PathError> {
        match self {
            Self::Direct => Ok(sink.round(plan)?),
            Self::Program(_, server) => {
                server.check_alive()?;
                Ok(sink.round(plan)?)
            }
            Self::Namespace { unshare, own } => redirected(unshare, own, plan),
        }
    }
}

/// Opens a way to the sink.
pub(super) fn open(
    subject: Subject,
    row: &Row,
    sink: SocketAddr,
    programs: &BTreeMap<&'static str, PathBuf>,
    stand: &Stand,
    cores: &[usize],
) -> Result<Path, PathError> {
    let program = |name: &'static str| programs.get(name).cloned().ok_or(PathError::Missing(name));
    let listen = stand.port()?;
    let file = |name: &str| stand.directory.join(name);
    let text = |path: &FilePath| path.to_string_lossy().into_owned();
    let (path, content, command) = match subject {
        Subject::Direct => return Ok(Path::Direct),
        Subject::Redirect => {
            program("iptables")?;
            program("ip")?;
            let own = std::env::current_exe().map_err(|error| PathError::Namespace(error.to_string()))?;
            return Ok(Path::Namespace { unshare: program("unshare")?, own });
        }
        Subject::Gateway | Subject::GatewayCopying => {
            let path = file(&format!("{}.json", subject.name()));
            let content = gateway(subject, row, sink, listen, cores.len().max(1));
            let command = vec![text(&program("ferrum-edge")?), "run".into(), "--spec".into(), text(&path)];
            (path, content, command)
        }
        Subject::Haproxy => {
            let path = file("haproxy-bulk.cfg");
            let content = format!(
                "global\n  nbthread {}\ndefaults\n  mode tcp\n  option splice-auto\n  timeout connect 5s\n  timeout client 1h\n  \
                 timeout server 1h\nfrontend front\n  bind {listen}\n  default_backend back\nbackend back\n  server one {sink}\n",
                cores.len().max(1)
            );
            let command = vec![text(&program("haproxy")?), "-db".into(), "-f".into(), text(&path)];
            (path, content, command)
        }
        Subject::Nginx => {
            let path = file("nginx-bulk.conf");
            let command = vec![
                text(&program("nginx")?),
                "-p".into(),
                text(&stand.directory),
                "-c".into(),
                text(&path),
                "-g".into(),
                "daemon off;".into(),
            ];
            (path, nginx(row, sink, listen, cores.len().max(1)), command)
        }
    };
    std::fs::write(&path, content).map_err(|source| PathError::File { path, source })?;
    let mut server = Server::start(subject.name(), &command, &stand.directory, cores)?;
    match row.carrier {
        Carrier::Tcp => _ = server.wait_listening(listen)?,
        Carrier::Udp => wait_for_datagrams(&mut server, listen)?,
    }
    Ok(Path::Program(listen, server))
}

/// Waits until the program holds the port.
fn wait_for_datagrams(server: &mut Server, listen: SocketAddr) -> Result<(), PathError> {
    crate::command::stand::wait_bound(server, listen)?;
    Ok(())
}

fn gateway(subject: Subject, row: &Row, sink: SocketAddr, listen: SocketAddr, workers: usize) -> String {
    let scheme = if row.carrier == Carrier::Tcp { "tcp" } else { "udp" };
    let mut proxy = json!({
        "id": "bulk", "listen_port": listen.port(), "backend_scheme": scheme,
        "backend_host": sink.ip().to_string(), "backend_port": sink.port(),
    });
    if subject == Subject::GatewayCopying {
        proxy["backend_splice"] = false.into();
    }
    let mut spec = json!({
        "gateway": { "http": "127.0.0.1:0", "https": "off", "admin": "127.0.0.1:0", "workers": workers,
            "stream_address": "127.0.0.1" },
    });
    if let Some(cap) = row.cap {
        proxy["plugins"] = json!([{ "plugin_config_id": "cap" }]);
        spec["plugin_configs"] = json!([{
            "id": "cap", "plugin_name": "bandwidth_limit", "scope": "proxy", "proxy_id": "bulk",
            "config": { "upload": format!("{cap}B"), "limit_by": "route" },
        }]);
    }
    spec["proxies"] = json!([proxy]);
    spec.to_string()
}

fn nginx(row: &Row, sink: SocketAddr, listen: SocketAddr, workers: usize) -> String {
    let udp = if row.carrier == Carrier::Udp { " udp" } else { "" };
    let module = "/usr/lib/nginx/modules/ngx_stream_module.so";
    // Where Debian puts it; other builds have it inside.
    let load =
        if FilePath::new(module).exists() { format!("load_module {module};\n") } else { String::new() };
    format!(
        "{load}worker_processes {workers};\npid nginx-bulk.pid;\nerror_log stderr error;\nevents {{ worker_connections 1024; }}\n\
         stream {{ access_log off; proxy_buffer_size 64k; proxy_timeout 1h;\n\
         server {{ listen {listen}{udp}; proxy_pass {sink}; }} }}\n"
    )
}

/// Ports inside the namespace, where nobody else is.
const FRONT: u16 = 9201;
const BACK: u16 = 9202;

/// Runs `bulk` in a network namespace whose kernel redirects one port to the other.
fn redirected(unshare: &FilePath, own: &FilePath, plan: &BulkPlan) -> Result<BulkOutcome, PathError> {
    let protocol = if plan.carrier == Carrier::Tcp { "tcp" } else { "udp" };
    let rate = plan.rate.map(|rate| format!(" --rate {rate:.0}")).unwrap_or_default();
    let script = format!(
        "ip link set lo up && iptables -t nat -A OUTPUT -p {protocol} --dport {FRONT} -j REDIRECT --to-ports {BACK} && \
         exec \"$0\" bulk --json -c {protocol} --sink 127.0.0.1:{BACK} --to 127.0.0.1:{FRONT} -n {} --datagram {} -d {}ms -O {}ms{rate}",
        plan.streams,
        plan.datagram,
        plan.window.as_millis(),
        plan.omit.as_millis(),
    );
    let fail = |why: String| PathError::Namespace(why);
    let is_root = rustix::process::geteuid().is_root();
    let flags: &[&str] = if is_root { &["-n"] } else { &["-U", "-r", "-n"] };
    let output = Command::new(unshare)
        .args(flags)
        .args(["--", "sh", "-c", &script])
        .arg(own)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| fail(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    serde_json::from_slice(&output.stdout).map_err(|_| fail(said))
}
