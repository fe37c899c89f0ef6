//! Settings of `response_cache`.

use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis, Seconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::key::{Pattern, Recipe};
use super::policy::Rules;
use super::store::Limits;
use crate::shared;

/// The smallest store that is worth having, in bytes.
const MIN_BYTES: u64 = 64 << 10;
/// Parts of a key, and parameters to be left out, that can be named.
const MAX_NAMES: usize = 64;

/// Settings of `response_cache`. It needs none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// What all stored responses may weigh, heads and bookkeeping included; at least 64 KiB. Responses on their way may
    /// take a quarter of it besides. Default 64 MiB.
    max_bytes: Bytes,
    /// The largest body that is stored; at most a quarter of `max_bytes`. Default 1 MiB.
    max_object_bytes: Bytes,
    /// Responses of one URL that are kept for different values of what it varies by; the latest stay. Default 16.
    #[schemars(range(min = 1, max = 1000))]
    max_variants: usize,
    /// Statuses whose responses are stored when the target says for how long. Default 200, 203, 204, 300, 301, 308.
    statuses: Vec<u16>,
    /// How long a response is fresh whose target does not say. Not for requests with cookies or credentials. Default 0: it
    /// is not stored.
    default_ttl_seconds: Seconds,
    /// The longest any response counts as fresh. Default 0: what the target says.
    max_ttl_seconds: Seconds,
    /// How long a response with nothing but `Last-Modified` may be fresh: a tenth of its age then, up to this. Default 0:
    /// it is not stored.
    heuristic_max_seconds: Seconds,
    /// How long errors are stored whose target does not say. Default 0: errors are never stored.
    negative_ttl_seconds: Seconds,
    /// The errors that are stored where `negative_ttl_seconds` is not 0. Default 404, 405, 410, 414, 501.
    negative_statuses: Vec<u16>,
    /// How long a stale response is served while it is fetched anew, where the target does not say. Default 0.
    stale_while_revalidate_seconds: Seconds,
    /// How long a stale response is served when the target fails, where the target does not say. Default 0.
    stale_if_error_seconds: Seconds,
    /// Follows `Cache-Control` of requests: `no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`, `only-if-cached`.
    /// Default true.
    client_directives: bool,
    /// What tells responses of one URL apart besides the URL.
    key: KeyConfig,
    /// Query parameters that make no difference, such as `utm_source` or `utm_*`. They are taken out of what the target
    /// gets. Default none.
    ignore_query: Vec<String>,
    /// How long a request waits for another one's response before it asks the target itself. Default 5 s.
    #[schemars(range(max = 600_000))]
    lock_timeout_ms: Millis,
    /// Stores responses with `Set-Cookie`, without that field. Default false: they are not stored.
    strip_set_cookie: bool,
    /// Says in `Cache-Status` (RFC 9211) how each response came about. Default true.
    cache_status: bool,
    /// Says it in `X-Cache` as well: `HIT`, `MISS`, `STALE`, `EXPIRED`, `REVALIDATED`, `BYPASS`. Default false.
    x_cache: bool,
}

/// What tells responses of one URL apart besides the URL.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KeyConfig {
    /// Header fields. Default none.
    headers: Vec<String>,
    /// Cookies. Default none.
    cookies: Vec<String>,
    /// The caller who was identified: each one has stored responses of their own. Default false.
    caller: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_bytes: Bytes(64 << 20),
            max_object_bytes: Bytes(1 << 20),
            max_variants: 16,
            statuses: vec![200, 203, 204, 300, 301, 308],
            default_ttl_seconds: Seconds(0),
            max_ttl_seconds: Seconds(0),
            heuristic_max_seconds: Seconds(0),
            negative_ttl_seconds: Seconds(0),
            negative_statuses: vec![404, 405, 410, 414, 501],
            stale_while_revalidate_seconds: Seconds(0),
            stale_if_error_seconds: Seconds(0),
            client_directives: true,
            key: KeyConfig::default(),
            ignore_query: Vec::new(),
            lock_timeout_ms: Millis(5000),
            strip_set_cookie: false,
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
    pub(super) cache_status: bool,
    pub(super) x_cache: bool,
}

impl Config {
    pub(super) fn read(self) -> Result<Read, Problems> {
        let mut problems = Problems::default();
        let limits = Limits {
            bytes: self.max_bytes.0,
            object: self.max_object_bytes.0,
            variants: self.max_variants.max(1),
        };
        if limits.bytes < MIN_BYTES {
            problems.add("config.max_bytes", "must be at least 64 KiB");
        }
        if limits.object == 0 || limits.object > limits.bytes / 4 {
            problems.add(
                "config.max_object_bytes",
                "must be at least 1 byte and at most a quarter of `max_bytes`",
            );
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
        if self.statuses.is_empty() && self.negative_ttl_seconds.0 == 0 {
            problems.add("config.statuses", "there is none, so nothing would be stored");
        }
        let recipe = self.key.read(&self.ignore_query, &mut problems);
        problems.into_result(())?;
        Ok(Read {
            rules: Rules {
                statuses: self.statuses,
                negative_statuses: self.negative_statuses,
                negative_ttl: self.negative_ttl_seconds.duration(),
                default_ttl: self.default_ttl_seconds.duration(),
                max_ttl: self.max_ttl_seconds.duration(),
                heuristic_max: self.heuristic_max_seconds.duration(),
                stale_while_revalidate: self.stale_while_revalidate_seconds.duration(),
                stale_if_error: self.stale_if_error_seconds.duration(),
                strips_set_cookie: self.strip_set_cookie,
            },
            recipe,
            limits,
            obeys_clients: self.client_directives,
            wait: self.lock_timeout_ms.duration(),
            cache_status: self.cache_status,
            x_cache: self.x_cache,
        })
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
                shared::header_name(&format!("config.key.headers[{n}]"), name, problems)
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
