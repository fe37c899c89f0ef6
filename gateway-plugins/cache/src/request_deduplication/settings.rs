//! What users write, and what it is checked to mean.

use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis};
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use gateway_plugin_common::parse;
use gateway_plugin_common::redis_link::RedisConfig;
use gateway_plugin_common::statuses::Statuses;
use http::{HeaderName, Method};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `request_deduplication`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Header field with the key: a structured-field string (`"8e03…"`) or the same without quotation marks, up to 255
    /// visible ASCII characters. Default `Idempotency-Key`.
    header_name: String,
    /// Methods to deduplicate; not GET, HEAD, OPTIONS, TRACE or CONNECT. Default `POST` and `PATCH`.
    #[schemars(length(min = 1, max = 20))]
    methods: Vec<String>,
    /// Rejects requests of these methods without a key with 400. Default false: they pass and nothing is stored.
    required: bool,
    /// Scope of a key: `consumer`, `route`, `group`, `address`, `header:NAME`, `cookie:NAME`, `claim:NAME`,
    /// `template:TEXT`; or a list, whose values together identify one caller. If no plugin authenticated the caller, a
    /// key that comes with other credentials than the first time is rejected with 422. Credentials are well-known
    /// header fields such as `Authorization`, `Cookie` and `X-API-Key`, fields that a plugin of the proxy reads, and
    /// the client certificate. Behind a `forward_auth` without `caller_header`, all header fields count, except those
    /// that change with each attempt. Default `[route, consumer]`.
    scope: OneOrMany,
    /// Prefix length of IPv4 addresses that count as one, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that count as one, 1 to 128. Default 64.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to requests that lack a value of `scope`, such as a consumer: `address` uses the client's address
    /// instead, `allow` forwards them and stores nothing, `deny` rejects them with 403. Default `address`.
    on_missing: Missing,
    /// How long a response is stored and its key remembered, 1 s to 30 d. Default 24 h.
    #[schemars(range(min = 1, max = 2_592_000u64))]
    ttl: Millis,
    /// What a second request gets while the first is in flight: `conflict` (409 with `Retry-After`), or `wait` for the
    /// response of the first, for at most `wait_timeout`. Default `conflict`.
    concurrent: Concurrent,
    /// How long the second request waits, 1 ms to 10 min; it gets 409 after that. The proxy's total timeout, or 60 s
    /// without one, can end it earlier. Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    wait_timeout: Millis,
    /// What happens to a repeated request if the outcome of the first is unknown, because the client disconnected, the
    /// target broke off or the gateway stopped: `refuse` answers 409 until `ttl` is over, `retry` sends it to the
    /// target. Default `refuse`.
    on_unknown: OnUnknown,
    /// Statuses of targets that are not stored, `503` or `5xx`; the key can be used again. UNAUTHENTICATED,
    /// PERMISSION_DENIED, RESOURCE_EXHAUSTED and UNAVAILABLE of gRPC count as 401, 403, 429 and 503. Default 401, 403,
    /// 408, 425, 429 and 503.
    #[schemars(length(max = 100))]
    unstored_statuses: Vec<String>,
    /// Size of the body of a request with a key; a larger one is rejected with 413. Default 1 MiB.
    max_body: Bytes,
    /// Size of the body of a stored response. Longer responses and event streams pass and are not stored: repeated
    /// requests get 409. Default 1 MiB.
    max_response: Bytes,
    /// Memory for stored responses and keys. Default 64 MiB.
    max_size: Bytes,
    /// What happens if this memory is full: `evict` removes the oldest responses, whose requests would then run again;
    /// `refuse` answers new requests with 503. Default `evict`.
    on_full: OnFull,
    /// Stores responses in Redis or Valkey, shared by all gateways whose plugin config has the same ID and
    /// `key_prefix`. With `on_error: local`, only one gateway knows the requests that arrive while Redis is
    /// unreachable. Default none: each gateway stores in memory for itself.
    pub(super) redis: Option<RedisConfig>,
}

