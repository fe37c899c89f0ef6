//! Settings of `response_cache`.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis, Seconds};
use gateway_plugin_common::parse;
use schemars::JsonSchema;
use serde::Deserialize;

use super::key::{Pattern, Recipe};
use super::policy::Rules;
use super::store::Limits;
use super::warm::{Warm, WarmUp};

/// The smallest store that is worth having, in bytes.
const MIN_BYTES: u64 = 64 << 10;
/// The least that is worth having on the disk, in bytes.
const MIN_DISK: u64 = 1 << 20;
/// The largest body in Redis that can be asked for, in bytes: larger values hold up everybody else.
const MAX_REDIS_OBJECT: u64 = 16 << 20;
/// Parts of a key, and parameters to be left out, that can be named.
const MAX_NAMES: usize = 64;

/// Settings of `response_cache`. None is required.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Memory for all stored responses, with heads and bookkeeping; at least 64 KiB. Responses in transit may use
    /// another quarter of it. Default 64 MiB.
    max_size: Bytes,
    /// Size of the largest body to store; at most a quarter of `max_size`. Default 1 MiB.
    max_object: Bytes,
    /// Variants that are stored for one URL (`Vary`); the latest stay. Default 16.
    #[schemars(range(min = 1, max = 1000))]
    max_variants: usize,
    /// Statuses whose responses are stored if the target specifies a lifetime. Default 200, 203, 204, 300, 301, 308.
    statuses: Vec<u16>,
    /// Lifetime of a response without one. Not for requests with cookies or credentials. Default 0: it is not stored.
    default_ttl: Seconds,
    /// Longest lifetime of any response. Default 0: as the target specifies.
    max_ttl: Seconds,
    /// Longest heuristic lifetime of a response that has only `Last-Modified`: a tenth of its age, up to this. Default
    /// 0: it is not stored.
    heuristic_max: Seconds,
    /// Lifetime of errors without one. Default 0: errors are never stored.
    negative_ttl: Seconds,
    /// Errors that are stored if `negative_ttl` is not 0. Default 404, 405, 410, 414, 501.
    negative_statuses: Vec<u16>,
    /// How long a stale response is served while it is revalidated, unless the target specifies it or sends `s-maxage`,
    /// which forbids it. Default 0.
    stale_while_revalidate: Seconds,
    /// How long a stale response is served if the target fails, unless the target specifies it or sends `s-maxage`,
    /// which forbids it. Default 0.
    stale_if_error: Seconds,
    /// Obeys `Cache-Control` of requests: `no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`,
    /// `only-if-cached`. Default true.
    client_directives: bool,
    /// Parts of the cache key besides the URL.
    key: KeyConfig,
    /// Query parameters to ignore, such as `utm_source` or `utm_*`; targets do not receive them. Default none.
    ignore_query: Vec<String>,
    /// How long a request waits for another request's response before it asks the target itself. Default 5 s.
    #[schemars(range(max = 600))]
    lock_timeout: Millis,
    /// Stores responses with `Set-Cookie`, without that field. Default false: they are not stored.
    strip_set_cookie: bool,
    /// Also stores responses in files, which survive a restart. Default: in memory only.
    disk: Option<DiskConfig>,
    /// Also stores responses in Redis or Valkey, for all gateways whose plugin config has the same ID and whose
    /// connection has the same `key_prefix`. A purge reaches all of them within a second. If Redis is unreachable,
    /// requests continue without it. Default: this gateway only.
    redis: Option<RedisTier>,
    /// Revalidates a response in the background if it is requested within this last part of its lifetime, in percent.
    /// Default 0: only when it is stale.
    #[schemars(range(max = 90))]
    refresh_ahead_percent: u32,
    /// URLs to fetch through this gateway when it starts, and by `ferrum-edge cache warm`. Default: none.
    warm_up: Option<WarmUp>,
    /// Adds `Cache-Status` (RFC 9211) to responses. Default true.
    cache_status: bool,
    /// Also adds `X-Cache`: `HIT`, `MISS`, `STALE`, `EXPIRED`, `REVALIDATED`, `BYPASS`. Default false.
    x_cache: bool,
}

/// Responses in files.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiskConfig {
    /// Folder in which the gateway creates one named after the plugin config, for the gateway's user only. Each gateway
    /// needs its own. If another gateway uses the folder, the gateway waits for it and continues without files.
    #[schemars(extend("format" = "path"))]
    path: PathBuf,
    /// Size of all files, each counted in blocks of 4 KiB; at least 1 MiB. Default 1 GiB.
    #[serde(default = "disk_bytes")]
    max_size: Bytes,
}

/// Responses in Redis.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedisTier {
    /// Name of a connection in `gateway.redis`.
    #[schemars(length(min = 1, max = 64))]
    name: String,
    /// Size of the largest body to store there; at most 16 MiB. Default 256 KiB.
    #[serde(default = "redis_object")]
    max_object: Bytes,
}

fn disk_bytes() -> Bytes {
    Bytes(1 << 30)
}

fn redis_object() -> Bytes {
    Bytes(256 << 10)
}

/// Parts of the cache key besides the URL.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KeyConfig {
    /// Header fields. Default none.
    headers: Vec<String>,
    /// Cookies. Default none.
    cookies: Vec<String>,
    /// The authenticated caller: each has its own stored responses. Default false.
    caller: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_size: Bytes(64 << 20),
            max_object: Bytes(1 << 20),
            max_variants: 16,
            statuses: vec![200, 203, 204, 300, 301, 308],
            default_ttl: Seconds(0),
            max_ttl: Seconds(0),
            heuristic_max: Seconds(0),
            negative_ttl: Seconds(0),
            negative_statuses: vec![404, 405, 410, 414, 501],
            stale_while_revalidate: Seconds(0),
            stale_if_error: Seconds(0),
            client_directives: true,
            key: KeyConfig::default(),
            ignore_query: Vec::new(),
            lock_timeout: Millis(5000),
            strip_set_cookie: false,
            disk: None,
            redis: None,
            refresh_ahead_percent: 0,
            warm_up: None,
            cache_status: true,
            x_cache: false,
        }
    }
}

