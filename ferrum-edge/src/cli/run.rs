//! `run`: the gateway as a process, with its signals.

mod config_source;
mod log_lines;
mod signals;
mod successor;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gateway_core::config::model::{DrainStreams, Model, Settings};
use gateway_core::config::problem::{Problem, Problems};
use gateway_core::config::warning::Warning;
use gateway_core::plugin::Registry;
use tokio::time::Instant;

use super::database::DatabaseArgs;
use super::handover::{self, HandoverError, Offer, Predecessor, Turn};
use super::notify::{self, ServiceState};
use super::pid_file::{self, OtherGateway, PidFile};
use super::running::{RunningFile, RunningGateway};
use super::used_ports;
use super::{BAD_CONFIG, FAILED, MISUSED, SpecArgs, Verbosity, descriptors, logs, print};
use crate::access::Access;
use crate::access::environment::access_given;
use crate::access::kept_token::kept_access;
use crate::app::admin::AdminSockets;
use crate::app::{Addresses, Gateway, ReloadError, StartError};
use crate::control::discovery;
use crate::source::audited_file as audit;
use crate::source::file::Source;
use crate::source::warnings;
pub(super) use config_source::{ConfigSource, Mode};
use log_lines::{say_quarantined, say_refused, say_started};
use signals::{Missed, SignalAction, Signals};
use successor::Successor;

/// Warnings that are logged at one time.
const MAX_WARNINGS: usize = 50;

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub(super) struct RunArgs {
    /// Configuration file, instead of --spec
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Where the configuration comes from
    #[arg(long, env = "FERRUM_MODE", value_enum, default_value_t, value_name = "MODE")]
    mode: Mode,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    pub(super) flags: Flags,
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

/// Settings that may be given as flags; they go before the environment and the file.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Flags {
    /// Port for plain HTTP; 0 disables it
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    /// Port for HTTP over TLS; 0 disables it
    #[arg(long, value_name = "PORT")]
    https_port: Option<u16>,
    /// Port of the admin API; 0 disables it
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
    /// Worker threads; 0 means one for each core
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Does not start if the file has warnings
    #[arg(long)]
    deny_warnings: bool,
    /// File for the process ID while the gateway runs; a file with other contents is rejected
    #[arg(long, env = "FERRUM_PID_FILE", value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Replaces the gateway of --pid-file: shares its ports, and stops it once this one serves
    #[arg(long, requires = "pid_file")]
    replace: bool,
}

