//! A running gateway: workers started, configurations swapped, everything drained. Names all the crates.

#[cfg(feature = "admin")]
pub(crate) mod admin;
#[cfg(feature = "database")]
mod database;
#[cfg(feature = "fleet")]
mod edge;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gateway_core::config::model::{DrainStreams, Model, Settings};
use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::compile::{Compiled, Compiler};
pub use gateway_protocols::downstream::bind::Inherited;
use gateway_protocols::worker::{Inbox, Inboxes, Order, SharedByWorkers, Worker};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, mpsc, watch};

use crate::audit_recorder::Recorder;
use crate::control::{Control, discovery};
use crate::engine::clock::Clock;
pub use crate::engine::error::{ReloadError, StartError};
pub use crate::engine::listeners::Addresses;
use crate::engine::listeners::{Listeners, Ports, StreamPorts};
use crate::engine::target_sockets;
use crate::engine::tls::{AdminTls, Frontend};
use crate::engine::unix_socket::SocketFile;
use crate::engine::{self, Engine};
use crate::export::Telemetry;
use crate::export::push::Pushes;
use crate::export::sinks::Sinks;
#[cfg(feature = "database")]
use crate::source::database::Reconciler;

/// A running gateway. Dropping it stops it at once; [`Gateway::drain`] lets exchanges end first.
pub struct Gateway {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
    control: Control,
    #[cfg(feature = "database")]
    reconciler: Option<Arc<Reconciler>>,
    /// The callers that may use the admin API if neither a database nor the environment sets them.
    #[cfg(feature = "admin")]
    admin_access: Option<Arc<crate::access::Access>>,
    /// What it is in a fleet.
    #[cfg(feature = "fleet")]
    fleet: Option<crate::fleet::FleetRole>,
    /// Removed with the gateway.
    _socket_file: Option<SocketFile>,
}

impl Gateway {
    /// Starts serving `model`. Returns once every listener takes connections.
    ///
    /// # Errors
    /// When an address can't be listened on or a certificate is of no use; nothing is left running.
    pub fn start(model: Model, registry: Registry) -> Result<Self, StartError> {
        Self::start_on(model, registry, Inherited::default())
    }

