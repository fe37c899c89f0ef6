//! When targets are left alone, and what is tried again, as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::{Millis, Seconds};

/// Circuit breaker: stops traffic to a failing target for a while.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CircuitBreaker {
    /// Consecutive failures that open the circuit. Default 5.
    #[schemars(range(min = 1, max = 10_000))]
    pub failure_threshold: Option<u32>,
    /// Successful probes that close the circuit. Default 3.
    #[schemars(range(min = 1, max = 10_000))]
    pub success_threshold: Option<u32>,
    /// How long the circuit stays open. Default 30s.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout: Option<Seconds>,
    /// Statuses that count as failures. Default 500 502 503 504. For gRPC calls, see `retryable_status_codes`.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub failure_status_codes: Option<Vec<u16>>,
    /// Concurrent probes while the circuit is half open. Default 1.
    #[schemars(range(min = 1, max = 10_000))]
    pub half_open_max_requests: Option<u32>,
    /// Also counts connection failures. Default true.
    pub trip_on_connection_errors: Option<bool>,
}

/// Retries of failed requests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Retries after the first attempt. Default 3. A body is resent if its length is known and at most 64 KiB; the
    /// gateway buffers such a body before the first attempt.
    #[schemars(range(max = 100))]
    pub max_retries: Option<u32>,
    /// Statuses to retry. Default none. If a target ends a gRPC call without a message, the HTTP equivalent of its
    /// status counts: 503 for UNAVAILABLE, 504 for DEADLINE_EXCEEDED, 429 for RESOURCE_EXHAUSTED, 500 for INTERNAL,
    /// UNKNOWN and DATA_LOSS.
    #[schemars(length(max = 50), inner(range(min = 100, max = 599)))]
    pub retryable_status_codes: Option<Vec<u16>>,
    /// Methods to retry on such a status. Default GET HEAD OPTIONS PUT DELETE.
    #[schemars(length(max = 9))]
    pub retryable_methods: Option<Vec<String>>,
    /// gRPC methods to retry like `retryable_methods`, such as `shop.Catalog/GetItem`: idempotent unary methods. The
    /// gateway buffers their message before the first attempt, up to 64 KiB. Default none.
    #[schemars(length(max = 1000))]
    pub grpc_methods: Option<Vec<String>>,
    /// Retries every method if the connection failed. Default true.
    pub retry_on_connect_failure: Option<bool>,
    /// Delay before each retry. Default none.
    pub backoff: Option<Backoff>,
    /// Retry budget as a percentage of requests, so that retries cannot double a load. Default 20.
    #[schemars(range(max = 1000))]
    pub budget_percent: Option<u32>,
}

/// Delay before a retry: `{fixed: {delay: 100ms}}`, or with a YAML tag `!fixed {delay: 100ms}`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay each time.
    Fixed(FixedBackoff),
    /// Doubles from `base` to `max`, with jitter between half and one and a half.
    Exponential(ExponentialBackoff),
}

/// A constant delay.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FixedBackoff {
    /// The delay. Default 100ms.
    #[schemars(range(max = 300))]
    pub delay: Option<Millis>,
}

/// A delay that doubles.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExponentialBackoff {
    /// First delay. Default 100ms.
    #[schemars(range(max = 300))]
    pub base: Option<Millis>,
    /// Longest delay. Default 10s.
    #[schemars(range(max = 300))]
    pub max: Option<Millis>,
}
