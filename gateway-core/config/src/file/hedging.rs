//! Hedging as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::{Bytes, Millis};

/// The same request to another target, where the first takes long to answer: the first response is taken, the other
/// attempt is given up.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hedging {
    /// Time without a response's head after which the request is sent to another target. Default 100ms.
    #[schemars(range(min = 0.001, max = 60))]
    pub delay: Option<Millis>,
    /// The delay is the time that so many percent of the last minute's responses took at most, once there are 100 of them;
    /// `delay` until then. Default none: always `delay`.
    #[schemars(range(min = 50, max = 99))]
    pub delay_percentile: Option<u8>,
    /// Further targets for one request, each after another delay. Default 1.
    #[schemars(range(min = 1, max = 3))]
    pub max_hedges: Option<u32>,
    /// Hedges allowed as a share of requests, in percent, so that they never double a load; one in ten seconds in any case.
    /// Default 5.
    #[schemars(range(min = 1, max = 50))]
    pub budget_percent: Option<u32>,
    /// Methods that are hedged, out of GET, HEAD, OPTIONS, PUT and DELETE. Default GET HEAD OPTIONS.
    #[schemars(length(max = 5))]
    pub methods: Option<Vec<String>>,
    /// gRPC methods that are hedged, such as `shop.Catalog/GetItem`: unary ones that may be carried out twice. Default none.
    #[schemars(length(max = 100), inner(length(min = 3, max = 255)))]
    pub grpc_methods: Option<Vec<String>>,
    /// Requests with larger bodies are not hedged; smaller ones are read before they are sent where their length is known,
    /// or they call one of `grpc_methods`. Default 64 KiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_body: Option<Bytes>,
}