impl Flags {
    /// The flags as settings, under their environment names.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let number =
            |name: &str, value: Option<usize>| value.map(|value| (name.to_owned(), value.to_string()));
        let port = |name, value: Option<u16>| number(name, value.map(usize::from));
        [
            port("FERRUM_PROXY_HTTP_PORT", self.http_port),
            port("FERRUM_PROXY_HTTPS_PORT", self.https_port),
            port("FERRUM_ADMIN_HTTP_PORT", self.admin_port),
            number("FERRUM_WORKER_THREADS", self.workers),
            self.replace.then(|| ("FERRUM_SHARE_PORTS".to_owned(), "true".to_owned())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Runs until told to stop.
pub(super) fn run(args: RunArgs, registry: Registry) -> u8 {
    logs::init(args.verbosity);
    let flags = args.flags.settings();
    let spec = args.spec.or(args.file.clone());
    if !args.mode.has_database() && args.database.is_given() {
        print::error("--db-url and --db-type are for --mode database and control-plane");
        return MISUSED;
    }
    if args.mode != Mode::File && args.flags.deny_warnings {
        print::error("--deny-warnings is for files: other configurations change while the gateway runs");
        return MISUSED;
    }
    if args.mode == Mode::File {
        let Some(source) = spec.source(flags) else { return MISUSED };
        return serve(&source, ConfigSource::File, &args.flags, registry, |_| {});
    }
    match ConfigSource::open(args.mode, &args.database) {
        Ok(config) => serve(&spec.settings(flags), config, &args.flags, registry, |_| {}),
        Err(problems) => {
            print::error(&problems);
            BAD_CONFIG
        }
    }
}

/// Runs a source until told to stop; `started` is told where it listens.
pub(super) fn serve(
    source: &Source,
    config: ConfigSource,
    flags: &Flags,
    registry: Registry,
    started: impl FnOnce(&Addresses),
) -> u8 {
    let is_file = matches!(config, ConfigSource::File);
    let model = if is_file { source.load(&registry) } else { source.load_settings(&registry) };
    let model = match model {
        Ok(model) => model,
        Err(problems) => {
            print::error(&problems);
            return BAD_CONFIG;
        }
    };
    if !is_file {
        warn(&warnings::of_environment(&model));
    }
    // Only where warnings end the start is a configuration compiled for them alone; else what is served says them.
    if is_file && flags.deny_warnings && is_denied(&model, &registry) {
        return BAD_CONFIG;
    }
    let warned = (is_file && !flags.deny_warnings).then(|| model.clone());
    descriptors::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.and_then(|runtime| {
        let code = runtime.block_on(async {
            // Before anything listens: a signal that comes early must not end the process uncleanly.
            let signals = Signals::new()?;
            let process = match Process::start(source, config, flags, model, registry) {
                Ok(process) => process,
                Err(error) => {
                    print::error(format_args!("{error}{}", port_holder(&*error)));
                    return Ok(FAILED);
                }
            };
            if let Some(model) = warned {
                warn(&warnings::of_served(&model, &process.gateway.snapshot()));
            }
            started(&process.gateway.addresses());
            Ok(process.run(signals).await)
        });
        // A reload that was given up may hang for ever.
        runtime.shutdown_background();
        code
    });
    result.unwrap_or_else(|error| {
        print::error(format_args!("the gateway could not start: {error}"));
        FAILED
    })
}

/// Whether there is any warning, or a mistake with which no gateway starts; shows them.
fn is_denied(model: &Model, registry: &Registry) -> bool {
    let warnings = match warnings::of(model, registry) {
        Ok(warnings) => warnings,
        Err(problems) => {
            print::error(problems);
            return true;
        }
    };
    warnings.iter().take(MAX_WARNINGS).for_each(|warning| print::error(format_args!("warning: {warning}")));
    if !warnings.is_empty() {
        print::error(format_args!("{} warnings, which are denied", warnings.len()));
    }
    !warnings.is_empty()
}

/// The process that has the port of a listener, as the end of a message; empty if it is not known.
fn port_holder(error: &(dyn std::error::Error + 'static)) -> String {
    error.downcast_ref().and_then(StartError::port_holder).unwrap_or_default()
}

/// Logs warnings.
fn warn(warnings: &[Warning]) {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        tracing::warn!("{warning}");
    }
    if warnings.len() > MAX_WARNINGS {
        tracing::warn!(count = warnings.len(), "there are more warnings; `ferrum-edge check` shows all");
    }
}

/// A gateway that is a process.
struct Process<'s> {
    source: &'s Source,
    registry: Registry,
    offer: Option<Offer>,
    gateway: Gateway,
    successor: Successor,
    _pid_file: Option<PidFile>,
    _running_file: Option<RunningFile>,
}

/// How often a drain looks whether everybody has left.
const DRAIN_STEP: Duration = Duration::from_millis(5);

impl<'s> Process<'s> {
    fn start(
        source: &'s Source,
        config: ConfigSource,
        flags: &Flags,
        model: Model,
        registry: Registry,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let other = if flags.replace { OtherGateway::Replaced } else { OtherGateway::Refused };
        flags.pid_file.as_deref().map(|path| pid_file::check(path, other)).transpose()?;
        let settings = model.settings.clone();
        // Tokens that can't be used are refused here, not at the first request that has one.
        let is_without_token = access_given()?.is_empty();
        let has_admin = settings.admin.is_some() || settings.admin_socket.is_some();
        let mut token_file = (is_without_token && has_admin).then(|| config.token_file());
        let mut access = None;
        if let Some(path) = token_file.as_deref().filter(|_| !config.has_own_tokens()) {
            access = kept_token(&settings, path)?;
            token_file = token_file.filter(|_| access.is_some());
        }
        let shows_objects = matches!(config, ConfigSource::File) && has_admin;
        // Whatever may fail comes before the gateway starts: from then on it has connections to lose.
        let turn = flags.pid_file.as_deref().filter(|_| flags.replace);
        let turn = turn.map(|path| Ok::<_, HandoverError>((path, Turn::take(path)?))).transpose()?;
        let replaced = turn.as_ref().map(|(path, _)| handover::running(path)).transpose()?.flatten();
        let replaced = replaced.zip(flags.pid_file.as_deref());
        let replaced = replaced.map(|(running, path)| Predecessor::ask(path, running)).transpose()?;
        let (mut replaced, inherited) = replaced.unzip();
        if flags.replace && replaced.is_none() {
            // `--replace` shares ports with the gateway of its pid file alone: there is none.
            used_ports::refuse(&model)?;
        }
        let (admin, inherited) = AdminSockets::bind(&settings, inherited.unwrap_or_default())?;
        let mut pid_file = flags.pid_file.as_deref().map(PidFile::write).transpose()?;
        let mut gateway = match config {
            ConfigSource::File => Gateway::start_on(model, registry.clone(), inherited)?,
            ConfigSource::Database(database) => {
                Gateway::start_database_on(settings.clone(), *database, registry.clone(), inherited)?
            }
            #[cfg(feature = "fleet")]
            ConfigSource::ControlPlane(database, options) => {
                Gateway::start_control_plane(&settings, *database, *options, registry.clone())?
            }
            #[cfg(feature = "fleet")]
            ConfigSource::Edge(options) => {
                Gateway::start_edge_on(settings.clone(), *options, registry.clone(), inherited)?
            }
        };
        if let Some(access) = access {
            gateway.set_admin_access(access);
        }
        gateway.engine().continue_counts(replaced.as_mut().and_then(Predecessor::take_counts));
        let admin = gateway.serve_admin_on(admin)?;
        let running = RunningGateway::of_this(&settings, admin, &source.spec, token_file.as_deref());
        let running_file = running.and_then(|running| running.note().map_err(say_unnoted).ok());
        pid_file.as_mut().map(PidFile::place).transpose()?;
        let offer = flags.pid_file.as_deref().filter(|_| settings.share_ports);
        let offer = offer.and_then(|path| Offer::start(gateway.engine(), path));
        let _first = gateway.engine().flags.set(source.flags.clone());
        if shows_objects {
            gateway.engine().audit.show_objects();
        }
        audit::started(&gateway.engine().audit, &source.spec);
        say_started(&gateway, source, admin);
        notify::tell(ServiceState::Ready);
        if let Some(replaced) = replaced {
            gateway.take_over_datagrams();
            replaced.end(gateway.engine());
        }
        drop(turn);
        let successor = Successor::new(flags.replace, gateway.engine().telemetry.clone());
        Ok(Self {
            source,
            registry,
            offer,
            gateway,
            successor,
            _pid_file: pid_file,
            _running_file: running_file,
        })
    }

    async fn run(self, mut signals: Signals) -> u8 {
        let _alive = notify::keep_alive();
        loop {
            match signals.next().await {
                SignalAction::Reload => {
                    if let Some(signal) = self.reload_while(&mut signals).await {
                        tracing::warn!("a reload is given up: the gateway stops");
                        return self.stop(signal, signals).await;
                    }
                }
                SignalAction::Reopen => self.reopen_logs(),
                SignalAction::Upgrade => self.successor.start(),
                SignalAction::Stop(signal) => return self.stop(signal, signals).await,
            }
        }
    }

    /// Reloads, and once more for those who asked meanwhile: they mean the file as it is then. The signal to stop that ends
    /// this early.
    async fn reload_while(&self, signals: &mut Signals) -> Option<&'static str> {
        loop {
            let mut missed = Missed::default();
            let stopped = tokio::select! {
                () = self.reload() => None,
                signal = signals.stopped(&mut missed) => Some(signal),
            };
            if missed.reopen {
                self.reopen_logs();
            }
            if missed.upgrade {
                self.successor.start();
            }
            if stopped.is_some() || !missed.reload {
                return stopped;
            }
        }
    }

    fn reopen_logs(&self) {
        self.gateway.telemetry().reopen_log();
        self.gateway.engine().audit.reopen();
    }

    async fn stop(self, signal: &'static str, signals: Signals) -> u8 {
        tracing::info!(signal, connections = self.gateway.connections(), "draining");
        self.drain(signals).await
    }

    async fn reload(&self) {
        notify::tell(ServiceState::Reloading);
        let result = self.reloaded().await;
        self.audit(&result).await;
        match result {
            Ok(revision) => {
                let proxies = self.gateway.snapshot().by_id.len();
                tracing::info!(revision, proxies, "the new configuration is in use");
                say_quarantined(&self.gateway);
            }
            Err(error) => say_refused(&error.to_string()),
        }
        notify::tell(ServiceState::Ready);
    }

    /// Records a reload in the audit, on a thread of its own as well.
    async fn audit(&self, result: &Result<u64, ReloadError>) {
        let (recorder, spec) = (self.gateway.engine().audit.clone(), self.source.spec.clone());
        let result = result.as_ref().map(|revision| *revision).map_err(ToString::to_string);
        drop(tokio::task::spawn_blocking(move || audit::reloaded(&recorder, &spec, result)).await);
    }

    /// Reads the file again and puts it in use; in database mode that is the settings, and the rest follows by itself. On a
    /// thread of its own: a file system may hang, and a signal to stop must not wait for it.
    async fn reloaded(&self) -> Result<u64, ReloadError> {
        let (source, registry) = (self.source.clone(), self.registry.clone());
        let engine = self.gateway.engine().clone();
        let reconciler = self.gateway.reconciler().cloned();
        #[cfg(feature = "fleet")]
        let edge = self.gateway.edge().cloned();
        #[cfg(feature = "fleet")]
        let is_settings = reconciler.is_some() || edge.is_some();
        #[cfg(not(feature = "fleet"))]
        let is_settings = reconciler.is_some();
        let runtime = tokio::runtime::Handle::current();
        let loading = tokio::task::spawn_blocking(move || {
            let refused = |problems| {
                engine.telemetry.refused(&problems);
                ReloadError::from(problems)
            };
            if is_settings {
                return source.load_settings(&registry).map_err(refused).map(Some);
            }
            let model = source.load(&registry).map_err(refused)?;
            let services = discovery::of_model(&model);
            if !services.is_empty() {
                runtime.block_on(discovery::prepare(&engine, services));
            }
            engine.reload(&model)?;
            warn(&warnings::of_served(&model, &engine.snapshot()));
            Ok(None)
        });
        let panicked = |_| Problems::one("", "reloading panicked; the log says where");
        let settings = loading.await.map_err(panicked)??.map(|model| model.settings);
        #[cfg(feature = "fleet")]
        if let (Some(settings), Some(edge)) = (settings.clone(), edge) {
            edge.reload(settings).await?;
        }
        if let (Some(settings), Some(reconciler)) = (settings, reconciler) {
            reconciler.reload(self.gateway.served_settings(settings)).await?;
        }
        Ok(self.gateway.snapshot().revision)
    }

    /// Lets exchanges end; a second signal ends them.
    async fn drain(self, mut signals: Signals) -> u8 {
        notify::tell(ServiceState::Stopping);
        #[cfg(feature = "fleet")]
        self.gateway.drain_fleet();
        self.gateway.begin_drain();
        let settings = self.gateway.snapshot().settings.clone();
        let mut deadline = Some(Instant::now() + settings.drain_timeout);
        let mut looks = tokio::time::interval(DRAIN_STEP);
        while !self.gateway.is_drained() || self.gateway.engine().shared.datagrams.is_needed() {
            if self.offer.as_ref().is_some_and(Offer::is_replaced) {
                self.gateway.close_admin();
            }
            tokio::select! {
                _ = looks.tick() => {}
                () = until(deadline) => {
                    tracing::warn!(connections = self.gateway.connections(), "the drain's time is over");
                    if settings.drain_streams == DrainStreams::Close {
                        break;
                    }
                    self.gateway.end_exchanges();
                    deadline = None;
                }
                told = signals.next() => if let SignalAction::Stop(signal) = told {
                    tracing::warn!(signal, connections = self.gateway.connections(), "stopping at once");
                    break;
                }
            }
        }
        if let Some(offer) = &self.offer {
            offer.send_last_counts(self.gateway.engine()).await;
        }
        drop(self);
        tracing::info!("stopped");
        0
    }
}

/// Comes at that time, or never.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Access by the token in a file; `None` when it can't be kept.
///
/// # Errors
/// When it can't be kept, and without it nobody could ask for status and metrics.
fn kept_token(settings: &Settings, path: &Path) -> Result<Option<Access>, Problems> {
    match kept_access(path) {
        Ok(access) => Ok(Some(access)),
        Err(problem) if settings.admin_require_token => {
            let why = "gateway.admin_require_token is set, and there is no token";
            Err(Problems(vec![Problem::new("FERRUM_ADMIN_TOKEN", why), problem]))
        }
        Err(problem) => {
            tracing::warn!(%problem, "the admin API takes no token");
            Ok(None)
        }
    }
}

fn say_unnoted(error: io::Error) {
    tracing::debug!(%error, "commands have to be told the admin address: the folder of FERRUM_STATE can't be written");
}
