//! What users write, and what it is checked to mean.

use std::time::Duration;

use gateway_core::condition::{Condition, Use, compile, written};
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::Hooks;
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Missing};
use gateway_plugin_common::headers;
use gateway_plugin_common::one_or_many::OneOrMany;
use gateway_plugin_common::parse;
use gateway_plugin_common::redis_link::RedisConfig;
use gateway_plugin_common::statuses::Statuses;
use http::{HeaderMap, HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::admission::limit_headers::{self, LimitHeaders};
use crate::admission::rate_table::{MAX_PER_SECOND, Rule};
use gateway_core::condition::Holds;

/// Settings of `rate_limiting`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The limits; a request must fit into all of them. 1 to 8, required.
    #[schemars(length(min = 1, max = 8))]
    limits: Vec<LimitConfig>,
    /// How callers are distinguished: `address`, `consumer` (consumer or external identity), `group` (the caller's
    /// first), `route` (the proxy), `port` (the one that the client connected to), `gateway` (all callers together),
    /// `grpc_method` (the service and method of a gRPC call), `header:NAME`, `cookie:NAME`, `claim:NAME`,
    /// `template:TEXT`; or a list, whose values together identify one caller. Proxies that share this plugin config
    /// share the limits unless `route` is among them. Default `address`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32: with 24, a /24 network shares its limits. Default
    /// 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that share a limit, 1 to 128. Default 64, the usual size for one customer.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to requests that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not count them, `deny` rejects them with 403. Default `address`.
    on_missing: Missing,
    /// Cost of a request in each limit. Default 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) cost: u64,
    /// Other costs for some requests; the first matching entry applies. Default none.
    #[schemars(length(max = 32))]
    costs: Vec<CostConfig>,
    /// Response header in which the target reports the request's real cost, an integer. If it exceeds `cost`, the
    /// difference is deducted afterwards, even below zero. The header is removed before the response reaches the
    /// client. Default none.
    cost_header: Option<String>,
    /// What counts: `all` requests, or only `failures`, which are known when the response arrives, so requests in
    /// flight are not held back. Rejections by earlier plugins, such as authentication, do not count; `before:
    /// key_auth` counts wrong keys. TCP and UDP sessions count only with `all`. Default `all`.
    pub(super) count: Count,
    /// Statuses that are failures with `count: failures`: `401` or `4xx`. For gRPC, every `grpc-status` but 0 in the
    /// response head is a failure. Default `4xx` and `5xx`.
    failure_statuses: Vec<String>,
    /// Counts and logs `rate_limiting.would_limit`, but limits nothing. Default false.
    pub(super) dry_run: bool,
    /// Header fields for clients: `ratelimit` (`RateLimit` and `RateLimit-Policy` of the IETF's draft), `x_ratelimit`
    /// (`X-RateLimit-Limit`, `-Remaining`, `-Reset`), `both` or `none`. A rejection always has `Retry-After`. Default
    /// `ratelimit`.
    pub(super) headers: LimitHeaders,
    /// Status of rejections, 400 to 599. Default 429.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Keys in memory under each limit, 1 to 10,000,000; each takes 32 bytes for each limit. Default 100,000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) max_keys: u64,
    /// Counts in Redis or Valkey, by the server's clock, shared by all gateways whose plugin config has the same ID and
    /// whose connection has the same `key_prefix`. Default none: each gateway counts for itself.
    pub(super) redis: Option<RedisConfig>,
    /// Leases tokens for several requests of a caller from Redis at a time, so that most requests do not wait for it. A
    /// caller can then exceed a limit by at most `size` for each gateway within `lifetime`, and as many tokens may go
    /// unused. Requires `redis` and `count: all`; each of `max_keys` takes up to 112 bytes more. Default none: each
    /// request asks Redis.
    lease: Option<LeaseConfig>,
}

