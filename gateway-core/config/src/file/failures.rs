//! When targets are left alone, and what is tried again, as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::{Millis, Seconds};

/// When a target is left alone for a while.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CircuitBreaker {
    /// Failures in a row that open it. Default 5.
    #[schemars(range(min = 1, max = 10_000))]
    pub failure_threshold: Option<u32>,
    /// Successes of probes that close it. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub success_threshold: Option<u32>,
    /// How long it stays open. Default 30s.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout: Option<Seconds>,
    /// Statuses that count as failure. Default 500 502 503 504. gRPC calls count as for `retryable_status_codes`.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub failure_status_codes: Option<Vec<u16>>,
    /// Probes at a time while half open. Default 1.
    #[schemars(range(min = 1, max = 10_000))]
    pub half_open_max_requests: Option<u32>,
    /// Counts failures to connect. Default true.
    pub trip_on_connection_errors: Option<bool>,
}

/// What is tried again after a failure.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Tries after the first. Default 3. A body is sent again where its length is known and at most 64 KiB; such a body is
    /// read whole before the first try.
    #[schemars(range(max = 100))]
    pub max_retries: Option<u32>,
    /// Statuses that count as failure. Default none. A gRPC call that a target ends without a message counts by the HTTP status
    /// that stands for its own: 503 for UNAVAILABLE, 504 for DEADLINE_EXCEEDED, 429 for RESOURCE_EXHAUSTED, 500 for INTERNAL,
    /// UNKNOWN and DATA_LOSS.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub retryable_status_codes: Option<Vec<u16>>,
    /// Methods tried again on such a status. Default GET HEAD OPTIONS PUT DELETE.
    #[schemars(length(max = 9))]
    pub retryable_methods: Option<Vec<String>>,
    /// gRPC methods that are tried again like `retryable_methods`, such as `shop.Catalog/GetItem`: unary ones that may be carried
    /// out twice. Their message is read whole before the first try, up to 64 KiB. Default none.
    #[schemars(length(max = 1000))]
    pub grpc_methods: Option<Vec<String>>,
    /// Tries any method again when no connection could be made. Default true.
    pub retry_on_connect_failure: Option<bool>,
    /// The pause before each retry. Default none.
    pub backoff: Option<Backoff>,
    /// Retries allowed as a share of requests, in percent, so that retries never double a load. Default 20.
    #[schemars(range(max = 1000))]
    pub budget_percent: Option<u32>,
}

/// The pause before a retry: `{fixed: {delay: 100ms}}`, or with a YAML tag `!fixed {delay: 100ms}`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same each time.
    Fixed(FixedBackoff),
    /// Doubles from base to max, with jitter between half and one and a half.
    Exponential(ExponentialBackoff),
}

/// The same pause each time.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FixedBackoff {
    /// The pause. Default 100ms.
    #[schemars(range(max = 300))]
    pub delay: Option<Millis>,
}

/// A pause that doubles.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExponentialBackoff {
    /// Time of the first pause. Default 100ms.
    #[schemars(range(max = 300))]
    pub base: Option<Millis>,
    /// Time of the longest pause. Default 10s.
    #[schemars(range(max = 300))]
    pub max: Option<Millis>,
}
