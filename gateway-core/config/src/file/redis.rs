//! Redis and Valkey servers as written.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// A Redis or Valkey in which the plugins of several gateways count and store together.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redis {
    /// The servers, `redis://HOST:PORT` or, over TLS, `rediss://HOST:PORT`: one; with `mode: cluster` some of its nodes; with
    /// `mode: sentinel` the sentinels. Required.
    #[schemars(length(max = 32))]
    pub urls: Vec<String>,
    /// What the servers are. Default `single`.
    pub mode: Option<RedisMode>,
    /// The name of the master that the sentinels know. Required with `mode: sentinel`.
    #[schemars(length(min = 1, max = 255))]
    pub master_name: Option<String>,
    /// The user name. Default none.
    pub username: Option<String>,
    /// The password. Default none.
    pub password: Option<String>,
    /// The user name for the sentinels. Default none.
    pub sentinel_username: Option<String>,
    /// The password for the sentinels. Default none.
    pub sentinel_password: Option<String>,
    /// The number of the database; 0 in a cluster. Default 0.
    #[schemars(range(max = 65_535))]
    pub database: Option<u32>,
    /// PEM file of the only roots that the servers' certificates may come from. Default the system's.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_path: Option<String>,
    /// PEM file of a certificate chain to show to the servers. Default none.
    #[schemars(length(min = 1, max = 4096))]
    pub client_cert_path: Option<String>,
    /// PEM file of the key to `client_cert_path`.
    #[schemars(length(min = 1, max = 4096))]
    pub client_key_path: Option<String>,
    /// How long a request waits for an answer, 1 ms to 10 s. Default 100 ms.
    #[schemars(range(min = 0.001, max = 10))]
    pub timeout: Option<Millis>,
    /// How long connecting may take, 10 ms to 60 s. Default 2 s.
    #[schemars(range(min = 0.01, max = 60))]
    pub connect_timeout: Option<Millis>,
    /// What keys begin with; the plugin config's id follows. Gateways that share what they count have the same. Default
    /// `ferrum`.
    #[schemars(length(min = 1, max = 64))]
    pub key_prefix: Option<String>,
}

/// What the servers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RedisMode {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// Sentinels, which know the master.
    Sentinel,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may be secret.
        f.debug_struct("Redis").field("urls", &self.urls).field("mode", &self.mode).finish_non_exhaustive()
    }
}
