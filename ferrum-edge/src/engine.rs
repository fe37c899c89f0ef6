//! What serves a configuration, and swaps it for the next: shared by the gateway, its control side and its source.

#[cfg(feature = "admin")]
pub(crate) mod admin_listeners;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod listeners;
pub(crate) mod port_holder;
pub(crate) mod target_sockets;
pub(crate) mod tasks;
pub(crate) mod tls;
pub(crate) mod unix_socket;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gateway_core::config::changes::Changes;
use gateway_core::config::model::{Model, Settings};
use gateway_core::config::problem::Problems;
use gateway_core::limit::Busyness;
use gateway_core::metrics::MetricVisitor;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::tasks::TaskHandle;
use gateway_core::plugin::{Entry, World};
use gateway_core::snapshot::compile::{Compiled, Compiler};
use gateway_core::snapshot::discovery::Service;
use gateway_core::snapshot::{Route, Snapshot};
use gateway_protocols::downstream::bind::Inherited;
use gateway_protocols::worker::{Order, SharedByWorkers};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot, watch};

use crate::audit_recorder::Recorder;
use crate::export::inherited::CountTable;
use crate::export::push::{Pushes, Scrape};
use crate::export::sinks::Sink;
use crate::export::{Telemetry, walk};
#[cfg(feature = "admin")]
use admin_listeners::AdminListeners;
use clock::Clock;
use error::{ReloadError, StartError};
use listeners::{Addresses, NewPorts, Ports, StreamPorts, give};
use tasks::PluginTasks;
use tls::{AdminTls, Frontend};

/// The running parts of a gateway that outlive any one configuration.
pub(crate) struct Engine {
    pub(crate) tasks: PluginTasks,
    pub(crate) meters: Meters,
    /// What plugins reach outside.
    pub(crate) world: World,
    pub(crate) shared: Arc<SharedByWorkers>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) audit: Arc<Recorder>,
    /// Metrics are pushed for as long as these are kept.
    pub(crate) pushes: Mutex<Vec<TaskHandle>>,
    pub(crate) frontend: Arc<Frontend>,
    pub(crate) admin_tls: AdminTls,
    /// The time of day by which certificates are renewed.
    pub(crate) clock: Clock,
    /// Told when a certificate was stored that the gateway got by itself.
    pub(crate) certificate_stored: Notify,
    pub(crate) addresses: Addresses,
    pub(crate) compiler: Mutex<Compiler>,
    pub(crate) streams: StreamPorts,
    pub(crate) orders: Box<[UnboundedSender<Order>]>,
    pub(crate) draining: AtomicBool,
    /// Where the admin API is listened for.
    #[cfg(feature = "admin")]
    pub(crate) admin_listeners: AdminListeners,
    pub(crate) revision: watch::Sender<u64>,
    /// What the command line set, by the names of the variables that it goes before.
    pub(crate) flags: OnceLock<Vec<(String, String)>>,
    /// What is staged and neither published nor discarded.
    pub(crate) pending: Arc<AtomicUsize>,
}

/// A configuration ready to be published: compiled, its ports bound. Nobody serves it yet.
pub(crate) struct Staged {
    compiled: Compiled,
    ports: NewPorts,
    _pending: Pending,
}

/// Counts what is staged and neither published nor discarded.
struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tells when every worker has taken up what was published before.
pub(crate) struct Served {
    confirmed: Vec<oneshot::Receiver<()>>,
    replaced: Arc<Snapshot>,
}

/// How long what was replaced is held on to. Whoever lets go of it last frees all that only it had; connections under
/// way have moved on by then, so that it isn't a worker.
const LINGER: Duration = Duration::from_millis(50);

impl Served {
    /// Waits for every worker. One that has ended serves nothing any more, and isn't waited for.
    pub(crate) async fn everywhere(self) {
        for worker in self.confirmed {
            drop(worker.await);
        }
        let replaced = self.replaced;
        tokio::spawn(async move {
            tokio::time::sleep(LINGER).await;
            drop(tokio::task::spawn_blocking(move || drop(replaced)).await);
        });
    }
}

impl Engine {
    /// The configuration in use.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Shows every metric.
    pub(crate) fn visit_metrics(&self, visitor: &mut dyn MetricVisitor) {
        let shared = &self.shared;
        let control = &self.telemetry.control;
        shared.sessions.uncounted(|protocol, carried| control.add_session_bytes(protocol, carried));
        let connections = shared.connections();
        walk::visit(&self.telemetry, &self.snapshot(), connections, &shared.tasks, visitor);
        self.meters.visit(visitor);
    }

