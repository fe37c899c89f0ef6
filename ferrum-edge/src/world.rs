//! What plugins may reach on this machine: calls over the gateway's engines, files, threads for slow work, metrics.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use std::{fs, thread};

use bytes::Bytes;
use gateway_core::plugin::World;
use gateway_core::plugin::world::Reach;
use gateway_core::plugin::world::blocking::{Blocking, Busy, Job};
use gateway_core::plugin::world::calls::Calls;
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::Meters;
use rustix::fs::OFlags;

/// The world of this machine, for [`Registry::with_world`](gateway_core::plugin::Registry::with_world).
pub fn world() -> World {
    World::new(Reach {
        gateway: Arc::from("ferrum-edge"),
        calls: calls(),
        files: Arc::new(MachineFiles),
        blocking: Arc::new(SlowThreads::default()),
        meters: Meters::default(),
        variables: Arc::new(variables(std::env::vars_os())),
    })
}

/// Requests and streams; the gateway's own by the proxy of the environment.
#[cfg(feature = "admin")]
fn calls() -> Arc<dyn Calls> {
    use crate::forward_proxy::{ForwardProxy, MachineCalls};
    Arc::new(MachineCalls(ForwardProxy::of_environment()))
}

/// Requests and streams.
#[cfg(not(feature = "admin"))]
fn calls() -> Arc<dyn Calls> {
    Arc::new(gateway_protocols::calls::PluginCalls)
}

/// What plugins may see of the environment: OpenTelemetry's variables.
fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    // One whose value is not UTF-8 is refused with the configuration.
    let texts = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| name.starts_with("OTEL_")).collect()
}

/// The machine's files.
struct MachineFiles;

impl Files for MachineFiles {
    fn read(&self, path: &Path, limit: u64) -> io::Result<Bytes> {
        // A pipe or a device is refused: whoever checks a configuration would wait for it for ever.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        // The length is only a hint: the file may grow.
        let hint = about.len().min(limit);
        let mut bytes = Vec::with_capacity(usize::try_from(hint).unwrap_or(0).saturating_add(1));
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.into())
    }

    fn modified(&self, path: &Path) -> io::Result<u128> {
        let modified = fs::metadata(path)?.modified()?;
        Ok(modified.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos()))
    }

    fn list(&self, folder: &Path, limit: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)?.take(limit) {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let open =
            || fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let mut file = match (open(), path.parent()) {
            // A folder for plugins' files is made, but not those above it.
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().mode(0o700).create(folder)?;
                open()?
            }
            (opened, _) => opened?,
        };
        file.write_all(bytes)?;
        // What is renamed before it is on the disk may be empty after a power failure.
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => fs::File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }
}

/// Work that waits for a thread; more is refused.
const MAX_WAITING: usize = 256;

/// Threads for work that would hold up a worker: as many as the machine has cores, started with the first piece of
/// work.
#[derive(Default)]
struct SlowThreads(OnceLock<SyncSender<Job>>);

impl Blocking for SlowThreads {
    fn take(&self, job: Job) -> Result<(), Busy> {
        let queue = self.0.get_or_init(start);
        queue.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => Busy,
        })
    }
}

fn start() -> SyncSender<Job> {
    let (queue, jobs) = sync_channel::<Job>(MAX_WAITING);
    let jobs = Arc::new(Mutex::new(jobs));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for n in 0..threads {
        let jobs = jobs.clone();
        let started = thread::Builder::new().name(format!("slow-{n}")).spawn(move || work(&jobs));
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread for slow work");
        }
    }
    queue
}

/// Does jobs until the queue's other end is gone.
fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job();
    }
}
