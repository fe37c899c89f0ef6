//! Times as they are answered.

use gateway_telemetry::json::Rfc3339;
use serde_json::Value;

/// Milliseconds since 1970 UTC by RFC 3339.
pub(super) fn time(millis: u64) -> Value {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    Value::String(Rfc3339(time).to_string())
}