    /// Adds what the gateway that this one replaces has counted to the pages of metrics.
    pub(crate) fn continue_counts(&self, counts: Option<Arc<CountTable>>) {
        self.telemetry.control.inherited_counts.store(counts);
    }

    /// Shows every metric, with what the gateway that this one replaced had counted.
    pub(crate) fn visit_continued_metrics(&self, visitor: &mut dyn MetricVisitor) {
        match self.telemetry.control.inherited_counts.load_full() {
            Some(table) => table.continued(visitor, |visitor| self.visit_metrics(visitor)),
            None => self.visit_metrics(visitor),
        }
    }

    /// Whether a drain has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Worker threads.
    pub(crate) fn workers(&self) -> usize {
        self.orders.len()
    }

    /// The plugins that configurations may name.
    pub(crate) fn plugins(&self) -> Arc<[Entry]> {
        self.compiler().registry().entries().into()
    }

    /// What plugins reach outside.
    pub(crate) fn world(&self) -> World {
        self.world.clone()
    }

    /// How much of its CPUs the gateway uses.
    pub(crate) fn busyness(&self) -> Busyness {
        self.world.busyness().clone()
    }

    /// Workers whose thread is gone; none, unless one panicked.
    pub(crate) fn ended_workers(&self) -> usize {
        self.orders.iter().filter(|worker| worker.is_closed()).count()
    }

    /// Tells when another configuration is in use, by its revision.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Tells every worker something.
    pub(crate) fn tell(&self, order: impl Fn() -> Order) {
        self.orders.iter().for_each(|worker| give(worker, order()));
    }

    /// Compiles what changed, binds the ports it needs, and has plugins connect to a Redis that is new to them, for which it waits.
    /// Cost goes by the size of the change.
    ///
    /// Only one source may stage and publish at a time, each against what it published before.
    ///
    /// # Errors
    /// With [`Ports::Available`], when a free port can't be listened on or needs a certificate there isn't, or a new proxy's
    /// plugins have mistakes; nothing has changed then.
    pub(crate) fn stage(&self, changes: Changes, ports: Ports) -> Result<Staged, StartError> {
        let mut compiler = self.compiler();
        let compiled = compiler.apply(changes, &self.snapshot(), tokio::time::Instant::now());
        let mistakes = match ports {
            Ports::Available => compiled.reject_mistakes().map_err(StartError::Mistakes),
            Ports::Possible | Ports::Closed => Ok(()),
        };
        if let Err(error) = mistakes.and_then(|()| self.check_sockets(&compiled, ports)) {
            compiler.discard(compiled);
            return Err(error);
        }
        let world = compiler.registry().world().clone();
        let staged = self.bind(&mut compiler, compiled, ports)?;
        drop(compiler);
        self.tasks.connect(&world, staged.compiled.snapshot.settings.redis.as_ref());
        Ok(staged)
    }

    /// Rejects socket settings that this machine can't apply, or logs them where others' changes are followed. A gateway without
    /// traffic connects to no target.
    fn check_sockets(&self, compiled: &Compiled, ports: Ports) -> Result<(), StartError> {
        if self.streams.are_closed() {
            return Ok(());
        }
        let (put, previous) = (&compiled.put, self.snapshot());
        match ports {
            Ports::Available => return target_sockets::check(put, Some(&*previous)),
            Ports::Possible => target_sockets::report(put, Some(&*previous)),
            Ports::Closed => {}
        }
        Ok(())
    }

    fn bind(&self, compiler: &mut Compiler, compiled: Compiled, ports: Ports) -> Result<Staged, StartError> {
        let bound = match compiled.streams_changed {
            true => self.streams.prepare(
                &compiled.snapshot,
                &compiled.put,
                &self.frontend,
                self.workers(),
                &mut Inherited::default(),
                ports,
            ),
            false => Ok(NewPorts::default()),
        };
        match bound {
            Ok(ports) => Ok(Staged { compiled, ports, _pending: Pending::one(&self.pending) }),
            Err(error) => {
                compiler.discard(compiled);
                Err(error)
            }
        }
    }

    /// Opens ports that could not be opened before, where that is possible now.
    pub(crate) fn retry_ports(&self) {
        // Nothing is staged or published while the compiler is held.
        let _compiler = self.compiler();
        if self.streams.failed().is_empty() || self.pending.load(Ordering::SeqCst) > 0 {
            return;
        }
        let snapshot = self.snapshot();
        let (workers, mut inherited) = (self.workers(), Inherited::default());
        let prepared =
            self.streams.prepare(&snapshot, &[], &self.frontend, workers, &mut inherited, Ports::Possible);
        match prepared {
            Ok(ports) => self.streams.apply(ports, &self.orders, &self.frontend),
            Err(error) => tracing::error!(%error, "closed ports can't be tried again"),
        }
    }