/// One limit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitConfig {
    /// Requests in each period, at least 1 and at most 1,000,000 a second.
    #[schemars(range(min = 1))]
    rate: u64,
    /// The period. Default 1 s.
    #[serde(default = "a_second")]
    per: Millis,
    /// Burst, at least 1. Default the rate.
    #[schemars(range(min = 1))]
    burst: Option<u64>,
    /// Name in `RateLimit` headers: letters, digits, `-`, `_` and `.`, up to 64. Default such as `10-per-1s`.
    name: Option<String>,
}

/// Lease of tokens.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LeaseConfig {
    /// Tokens that a gateway leases for a caller at a time, at most the burst of each limit; fewer if fewer are left.
    #[schemars(range(min = 2, max = 1_000_000))]
    size: u64,
    /// How long the gateway may use them, 10 ms to 60 s. Default 1 s.
    #[serde(default = "a_second")]
    #[schemars(range(min = 0.01, max = 60))]
    lifetime: Millis,
}

/// Cost of some requests.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CostConfig {
    /// Requests that have this cost, as in `when`, for example `{path: /search}`.
    when: written::Condition,
    /// Cost of one of them.
    #[schemars(range(min = 1, max = 1_000_000))]
    cost: u64,
}

/// What counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Count {
    /// Every request.
    #[default]
    All,
    /// Failed requests.
    Failures,
}

const fn a_second() -> Millis {
    Millis(1000)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            limit_by: OneOrMany::One("address".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            cost: 1,
            costs: Vec::new(),
            cost_header: None,
            count: Count::All,
            failure_statuses: vec!["4xx".into(), "5xx".into()],
            dry_run: false,
            headers: LimitHeaders::Ratelimit,
            status_code: 429,
            max_keys: 100_000,
            redis: None,
            lease: None,
        }
    }
}

/// One limit, checked.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    pub(super) rule: Rule,
    pub(super) burst: u64,
    pub(super) name: Box<str>,
}

/// What is taken in advance, checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) size: u64,
    pub(super) lifetime: Duration,
}

/// Settings, checked.
pub(super) struct Limits {
    pub(super) lease: Option<Lease>,
    pub(super) limits: Box<[Limit]>,
    pub(super) key_by: KeyBy,
    pub(super) failures: Statuses,
    pub(super) status: StatusCode,
    pub(super) costs: Costs,
}

/// The most that a target can say a request has cost.
const MAX_COST: u64 = 1_000_000_000;

/// What requests cost.
#[derive(Debug)]
pub(super) struct Costs {
    of_all: u64,
    of_some: Box<[(Condition, u64)]>,
    pub(super) header: Option<HeaderName>,
}

impl Costs {
    /// Tells the chain where they go by who the caller is.
    pub(super) fn attend(&self, hooks: &mut Hooks) {
        for (n, (when, _)) in self.of_some.iter().enumerate() {
            if when.asks_for_caller() {
                hooks.goes_by_caller(format!("config.costs[{n}].when"));
            }
        }
    }

    /// What this request costs.
    pub(super) fn of(&self, exchange: &Exchange) -> u64 {
        let fits = self.of_some.iter().find(|(when, _)| when.holds(exchange));
        fits.map_or(self.of_all, |(_, cost)| *cost)
    }

    /// What a session costs.
    pub(super) fn of_session(&self) -> u64 {
        self.of_all
    }

    /// What the target says; the field is taken out.
    pub(super) fn said(&self, headers: &mut HeaderMap) -> Option<u64> {
        let value = headers.remove(self.header.as_ref()?)?;
        value.to_str().ok()?.trim().parse::<u64>().ok().map(|cost| cost.min(MAX_COST))
    }

