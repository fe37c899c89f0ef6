//! What a plugin may reach besides the traffic.
//!
//! Everything outside the gateway comes in through here, so that name resolution, TLS policy, limits and shutdown stay
//! the gateway's, and a test or an embedding program hands in its own. `app.rs` of the program builds the real one.

pub mod blocking;
pub mod calls;
pub mod files;
pub mod kept;
pub mod meters;
pub mod per_worker;
pub mod redis;
pub mod tasks;
pub mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::watch;

use blocking::{Blocking, Busy};
use calls::{Call, Calls, Client, Endpoint};
use files::Files;
use kept::KeptStates;
use meters::Meters;
use redis::{RedisAttempt, RedisHolder, RedisLinks};
use usage::{UsageStore, UsageStores};

use crate::config::model::{Id, RedisServers};
use crate::config::problem::Problems;
use crate::limit::Busyness;

/// What plugins are built with. Cheap to clone; a plugin keeps its clone for as long as it needs it.
#[derive(Clone)]
pub struct World {
    reach: Arc<Reach>,
    kept: Arc<KeptStates>,
    redis: Arc<RedisLinks>,
    usage: Arc<UsageStores>,
    busyness: Busyness,
    owner: Option<Owner>,
    /// Of the files that are part of the settings of the plugin that is built with this.
    sources: Arc<AtomicU64>,
}

/// What a [`World`] is made of.
pub struct Reach {
    /// The gateway's name in headers it adds.
    pub gateway: Arc<str>,
    /// HTTP requests and streams to other servers.
    pub calls: Arc<dyn Calls>,
    /// Files of the machine.
    pub files: Arc<dyn Files>,
    /// Threads for work that would hold up a worker.
    pub blocking: Arc<dyn Blocking>,
    /// The gateway's metrics.
    pub meters: Meters,
    /// Variables of the environment that plugins may take as defaults.
    pub variables: Variables,
}

/// Variables of the environment by name: those that the program lets plugins see.
pub type Variables = Arc<BTreeMap<String, String>>;

/// The plugin config that a world was handed to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The plugin's name.
    pub plugin: &'static str,
    /// The plugin config's id.
    pub config: Id,
}

impl World {
    /// A world of these parts.
    pub fn new(reach: Reach) -> Self {
        Self {
            reach: Arc::new(reach),
            kept: Arc::default(),
            redis: Arc::default(),
            usage: Arc::default(),
            busyness: Busyness::default(),
            owner: None,
            sources: Arc::default(),
        }
    }