/// Settings as they are meant.
pub(super) struct Read {
    pub(super) rules: Rules,
    pub(super) recipe: Recipe,
    pub(super) limits: Limits,
    pub(super) obeys_clients: bool,
    pub(super) wait: Duration,
    pub(super) disk: Option<(PathBuf, u64)>,
    pub(super) redis: Option<(String, u64)>,
    pub(super) refresh_ahead: u32,
    pub(super) warm: Warm,
    pub(super) cache_status: bool,
    pub(super) x_cache: bool,
}

impl Config {
    pub(super) fn read(self) -> Result<Read, Problems> {
        let mut problems = Problems::default();
        let limits =
            Limits { bytes: self.max_size.0, object: self.max_object.0, variants: self.max_variants.max(1) };
        if limits.bytes < MIN_BYTES {
            problems.add("config.max_size", "must be at least 64 KiB");
        }
        if limits.object == 0 || limits.object > limits.bytes / 4 {
            problems.add("config.max_object", "must be at least 1 byte and at most a quarter of `max_size`");
        }
        let mut check = |name: &str, statuses: &[u16], least: u16| {
            for (n, status) in statuses.iter().enumerate() {
                // 206 would be a part, and 304 is about what is stored already.
                if !(least..600).contains(status)
                    || matches!(status, 206 | 304)
                    || (least == 200 && *status >= 400)
                {
                    problems.add(
                        format!("config.{name}[{n}]"),
                        format!("responses with {status} are not stored"),
                    );
                }
            }
        };
        check("statuses", &self.statuses, 200);
        check("negative_statuses", &self.negative_statuses, 400);
        if self.statuses.is_empty() && self.negative_ttl.0 == 0 {
            problems.add("config.statuses", "there is none, so nothing would be stored");
        }
        let recipe = self.key.read(&self.ignore_query, &mut problems);
        let disk = self.disk.map(|disk| disk.read(limits.object, &mut problems));
        let redis = self.redis.map(|redis| redis.read(&mut problems));
        let warm = self.warm_up.unwrap_or_default().read(&mut problems);
        problems.into_result(())?;
        Ok(Read {
            rules: Rules {
                statuses: self.statuses,
                negative_statuses: self.negative_statuses,
                negative_ttl: self.negative_ttl.duration(),
                default_ttl: self.default_ttl.duration(),
                max_ttl: self.max_ttl.duration(),
                heuristic_max: self.heuristic_max.duration(),
                stale_while_revalidate: self.stale_while_revalidate.duration(),
                stale_if_error: self.stale_if_error.duration(),
                strips_set_cookie: self.strip_set_cookie,
            },
            recipe,
            limits,
            obeys_clients: self.client_directives,
            wait: self.lock_timeout.duration(),
            disk,
            redis,
            refresh_ahead: self.refresh_ahead_percent,
            warm,
            cache_status: self.cache_status,
            x_cache: self.x_cache,
        })
    }
}

impl DiskConfig {
    fn read(self, object: u64, problems: &mut Problems) -> (PathBuf, u64) {
        if self.path.as_os_str().is_empty() {
            problems.add("config.disk.path", "is empty");
        }
        if self.max_size.0 < MIN_DISK.max(object) {
            problems.add("config.disk.max_size", "must be at least 1 MiB, and at least `max_object`");
        }
        (self.path, self.max_size.0)
    }
}

impl RedisTier {
    fn read(self, problems: &mut Problems) -> (String, u64) {
        let bytes = self.max_object.0;
        if bytes == 0 || bytes > MAX_REDIS_OBJECT {
            problems.add("config.redis.max_object", "must be at least 1 byte and at most 16 MiB");
        }
        (self.name, bytes)
    }
}

impl KeyConfig {
    fn read(self, ignored: &[String], problems: &mut Problems) -> Recipe {
        for (name, length) in [
            ("key.headers", self.headers.len()),
            ("key.cookies", self.cookies.len()),
            ("ignore_query", ignored.len()),
        ] {
            if length > MAX_NAMES {
                problems
                    .add(format!("config.{name}"), format!("has {length} names; {MAX_NAMES} are the most"));
            }
        }
        let headers =
            self.headers.iter().enumerate().filter_map(|(n, name)| {
                parse::header_name(&format!("config.key.headers[{n}]"), name, problems)
            });
        let headers = headers.collect();
        for (n, name) in self.cookies.iter().enumerate() {
            if name.is_empty() || name.contains(['=', ';', ' ']) || !name.is_ascii() {
                problems.add(format!("config.key.cookies[{n}]"), format!("`{name}` is not a cookie's name"));
            }
        }
        for (n, name) in ignored.iter().enumerate() {
            let stem = name.strip_suffix('*').unwrap_or(name);
            if stem.is_empty() || stem.contains('*') {
                let problem =
                    problems.add(format!("config.ignore_query[{n}]"), format!("`{name}` is not a parameter"));
                problem.remedy =
                    Some("a name, or the beginning of names with `*` behind it, such as `utm_*`".into());
            }
        }
        Recipe {
            headers,
            cookies: self.cookies,
            per_caller: self.caller,
            ignored: ignored.iter().map(|text| Pattern::read(text)).collect(),
        }
    }
}
