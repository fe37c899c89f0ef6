//! Redis and Valkey servers that plugins refer to by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The connections of `gateway.redis`, by name.
pub type RedisServers = Arc<BTreeMap<Box<str>, Arc<RedisServer>>>;

/// One Redis or Valkey: a server, a cluster, or the master that sentinels know.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// URLs of the server, of nodes of the cluster, or of sentinels; all with or all without TLS.
    pub urls: Box<[Box<str>]>,
    /// What is behind the URLs.
    pub mode: RedisMode,
    /// User name, if there is one, and password for the servers.
    pub login: Option<RedisLogin>,
    /// The same for the sentinels.
    pub sentinel_login: Option<RedisLogin>,
    /// The number of the database.
    pub database: u32,
    /// Whether TLS is spoken.
    pub is_encrypted: bool,
    /// PEM file of the only roots that are trusted; `None` is the system's.
    pub ca_path: Option<PathBuf>,
    /// PEM files of the certificate chain that is shown and of its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// How long a request waits for an answer. Default 100 ms.
    pub timeout: Duration,
    /// How long connecting may take. Default 2 s.
    pub connect_timeout: Duration,
    /// What keys begin with. Default `ferrum`.
    pub key_prefix: Box<str>,
}

/// What is behind the URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisMode {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// Sentinels, and the name of the master that they know.
    Sentinel(Box<str>),
}

/// A user name, if there is one, and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisLogin {
    /// The user; `None` is the default user.
    pub username: Option<Box<str>>,
    /// The password.
    pub password: Box<str>,
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may be secret.
        f.debug_struct("RedisServer")
            .field("urls", &self.urls)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisLogin(…)")
    }
}
