//! A connection to Redis or Valkey for plugins: scripts that run on the server, asked by workers and carried out by a task.
//!
//! Workers put what they ask into a bounded queue; a task on the control runtime holds the connection, sends what is in the
//! queue without waiting for the answer before it, and connects again when the connection is lost. While there is none, and for a
//! second after several answers in a row that came too late, nobody waits: it is decided at once as `on_error` says.

mod connect;
mod settings;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_lc_rs::digest;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway_core::limit::epoch::Epoch;
use gateway_core::plugin::world::meters::Gauge;
use gateway_core::plugin::world::tasks::TaskControl;
use redis::{Script, Value};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;

use connect::Connection;
pub(crate) use settings::{OnError, RedisConfig, Server};

/// What is asked and not yet sent; further ones are decided as `on_error` says.
pub(crate) const MAX_QUEUED: usize = 8192;
/// What is sent and not yet answered.
const MAX_SENT: usize = 1024;
/// Late answers in a row after which nobody waits for a while.
pub(crate) const MAX_LATE: u64 = 5;
/// How long nobody waits then, in nanoseconds.
const REST: u64 = 1_000_000_000;
/// The pause before it connects again.
const PAUSE: Duration = Duration::from_millis(200);

/// The store could not be asked, did not answer in time, or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Away;

/// A script with what it is given.
pub(crate) struct Command {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Command {
    /// Runs this script; in a cluster all keys must have the same part in braces.
    pub(crate) fn new(script: &'static Script, keys: Vec<String>) -> Self {
        Self { script, keys, arguments: Vec::new() }
    }

    /// With one more argument.
    #[must_use]
    pub(crate) fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

struct Question {
    command: Command,
    answer: oneshot::Sender<Value>,
}

/// A connection that one plugin config's tasks and workers share.
pub(crate) struct Link {
    server: Server,
    sender: Sender<Question>,
    receiver: Mutex<Receiver<Question>>,
    up: watch::Sender<bool>,
    gauge: Gauge,
    epoch: Epoch,
    late: AtomicU64,
    rests_until: AtomicU64,
}

impl Link {
    /// Nothing is connected before [`Self::run`]. `gauge` is 1 while it is connected.
    pub(crate) fn new(server: Server, gauge: Gauge, now: Instant) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        Self {
            server,
            sender,
            receiver: Mutex::new(receiver),
            up: watch::Sender::new(false),
            gauge,
            epoch: Epoch::starting(now),
            late: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.server.on_error
    }

    /// What keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.server.prefix
    }

    /// Whether it is worth to ask now.
    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow() && self.epoch.nanos(Instant::now()) >= self.rests_until.load(Relaxed)
    }

    /// Asks, and waits for the answer for as long as the settings say.
    pub(crate) async fn ask(&self, command: Command) -> Result<Value, Away> {
        let receiver = self.put(command).ok_or(Away)?;
        match tokio::time::timeout(self.server.timeout, receiver).await {
            Ok(Ok(answer)) => {
                self.late.store(0, Relaxed);
                Ok(answer)
            }
            Ok(Err(_)) => Err(Away),
            Err(_) => {
                if self.late.fetch_add(1, Relaxed) + 1 >= MAX_LATE {
                    self.late.store(0, Relaxed);
                    self.rests_until.store(self.epoch.nanos(Instant::now()) + REST, Relaxed);
                }
                Err(Away)
            }
        }
    }

    /// Asks, and does not wait. False where nothing could be asked.
    pub(crate) fn tell(&self, command: Command) -> bool {
        self.is_up() && self.put(command).is_some()
    }

    fn put(&self, command: Command) -> Option<oneshot::Receiver<Value>> {
        let (answer, receiver) = oneshot::channel();
        self.sender.try_send(Question { command, answer }).ok()?;
        Some(receiver)
    }

    /// Holds the connection, for as long as the plugin is in use.
    pub(crate) async fn run(self: Arc<Self>, mut control: TaskControl) -> Result<(), String> {
        // The task of the settings before this may still hold it for a moment.
        let mut receiver = tokio::select! {
            receiver = self.receiver.lock() => receiver,
            () = control.ended() => return Ok(()),
        };
        let connection = tokio::select! {
            connection = self.server.connect() => connection?,
            () = control.ended() => return Ok(()),
        };
        self.set_up(true);
        let lost = tokio::select! {
            lost = serve(connection, &mut receiver) => Some(lost),
            () = control.ended() => None,
        };
        self.set_up(false);
        // Those who wait are told at once.
        while receiver.try_recv().is_ok() {}
        let Some(lost) = lost else { return Ok(()) };
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Err(lost),
            () = control.ended() => Ok(()),
        }
    }

    pub(crate) fn set_up(&self, up: bool) {
        self.gauge.set(i64::from(up));
        self.up.send_replace(up);
    }

    /// Comes when the connection is there, or not.
    #[cfg(test)]
    pub(crate) async fn becomes(&self, up: bool) {
        drop(self.up.subscribe().wait_for(|is| *is == up).await);
    }
}

/// Sends what is asked until the connection is lost; says why it was.
async fn serve(connection: Connection, receiver: &mut Receiver<Question>) -> String {
    let mut sent = FuturesUnordered::new();
    loop {
        let has_room = sent.len() < MAX_SENT;
        tokio::select! {
            question = receiver.recv(), if has_room => {
                let Some(question) = question else { return "nobody asks".into() };
                sent.push(send(connection.clone(), question));
            }
            Some(done) = sent.next() => if let Err(lost) = done {
                return lost;
            },
        }
    }
}

async fn send(mut connection: Connection, question: Question) -> Result<(), String> {
    let Question { command, answer } = question;
    let mut call = command.script.prepare_invoke();
    command.keys.iter().for_each(|key| _ = call.key(key));
    command.arguments.iter().for_each(|argument| _ = call.arg(argument.as_slice()));
    match connection.invoke(&call).await {
        // Whoever asked may have gone.
        Ok(value) => drop(answer.send(value)),
        // A server without memory still answers what takes none: whoever asked learns that there is no answer.
        Err(error) if error.code() == Some("OOM") => drop(answer),
        Err(error) => return Err(error.to_string()),
    }
    Ok(())
}

/// SHA-256 as a hasher: the same on every gateway, and nobody finds two callers with one key.
#[derive(Clone)]
pub(crate) struct Sha256(digest::Context);

impl Sha256 {
    pub(crate) fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// The whole digest.
    pub(crate) fn digest(self) -> [u8; 32] {
        self.0.finish().as_ref().try_into().unwrap_or_default()
    }
}

impl Hasher for Sha256 {
    /// The first 64 bits.
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finish();
        digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

#[cfg(test)]
pub(crate) mod testing;
