//! The access record: what is known about an ended exchange or session.

use std::time::Duration;

use crate::balance::Target;
use crate::health::HealthChange;
use crate::http::exchange::Exchange;
use crate::http::reply::Cause;
use crate::proxy_state::ProxyState;
use crate::reason::DecidingSetting;
use crate::stream::relay::Carried;
use crate::stream::session::Session;

/// Keeps records; one a worker. Must not wait.
pub trait Recorder: Send + Sync + 'static {
    /// An exchange began.
    fn began(&self);

    /// A hook panicked and was caught.
    fn panicked(&self);

    /// Called exactly once for every exchange, however it ended.
    fn exchange(&self, record: &ExchangeRecord<'_>);

    /// Traffic made a target change sides.
    fn health(&self, target: &Target, change: HealthChange);

    /// Bytes of open datagram sessions, now and then.
    fn session_bytes(&self, protocol: &'static str, carried: Carried) {
        let _ = (protocol, carried);
    }

    /// Datagrams of a session that a limit dropped, as it drops them.
    fn session_dropped(&self, protocol: &'static str, datagrams: u64) {
        let _ = (protocol, datagrams);
    }

    /// Called exactly once for every session, however it ended.
    fn session(&self, record: &SessionRecord<'_>);
}

/// One ended exchange.
#[derive(Debug)]
pub struct ExchangeRecord<'a> {
    /// The exchange; its request head is what the plugins left of it.
    pub exchange: &'a Exchange,
    /// The proxy; `None` when no proxy was found.
    pub route: Option<&'a ProxyState>,
    /// The target of the last attempt.
    pub target: Option<&'a Target>,
    /// The status the client got; 499 when it went away before.
    pub status: u16,
    /// The status of a gRPC call; `None` for what is none, and where the call ended without one.
    pub grpc_status: Option<u16>,
    /// Why the gateway answered itself or the exchange was cut; `None` when a target's answer was delivered whole.
    pub cause: Option<Cause>,
    /// The reason of `cause` in a word: a plugin's own where it gave one.
    pub reason: Option<&'static str>,
    /// The setting that decided, and its value; `None` where no setting did.
    pub decided: Option<DecidingSetting>,
    /// The id of the plugin config whose hook answered.
    pub plugin_config: Option<&'a str>,
    /// Whether the gateway's own answer counts as an error; one of a plugin with a status below 400 does not.
    pub is_error: bool,
    /// What went wrong on the way to the target, or to a server that a plugin asked, for the logs; never for the client.
    pub failure: Option<&'a (dyn std::error::Error + Send + Sync)>,
    /// Attempts made.
    pub attempts: u32,
    /// From the last attempt's start to the target's first byte.
    pub first_byte: Option<Duration>,
    /// From the last attempt's start to the target's last byte; `None` where it has not come. A client that reads slowly delays it.
    pub last_byte: Option<Duration>,
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
    pub route: Option<&'a ProxyState>,
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
    /// Datagrams that a limit dropped.
    pub dropped: u64,
    /// Bytes that [`Recorder::session_bytes`], or whoever counts those of open sessions, was not told of.
    pub uncounted: Carried,
}
