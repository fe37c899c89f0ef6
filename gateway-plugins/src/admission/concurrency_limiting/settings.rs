//! What users write, and what it is checked to mean.

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Millis, Seconds};
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;

use super::adaptive::{Algorithm, Rules};
use super::places::MAX_CONCURRENT;

/// Settings of `concurrency_limiting`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Concurrent requests and sessions of one caller, 1 to 1,000,000. Required.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_concurrent: u64,
    /// How callers are distinguished, as in `rate_limiting`: `address`, `consumer`, `group`, `route` (the proxy),
    /// `grpc_method` (the service and method of a gRPC call), `header:NAME`, `cookie:NAME`, `claim:NAME`,
    /// `template:TEXT`; or a list, whose values together identify one caller. Default `address`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that share a limit, 1 to 128. Default 64, the usual size for one customer.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to requests that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not count them, `deny` rejects them with 403. Default `address`.
    on_missing: Missing,
    /// Requests of one caller that may queue, 0 to 100,000. Default 0: there is no queue.
    #[schemars(range(max = 100_000))]
    max_waiting: u64,
    /// How long a request queues before it is rejected. 1 ms to 30 s. Default 1 s.
    #[schemars(range(min = 0.001, max = 30))]
    pub(super) max_wait: Millis,
    /// Adapts the limit to the latency of the targets, between `adaptive.min_concurrent` and `max_concurrent`. The
    /// plugin config has one limit, which applies to each caller; with `limit_by: route` it protects the target.
    /// Default none: the limit is always `max_concurrent`.
    adaptive: Option<AdaptiveConfig>,
    /// Status of rejections: 429 or 503. Default 503.
    pub(super) status_code: u16,
    /// `Retry-After` of rejections, in seconds. Default 1 s.
    pub(super) retry_after: Seconds,
    /// Counts and logs `concurrency_limiting.would_limit`, but rejects nothing. Default false.
    pub(super) dry_run: bool,
    /// Concurrent callers, 1 to 10,000,000; each takes 16 bytes of memory. Requests of further callers are rejected.
    /// Default 100,000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(super) max_keys: u64,
}

/// How the limit adapts to latency.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AdaptiveConfig {
    /// `gradient` lowers the limit if latency rises above its recent average, `aimd` if it exceeds `target_latency`.
    /// Both lower it if targets fail to respond. Default `gradient`.
    algorithm: AlgorithmName,
    /// Lowest value of the limit, 1 to `max_concurrent`. Default 1.
    #[schemars(range(min = 1))]
    min_concurrent: u64,
    /// Limit at the start. Default 20, or the nearest value within the two bounds.
    #[schemars(range(min = 1))]
    initial_concurrent: Option<u64>,
    /// How often the limit is computed, 10 ms to 60 s. Default 1 s.
    #[schemars(range(min = 0.01, max = 60))]
    interval: Millis,
    /// Responses that are needed to compute it, 1 to 10,000. Default 10.
    #[schemars(range(min = 1, max = 10_000))]
    min_samples: u64,
    /// Only for `gradient`: the ratio to the usual latency that is tolerated, 1 to 10. Default 1.5.
    #[schemars(range(min = 1.0, max = 10.0))]
    tolerance: Option<f64>,
    /// Only for `aimd`, required there: latency above which the limit is lowered.
    #[schemars(range(min = 0.001))]
    target_latency: Option<Millis>,
}

/// How the limit is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AlgorithmName {
    /// By changes of latency.
    #[default]
    Gradient,
    /// By a fixed latency: adds one, or removes a tenth.
    Aimd,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_concurrent: 0,
            limit_by: OneOrMany::One("address".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            max_waiting: 0,
            max_wait: Millis(1000),
            adaptive: None,
            status_code: 503,
            retry_after: Seconds(1),
            dry_run: false,
            max_keys: 100_000,
        }
    }
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self {
            algorithm: AlgorithmName::Gradient,
            min_concurrent: 1,
            initial_concurrent: None,
            interval: Millis(1000),
            min_samples: 10,
            tolerance: None,
            target_latency: None,
        }
    }
}

/// Settings, checked.
pub(super) struct CheckedSettings {
    pub(super) max_concurrent: u64,
    pub(super) max_waiting: usize,
    pub(super) key_by: KeyBy,
    pub(super) adaptive: Option<Rules>,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: &Config, problems: &mut Problems) -> CheckedSettings {
    if config.max_concurrent == 0 {
        problems.add("config.max_concurrent", "no limit is given").remedy = Some("such as 100".into());
    }
    if !matches!(config.status_code, 429 | 503) {
        problems.add("config.status_code", format!("{} is not 429 or 503", config.status_code));
    }
    if config.dry_run && config.max_waiting > 0 {
        problems.add("config.max_waiting", "nothing waits in a dry run").remedy =
            Some("remove `max_waiting` or `dry_run`".into());
    }
    let settings = KeySettings {
        name: "limit_by",
        limit_by: config.limit_by.clone(),
        ipv4_prefix: config.ipv4_prefix,
        ipv6_prefix: config.ipv6_prefix,
        on_missing: config.on_missing,
    };
    let max_concurrent = config.max_concurrent.min(MAX_CONCURRENT);
    CheckedSettings {
        max_concurrent,
        max_waiting: usize::try_from(config.max_waiting).unwrap_or(usize::MAX),
        key_by: KeyBy::new(settings, problems),
        adaptive: config.adaptive.as_ref().and_then(|written| adaptive(written, max_concurrent, problems)),
    }
}

fn adaptive(written: &AdaptiveConfig, max: u64, problems: &mut Problems) -> Option<Rules> {
    let mut wrong = |field: &str, message: String| {
        problems.add(format!("config.adaptive.{field}"), message);
    };
    let min = written.min_concurrent;
    if min > max {
        wrong("min_concurrent", format!("{min} is more than `max_concurrent`, {max}"));
    }
    if let Some(initial) = written.initial_concurrent.filter(|initial| !(min..=max).contains(initial)) {
        wrong("initial_concurrent", format!("{initial} is not within {min} to {max}"));
    }
    let algorithm = match (written.algorithm, written.target_latency, written.tolerance) {
        (AlgorithmName::Gradient, Some(_), _) => {
            wrong("target_latency", "this is for `algorithm: aimd`".into());
            None
        }
        (AlgorithmName::Gradient, None, tolerance) => {
            Some(Algorithm::Gradient { tolerance: tolerance.unwrap_or(1.5) })
        }
        (AlgorithmName::Aimd, _, Some(_)) => {
            wrong("tolerance", "this is for `algorithm: gradient`".into());
            None
        }
        (AlgorithmName::Aimd, None, None) => {
            wrong("target_latency", "`aimd` needs the latency above which the limit is lowered".into());
            None
        }
        (AlgorithmName::Aimd, Some(target), None) => Some(Algorithm::Aimd { target: target.duration() }),
    }?;
    Some(Rules {
        algorithm,
        min,
        max,
        initial: written.initial_concurrent.unwrap_or(20).min(max).max(min),
        interval: written.interval.duration(),
        min_samples: written.min_samples,
    })
}
