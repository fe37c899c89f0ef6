//! The gateways that run on this machine, and the choice of the gateway that a command uses. Each gateway writes a file to the
//! state folder. A command uses `--admin`, `FERRUM_ADMIN_URL`, the process of a pid file, the gateway of its configuration file,
//! the only running gateway, or the default address, in this order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use gateway_core::config::model::Settings;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::address::AdminAddress;
use super::{MISUSED, SpecArgs, print, process};
use crate::source::file::{Source, Spec};
use crate::store::state_folder;
use crate::variables::variable;

/// The name of the folder in the state folder.
const FOLDER: &str = "running";
/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 10;
/// Maximum number of files that are read.
const MAX_FILES: usize = 1_000;

/// A running gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningGateway {
    pub(super) pid: i32,
    /// The address of its admin API, in the syntax of `--admin`.
    pub(super) admin: String,
    /// The absolute path of its configuration file.
    pub(super) spec: Option<PathBuf>,
    /// The file of its admin token; `None` if the environment sets the tokens.
    pub(super) token_file: Option<PathBuf>,
}

/// The file of this process. Dropping it removes the file.
pub(super) struct RunningFile(PathBuf);

impl Drop for RunningFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The admin API that a command uses, and the token that it sends.
pub(super) struct FoundGateway {
    pub(super) address: AdminAddress,
    pub(super) token: Option<String>,
    /// The token file, if this user may not read it.
    pub(super) unreadable: Option<PathBuf>,
}

/// The options by which a user selects a gateway.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    /// `--admin`.
    pub(super) admin: Option<&'a AdminAddress>,
    /// The process of `--pid` or `--pid-file`.
    pub(super) pid: Option<i32>,
    /// `--spec`, and the default paths of configuration files.
    pub(super) spec: SpecArgs,
}

impl RunningGateway {
    /// Describes this process and its admin listeners; `None` if it has no admin listener.
    pub(super) fn of_this(
        settings: &Settings,
        tcp: Option<SocketAddr>,
        spec: &Spec,
        token_file: Option<&Path>,
    ) -> Option<Self> {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let address = match (&settings.admin_socket, tcp) {
            (Some(socket), _) => AdminAddress::Unix(absolute(socket)?),
            (None, Some(tcp)) => of_socket(tcp, settings.admin_tls.is_some()),
            (None, None) => return None,
        };
        let spec = match spec {
            Spec::File(path) => absolute(path),
            Spec::Text { .. } => None,
        };
        let pid = i32::try_from(std::process::id()).ok()?;
        Some(Self { pid, admin: address.to_string(), spec, token_file: token_file.and_then(absolute) })
    }

    /// Writes the file by which commands find this gateway.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn note(&self) -> io::Result<RunningFile> {
        let folder = state_folder().join(FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        let path = folder.join(format!("{}.json", self.pid));
        drop(fs::remove_file(&path));
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        serde_json::to_writer(file, self)?;
        Ok(RunningFile(path))
    }

    fn address(&self) -> Option<AdminAddress> {
        self.admin.parse().ok()
    }
}

/// The address to which a command connects for a listening address.
fn of_socket(address: SocketAddr, is_tls: bool) -> AdminAddress {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    AdminAddress::Tcp { host: ip.to_string(), port: address.port(), is_tls }
}

/// The running gateways, sorted by process ID. Removes files of processes that have ended.
fn running() -> Vec<RunningGateway> {
    let entries = fs::read_dir(state_folder().join(FOLDER)).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.take(MAX_FILES).filter_map(|entry| read(&entry.path())).collect();
    all.sort_by_key(|one| one.pid);
    all
}

fn read(path: &Path) -> Option<RunningGateway> {
    let about = fs::metadata(path).ok().filter(|about| about.is_file() && about.len() <= MAX_BYTES)?;
    let mut one: RunningGateway = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    match Pid::from_raw(one.pid).map(process::find) {
        Some(Ok(_)) => {}
        Some(Err(process::NotSignalled::Gone(_) | process::NotSignalled::Stranger { .. })) => {
            drop(fs::remove_file(path));
            return None;
        }
        _ => return None,
    }
    // The owner of this file could name a file that only the reader may read, and the reader would send its content as a token.
    // So both files must have the same owner.
    let owner = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.uid() == about.uid());
    one.token_file = one.token_file.filter(owner);
    Some(one)
}

