//! Hedging: the same request to another target, where the first takes long to answer.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

/// When a request is sent to another target as well.
#[derive(Debug, Clone, PartialEq)]
pub struct Hedging {
    /// After so long without a response's head. Default 100 ms.
    pub delay: Duration,
    /// The delay is the time that so many percent of recent responses took at most, once enough are known.
    pub percentile: Option<u8>,
    /// Further targets for one request. Default 1.
    pub max_hedges: u32,
    /// Hedges allowed as a share of requests, in percent. Default 5.
    pub budget_percent: u32,
    /// Methods that are hedged, all of them idempotent. Default GET HEAD OPTIONS.
    pub methods: Vec<Method>,
    /// Paths of gRPC methods that are hedged; all of them unary, and idempotent.
    pub grpc_methods: Vec<Arc<str>>,
    /// Requests with larger bodies are not hedged. Default 64 KiB.
    pub max_body: u64,
}