    /// Puts a staged configuration in use, whole, without touching a connection.
    pub(crate) fn publish(&self, staged: Staged) -> Served {
        let mut compiler = self.compiler();
        let Staged { compiled, ports, _pending } = staged;
        compiler.registry().world().use_redis(compiled.snapshot.settings.redis.as_ref());
        compiler.adopt(&compiled);
        self.telemetry.applied(&compiled);
        let limit = compiled.snapshot.settings.limits.max_collected_body;
        self.shared.overload.collected().resize(limit);
        self.swap(compiled, ports)
    }

    /// Puts in use what a service's servers are now. False where a configuration is staged, which comes first.
    pub(crate) fn discovered(&self, name: &Arc<str>, services: &Arc<[Service]>) -> bool {
        // Nothing is staged or published while the compiler is held.
        let mut compiler = self.compiler();
        if self.pending.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let current = self.snapshot();
        let Some(changes) = compiler.found(name, services, &current) else { return true };
        let compiled = compiler.apply(changes, &current, tokio::time::Instant::now());
        match self.bind(&mut compiler, compiled, Ports::Possible) {
            Ok(Staged { compiled, ports, _pending }) => {
                compiler.adopt(&compiled);
                tracing::info!(service = %name, servers = services.len(), "the servers of a service have changed");
                drop(self.swap(compiled, ports));
            }
            // Tried again with the next answer.
            Err(error) => tracing::error!(service = %name, %error, "the servers of a service can't be used"),
        }
        true
    }

    /// Takes what is known of a service before a configuration with it is staged.
    pub(crate) fn learn(&self, name: &Arc<str>, services: &Arc<[Service]>) {
        self.compiler().learn(name, services);
    }

    /// Whether anything is known of a service.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.compiler().knows(name)
    }

    fn swap(&self, compiled: Compiled, ports: NewPorts) -> Served {
        let revision = compiled.snapshot.revision;
        let replaced = self.shared.snapshot.swap(Arc::new(compiled.snapshot));
        self.streams.apply(ports, &self.orders, &self.frontend);
        self.revision.send_replace(revision);
        start_plugins(&compiled.put, &self.tasks);
        Served { confirmed: self.confirmations(), replaced }
    }

    /// Each answers once its worker has carried out every order before.
    pub(crate) fn confirmations(&self) -> Vec<oneshot::Receiver<()>> {
        let confirmed = self.orders.iter().map(|worker| {
            let (confirm, confirmed) = oneshot::channel();
            give(worker, Order::Confirm(confirm));
            confirmed
        });
        confirmed.collect()
    }

    /// Copies of the TCP sockets that the workers listen on; none in a drain.
    pub(crate) async fn copy_listeners(&self) -> Vec<OwnedFd> {
        let (copies, copied) = std::sync::mpsc::channel();
        self.tell(|| Order::Copy(copies.clone()));
        for worker in self.confirmations() {
            drop(worker.await);
        }
        let copies = copied.try_iter();
        #[cfg(feature = "admin")]
        let copies = copies.chain(self.admin_listeners.copies());
        copies.collect()
    }

    /// Throws a staged configuration away; what it bound is closed.
    pub(crate) fn discard(&self, staged: Staged) {
        let mut compiler = self.compiler();
        compiler.discard(staged.compiled);
        compiler.registry().world().use_redis(self.snapshot().settings.redis.as_ref());
    }

    /// Puts a whole model in use; says its revision.
    pub(crate) fn reload(self: &Arc<Self>, model: &Model) -> Result<u64, ReloadError> {
        self.resettle(self.snapshot().changes_to(model), Ports::Available)
    }

    /// Puts other settings in use; everything else stays.
    pub(crate) fn reload_settings(
        self: &Arc<Self>,
        settings: Arc<Settings>,
        revision: u64,
    ) -> Result<(), ReloadError> {
        let changes = Changes { settings: Some(settings), revision: Some(revision), ..Changes::default() };
        self.resettle(changes, Ports::Possible).map(drop)
    }

    fn resettle(self: &Arc<Self>, changes: Changes, ports: Ports) -> Result<u64, ReloadError> {
        let refused = |error: ReloadError| {
            self.telemetry.refused(&error);
            error
        };
        let previous = self.snapshot();
        let settings = changes.settings.clone().unwrap_or_else(|| previous.settings.clone());
        let prepared = self.prepare(&previous.settings, &settings).map_err(|error| refused(error.into()))?;
        self.audit.log_to(settings.audit_log.as_deref()).map_err(|error| refused(error.into()))?;
        self.frontend.reload(&settings).map_err(|error| refused(error.into()))?;
        let staged = match self.stage(changes, ports) {
            Ok(staged) => staged,
            Err(error) => {
                // The old configuration goes on serving, with the old certificates.
                if let Err(error) = self.frontend.reload(&previous.settings) {
                    tracing::error!(%error, "the previous certificates could not be read again");
                }
                return Err(refused(error.into()));
            }
        };
        if let Err(error) = self.telemetry.sinks.replace(prepared.0, &self.tasks) {
            self.discard(staged);
            return Err(refused(StartError::Thread(error).into()));
        }
        if let Some(pushes) = prepared.1 {
            self.push_by(pushes);
        }
        let fixed = fixed_at_start(&self.telemetry.at_start(&previous.settings), &settings);
        for setting in &fixed {
            tracing::warn!(setting, "this setting changed, and takes effect at the next start");
        }
        self.telemetry.restart_needed(fixed);
        self.shared.overload.resize(&settings.limits);
        // What has changed is read again when it is needed: a file that can't be used has refused the reload before.
        drop(self.shared.client_tls.refresh(|_| false));
        let revision = staged.compiled.snapshot.revision;
        drop(self.publish(staged));
        self.frontend.end_untrusted();
        self.telemetry.reloaded();
        Ok(revision)
    }

    /// Prepares what records go to and what metrics are pushed by; the latter where it is different.
    fn prepare(&self, before: &Settings, after: &Settings) -> Result<Prepared, Problems> {
        let compiler = self.compiler();
        let world = compiler.registry().world();
        let sinks = self.telemetry.sinks.prepare(&after.log_sinks, world)?;
        let is_changed = before.metrics_push != after.metrics_push;
        let begun = self.telemetry.started().1;
        let pushes = is_changed.then(|| Pushes::build(&after.metrics_push, begun, world)).transpose()?;
        Ok((sinks, pushes))
    }

    /// Pushes metrics by these from now on; those before push once more, and end.
    pub(crate) fn push_by(self: &Arc<Self>, pushes: Pushes) {
        let mut running = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        running.clear();
        let engine = Arc::downgrade(self);
        let scrape: Scrape =
            Arc::new(move |visitor| engine.upgrade().map(|engine| engine.visit_metrics(visitor)).is_some());
        *running = pushes.start(&scrape, &self.tasks);
    }

    fn compiler(&self) -> MutexGuard<'_, Compiler> {
        self.compiler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reload puts in the place of what is there.
