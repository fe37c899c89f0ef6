//! What makes requests visible: traces, ids, timings.

pub(crate) mod correlation_id;
pub(crate) mod otel_tracing;
pub(crate) mod server_timing;
