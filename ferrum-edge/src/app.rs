//! A running gateway: workers started, configurations swapped, everything drained. Names all the crates.

mod listeners;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gateway_core::config::model::{Model, Settings};
use gateway_core::config::problem::Problems;
use gateway_core::config::snapshot::{Compiler, Snapshot};
use gateway_core::plugin::{Registry, World};
use gateway_protocols::tls::server::ServerTlsError;
use gateway_protocols::worker::{Inbox, Order, Shared, Worker};
use tokio::sync::mpsc;

use crate::control::{Control, View};
use crate::export::Telemetry;
use crate::export::access_log::AccessLogError;
use listeners::{Listeners, StreamPorts};
pub(crate) use tls::Frontend;

/// A running gateway. Dropping it stops it at once; [`Gateway::drain`] lets exchanges end first.
pub struct Gateway {
    shared: Arc<Shared>,
    compiler: std::sync::Mutex<Compiler>,
    telemetry: Arc<Telemetry>,
    frontend: Arc<Frontend>,
    streams: StreamPorts,
    workers: Vec<Crew>,
    addresses: Addresses,
    draining: Arc<AtomicBool>,
    control: Control,
}

/// One worker's thread and the way to tell it something.
struct Crew {
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// Where the gateway listens; ephemeral ports are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Plain HTTP.
    pub http: Option<SocketAddr>,
    /// HTTP over TLS.
    pub https: Option<SocketAddr>,
}

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("cannot listen on {address} for {listener}: {source}{}", remedy(source))]
    Bind {
        /// `http` or `https`.
        listener: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Certificates are of no use.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// A proxy terminates TLS or DTLS without anything to show.
    #[error("proxy `{proxy}` has `frontend_tls: true` and needs {wanted} under `gateway.tls.certificates`")]
    NoCertificate {
        /// The proxy's id.
        proxy: String,
        /// What is missing.
        wanted: &'static str,
    },
    /// A thread could not be started.
    #[error("a worker could not be started: {0}")]
    Thread(io::Error),
    /// The access log can't be opened.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process listens there: stop it or choose another port",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE: choose another port or grant it"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}

/// Why a new configuration was not put in use. The old one goes on serving.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It is wrong in itself.
    #[error("{0}")]
    Problems(#[from] Problems),
    /// Its certificates are of no use.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// A port it needs can't be listened on.
    #[error(transparent)]
    Port(#[from] StartError),
}

impl Gateway {
    /// Starts serving `model`. Returns once every listener takes connections.
    ///
    /// # Errors
    /// When an address can't be listened on or a certificate is of no use; nothing is left running.
    pub fn start(model: Model, registry: Registry) -> Result<Self, StartError> {
        let settings = model.settings.clone();
        let workers = worker_count(&settings);
        let frontend = Arc::new(Frontend::new(&settings.tls)?);
        let listeners = Listeners::bind(&settings, &frontend, workers)?;
        let mut compiler = Compiler::new(registry, World::default());
        let now = tokio::time::Instant::now();
        let snapshot = compiler.compile(&model, &Snapshot::empty(settings.clone()), now);
        let telemetry = Arc::new(Telemetry::new(workers, &settings)?);
        telemetry.applied(&snapshot);
        let addresses = listeners.addresses();
        let streams = StreamPorts::default();
        let stream_ports = streams.prepare(&snapshot, &frontend, workers)?;
        let (shared, mut inboxes) = Shared::new(snapshot, workers);
        if let Some(port) = listeners.http3_port() {
            shared.announce_http3(port);
        }
        let shared = Arc::new(shared);
        let mut crews = Vec::with_capacity(workers);
        for index in 0..workers {
            let Some(inbox) = inboxes.take() else { break };
            let worker = Worker::new(index, shared.clone(), telemetry.worker(index));
            crews.push(Crew::start(index, worker, inbox).map_err(StartError::Thread)?);
        }
        listeners.hand_out(&crews, &frontend);
        streams.apply(stream_ports, &crews, &frontend);
        let draining = Arc::<AtomicBool>::default();
        let view = View {
            shared: shared.clone(),
            telemetry: telemetry.clone(),
            frontend: frontend.clone(),
            draining: draining.clone(),
            addresses,
            workers,
        };
        let control = Control::start(view).map_err(StartError::Thread)?;
        Ok(Self {
            shared,
            compiler: std::sync::Mutex::new(compiler),
            telemetry,
            frontend,
            streams,
            workers: crews,
            addresses,
            draining,
            control,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The configuration in use.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Metrics and records.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// What goes on beside the traffic.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Client connections now open.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Puts a new configuration in use, whole, without touching a connection; says its revision.
    ///
    /// # Errors
    /// When it can't be used; the old one goes on serving.
    pub fn reload(&self, model: &Model) -> Result<u64, ReloadError> {
        let refused = |error: ReloadError| {
            self.telemetry.refused(&error);
            error
        };
        // One at a time: two reloads must not compile against the same predecessor.
        let mut compiler = self.compiler.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.frontend.reload(&model.settings.tls).map_err(|error| refused(error.into()))?;
        let previous = self.snapshot();
        let next = Arc::new(compiler.compile(model, &previous, tokio::time::Instant::now()));
        let ports = match self.streams.prepare(&next, &self.frontend, self.workers.len()) {
            Ok(ports) => ports,
            Err(error) => {
                // The old configuration goes on serving, with the old certificates.
                if let Err(error) = self.frontend.reload(&previous.settings.tls) {
                    tracing::error!(%error, "the previous certificates could not be read again");
                }
                return Err(refused(error.into()));
            }
        };
        for fixed in fixed_at_start(&previous.settings, &next.settings) {
            tracing::warn!(setting = fixed, "this setting changed, and takes effect at the next start");
        }
        self.shared.overload.resize(&next.settings.limits);
        self.shared.client_tls.refresh();
        self.telemetry.applied(&next);
        let revision = next.revision;
        self.shared.snapshot.store(next);
        self.streams.apply(ports, &self.workers, &self.frontend);
        self.control.configured(revision);
        Ok(revision)
    }

    /// Accepts nothing more, lets exchanges end for as long as the configuration says, then stops. Says whether all
    /// of them ended by themselves.
    pub fn drain(mut self) -> bool {
        self.begin_drain();
        let deadline = Instant::now() + self.snapshot().settings.drain_timeout;
        while self.connections() > 0 && Instant::now() < deadline {
            std::thread::sleep(DRAIN_STEP);
        }
        let clean = self.connections() == 0;
        self.stop();
        clean
    }

    /// Accepts nothing more and asks connections to end; [`Gateway::drain`] waits for them.
    pub fn begin_drain(&self) {
        if !self.draining.swap(true, Ordering::Relaxed) {
            self.tell(|| Order::Drain);
        }
    }

    fn tell(&self, order: impl Fn() -> Order) {
        self.workers.iter().for_each(|crew| crew.tell(order()));
    }

    fn stop(&mut self) {
        for crew in &mut self.workers {
            drop(crew.orders.try_send(Order::Stop));
            if let Some(thread) = crew.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a worker's thread panicked");
            }
        }
        self.telemetry.flush();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How often a drain looks whether everybody has left.
const DRAIN_STEP: Duration = Duration::from_millis(5);
/// Orders that wait for a worker.
const ORDERS: usize = 4096;

impl Crew {
    fn start(index: usize, worker: Arc<Worker>, inbox: Inbox) -> io::Result<Self> {
        let (orders, receiver) = mpsc::channel(ORDERS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || runtime.block_on(worker.run(receiver, inbox)))?;
        Ok(Self { orders, thread: Some(thread) })
    }
}

impl Crew {
    /// Gives an order; a worker that takes none any more is a defect worth a line in the log.
    fn tell(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            tracing::error!("a worker takes no orders any more");
        }
    }
}

fn worker_count(settings: &Settings) -> usize {
    match settings.workers {
        // Respects CPU affinity and the cgroup's quota.
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

/// Settings that differ but are read only at start.
fn fixed_at_start(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let mut changed = Vec::new();
    for (name, same) in [
        ("gateway.http", before.http == after.http),
        ("gateway.https", before.https == after.https),
        ("gateway.admin", before.admin == after.admin),
        ("gateway.http3", before.http3 == after.http3),
        ("gateway.workers", before.workers == after.workers),
        ("gateway.access_log", before.access_log == after.access_log),
    ] {
        if !same {
            changed.push(name);
        }
    }
    changed
}
