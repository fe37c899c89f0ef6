//! One connection of `gateway.redis`, which all plugin configs that name it share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway_core::config::model::{RedisServer, RedisServers};
use gateway_core::limit::epoch::Epoch;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::{Counter, Gauge};
use gateway_core::plugin::world::redis::{RedisAttempt, RedisHolder};
use gateway_core::plugin::world::tasks::TaskControl;
use redis::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;

use super::command_outcome::{CommandError, CommandOutcome, Refusal};
use super::connect::{ConnectError, GIVE_UP, RedisConnection, connect};
use super::{Away, Command, MAX_LATE, MAX_QUEUED};

/// Commands of a cluster that fail in a row before it is connected to anew.
const MAX_FAILED: u32 = 100;
/// How often one reason for commands that fail is logged.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// Reasons of a lost connection that are logged in one outage.
const MAX_REASONS: usize = 8;
/// What is sent and not yet answered.
const MAX_SENT: usize = 1024;
/// How long the breaker is open after answers that came too late, in nanoseconds.
const REST: u64 = 1_000_000_000;
/// The pause before it connects again, and the longest one after failures in a row.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

const UP: Metric = Metric::gauge(
    "ferrum_redis_up",
    "1 while the connection of `gateway.redis` is there and the server does not refuse scripts (NOPERM, OOM, BUSY, WRONGTYPE).",
);
const COMMANDS: Metric =
    Metric::counter("ferrum_redis_commands_total", "Scripts by result: answered, late, or failed.");
const OPENED: Metric = Metric::counter(
    "ferrum_redis_breaker_opened_total",
    "Times that requests did not wait for Redis for a second, because several answers in a row were too late.",
);

struct Question {
    command: Command,
    answer: oneshot::Sender<Value>,
}

/// What whoever holds the connection has.
struct Holder {
    receiver: Receiver<Question>,
    /// The connection that the holder before left, and to what.
    left: Option<(Arc<RedisServer>, RedisConnection)>,
    failures: u32,
    /// What was logged in this outage.
    reasons: Vec<String>,
    /// Commands that failed since the last one that was answered, where the connection has several nodes.
    failed: u32,
    /// What was logged of commands that failed in the last minute, and when.
    logged: Vec<(Complaint, Instant)>,
}

/// A kind of failed commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complaint {
    Refused(Refusal),
    /// A node of a cluster, whichever: each slot has words of its own.
    Node,
}

/// The connection.
pub(super) struct Hub {
    name: Box<str>,
    files: Arc<dyn Files>,
    servers: watch::Receiver<RedisServers>,
    sender: Sender<Question>,
    held: Mutex<Holder>,
    /// Plugin configs' sides of it.
    pub(super) sides: AtomicUsize,
    up: watch::Sender<bool>,
    /// Bytes that a plugin stores in one place.
    pub(super) stored: Arc<AtomicU64>,
    epoch: Epoch,
    late: AtomicU64,
    rests_until: AtomicU64,
    gauge: Gauge,
    answered: Counter,
    too_late: Counter,
    failed: Counter,
    opened: Counter,
    ahead: std::sync::Mutex<Ahead>,
    /// Why the last connection was lost, or the last command refused.
    last_error: std::sync::Mutex<Option<String>>,
}

/// What is done before the servers are used.
#[derive(Default)]
struct Ahead {
    /// The servers that were tried last.
    tried: Option<Arc<RedisServer>>,
    /// The connection that came of it, until [`Hub::run`] takes it.
    connection: Option<(Arc<RedisServer>, RedisConnection)>,
}

impl RedisHolder for Hub {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(self: Arc<Self>, server: &Arc<RedisServer>) -> Option<RedisAttempt> {
        let is_in_use = self.server().as_ref() == Some(server);
        let before = self.ahead().tried.replace(server.clone());
        if is_in_use && before.as_ref() == Some(server) {
            return None;
        }
        let server = server.clone();
        Some(Box::pin(async move {
            // Why it fails is logged by whoever runs, who tries at once again.
            let connected = connect(&server, &self.files, &self.stored).await.ok();
            self.ahead().connection = connected.map(|connection| (server, connection));
            self.raise();
        }))
    }

    fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn settle(&self) {
        let server = self.server();
        drop(self.ahead().connection.take_if(|(to, _)| server.as_ref() != Some(to)));
        self.raise();
    }
}

/// Why a connection is of no use.
#[derive(Debug, thiserror::Error)]
enum LossCause {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Why a connection is served no more.
enum ServiceEnd {
    Lost(LossCause),
    Changed,
    Over,
}

impl Hub {
    /// The one hub of this name. Nothing is connected before [`Self::run`] or [`RedisHolder::prepare`].
    pub(super) fn of(name: &str, world: &World) -> Arc<Self> {
        let hub = world.shared(name, || {
            let (sender, receiver) = mpsc::channel(MAX_QUEUED);
            let command =
                |outcome| world.meters().counter(COMMANDS, &["connection", "outcome"], &[name, outcome]);
            Self {
                name: name.into(),
                files: world.files().clone(),
                servers: world.redis(),
                sender,
                held: Mutex::new(Holder {
                    receiver,
                    left: None,
                    failures: 0,
                    reasons: Vec::new(),
                    failed: 0,
                    logged: Vec::new(),
                }),
                sides: AtomicUsize::new(0),
                up: watch::Sender::new(false),
                stored: Arc::default(),
                epoch: Epoch::starting(Instant::now()),
                late: AtomicU64::new(0),
                rests_until: AtomicU64::new(0),
                gauge: world.meters().gauge(UP, &["connection"], &[name]),
                answered: command("answered"),
                too_late: command("late"),
                failed: command("failed"),
                opened: world.meters().counter(OPENED, &["connection"], &[name]),
                ahead: std::sync::Mutex::default(),
                last_error: std::sync::Mutex::default(),
            }
        });
        let holder: Arc<dyn RedisHolder> = hub.clone();
        world.hold_redis(&holder);
        hub
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection to the servers of now waits to be taken.
    fn is_prepared(&self) -> bool {
        let server = self.server();
        self.ahead().connection.as_ref().is_some_and(|(to, _)| server.as_ref() == Some(to))
    }

    /// Has callers ask from now on where a connection is prepared: the answers come as soon as it is taken.
    fn raise(&self) {
        if self.is_prepared() {
            self.set_up(true);
        }
    }

    /// The servers of now; `None` where the configuration in use has none of this name.
    pub(super) fn server(&self) -> Option<Arc<RedisServer>> {
        self.servers.borrow().get(&*self.name).cloned()
    }

    /// Whether it is worth to ask now.
    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow() && self.epoch.nanos(Instant::now()) >= self.rests_until.load(Relaxed)
    }

    /// Asks, and waits for the answer for as long as the settings say.
    pub(super) async fn ask(&self, command: Command) -> Result<Value, Away> {
        let Some((receiver, server)) = self.put(command).zip(self.server()) else {
            self.failed.add(1);
            return Err(Away);
        };
        match tokio::time::timeout(server.timeout, receiver).await {
            Ok(Ok(answer)) => {
                self.late.store(0, Relaxed);
                self.answered.add(1);
                Ok(answer)
            }
            Ok(Err(_)) => {
                self.failed.add(1);
                Err(Away)
            }
            Err(_) => {
                self.too_late.add(1);
                if self.late.fetch_add(1, Relaxed) + 1 >= MAX_LATE {
                    self.late.store(0, Relaxed);
                    self.opened.add(1);
                    self.rests_until.store(self.epoch.nanos(Instant::now()) + REST, Relaxed);
                }
                Err(Away)
            }
        }
    }

    /// Asks, and does not wait. False where nothing could be asked.
    pub(super) fn tell(&self, command: Command) -> bool {
        self.is_up() && self.put(command).is_some()
    }