/// The gateway that a command uses.
///
/// # Errors
/// The exit code. The function has printed the reason: a variable is invalid, or the choice is ambiguous.
pub(super) fn find(wanted: &Wanted<'_>) -> Result<FoundGateway, u8> {
    let misused = |problem: &dyn std::fmt::Display| {
        print::error(problem);
        MISUSED
    };
    let of_variable = variable("FERRUM_ADMIN_URL").map_err(|problem| misused(&problem))?;
    let of_variable = of_variable.map(|text| text.parse::<AdminAddress>()).transpose();
    let of_variable = of_variable.map_err(|error| misused(&format_args!("FERRUM_ADMIN_URL: {error}")))?;
    let given = variable("FERRUM_ADMIN_TOKEN").map_err(|problem| misused(&problem))?;
    let running = running();
    let address = match wanted.admin.cloned().or(of_variable) {
        Some(address) => address,
        None => choose(&running, wanted).map_err(|several| misused(&several))?,
    };
    let of_this = running.iter().find(|one| one.address().is_some_and(|known| known.is_same(&address)));
    // A kept token is for the gateway that keeps it: anybody may listen on another port of this machine, also on that of a gateway
    // which is away.
    let file = of_this.and_then(|one| one.token_file.clone());
    let (mut token, mut unreadable) = (given, None);
    if let (None, Some(file)) = (&token, file) {
        match fs::read_to_string(&file) {
            Ok(text) => token = Some(text.trim_end().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unreadable = Some(file),
            Err(_) => {}
        }
    }
    // It becomes a line of a request.
    if token.as_ref().is_some_and(|token| token.bytes().any(|byte| byte.is_ascii_control())) {
        let from = "the admin token contains a line end or another control character";
        return Err(misused(&format_args!("{from}; remove it from FERRUM_ADMIN_TOKEN or the token file")));
    }
    Ok(FoundGateway { address, token, unreadable })
}

/// The address, if neither a flag nor the environment specifies it. The error lists the gateways among which the user must
/// choose.
fn choose(running: &[RunningGateway], wanted: &Wanted<'_>) -> Result<AdminAddress, String> {
    let of_pid = running.iter().find(|one| Some(one.pid) == wanted.pid);
    if let Some(address) = of_pid.and_then(RunningGateway::address) {
        return Ok(address);
    }
    if let Some(spec) = wanted.spec.path_here() {
        let absolute = std::path::absolute(&spec).ok();
        let mut same = running.iter().filter(|one| one.spec.is_some() && one.spec == absolute);
        // During a replacement, two processes run with the same file and the same address.
        let of_file = same.next_back().and_then(RunningGateway::address);
        if let Some(address) = of_file.or_else(|| configured(spec)) {
            return Ok(address);
        }
    }
    let addresses: Vec<_> = running.iter().filter_map(RunningGateway::address).collect();
    match addresses.as_slice() {
        [] => Ok(wanted.spec.path().and_then(configured).unwrap_or_default()),
        [first, rest @ ..] if rest.iter().all(|one| one == first) => Ok(first.clone()),
        all if all.contains(&AdminAddress::default()) => Ok(AdminAddress::default()),
        _ => {
            let shown = running.iter().map(|one| format!("\n  --admin {} (process {})", one.admin, one.pid));
            Err(format!("Several gateways run here; say which one is meant:{}", shown.collect::<String>()))
        }
    }
}

/// The admin address in a configuration file, even if other parts of the file are invalid. `None` if the file specifies none.
fn configured(spec: PathBuf) -> Option<AdminAddress> {
    let settings = Source { spec: Spec::File(spec), flags: Vec::new() }.admin_of_broken()?;
    let address = settings.admin.filter(|address| address.port() != 0);
    let tcp = || address.map(|address| of_socket(address, settings.admin_tls.is_some()));
    settings.admin_socket.clone().map(AdminAddress::Unix).or_else(tcp)
}
