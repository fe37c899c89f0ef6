//! What users write of the store, and what it is checked to mean.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::plugin::World;
use redis::{ConnectionInfo, IntoConnectionInfo};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where gateways keep together what they count or store.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedisConfig {
    /// The servers, `redis://HOST:PORT` or, over TLS, `rediss://HOST:PORT`: one; with `mode: cluster` some of its nodes; with
    /// `mode: sentinel` the sentinels. Required.
    #[schemars(length(min = 1, max = 32))]
    urls: Vec<String>,
    /// `single`, `cluster` or `sentinel`. Default `single`.
    #[serde(default)]
    mode: RedisMode,
    /// The name of the master that the sentinels know. Required with `mode: sentinel`.
    master_name: Option<String>,
    /// The user name. Default none.
    username: Option<String>,
    /// The password. Default none.
    password: Option<String>,
    /// The number of the database; 0 in a cluster. Default 0.
    #[serde(default)]
    #[schemars(range(max = 65_535))]
    database: u64,
    /// Trusts only the roots of this PEM file. Default the system's.
    ca_path: Option<PathBuf>,
    /// How long an answer may take, 1 ms to 10 s; a plain number counts milliseconds. Default 100 ms.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1, max = 10_000))]
    timeout: Millis,
    /// How long connecting may take, 10 ms to 60 s. Default 2 s.
    #[serde(default = "connect_timeout")]
    #[schemars(range(min = 10, max = 60_000))]
    connect_timeout: Millis,
    /// What becomes of requests when the store is away or late: `local` goes by what this gateway knows alone, each gateway
    /// with the whole limit; `allow` lets them pass; `deny` refuses them with 503. Default `local`.
    #[serde(default)]
    on_error: OnError,
    /// What keys begin with; the plugin config's id follows. Gateways that share it have the same. Default `ferrum`.
    #[serde(default = "key_prefix")]
    key_prefix: String,
}

/// What kind of servers there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RedisMode {
    /// One server.
    #[default]
    Single,
    /// A cluster.
    Cluster,
    /// Sentinels, which know the master.
    Sentinel,
}

/// What becomes of requests when the store is away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnError {
    /// This gateway decides alone.
    #[default]
    Local,
    /// They pass.
    Allow,
    /// They are refused.
    Deny,
}

const fn timeout() -> Millis {
    Millis(100)
}

const fn connect_timeout() -> Millis {
    Millis(2000)
}

fn key_prefix() -> String {
    "ferrum".into()
}

/// The store, checked.
pub(crate) struct Server {
    pub(super) nodes: Vec<ConnectionInfo>,
    pub(super) mode: RedisMode,
    pub(super) master: String,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) encrypted: bool,
    pub(super) roots: Option<Vec<u8>>,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) on_error: OnError,
    pub(super) prefix: String,
}

/// Bytes of a file with roots.
const MAX_ROOTS: u64 = 4 << 20;

impl Server {
    /// Checks settings; all that is wrong with them goes to `problems`.
    pub(crate) fn read(config: RedisConfig, world: &World, problems: &mut Problems) -> Self {
        let encrypted = config.urls.iter().filter(|url| url.starts_with("rediss://")).count();
        let mut nodes = Vec::with_capacity(config.urls.len());
        for (n, url) in config.urls.iter().enumerate() {
            match node(url) {
                Ok(node) => nodes.push(node),
                Err(why) => {
                    problems.add(format!("config.redis.urls[{n}]"), why).remedy =
                        Some("write `redis://HOST:PORT` or `rediss://HOST:PORT`".into());
                }
            }
        }
        let mut wrong = |name: &str, why: &str| _ = problems.add(format!("config.redis.{name}"), why);
        if encrypted != 0 && encrypted != config.urls.len() {
            wrong("urls", "some are encrypted and some are not");
        }
        if config.mode == RedisMode::Single && config.urls.len() != 1 {
            wrong("urls", "there is one server with `mode: single`");
        }
        if config.mode == RedisMode::Cluster && config.database != 0 {
            wrong("database", "a cluster has no other database than 0");
        }
        if (config.mode == RedisMode::Sentinel) != config.master_name.is_some() {
            wrong("master_name", "this is given with `mode: sentinel`, and only then");
        }
        if config.username.is_some() && config.password.is_none() {
            wrong("username", "there is no password");
        }
        if config.ca_path.is_some() && encrypted == 0 {
            wrong("ca_path", "nothing is encrypted: the URLs begin with `redis://`");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if config.key_prefix.is_empty() || !config.key_prefix.chars().all(is_plain) {
            wrong("key_prefix", "letters, digits, `-`, `_`, `.` and `:` may be in it");
        }
        let roots = config.ca_path.as_ref().and_then(|path| match world.files().read(path, MAX_ROOTS) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(error) => {
                wrong("ca_path", &format!("{} can't be read: {error}", path.display()));
                None
            }
        });
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        Self {
            nodes,
            mode: config.mode,
            master: config.master_name.unwrap_or_default(),
            username: config.username,
            password: config.password,
            database: i64::try_from(config.database).unwrap_or(0),
            encrypted: encrypted > 0,
            roots,
            timeout: config.timeout.duration(),
            connect_timeout: config.connect_timeout.duration(),
            on_error: config.on_error,
            prefix: format!("{}:{owner}", config.key_prefix),
        }
    }
}

fn node(url: &str) -> Result<ConnectionInfo, String> {
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    let Some(rest) = rest else { return Err("this is not a URL of Redis".into()) };
    if rest.contains('@') {
        return Err("a URL here must not carry a user name or password".into());
    }
    if rest.trim_end_matches('/').contains(['/', '?', '#']) {
        return Err("the database and options are settings of their own".into());
    }
    url.into_connection_info().map_err(|error| error.to_string())
}
