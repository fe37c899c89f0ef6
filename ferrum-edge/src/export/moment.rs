//! When something was, as status and metrics show it.

use std::time::SystemTime;

use gateway_telemetry::json::Rfc3339;
use tokio::time::Instant;

/// When something was, as it is shown.
pub(crate) fn moment(at: Instant) -> String {
    let now = SystemTime::now();
    Rfc3339(now.checked_sub(at.elapsed()).unwrap_or(now)).to_string()
}