    /// As [`Gateway::start`], on sockets of another process where the configuration asks for their addresses; the others
    /// are closed.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_on(model: Model, registry: Registry, inherited: Inherited) -> Result<Self, StartError> {
        let mut compiler = Compiler::new(registry);
        let empty = Snapshot::empty(model.settings.clone());
        let compiled = compiler.compile(&model, &empty, tokio::time::Instant::now());
        compiled.reject_mistakes().map_err(StartError::Mistakes)?;
        target_sockets::check(&compiled.put, None)?;
        let control = Control::new().map_err(StartError::Thread)?;
        Self::launch(compiler, compiled, control, Ports::Possible, inherited)
    }

    fn launch(
        mut compiler: Compiler,
        compiled: Compiled,
        control: Control,
        ports: Ports,
        mut inherited: Inherited,
    ) -> Result<Self, StartError> {
        let settings = compiled.snapshot.settings.clone();
        let workers = worker_count(&settings);
        let frontend = Arc::new(Frontend::new(&settings.tls)?);
        let admin_tls = AdminTls::new(settings.admin_tls.as_ref())?;
        target_sockets::report_at_start(&compiled.put, ports);
        let listeners = Listeners::bind(&settings, &frontend, workers, &mut inherited)?;
        let world = compiler.registry().world();
        let sinks = Sinks::build(&settings.log_sinks, world).map_err(StartError::LogSinks)?;
        let telemetry = Arc::new(Telemetry::with_sinks(workers, &settings, sinks)?);
        let begun = telemetry.started().1;
        let pushes = Pushes::build(&settings.metrics_push, begun, world).map_err(StartError::LogSinks)?;
        let audit = Arc::new(Recorder::new(telemetry.control.audit.clone()));
        audit.log_to(settings.audit_log.as_deref())?;
        telemetry.applied(&compiled);
        world.use_redis(settings.redis.as_ref());
        compiler.adopt(&compiled);
        let (streams, snapshot, new) = (StreamPorts::default(), &compiled.snapshot, &compiled.put);
        let stream_ports = streams.prepare(snapshot, new, &frontend, workers, &mut inherited, ports)?;
        let revision = watch::Sender::new(compiled.snapshot.revision);
        let (mut shared, inboxes) = SharedByWorkers::new(compiled.snapshot, workers);
        shared.client_trust = frontend.client_trust();
        // Nobody would accept what comes to the sockets that are left.
        shared.datagrams = Arc::new(inherited.into_handover().map_err(StartError::Thread)?);
        listeners.http3_port().into_iter().for_each(|port| shared.announce_http3(port));
        crate::control::overload::limit_descriptors(&shared.overload);
        let shared = Arc::new(shared);
        let (threads, orders) = start_workers(inboxes, &shared, &telemetry)?;
        let tasks = engine::first_tasks(&shared, &compiler, &settings, &compiled.put, &orders);
        telemetry.sinks.start(&tasks).map_err(StartError::Thread)?;
        let engine = Arc::new(Engine {
            tasks,
            meters: compiler.registry().world().meters().clone(),
            world: compiler.registry().world().clone(),
            shared,
            telemetry,
            audit,
            pushes: Mutex::default(),
            frontend,
            admin_tls,
            clock: Clock::default(),
            certificate_stored: Notify::new(),
            addresses: listeners.addresses(),
            compiler: Mutex::new(compiler),
            streams,
            orders: orders.into(),
            draining: AtomicBool::new(false),
            #[cfg(feature = "admin")]
            admin_listeners: Default::default(),
            flags: std::sync::OnceLock::new(),
            revision,
            pending: Arc::default(),
        });
        engine.streams.reserve(&stream_ports);
        control.tend(&engine);
        find_targets(&control, &engine);
        // Nothing is accepted before all of it may be: what fails later loses connections.
        stream_ports.listen()?;
        let socket_file = listeners.hand_out(&engine.orders, &engine.frontend, &engine.shared.datagrams)?;
        engine.streams.apply(stream_ports, &engine.orders, &engine.frontend);
        engine.push_by(pushes);
        Ok(Self {
            engine,
            threads,
            control,
            #[cfg(feature = "database")]
            reconciler: None,
            #[cfg(feature = "admin")]
            admin_access: None,
            #[cfg(feature = "fleet")]
            fleet: None,
            _socket_file: socket_file,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.engine.addresses.clone()
    }

    /// The configuration in use.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.snapshot()
    }

    /// Metrics and records.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.engine.telemetry
    }

    /// What serves.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What goes on beside the traffic.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Client connections now open.
    pub fn connections(&self) -> usize {
        self.engine.shared.connections()
    }

    /// Whether a drain is over: nothing more is accepted, and no connection is open.
    pub fn is_drained(&self) -> bool {
        self.engine.shared.is_drained()
    }

    /// Takes over what comes to the UDP sockets of the gateway before this one, which keeps its connections and sessions. Blocks until
    /// that one has stopped reading them. To be called within a runtime.
    pub(crate) fn take_over_datagrams(&self) {
        let datagrams = self.engine.shared.datagrams.clone();
        if let Err(error) = datagrams.take_over() {
            tracing::warn!(%error, "the connections over UDP of the gateway before this one are lost");
        }
        drop(tokio::spawn(async move { datagrams.follow().await }));
    }

    /// Whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        self.engine.is_draining()
    }

    /// Puts a new configuration in use, whole, without touching a connection; says its revision.
    ///
    /// # Errors
    /// When it can't be used; the old one goes on serving.
    pub fn reload(&self, model: &Model) -> Result<u64, ReloadError> {
        self.engine.reload(model)
    }

    /// Accepts nothing more, lets exchanges end for as long as the configuration says, then stops. TCP streams and WebSockets are
    /// waited for without a limit where it says so. Says whether all exchanges ended in time.
    pub fn drain(mut self) -> bool {
        self.begin_drain();
        let deadline = Instant::now() + self.snapshot().settings.drain_timeout;
        while !self.is_drained() && Instant::now() < deadline {
            std::thread::sleep(DRAIN_STEP);
        }
        let clean = self.is_drained();
        if !clean && self.snapshot().settings.drain_streams == DrainStreams::Wait {
            self.end_exchanges();
            while !self.is_drained() {
                std::thread::sleep(DRAIN_STEP);
            }
        }
        self.stop();
        clean
    }

    /// Accepts nothing more and asks connections to end; [`Gateway::drain`] waits for them.
    pub fn begin_drain(&self) {
        if !self.engine.draining.swap(true, Ordering::Relaxed) {
            self.engine.streams.close();
            self.engine.tell(|| Order::Drain);
        }
    }

    /// Ends what a drain has left, but TCP streams and WebSockets.
    pub(crate) fn end_exchanges(&self) {
        self.engine.tell(|| Order::EndExchanges);
    }

    fn stop(&mut self) {
        // What is cut off has a record and spans, which tasks send: they end behind the workers.
        let is_first = !self.threads.is_empty();
        self.engine.tell(|| Order::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
        if is_first {
            self.engine.tasks.end(FLUSH);
        }
        self.engine.telemetry.flush();
        self.engine.audit.flush();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has requests find the targets that DNS knows, from the first one on.
fn find_targets(control: &Control, engine: &Arc<Engine>) {
    if !engine.snapshot().discovered.is_empty() {
        control.wait(discovery::settled(engine.clone()));
    }
}

/// The workers' threads, and where each takes orders.
type Workers = (Vec<JoinHandle<()>>, Vec<UnboundedSender<Order>>);

/// Starts a worker for each inbox. The threads end when nobody can give them orders any more.
fn start_workers(
    mut inboxes: Inboxes,
    shared: &Arc<SharedByWorkers>,
    telemetry: &Arc<Telemetry>,
) -> Result<Workers, StartError> {
    let (mut threads, mut orders) = (Vec::new(), Vec::new());
    while let Some(inbox) = inboxes.take() {
        let index = threads.len();
        let worker = Worker::new(index, shared.clone(), telemetry.worker(index));
        let (sender, receiver) = mpsc::unbounded_channel();
        threads.push(spawn(index, worker, receiver, inbox).map_err(StartError::Thread)?);
        orders.push(sender);
    }
    Ok((threads, orders))
}

/// How often a drain looks whether everybody has left.
const DRAIN_STEP: Duration = Duration::from_millis(5);
/// How long plugins' tasks may flush in a drain.
const FLUSH: Duration = Duration::from_secs(5);

/// The stack of a worker, of which only what is used takes memory. Arrays and maps of scripts are freed level by level; what closures
/// capture is not (`gateway-plugins/scripting/src/script/captured.rs`).
const WORKER_STACK_BYTES: usize = 64 << 20;

/// Starts a worker's thread.
fn spawn(
    index: usize,
    worker: Arc<Worker>,
    orders: mpsc::UnboundedReceiver<Order>,
    inbox: Inbox,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .stack_size(WORKER_STACK_BYTES)
        .spawn(move || runtime.block_on(worker.run(orders, inbox)))
}

fn worker_count(settings: &Settings) -> usize {
    match settings.workers {
        // Respects CPU affinity and the cgroup's quota.
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}
