//! Redis or Valkey for plugins: scripts that run on the server, asked by workers and carried out by a task.
//!
//! `gateway.redis` names servers; all plugin configs that refer to one name share one connection. Workers put what they ask into a
//! bounded queue; a task on the control runtime holds the connection, sends what is in the queue without waiting for the answer
//! before it, and connects again when the connection is lost. While there is none, and for a second after several answers in a row
//! that came too late, nobody waits: it is decided at once as the plugin's `on_error` says.

mod cluster;
mod command_outcome;
mod connect;
mod framing;
mod hub;
mod settings;
mod transport;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aws_lc_rs::digest;
use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use redis::{Script, Value};

use hub::Hub;
pub use settings::{OnError, RedisConfig};

/// What is asked and not yet sent; further ones are decided as `on_error` says.
pub const MAX_QUEUED: usize = 8192;
/// Late answers in a row after which nobody waits for a while.
pub const MAX_LATE: u64 = 5;

/// The store could not be asked, did not answer in time, or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away;

/// A script with what it is given.
#[derive(Clone)]
pub struct Command {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Command {
    /// Runs this script; in a cluster all keys must have the same part in braces.
    pub fn new(script: &'static Script, keys: Vec<String>) -> Self {
        Self { script, keys, arguments: Vec::new() }
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// One plugin config's side of a connection.
pub struct RedisLink {
    hub: Arc<Hub>,
    owner: Box<str>,
    on_error: OnError,
}

impl RedisLink {
    /// Nothing is connected before [`Self::run`]. Whether the name exists is checked where settings are read.
    pub fn new(config: &RedisConfig, world: &World) -> Self {
        let hub = Hub::of(&config.name, world);
        hub.sides.fetch_add(1, Relaxed);
        Self {
            hub,
            owner: world.owner().map_or("", |owner| owner.config.as_str()).into(),
            on_error: config.on_error,
        }
    }

    /// Stores this many bytes in one place, so that an answer may have as many. Larger answers end the connection: those of a
    /// connection may have 4 MiB beside what the plugin with the largest values stores.
    #[must_use]
    pub fn storing(self, bytes: u64) -> Self {
        self.hub.stored.fetch_max(bytes, Relaxed);
        self
    }

    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// What this plugin config's keys begin with.
    pub fn prefix(&self) -> String {
        match self.hub.server() {
            Some(server) => format!("{}:{}", server.key_prefix, self.owner),
            None => self.owner.to_string(),
        }
    }

    /// Whether it is worth to ask now.
    pub fn is_up(&self) -> bool {
        self.hub.is_up()
    }

    /// Asks, and waits for the answer for as long as the settings say.
    pub async fn ask(&self, command: Command) -> Result<Value, Away> {
        self.hub.ask(command).await
    }

    /// Asks, and blocks this thread until the answer is there: for `explain`, on a thread that may block. `None` where no runtime is
    /// around it, as in a command without a running gateway, or where no answer comes within 5 s.
    pub fn ask_and_block(self: &Arc<Self>, command: Command) -> Option<Result<Value, Away>> {
        const MOST: Duration = Duration::from_secs(5);
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let link = self.clone();
        // A receiver that gave up needs no answer.
        runtime.spawn(async move { drop(sender.send(link.ask(command).await)) });
        receiver.recv_timeout(MOST).ok()
    }

    /// Asks, and does not wait. False where nothing could be asked.
    pub fn tell(&self, command: Command) -> bool {
        self.hub.tell(command)
    }

    /// Holds the connection, for as long as the plugin is in use.
    pub async fn run(self: Arc<Self>, control: TaskControl) -> Result<(), TaskError> {
        self.hub.run(control).await;
        Ok(())
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn set_up(&self, up: bool) {
        self.hub.set_up(up);
    }

    /// Comes when the connection is there, or not.
    #[cfg(any(test, feature = "testing"))]
    pub async fn becomes(&self, up: bool) {
        self.hub.becomes(up).await;
    }
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        self.hub.sides.fetch_sub(1, Relaxed);
    }
}

/// SHA-256 as a hasher: the same on every gateway, and nobody finds two callers with one key.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl Sha256 {
    /// The whole digest.
    pub fn digest(self) -> [u8; 32] {
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

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
