//! The plugin's settings, and their validation.

use std::path::PathBuf;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis, Unit};
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use gateway_plugin_common::redis_link::RedisConfig;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::accounts::Terms;
use super::calendar::{Billing, LONGEST_ROLLING, read_date};
use crate::admission::quota::period::Period;

/// Settings of `traffic_quota`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Bytes in each period, such as `500GB`. Required.
    #[schemars(range(min = 1))]
    limit: Option<Bytes>,
    /// Period in UTC: `month` (from `anchor_day`), `week` (from Monday), `day` (from midnight), or a duration of whole
    /// seconds, counted from 1970 or, with `rolling`, back from now. Default `month`.
    per: String,
    /// Day on which a month begins, 1 to 31; in a shorter month, its last day. Only with `per: month`. Default 1.
    #[schemars(range(min = 1, max = 31))]
    anchor_day: Option<u64>,
    /// Counts the bytes of the last `per`, up to 366 days, in 96 parts that expire one by one. Default false: each
    /// period starts at zero.
    rolling: bool,
    /// Date from which on nothing passes, such as `2027-01-31`, in UTC. Default never.
    expires: Option<String>,
    /// Counted bytes: `upload` (from clients), `download` (to clients) or `both`. Default `both`.
    pub(super) count: Count,
    /// Whose bytes count together: `route` (those of a proxy), `port` (those of a port that the gateway listens on), `owner` (those of
    /// all proxies of an `owner`, and of that consumer on proxies without one), `consumer`,
    /// `address` (a client's), `gateway` (all that run this plugin config), or what else `rate_limiting` knows; or a list, whose values
    /// together make one key. Default `route`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that count as one, 1 to 128. Default 64.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to traffic that lacks the value of `limit_by`: `address` counts it by the client's address, `allow`
    /// does not count it, `deny` rejects it. Default `address`.
    on_missing: Missing,
    /// Folder for the usage file, which is named after the plugin config. Each gateway needs its own folder, with write
    /// permission. This, `database` or `redis` is required.
    #[schemars(extend("format" = "path"))]
    pub(super) path: Option<PathBuf>,
    /// How often the file is written if the usage changed, 100 ms to 1 h. The gateway also writes it when it stops.
    /// Default 1 s.
    #[schemars(range(min = 0.1, max = 3600))]
    pub(super) save_interval: Millis,
    /// Stores the usage and its history in the database of the configuration, and shares the quota with all gateways on
    /// it, as with `redis`. While the database is unreachable, each gateway limits what it knows of. Not with `path`,
    /// `redis` or `rolling`. Default false.
    pub(super) database: bool,
    /// Keys with their own quota, 1 to 100,000. Each takes 300 bytes of memory, and up to 150 kB for the history of a
    /// key that is used in every minute of a week. Further keys share one quota. Default 1,000.
    #[schemars(range(min = 1, max = 100_000))]
    max_keys: usize,
    /// Shares the quota with all gateways whose plugin config has the same ID and whose connection has the same
    /// `key_prefix`; they learn each other's usage within a second. While Redis is unreachable, `on_error: local`
    /// continues with the known usage, `allow` limits nothing, `deny` rejects everything. Not with `rolling`.
    pub(super) redis: Option<RedisConfig>,
}

/// Counted bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Count {
    /// Both directions.
    #[default]
    Both,
    /// From clients.
    Upload,
    /// To clients.
    Download,
}

/// What the action `usage` is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    /// Of this key only.
    pub(super) key: Option<String>,
    /// With the bytes of each minute (7 days) or hour (90 days).
    pub(super) history: Option<HistoryOf>,
    /// The history from then on, in seconds since 1970.
    pub(super) since: Option<u64>,
    /// So many keys with the highest usage, in descending order; all keys without it.
    pub(super) top: Option<usize>,
}

/// How fine a history is.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HistoryOf {
    Minute,
    Hour,
}

/// What the action `reset` is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    /// This key only; all without one.
    pub(super) key: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limit: None,
            per: "month".into(),
            anchor_day: None,
            rolling: false,
            expires: None,
            count: Count::Both,
            limit_by: OneOrMany::One("route".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            path: None,
            database: false,
            save_interval: Millis(1000),
            max_keys: 1000,
            redis: None,
        }
    }
}

/// Checks where the usage is kept.
fn check_places(config: &Config, problems: &mut Problems) {
    if config.path.is_none() && config.redis.is_none() && !config.database {
        problems.add("config.path", "quotas must survive a restart").remedy =
            Some("name a folder with `path`, servers with `redis`, or set `database: true`".into());
    }
    if config.database {
        for (name, is_set) in [("path", config.path.is_some()), ("redis", config.redis.is_some())] {
            if is_set {
                problems.add(format!("config.{name}"), "the usage is kept in the database").remedy =
                    Some(format!("remove `{name}` or `database`"));
            }
        }
    }
    if config.rolling && (config.redis.is_some() || config.database) {
        problems.add("config.rolling", "gateways can't share a rolling period").remedy =
            Some("remove `rolling`, or keep the usage in a file with `path`".into());
    }
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: &Config, problems: &mut Problems) -> (Option<Terms>, KeyBy) {
    if config.limit.is_none() {
        problems.add("config.limit", "no quota is given").remedy = Some("such as `limit: 500GB`".into());
    }
    check_places(config, problems);
    let billing = billing(config, problems);
    let expires = config.expires.as_deref().and_then(|text| {
        let day = read_date(text);
        if day.is_none() {
            problems.add("config.expires", format!("`{text}` is no date such as `2027-01-31`"));
        }
        day
    });
    let settings = KeySettings {
        name: "limit_by",
        limit_by: config.limit_by.clone(),
        ipv4_prefix: config.ipv4_prefix,
        ipv6_prefix: config.ipv6_prefix,
        on_missing: config.on_missing,
    };
    let key_by = KeyBy::new(settings, problems);
    let terms = config.limit.zip(billing).map(|(limit, billing)| Terms {
        limit: limit.0,
        billing,
        expires,
        max_keys: config.max_keys,
    });
    (terms, key_by)
}

fn billing(config: &Config, problems: &mut Problems) -> Option<Billing> {
    if config.anchor_day.is_some() && (config.per != "month" || config.rolling) {
        problems.add("config.anchor_day", "has no effect without `per: month`");
    }
    if config.rolling {
        return match Unit::Seconds.read(&config.per) {
            Ok(seconds @ 1..=LONGEST_ROLLING) => Some(Billing::Rolling(seconds)),
            _ => {
                problems.add("config.per", "a rolling period is a duration of 1 second to 366 days").remedy =
                    Some("such as `per: 30d`".into());
                None
            }
        };
    }
    match Period::read(&config.per) {
        Ok(Period::Month) => Some(Billing::Month { anchor: config.anchor_day.unwrap_or(1) }),
        Ok(period) => Some(Billing::Fixed(period)),
        Err(why) => {
            problems.add("config.per", why);
            None
        }
    }
}

/// Reads what an action is given.
pub(super) fn input<T: DeserializeOwned>(input: &Value) -> Result<T, Problems> {
    let given = if input.is_null() { Value::Object(serde_json::Map::new()) } else { input.clone() };
    T::deserialize(given).map_err(|error| {
        let mut problems = Problems::default();
        problems.add("input", error.to_string());
        problems
    })
}
