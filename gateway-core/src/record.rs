//! The access record: what is known about an ended exchange or session; and the only list of metric names.

use std::time::Duration;

use crate::balance::Target;
use crate::config::snapshot::Route;
use crate::health::HealthChange;
use crate::http::exchange::Exchange;
use crate::http::reply::Cause;
use crate::stream::session::Session;

/// Keeps records; one a worker. Must not wait.
pub trait Recorder: Send + Sync + 'static {
    /// An exchange began.
    fn began(&self);

    /// Called exactly once for every exchange, however it ended.
    fn exchange(&self, record: &ExchangeRecord<'_>);

    /// Traffic made a target change sides.
    fn health(&self, target: &Target, change: HealthChange);

    /// Called exactly once for every session, however it ended.
    fn session(&self, record: &SessionRecord<'_>);
}

/// One ended exchange.
#[derive(Debug)]
pub struct ExchangeRecord<'a> {
    /// The exchange; its request head is what the plugins left of it.
    pub exchange: &'a Exchange,
    /// The proxy; `None` when no proxy was found.
    pub route: Option<&'a Route>,
    /// The target of the last attempt.
    pub target: Option<&'a Target>,
    /// The status the client got; 499 when it went away before.
    pub status: u16,
    /// Why the gateway answered itself or the exchange was cut; `None` when a target's answer was delivered whole.
    pub cause: Option<Cause>,
    /// Attempts made.
    pub attempts: u32,
    /// From the last attempt's start to the target's first byte.
    pub first_byte: Option<Duration>,
    /// From the request's head to the end.
    pub duration: Duration,
    /// Body bytes taken from the client.
    pub request_bytes: u64,
    /// Body bytes handed to the client.
    pub response_bytes: u64,
}

/// One ended session.
#[derive(Debug)]
pub struct SessionRecord<'a> {
    /// The session.
    pub session: &'a Session,
    /// The proxy; `None` when no proxy was found.
    pub route: Option<&'a Route>,
    /// Where it went.
    pub target: Option<&'a Target>,
    /// `tcp`, `udp` or `websocket`.
    pub protocol: &'static str,
    /// Why it ended, as a stable word; `closed` when both ends closed.
    pub reason: &'static str,
    /// From accept to end.
    pub duration: Duration,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// Bytes to the client.
    pub bytes_down: u64,
}

/// Metric names, OpenTelemetry's where it has one, written the way Prometheus writes them.
pub mod metric {
    /// Histogram of seconds an exchange took.
    pub const REQUEST_DURATION: &str = "http_server_request_duration_seconds";
    /// Exchanges now open.
    pub const ACTIVE_REQUESTS: &str = "http_server_active_requests";
    /// Histogram of seconds a target took to its first byte.
    pub const UPSTREAM_DURATION: &str = "http_client_request_duration_seconds";
    /// Body bytes from clients.
    pub const REQUEST_BYTES: &str = "http_server_request_body_bytes_total";
    /// Body bytes to clients.
    pub const RESPONSE_BYTES: &str = "http_server_response_body_bytes_total";
    /// Exchanges by proxy and status class.
    pub const PROXY_REQUESTS: &str = "ferrum_proxy_requests_total";
    /// Replies of the gateway's own, by reason.
    pub const REPLIES: &str = "ferrum_replies_total";
    /// Attempts after the first.
    pub const RETRIES: &str = "ferrum_upstream_retries_total";
    /// Client connections now open.
    pub const CONNECTIONS: &str = "ferrum_client_connections";
    /// Client connections accepted.
    pub const ACCEPTED: &str = "ferrum_client_connections_accepted_total";
    /// Client connections refused at a limit.
    pub const REFUSED: &str = "ferrum_client_connections_refused_total";
    /// Sessions now open, by protocol.
    pub const SESSIONS: &str = "ferrum_sessions_total";
    /// Bytes of sessions, by protocol and direction.
    pub const SESSION_BYTES: &str = "ferrum_session_bytes_total";
    /// The configuration's revision.
    pub const CONFIG_REVISION: &str = "ferrum_config_revision";
    /// When the configuration was last applied, seconds since the epoch.
    pub const CONFIG_APPLIED: &str = "ferrum_config_last_applied_timestamp_seconds";
    /// Configurations refused.
    pub const CONFIG_REFUSED: &str = "ferrum_config_refused_total";
    /// Access records dropped because the writer was behind.
    pub const LOG_DROPPED: &str = "ferrum_access_log_dropped_total";
    /// Tasks that panicked.
    pub const PANICS: &str = "ferrum_panics_total";
    /// Targets by health.
    pub const TARGET_HEALTHY: &str = "ferrum_target_healthy";
}
