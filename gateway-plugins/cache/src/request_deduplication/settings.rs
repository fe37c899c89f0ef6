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
    /// The header field with the key. Its value is a string of structured fields (`"8e03…"`) or the same without quotation
    /// marks: up to 255 visible ASCII characters. Default `Idempotency-Key`.
    header_name: String,
    /// The methods that are looked at; GET, HEAD, OPTIONS, TRACE and CONNECT can't be. Default `POST` and `PATCH`.
    #[schemars(length(min = 1, max = 20))]
    methods: Vec<String>,
    /// Refuses requests of these methods without a key with 400. Default false: they pass and nothing is stored.
    required: bool,
    /// Whose keys are apart from each other: `consumer`, `route`, `group`, `address`, `header:NAME`, `cookie:NAME`, `claim:NAME`,
    /// `template:TEXT`; or a list, whose values together make one caller. Where no plugin has recognised the caller, a key
    /// that comes with other credentials than the first time (well-known header fields such as `Authorization`, `Cookie` and
    /// `X-API-Key`, fields that a plugin of the proxy reads, the client certificate) is refused with 422; behind a `forward_auth`
    /// without `caller_header`, so is one with other header fields than those that change with each attempt. Default
    /// `[route, consumer]`.
    scope: OneOrMany,
    /// Bits of an IPv4 address that count, 1 to 32, where an address is part of the scope. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Bits of an IPv6 address that count, 1 to 128. Default 64.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What becomes of requests without what `scope` names, such as a consumer: `address` takes the client's address for it,
    /// `allow` forwards them and stores nothing, `deny` refuses them with 403. Default `address`.
    on_missing: Missing,
    /// How long an answer is stored and its key remembered, 1 s to 30 d. Default 24 h.
    #[schemars(range(min = 1, max = 2_592_000u64))]
    ttl: Millis,
    /// What a second request gets while the first is under way: `conflict` (409 with `Retry-After`), or `wait` for the
    /// answer of the first, for as long as `wait_timeout`. Default `conflict`.
    concurrent: Concurrent,
    /// How long it waits, 1 ms to 10 min; then it gets 409. The proxy's total timeout, or 60 s without one, may end it before.
    /// Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    wait_timeout: Millis,
    /// What becomes of a repeated request when nobody knows whether the first was carried out: the client left, the target broke
    /// off, or the gateway was ended. `refuse` answers 409 until `ttl` is over, `retry` sends it to the target. Default
    /// `refuse`.
    on_unknown: OnUnknown,
    /// Statuses of targets that are not stored, `503` or `5xx`: the key is free again. gRPC's UNAUTHENTICATED, PERMISSION_DENIED,
    /// RESOURCE_EXHAUSTED and UNAVAILABLE count as 401, 403, 429 and 503. Default 401, 403, 408, 425, 429 and 503.
    #[schemars(length(max = 100))]
    unstored_statuses: Vec<String>,
    /// Bytes that the body of a request with a key may have; more is refused with 413. Default 1 MiB.
    max_body: Bytes,
    /// Bytes that the body of a stored answer may have. A longer answer, or an event stream, passes and is not stored: repeated
    /// requests get 409. Default 1 MiB.
    max_response: Bytes,
    /// Bytes of memory for stored answers and keys. Default 64 MiB.
    max_size: Bytes,
    /// What happens when that is used up: `evict` forgets the oldest answers, whose requests would then be carried out
    /// again; `refuse` answers new requests with 503. Default `evict`.
    on_full: OnFull,
    /// Stores in Redis or Valkey, together with all gateways whose plugin config has the same id and `key_prefix`. Requests that
    /// come while the store is away, with `on_error: local`, are known to one gateway only. Default none: each gateway stores
    /// for itself, in memory.
    pub(super) redis: Option<RedisConfig>,
}

/// What a second request gets while the first is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Concurrent {
    /// 409.
    #[default]
    Conflict,
    /// The answer of the first.
    Wait,
}

/// What becomes of a repeated request when the outcome of the first is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnUnknown {
    /// It is refused.
    #[default]
    Refuse,
    /// It goes to the target.
    Retry,
}

/// What happens when the memory is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFull {
    /// The oldest answers are forgotten.
    #[default]
    Evict,
    /// New requests are refused.
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
