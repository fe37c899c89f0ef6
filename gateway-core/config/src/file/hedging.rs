//! Hedging as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::{Bytes, Millis};

/// Hedging: sends the same request to another target if the first responds slowly. The first response is used; the
/// other attempt is cancelled.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hedging {
    /// How long to wait for a response head before the request is sent to another target. Default 100ms.
    #[schemars(range(min = 0.001, max = 60))]
    pub delay: Option<Millis>,
    /// Percentile of the last minute's response times to use as the delay, once there are 100 responses; `delay` until
    /// then. Default none: always `delay`.
    #[schemars(range(min = 50, max = 99))]
    pub delay_percentile: Option<u8>,
    /// Further targets for one request, each after another delay. Default 1.
    #[schemars(range(min = 1, max = 3))]
    pub max_hedges: Option<u32>,
    /// Hedging budget as a percentage of requests, so that hedges cannot double a load; one hedge in ten seconds is
    /// always allowed. Default 5.
    #[schemars(range(min = 1, max = 50))]
    pub budget_percent: Option<u32>,
    /// Methods to hedge, out of GET, HEAD, OPTIONS, PUT and DELETE. Default GET HEAD OPTIONS.
    #[schemars(length(max = 5))]
    pub methods: Option<Vec<String>>,
    /// gRPC methods to hedge, such as `shop.Catalog/GetItem`: idempotent unary methods. Default none.
    #[schemars(length(max = 100), inner(length(min = 3, max = 255)))]
    pub grpc_methods: Option<Vec<String>>,
    /// Largest body of a hedged request. The gateway buffers a smaller one if its length is known, or for
    /// `grpc_methods`. Default 64 KiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_body: Option<Bytes>,
}
