//! Limits how many TCP and TLS connections, UDP and DTLS sessions and WebSockets are open at a time, and how many begin in a second.
//!
//! A session counts from its beginning to its end, however it ends. Above a limit, the gateway closes the TCP connection, drops the
//! datagram, or answers the WebSocket handshake with 429. A lowered limit does not close open sessions. Requests do not count here;
//! `concurrency_limiting` and `rate_limiting` limit those.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::reply::Cause;
use gateway_core::metrics::Metric;
use gateway_core::plugin::{Family, Gate, Hooks, OnConnect, Plugin, Refusal, Seat, World};
use gateway_core::stream::session::Session;
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Keyed, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::admission::byte_caps::Setting;
use crate::admission::session_limits::{GateReasons, GateSettings, SessionGate};

/// Settings of `connection_limit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Open sessions, 1 to 16,000,000. This or `new_per_second` is required.
    #[schemars(range(min = 1, max = 16_000_000))]
    max_concurrent: Option<u64>,
    /// New sessions a second, 1 to 1,000,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    new_per_second: Option<u64>,
    /// Burst of new sessions, at least 1. Default `new_per_second`.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<u64>,
    /// Whose sessions count together: `route` (those of a proxy), `port` (those of a port that the gateway listens on), `owner` (those of
    /// all proxies of an `owner`, and of that consumer on proxies without one), `consumer`,
    /// `address` (a client's), `gateway` (all that run this plugin config), or what else `rate_limiting` knows; or a list, whose values
    /// together make one key. Default `route`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that share a limit, 1 to 128. Default 64, the usual size for one customer.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to sessions that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not count them, `deny` rejects them. Default `address`.
    on_missing: Missing,
    /// Keys in memory, 1 to 10,000,000; each takes up to 48 bytes. Default 100,000.
    #[schemars(range(min = 1, max = 10_000_000))]
    max_keys: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_concurrent: None,
            new_per_second: None,
            burst: None,
            limit_by: OneOrMany::One("route".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            max_keys: 100_000,
        }
    }
}

/// The plugin.
pub(crate) struct ConnectionLimit {
    key_by: KeyBy,
    gate: SessionGate,
}

const REASONS: GateReasons =
    GateReasons { concurrent: "connection_limit_concurrent", rate: "connection_limit_rate" };
const SESSIONS: Metric = Metric::counter(
    "ferrum_connection_limit_sessions_total",
    "Sessions by outcome: accepted, concurrent (too many open), rate (too many new ones).",
);
const EVICTED: Metric = Metric::counter(
    "ferrum_connection_limit_evicted_total",
    "Keys evicted while they still counted, because more than `max_keys` were in use.",
);

impl Plugin for ConnectionLimit {
    const NAME: &'static str = "connection_limit";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits open connections and sessions, and new ones a second.";
    const EXAMPLE: &'static str = include_str!("../../examples/connection_limit.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let settings = GateSettings {
            concurrent: Setting { name: "max_concurrent", value: config.max_concurrent },
            rate: Setting { name: "new_per_second", value: config.new_per_second },
            burst: Setting { name: "burst", value: config.burst },
            max_keys: config.max_keys,
        };
        if !SessionGate::is_needed(&settings) {
            problems.add("config", "nothing is limited").remedy =
                Some("give `max_concurrent` or `new_per_second`".into());
        }
        let gate = SessionGate::new(&settings, REASONS, [SESSIONS, EVICTED], world, &mut problems);
        let key_settings = KeySettings {
            name: "limit_by",
            limit_by: config.limit_by,
            ipv4_prefix: config.ipv4_prefix,
            ipv6_prefix: config.ipv6_prefix,
            on_missing: config.on_missing,
        };
        let key_by = KeyBy::new(key_settings, &mut problems);
        problems.into_result(Self { key_by, gate })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_connect(self);
    }
}

impl OnConnect for ConnectionLimit {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        let key = match self.key_by.of_session(session, seat.proxy(), self.gate.hasher()) {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Gate::Open,
            Keyed::Denied => return Gate::refuse("connection_limit_key_missing"),
        };
        match self.gate.enter(key) {
            Ok(permit) => {
                if let Some(permit) = permit {
                    session.state.put(seat, permit);
                }
                Gate::Open
            }
            Err(reason) => Gate::Refuse(Refusal { reason, cause: Cause::TooManyRequests }),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use gateway_core::plugin::entry;
    use gateway_core::testing::{Streaming, Trial};
    use serde_json::{Value, json};

    use super::*;

    fn trial(config: &Value, world: &World) -> Trial {
        let proxy = |id: &str, port: u16| json!({ "id": id, "listen_port": port, "backend_scheme": "tcp", "backend_host": "t.test", "backend_port": 1 });
        let spec = json!({
            "proxies": [proxy("a", 7000), proxy("b", 7001)],
            "plugin_configs": [
                { "id": "limit", "plugin_name": "connection_limit", "scope": "global", "config": config },
            ],
        });
        Trial::of_spec(&[entry::<ConnectionLimit>()], &spec.to_string(), world)
    }

    /// The reason of the record of a session, once it is refused; one that is let in goes on.
    async fn open(trial: &Trial, proxy: &str) -> Result<Streaming, String> {
        let mut stream = trial.stream(proxy);
        let refused = (&mut stream.serving).now_or_never().is_some();
        let reason = stream.record.lock().unwrap().clone();
        if refused { Err(reason.expect("a record").reason) } else { Ok(stream) }
    }

    #[tokio::test(start_paused = true)]
    async fn places_come_back_and_each_proxy_has_its_own() {
        let world = World::default();
        let before = trial(&json!({ "max_concurrent": 2 }), &world);
        let held = [open(&before, "a").await.unwrap(), open(&before, "a").await.unwrap()];
        assert_eq!(open(&before, "a").await.err().as_deref(), Some("connection_limit_concurrent"));
        let other = open(&before, "b").await.unwrap();
        let lower = trial(&json!({ "max_concurrent": 1 }), &world);
        drop(held);
        assert!(open(&lower, "b").await.is_err(), "sessions from before the change count");
        let _held = open(&lower, "a").await.unwrap();
        assert!(open(&lower, "a").await.is_err());
        drop(other);
        assert!(open(&lower, "b").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn new_ones_are_limited_over_all_proxies() {
        let config = json!({ "new_per_second": 2, "limit_by": "gateway" });
        let trial = trial(&config, &World::default());
        let held = [open(&trial, "a").await.unwrap(), open(&trial, "b").await.unwrap()];
        assert_eq!(open(&trial, "b").await.err().as_deref(), Some("connection_limit_rate"));
        drop(held);
        tokio::time::advance(std::time::Duration::from_millis(500)).await;
        assert!(open(&trial, "a").await.is_ok());
        assert!(open(&trial, "a").await.is_err());
    }
}
