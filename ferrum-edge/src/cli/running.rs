//! The gateways that run on this machine, as files in the folder of what a gateway keeps, and which of them a command
//! means: `--admin`, `FERRUM_ADMIN_URL`, the process of a pid file, the configuration file, the only one that runs, the
//! default address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use gateway_core::config::model::Settings;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::address::AdminAddress;
use super::{MISUSED, SpecArgs, print, process};
use crate::access::kept_token::TOKEN_FILE;
use crate::source::file::{Source, Spec};
use crate::store::state_folder;
use crate::variables::variable;

/// The folder of the files, in that of what a gateway keeps.
const FOLDER: &str = "running";
/// Bytes of a file that are read.
const MAX_BYTES: u64 = 16 << 10;
/// Files that are looked at.
const MAX_FILES: usize = 1_000;

/// A gateway that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningGateway {
    pub(super) pid: i32,
    /// How a command reaches its admin API, as `--admin` takes it.
    pub(super) admin: String,
    /// Its configuration file, as an absolute path.
    pub(super) spec: Option<PathBuf>,
    /// The file of its token; `None` when the environment has set its tokens.
    pub(super) token_file: Option<PathBuf>,
}

/// The file of this process; removed when it ends.
pub(super) struct RunningFile(PathBuf);

impl Drop for RunningFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Which admin API a command asks, and with which token.
pub(super) struct FoundGateway {
    pub(super) address: AdminAddress,
    pub(super) token: Option<String>,
    /// A file with its token that this user may not read.
    pub(super) unreadable: Option<PathBuf>,
}

/// What a command says about the gateway it means.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    /// `--admin`.
    pub(super) admin: Option<&'a AdminAddress>,
    /// A process.
    pub(super) pid: Option<i32>,
    /// `--spec` and the places of configuration files.
    pub(super) spec: SpecArgs,
}

impl RunningGateway {
    /// Of this process, with its admin listeners; `None` when it has none.
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

    /// Notes it for commands.
    ///
    /// # Errors
    /// When the folder can't be written.
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

/// An address that is listened on, as one to connect to.
fn of_socket(address: SocketAddr, is_tls: bool) -> AdminAddress {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    AdminAddress::Tcp { host: ip.to_string(), port: address.port(), is_tls }
}

/// The gateways that run, by process id. Files of processes that have ended are removed.
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
    // Who writes the file could name any file of the reader's, whose text the reader would send.
    let owner = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.uid() == about.uid());
    one.token_file = one.token_file.filter(owner);
    Some(one)
}

/// The gateway that a command means.
///
/// # Errors
/// The exit code, after telling why, when the environment is of no use or several gateways could be meant.
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
    // A token that was made here is for gateways that run here.
    let file = match of_this {
        Some(one) => one.token_file.clone(),
        None if address.is_loopback() => Some(state_folder().join(TOKEN_FILE)),
        None => None,
    };
    let (mut token, mut unreadable) = (given, None);
    if let (None, Some(file)) = (&token, file) {
        match fs::read_to_string(&file) {
            Ok(text) => token = Some(text.trim_end().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unreadable = Some(file),
            Err(_) => {}
        }
    }
    Ok(FoundGateway { address, token, unreadable })
}

/// The address, where neither a flag nor the environment says it; else the gateways of which one has to be named.
fn choose(running: &[RunningGateway], wanted: &Wanted<'_>) -> Result<AdminAddress, String> {
    let of_pid = running.iter().find(|one| Some(one.pid) == wanted.pid);
    if let Some(address) = of_pid.and_then(RunningGateway::address) {
        return Ok(address);
    }
    if let Some(spec) = wanted.spec.path() {
        let absolute = std::path::absolute(&spec).ok();
        let mut same = running.iter().filter(|one| one.spec.is_some() && one.spec == absolute);
        // During a replacement two run with the same file, at the same address.
        let of_file = same.next_back().and_then(RunningGateway::address);
        if let Some(address) = of_file.or_else(|| configured(spec)) {
            return Ok(address);
        }
    }
    let addresses: Vec<_> = running.iter().filter_map(RunningGateway::address).collect();
    match addresses.as_slice() {
        [] => Ok(AdminAddress::default()),
        [first, rest @ ..] if rest.iter().all(|one| one == first) => Ok(first.clone()),
        all if all.contains(&AdminAddress::default()) => Ok(AdminAddress::default()),
        _ => {
            let shown = running.iter().map(|one| format!("\n  --admin {} (process {})", one.admin, one.pid));
            Err(format!("Several gateways run here; say which one is meant:{}", shown.collect::<String>()))
        }
    }
}

/// The admin address of a configuration file, whatever is wrong with the rest of it; `None` when it says none.
fn configured(spec: PathBuf) -> Option<AdminAddress> {
    let settings = Source { spec: Spec::File(spec), flags: Vec::new() }.admin_of_broken()?;
    let address = settings.admin.filter(|address| address.port() != 0);
    let tcp = || address.map(|address| of_socket(address, settings.admin_tls.is_some()));
    settings.admin_socket.clone().map(AdminAddress::Unix).or_else(tcp)
}
