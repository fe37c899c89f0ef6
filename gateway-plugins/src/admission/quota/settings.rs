//! What users write, and what it is checked to mean.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use gateway_plugin_common::redis_link::RedisConfig;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::period::Period;
use crate::admission::limit_headers::{self, LimitHeaders};

/// Settings of `quota`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The quotas; a request must fit into all of them. 1 to 4, required.
    #[schemars(length(min = 1, max = 4))]
    limits: Vec<LimitConfig>,
    /// How callers are distinguished: `address`, `consumer` (consumer or external identity), `group` (the caller's
    /// first), `route` (the proxy), `grpc_method` (the service and method of a gRPC call), `header:NAME`,
    /// `cookie:NAME`, `claim:NAME`, `template:TEXT`; or a list, whose values together identify one caller. Proxies that
    /// share this plugin config share the quotas unless `route` is among them. Default `consumer`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that count as one, 1 to 128. Default 64.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to requests that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not count them, `deny` rejects them with 403. Default `address`.
    on_missing: Missing,
    /// Cost of a request in each quota. Default 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) cost: u64,
    /// Counts and logs `quota.would_refuse`, but rejects nothing. Default false.
    pub(super) dry_run: bool,
    /// Header fields for clients: `ratelimit` (`RateLimit` and `RateLimit-Policy` of the IETF's draft), `x_ratelimit`
    /// (`X-RateLimit-Limit`, `-Remaining`, `-Reset`), `both` or `none`. A rejection always has `Retry-After`. Default
    /// `ratelimit`.
    pub(super) headers: LimitHeaders,
    /// Status of rejections, 400 to 599. Default 429.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Folder for the usage file, which is named after the plugin config. Each gateway needs its own folder, with write
    /// permission. This or `redis` is required.
    #[schemars(extend("format" = "path"))]
    path: Option<PathBuf>,
    /// How often the file is written if the usage changed, 100 ms to 1 h. The gateway also writes it when it stops. If
    /// the gateway is killed, usage since the last write is lost. Default 5 s.
    #[schemars(range(min = 0.1, max = 3600))]
    save_interval: Millis,
    /// Callers in each quota, 1 to 1,000,000; each takes 64 bytes of memory and at most 48 bytes of the file for each
    /// quota. Further callers replace those with the least usage. Default 100,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_keys: u64,
    /// Counts in Redis or Valkey, shared by all gateways whose plugin config has the same ID and whose connection has
    /// the same `key_prefix`. With `path` as well, the file contains what was counted while Redis was unreachable.
    pub(super) redis: Option<RedisConfig>,
}

/// One quota.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitConfig {
    /// Requests in each period.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    limit: u64,
    /// Period in UTC: `day` (from midnight), `week` (from Monday), `month` (from the first), or a duration of whole
    /// seconds, counted from 1970.
    per: Per,
    /// Name in `RateLimit` headers: letters, digits, `-`, `_` and `.`, up to 64. Default such as `10000-per-day`.
    name: Option<String>,
}

/// A period: a word, a duration, or a number of seconds.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Per {
    Text(String),
    Seconds(u64),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            limit_by: OneOrMany::One("consumer".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            cost: 1,
            dry_run: false,
            headers: LimitHeaders::Ratelimit,
            status_code: 429,
            path: None,
            save_interval: Millis(5000),
            max_keys: 100_000,
            redis: None,
        }
    }
}

/// One quota, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) most: u64,
    pub(super) period: Period,
    pub(super) name: Box<str>,
}

/// Settings, checked.
pub(super) struct Limits {
    pub(super) limits: Box<[Limit]>,
    pub(super) key_by: KeyBy,
    pub(super) status: StatusCode,
    pub(super) folder: Option<PathBuf>,
    pub(super) save_interval: Duration,
    /// Entries of the table.
    pub(super) entries: usize,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: &Config, problems: &mut Problems) -> Limits {
    if config.limits.is_empty() {
        problems.add("config.limits", "no quota is given").remedy =
            Some("such as `limits: [{limit: 10000, per: month}]`".into());
    }
    if config.path.is_none() && config.redis.is_none() {
        problems.add("config.path", "quotas must survive a restart").remedy =
            Some("name a folder with `path`, or servers with `redis`".into());
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(config.limits.len());
    for (n, limit) in config.limits.iter().enumerate() {
        let Some(read) = read_limit(n, limit, problems) else { continue };
        if limits.iter().any(|other| other.period == read.period || other.name == read.name) {
            problems.add(format!("config.limits[{n}]"), "there is another quota of this period or name");
        }
        if read.most < config.cost {
            problems.add(format!("config.limits[{n}].limit"), "no request fits: `cost` is more than this");
        }
        limits.push(read);
    }
    let settings = KeySettings {
        name: "limit_by",
        limit_by: config.limit_by.clone(),
        ipv4_prefix: config.ipv4_prefix,
        ipv6_prefix: config.ipv6_prefix,
        on_missing: config.on_missing,
    };
    let keys = usize::try_from(config.max_keys).unwrap_or(usize::MAX);
    Limits {
        key_by: KeyBy::new(settings, problems),
        status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::TOO_MANY_REQUESTS),
        folder: config.path.clone(),
        save_interval: config.save_interval.duration(),
        entries: keys.saturating_mul(limits.len()),
        limits: limits.into(),
    }
}

fn read_limit(n: usize, limit: &LimitConfig, problems: &mut Problems) -> Option<Limit> {
    let text = match &limit.per {
        Per::Text(text) => text.clone(),
        Per::Seconds(seconds) => seconds.to_string(),
    };
    let period = match Period::read(&text) {
        Ok(period) => period,
        Err(why) => {
            problems.add(format!("config.limits[{n}].per"), why);
            return None;
        }
    };
    let name = limit.name.clone().unwrap_or_else(|| format!("{}-per-{}", limit.limit, period.name()));
    if !limit_headers::is_name(&name) {
        problems.add(format!("config.limits[{n}].name"), format!("`{name}` can't be a name in a header"));
    }
    Some(Limit { most: limit.limit, period, name: name.into() })
}
