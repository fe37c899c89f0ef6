//! Redis and Valkey servers as written.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// A Redis or Valkey server in which the plugins of several gateways share counters and data.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redis {
    /// Servers, `redis://HOST:PORT` or, over TLS, `rediss://HOST:PORT`: one; with `mode: cluster` some of the nodes;
    /// with `mode: sentinel` the sentinels. Required.
    #[schemars(length(max = 32))]
    pub urls: Vec<String>,
    /// Kind of servers. Default `single`.
    pub mode: Option<RedisMode>,
    /// Name of the master at the sentinels. Required with `mode: sentinel`.
    #[schemars(length(min = 1, max = 255))]
    pub master_name: Option<String>,
    /// Username. Default none.
    pub username: Option<String>,
    /// Password. Default none.
    pub password: Option<String>,
    /// Username for the sentinels. Default none.
    pub sentinel_username: Option<String>,
    /// Password for the sentinels. Default none.
    pub sentinel_password: Option<String>,
    /// Number of the database; 0 in a cluster. Default 0.
    #[schemars(range(max = 65_535))]
    pub database: Option<u32>,
    /// PEM file with the only trusted roots for the servers' certificates. Default the system's.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_path: Option<String>,
    /// PEM file of the client certificate chain. Default none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_cert_path: Option<String>,
    /// PEM file of the key of `client_cert_path`.
    #[schemars(length(min = 1, max = 4096))]
    pub client_key_path: Option<String>,
    /// How long a request waits for a response of Redis, 1 ms to 10 s. Default 100 ms.
    #[schemars(range(min = 0.001, max = 10))]
    pub timeout: Option<Millis>,
    /// Time limit for connecting, 10 ms to 60 s. Default 2 s.
    #[schemars(range(min = 0.01, max = 60))]
    pub connect_timeout: Option<Millis>,
    /// Prefix of keys; the plugin config's ID follows. Gateways that share counters have the same prefix. Default
    /// `ferrum`.
    #[schemars(length(min = 1, max = 64))]
    pub key_prefix: Option<String>,
}

/// Kind of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RedisMode {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// Sentinels, which know the current master.
    Sentinel,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may be secret.
        f.debug_struct("Redis").field("urls", &self.urls).field("mode", &self.mode).finish_non_exhaustive()
    }
}