type Prepared = (Vec<Arc<Sink>>, Option<Pushes>);

/// Starts the tasks of the first plugins, connected to what they share.
pub(crate) fn first_tasks(
    shared: &Arc<SharedByWorkers>,
    compiler: &Compiler,
    settings: &Settings,
    routes: &[Arc<Route>],
    workers: &[UnboundedSender<Order>],
) -> PluginTasks {
    let tasks = PluginTasks::new(shared.clone(), workers.into());
    tasks.connect(compiler.registry().world(), settings.redis.as_ref());
    start_plugins(routes, &tasks);
    tasks
}

/// Starts the tasks of plugins that are new; those of the others run already.
pub(crate) fn start_plugins(routes: &[Arc<Route>], tasks: &PluginTasks) {
    for (_, plugin) in routes.iter().flat_map(|route| route.chain.members()) {
        plugin.start(tasks);
    }
}

/// Settings that differ but are read only at start.
fn fixed_at_start(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let mut changed = Vec::new();
    for (name, same) in [
        ("gateway.http", before.http == after.http),
        ("gateway.https", before.https == after.https),
        ("gateway.additional_http", before.additional_http == after.additional_http),
        ("gateway.additional_https", before.additional_https == after.additional_https),
        ("gateway.dns_servers", before.dns_servers == after.dns_servers),
        ("gateway.congestion_control", before.congestion == after.congestion),
        ("gateway.http_socket", before.http_socket == after.http_socket),
        ("gateway.admin", before.admin == after.admin),
        ("gateway.http3", before.http3 == after.http3),
        ("gateway.limits.max_unsent", before.limits.max_unsent == after.limits.max_unsent),
        ("gateway.share_ports", before.share_ports == after.share_ports),
        ("gateway.workers", before.workers == after.workers),
        ("gateway.access_log.path", before.access_log == after.access_log),
    ] {
        if !same {
            changed.push(name);
        }
    }
    changed
}