    fn put(&self, command: Command) -> Option<oneshot::Receiver<Value>> {
        let (answer, receiver) = oneshot::channel();
        self.sender.try_send(Question { command, answer }).ok()?;
        Some(receiver)
    }

    /// Holds the connection until `control` says that it ends. Of several that call this one at a time does; the next one takes
    /// the connection over.
    pub(super) async fn run(&self, mut control: TaskControl) {
        let mut held = tokio::select! {
            held = self.held.lock() => held,
            () = control.ended() => {
                if self.held.try_lock().is_ok() {
                    self.leave();
                }
                return;
            }
        };
        let mut servers = self.servers.clone();
        loop {
            let server = servers.borrow_and_update().get(&*self.name).cloned();
            let end = match server {
                Some(server) => self.serve(&mut held, &server, &mut servers, &mut control).await,
                None => ServiceEnd::Changed,
            };
            if matches!(end, ServiceEnd::Over) {
                return self.leave();
            }
            if self.is_prepared() {
                continue;
            }
            self.set_up(false);
            // It may have been prepared just now.
            self.raise();
            // Callers that wait get their failure now.
            while !*self.up.borrow() && held.receiver.try_recv().is_ok() {}
            let pause = match end {
                ServiceEnd::Lost(cause) => {
                    // One line for each outage and reason; the metric shows how long it lasts.
                    let why = cause.to_string();
                    self.set_error(&why);
                    if !held.reasons.contains(&why) && held.reasons.len() < MAX_REASONS {
                        tracing::warn!(connection = %self.name, error = %why, "no connection to Redis");
                        held.reasons.push(why);
                    }
                    held.failures = held.failures.saturating_add(1);
                    PAUSES.1.min(PAUSES.0 * (1 << held.failures.min(5)) / 2)
                }
                // It goes on when there is something new.
                ServiceEnd::Changed | ServiceEnd::Over if self.server().is_none() => Duration::MAX,
                ServiceEnd::Changed | ServiceEnd::Over => Duration::ZERO,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = servers.changed() => if changed.is_err() {
                    return;
                },
                () = control.ended() => return,
            }
        }
    }

    /// Whoever held the connection goes. Where there is another side, which takes the connection over or is about to, callers go
    /// on asking.
    fn leave(&self) {
        if self.sides.load(Relaxed) <= 1 {
            self.set_up(false);
        }
    }

    /// Connects, and sends what is asked until the connection is lost or something else is to be done.
    async fn serve(
        &self,
        held: &mut Holder,
        server: &Arc<RedisServer>,
        servers: &mut watch::Receiver<RedisServers>,
        control: &mut TaskControl,
    ) -> ServiceEnd {
        let left = held.left.take().filter(|(to, _)| to == server);
        let prepared = self.ahead().connection.take_if(|(to, _)| to == server);
        let connection = match prepared.or(left) {
            Some((_, connection)) => connection,
            None => tokio::select! {
                connected = connect(server, &self.files, &self.stored) => match connected {
                    Ok(connection) => connection,
                    Err(error) => return ServiceEnd::Lost(error.into()),
                },
                () = changed(servers, &self.name, server) => return ServiceEnd::Changed,
                () = control.ended() => return ServiceEnd::Over,
            },
        };
        self.set_up(true);
        held.failed = 0;
        let mut sent = FuturesUnordered::new();
        let end = loop {
            let has_room = sent.len() < MAX_SENT;
            tokio::select! {
                question = held.receiver.recv(), if has_room => {
                    let Some(question) = question else { break ServiceEnd::Over };
                    sent.push(send(connection.clone(), question, server.timeout * (GIVE_UP + 1)));
                }
                Some(outcome) = sent.next() => if let Err(error) = self.note(held, outcome) {
                    break ServiceEnd::Lost(error.into());
                },
                () = changed(servers, &self.name, server) => break ServiceEnd::Changed,
                () = control.ended() => break ServiceEnd::Over,
            }
        };
        if !matches!(end, ServiceEnd::Lost(_)) {
            // What is sent is still answered.
            let rest = async move { while sent.next().await.is_some() {} };
            let rest = tokio::time::timeout(server.timeout, rest);
            match end {
                // Nobody waits for the servers of before.
                ServiceEnd::Changed => drop(tokio::spawn(rest)),
                _ => drop(rest.await),
            }
            held.left = Some((server.clone(), connection));
        }
        end
    }