/// What a second request gets while the first is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Concurrent {
    /// 409.
    #[default]
    Conflict,
    /// The response of the first.
    Wait,
}

/// What happens to a repeated request if the outcome of the first is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnUnknown {
    /// It is rejected.
    #[default]
    Refuse,
    /// It is sent to the target.
    Retry,
}

/// What happens if the memory is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFull {
    /// The oldest responses are removed.
    #[default]
    Evict,
    /// New requests are rejected.
    Refuse,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header_name: "Idempotency-Key".into(),
            methods: vec!["POST".into(), "PATCH".into()],
            required: false,
            scope: OneOrMany::Many(vec!["route".into(), "consumer".into()]),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            ttl: Millis(86_400_000),
            concurrent: Concurrent::Conflict,
            wait_timeout: Millis(10_000),
            on_unknown: OnUnknown::Refuse,
            unstored_statuses: ["401", "403", "408", "425", "429", "503"].map(String::from).to_vec(),
            max_body: Bytes(1 << 20),
            max_response: Bytes(1 << 20),
            max_size: Bytes(64 << 20),
            on_full: OnFull::Evict,
            redis: None,
        }
    }
}

/// Settings, checked.
pub(super) struct Rules {
    pub(super) header: HeaderName,
    pub(super) methods: Box<[Method]>,
    pub(super) required: bool,
    pub(super) scope: KeyBy,
    pub(super) ttl: Duration,
    /// How long a second request waits for the first; `None` is not at all.
    pub(super) wait: Option<Duration>,
    pub(super) retries_unknown: bool,
    pub(super) unstored: Statuses,
    pub(super) max_body: u64,
    pub(super) max_response: u64,
    pub(super) max_size: u64,
    pub(super) on_full: OnFull,
}

/// The least memory that makes sense: room for some hundred keys without answers.
const LEAST_BYTES: u64 = 64 << 10;

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, problems: &mut Problems) -> Rules {
    let header = parse::header_name("config.header_name", &config.header_name, problems);
    let mut methods = Vec::with_capacity(config.methods.len());
    for (n, text) in config.methods.iter().enumerate() {
        match Method::from_bytes(text.as_bytes()) {
            Ok(_) if parse::has_other_case(text) => {
                let why = format!("no request has the method `{text}`: methods are in capitals");
                problems.add(format!("config.methods[{n}]"), why).remedy =
                    Some(format!("write `{}`", text.to_ascii_uppercase()));
            }
            Ok(method) if !method.is_safe() && method != Method::CONNECT => methods.push(method),
            Ok(_) => {
                let why = format!("`{text}` changes nothing, so its requests need no key");
                problems.add(format!("config.methods[{n}]"), why);
            }
            Err(_) => _ = problems.add(format!("config.methods[{n}]"), format!("`{text}` is not a method")),
        }
    }
    if methods.is_empty() && problems.is_empty() {
        problems.add("config.methods", "no method is given");
    }
    let scope = KeySettings {
        name: "scope",
        limit_by: config.scope,
        ipv4_prefix: config.ipv4_prefix,
        ipv6_prefix: config.ipv6_prefix,
        on_missing: config.on_missing,
    };
    let scope = KeyBy::new(scope, problems);
    if config.max_size.0 < LEAST_BYTES {
        problems.add("config.max_size", format!("at least {LEAST_BYTES} bytes are needed"));
    }
    if config.redis.is_none() && config.max_response.0 > config.max_size.0 / 2 {
        problems.add("config.max_response", "one answer would take more than half of `max_size`");
    }
    Rules {
        header: header.unwrap_or(http::header::ETAG),
        methods: methods.into(),
        required: config.required,
        scope,
        ttl: config.ttl.duration(),
        wait: (config.concurrent == Concurrent::Wait).then(|| config.wait_timeout.duration()),
        retries_unknown: config.on_unknown == OnUnknown::Retry,
        unstored: Statuses::read("unstored_statuses", &config.unstored_statuses, problems),
        max_body: config.max_body.0,
        max_response: config.max_response.0,
        max_size: config.max_size.0,
        on_full: config.on_full,
    }
}