    /// The same world, for one plugin config.
    #[must_use]
    pub fn owned_by(&self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self.clone() }
    }

    /// How much of its CPUs the gateway uses.
    pub fn busyness(&self) -> &Busyness {
        &self.busyness
    }

    /// The gateway's name in headers it adds.
    pub fn gateway(&self) -> &Arc<str> {
        &self.reach.gateway
    }

    /// The plugin config it was handed to; `None` where settings are only checked.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// A client for this endpoint. Opens nothing: the first call does.
    ///
    /// # Errors
    /// What is wrong with the endpoint: a certificate file that can't be used, or an upstream that does not exist.
    pub fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        self.reach.calls.client(endpoint)
    }

    /// A client for a call of the gateway's own rather than of traffic, such as one for the keys of an OpenID provider. It goes by the
    /// proxy of the environment where one is set.
    ///
    /// # Errors
    /// As [`Self::client`], and when the proxy can't be used.
    pub fn own_client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        self.reach.calls.own_client(endpoint)
    }

    /// The addresses of a host, by the gateway's name servers and cache. For those who send datagrams; a [`Client`] resolves by
    /// itself. To be called on the gateway's own threads.
    pub fn resolve<'a>(&'a self, host: &'a Arc<str>, port: u16) -> Call<'a, Vec<SocketAddr>> {
        self.reach.calls.resolve(host, port)
    }

    /// Files of the machine.
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.reach.files
    }

    /// Reads a file that is part of a plugin's settings, such as rules or a program. When a configuration is loaded while the file has
    /// other bytes, the plugin is built anew, as if its settings had changed: whoever reloads sees the file in force at once, also
    /// where the plugin looks at it again now and then. To be called while the plugin is built.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub fn settings_file(&self, path: &Path, limit: u64) -> io::Result<Bytes> {
        let bytes = self.files().read(path, limit)?;
        let mut hasher = DefaultHasher::new();
        (path, &bytes).hash(&mut hasher);
        // In whichever order they are read.
        self.sources.fetch_add(hasher.finish(), Ordering::Relaxed);
        Ok(bytes)
    }

    /// The same world, for one plugin to be built with.
    pub(super) fn to_build_with(&self) -> Self {
        Self { sources: Arc::default(), ..self.clone() }
    }

    /// What stands for the bytes of all [`Self::settings_file`]s that were read.
    pub(super) fn sources(&self) -> u64 {
        self.sources.load(Ordering::Relaxed)
    }

    /// The gateway's metrics.
    pub fn meters(&self) -> &Meters {
        &self.reach.meters
    }

    /// A variable of the environment; an empty one counts as not set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.reach.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Runs work that takes more than some microseconds of CPU, or that waits for the system, off the worker.
    ///
    /// # Errors
    /// [`Busy`] when as much work waits as may wait: the caller refuses then, or carries on without.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        blocking::run(self.reach.blocking.as_ref(), work).await
    }

    /// State that outlives a change of the plugin's settings: the value that this plugin config, before the change,
    /// kept under the same name and type, or a new one. Freed with the last plugin that holds it.
    pub fn kept<T: Send + Sync + 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        match &self.owner {
            Some(owner) => self.kept.take(Some(owner), name, make),
            None => Arc::new(make()),
        }
    }

    /// State that all plugin configs of this gateway share: the value that any of them holds under this name and type, or a
    /// new one. Freed with the last plugin that holds it.
    pub fn shared<T: Send + Sync + 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.kept.take(None, name, make)
    }

    /// Where usage is kept; `None` where the configuration does not come from a database.
    pub fn usage_store(&self) -> Option<Arc<dyn UsageStore>> {
        self.usage.get()
    }

    /// Has usage kept there from now on, by all clones of this world. To be called before plugins are built.
    pub fn keep_usage_in(&self, store: Arc<dyn UsageStore>) {
        self.usage.put(store);
    }

    /// The connections of `gateway.redis` that are in use, and when they change. Those of a configuration that is only checked are
    /// not among them.
    pub fn redis(&self) -> watch::Receiver<RedisServers> {
        self.redis.servers.subscribe()
    }

    /// Has this one asked to connect before the servers of its name are used.
    pub fn hold_redis(&self, holder: &Arc<dyn RedisHolder>) {
        self.redis.add(holder);
    }

    /// The last error of the connection with this name, if there was one.
    pub fn redis_error(&self, name: &str) -> Option<String> {
        self.redis.last_error(name)
    }

    /// Attempts to connect to those of these servers that plugins use and that nobody has tried to connect to. To be waited for,
    /// for a bounded time, before [`Self::use_redis`].
    pub fn prepare_redis(&self, servers: Option<&RedisServers>) -> Vec<RedisAttempt> {
        servers.map_or_else(Vec::new, |servers| self.redis.prepare(servers))
    }

    /// Puts other connections in use; called with each publication, and with those in use where there is none after all.
    pub fn use_redis(&self, servers: Option<&RedisServers>) {
        let none = RedisServers::default();
        self.redis.put(servers.unwrap_or(&none));
    }
}

impl Default for World {
    /// A world with nothing outside: calls fail, there are no files. For checks without a machine, and for tests.
    fn default() -> Self {
        Self::new(Reach {
            gateway: Arc::from("ferrum-edge"),
            calls: Arc::new(calls::Nowhere),
            files: Arc::new(files::NoFiles),
            blocking: Arc::new(blocking::Inline),
            meters: Meters::default(),
            variables: Variables::default(),
        })
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("gateway", &self.reach.gateway)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
