//! Plugins that limit rates, sizes and bandwidth, and share traffic out.

use super::settings::{Amount, Any, Flag, List, Number, One, Text, settings};

settings! {
    RateLimiting: "rate_limiting" {
        limits: List<Limit>, limit_by: Any, on_missing: Text, headers: Text, status_code: Number,
        redis: One<SharedBy>,
    }
    /// So many in a time.
    Limit: "rate_limiting/limits" { rate: Number, per: Amount, burst: Number }
    /// The Redis that counts.
    SharedBy: "rate_limiting/redis" { name: Text, on_error: Text }
    ConcurrencyLimiting: "concurrency_limiting" {
        max_concurrent: Number, limit_by: Any, on_missing: Text, status_code: Number,
    }
    RequestSizeLimiting: "request_size_limiting" { max_size: Amount, require_content_length: Flag }
    ResponseSizeLimiting: "response_size_limiting" { max_size: Amount }
    BandwidthLimit: "bandwidth_limit" { download: Amount, limit_by: Any }
    TrafficSplit: "traffic_split" { splits: List<Split>, overrides: List<Override> }
    /// A share of the requests.
    Split: "traffic_split/splits" { upstream_id: Text, weight: Number }
    /// Requests that have their target whatever the shares are.
    Override: "traffic_split/overrides" { header: Text, cookie: Text, value: Text }
}