    /// Notes what became of a command.
    ///
    /// # Errors
    /// When the connection is lost.
    fn note(&self, held: &mut Holder, outcome: CommandOutcome) -> Result<(), CommandError> {
        match outcome {
            CommandOutcome::Answered => {
                // Only now is it sure that an outage is over: a server may take connections and refuse everything.
                if std::mem::take(&mut held.failures) > 0 {
                    tracing::info!(connection = %self.name, "connected to Redis again");
                }
                held.reasons.clear();
                held.failed = 0;
                self.gauge.set(1);
            }
            CommandOutcome::Refused(refusal, error) => {
                self.gauge.set(0);
                self.set_error(&error.to_string());
                self.complain(held, Complaint::Refused(refusal), &error.into());
            }
            CommandOutcome::NodeFailed(error) => {
                held.failed += 1;
                if held.failed >= MAX_FAILED {
                    return Err(error);
                }
                self.complain(held, Complaint::Node, &error);
            }
            CommandOutcome::Lost(error) => return Err(error),
        }
        Ok(())
    }

    /// Logs why commands fail, each kind once a minute.
    fn complain(&self, held: &mut Holder, complaint: Complaint, error: &CommandError) {
        held.logged.retain(|(_, at)| at.elapsed() < SAID_AGAIN);
        if held.logged.iter().any(|(logged, _)| *logged == complaint) {
            return;
        }
        match complaint {
            Complaint::Refused(_) => {
                tracing::warn!(connection = %self.name, %error, "Redis refuses what it is asked");
            }
            Complaint::Node => {
                tracing::warn!(connection = %self.name, %error, "a node of the Redis cluster does not answer");
            }
        }
        held.logged.push((complaint, Instant::now()));
    }

    fn set_error(&self, why: &str) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(super) fn set_up(&self, up: bool) {
        self.gauge.set(i64::from(up));
        self.up.send_replace(up);
    }

    /// Comes when the connection is there, or not.
    #[cfg(any(test, feature = "testing"))]
    pub(super) async fn becomes(&self, up: bool) {
        let mut states = self.up.subscribe();
        let became = tokio::time::timeout(Duration::from_secs(30), states.wait_for(|is| *is == up)).await;
        assert!(became.is_ok(), "it does not become {up}");
    }
}

/// Comes when other servers have this name.
async fn changed(servers: &mut watch::Receiver<RedisServers>, name: &str, server: &Arc<RedisServer>) {
    let other = servers.wait_for(|servers| servers.get(name) != Some(server)).await.is_ok();
    if !other {
        std::future::pending::<()>().await;
    }
}

async fn send(mut connection: RedisConnection, question: Question, limit: Duration) -> CommandOutcome {
    let Question { command, answer } = question;
    let mut call = command.script.prepare_invoke();
    command.keys.iter().for_each(|key| _ = call.key(key));
    command.arguments.iter().for_each(|argument| _ = call.arg(argument.as_slice()));
    let has_nodes = connection.has_nodes();
    let Ok(result) = tokio::time::timeout(limit, connection.invoke(&call)).await else {
        return CommandOutcome::failed(CommandError::Late, has_nodes);
    };
    match result {
        // Whoever asked may have gone.
        Ok(value) => {
            drop(answer.send(value));
            CommandOutcome::Answered
        }
        Err(error) => match Refusal::of(&error) {
            Some(refusal) => CommandOutcome::Refused(refusal, error),
            None => CommandOutcome::failed(error.into(), has_nodes),
        },
    }
}