    fn read(config: &mut Config, limits: &[Limit], problems: &mut Problems) -> Self {
        let least = limits.iter().map(|limit| limit.burst).min().unwrap_or(u64::MAX);
        if config.cost > least {
            problems.add("config.cost", "no request fits: it is more than the burst of a limit");
        }
        let mut of_some = Vec::with_capacity(config.costs.len());
        for (n, CostConfig { when, cost }) in std::mem::take(&mut config.costs).into_iter().enumerate() {
            if cost > least {
                let why = "no such request fits: it is more than the burst of a limit";
                problems.add(format!("config.costs[{n}].cost"), why);
            }
            match compile(&when, &format!("config.costs[{n}].when"), Use::Plugin) {
                Ok(when) => of_some.push((when, cost)),
                Err(wrong) => problems.0.extend(wrong.0),
            }
        }
        let header = config.cost_header.as_ref();
        let header = header.and_then(|name| parse::header_name("config.cost_header", name, problems));
        if header.as_ref().is_some_and(headers::is_framing) {
            problems.add("config.cost_header", "frames messages and can't say a cost");
        }
        Self { of_all: config.cost, of_some: of_some.into(), header }
    }
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: &mut Config, problems: &mut Problems) -> Limits {
    if config.limits.is_empty() {
        problems.add("config.limits", "no limit is given").remedy =
            Some("such as `limits: [{rate: 10, per: 1s, burst: 20}]`".into());
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(config.limits.len());
    for (n, limit) in config.limits.iter().enumerate() {
        let Some(limit) = read_limit(n, limit, problems) else { continue };
        if limits.iter().any(|other| other.rule == limit.rule || other.name == limit.name) {
            problems.add(format!("config.limits[{n}]"), "there is another limit like this");
        }
        limits.push(limit);
    }
    let settings = KeySettings {
        name: "limit_by",
        limit_by: config.limit_by.clone(),
        ipv4_prefix: config.ipv4_prefix,
        ipv6_prefix: config.ipv6_prefix,
        on_missing: config.on_missing,
    };
    let key_by = KeyBy::new(settings, problems);
    let failures = Statuses::read("failure_statuses", &config.failure_statuses, problems);
    if config.count == Count::Failures && config.failure_statuses.is_empty() {
        problems.add("config.failure_statuses", "no status is a failure");
    }
    let costs = Costs::read(config, &limits, problems);
    let status = StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let lease = config.lease.map(|lease| {
        let mut wrong = |name: &str, why: &str| _ = problems.add(format!("config.lease{name}"), why);
        if config.redis.is_none() {
            wrong("", "there is nothing to take from without `redis`");
        }
        if config.count != Count::All {
            wrong("", "what counts only when it has failed can't be taken in advance");
        }
        if limits.iter().any(|limit| limit.burst < lease.size) {
            wrong(".size", "it is more than the burst of a limit");
        }
        Lease { size: lease.size, lifetime: lease.lifetime.duration() }
    });
    Limits { lease, limits: limits.into(), key_by, failures, status, costs }
}

fn read_limit(n: usize, limit: &LimitConfig, problems: &mut Problems) -> Option<Limit> {
    let path = format!("config.limits[{n}]");
    let burst = limit.burst.unwrap_or(limit.rate);
    let rule = Rule::new(limit.rate, limit.per.duration(), burst);
    if rule.is_none() {
        let message = format!("{} in {} ms with a burst of {burst} can't be counted", limit.rate, limit.per);
        problems.add(path.clone(), message).remedy =
            Some(format!("up to {MAX_PER_SECOND} a second, bursts that come back within 100 years"));
    }
    let name = limit.name.clone().unwrap_or_else(|| default_name(limit));
    if !limit_headers::is_name(&name) {
        problems.add(format!("{path}.name"), format!("`{name}` can't be a name in a header"));
    }
    Some(Limit { rule: rule?, burst, name: name.into() })
}

fn default_name(limit: &LimitConfig) -> String {
    let per: Duration = limit.per.duration();
    let per = match limit.per.0 {
        ms if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", per.as_secs()),
        ms => format!("{ms}ms"),
    };
    format!("{}-per-{per}", limit.rate)
}
