//! Limits UDP and DTLS sessions: how many are open, how many begin in a second, and how many datagrams and bytes they carry.
//!
//! Excess datagrams are dropped, counted in `ferrum_session_datagrams_dropped_total`, and noted in the session's record. A client whose
//! session is rejected can try again with its next datagram. Clients can forge source addresses. With `limit_by: address`, a flood of
//! forged addresses has one limit for each address, so limit `gateway` or `port` as well.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::reply::Cause;
use gateway_core::limit::{Meter, Meters};
use gateway_core::metrics::Metric;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Gate, Hooks, OnConnect, OnTransfer, Plugin, Refusal, Seat, Starter,
    World,
};
use gateway_core::stream::session::Session;
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Keyed, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::admission::byte_caps::{Cap, CapTable, Caps, Setting};
use crate::admission::session_limits::{GateReasons, GateSettings, SessionGate};

/// Settings of `udp_rate_limiting`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Open sessions, 1 to 16,000,000. This or another limit is required.
    #[schemars(range(min = 1, max = 16_000_000))]
    max_sessions: Option<u64>,
    /// New sessions a second, 1 to 1,000,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    sessions_per_second: Option<u64>,
    /// Burst of new sessions, at least 1. Default `sessions_per_second`.
    #[schemars(range(min = 1, max = 1_000_000))]
    session_burst: Option<u64>,
    /// Datagrams a second, 1 to 1,000,000,000.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    datagrams_per_second: Option<u64>,
    /// Burst of datagrams, at least 1. Default `datagrams_per_second`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    datagram_burst: Option<u64>,
    /// Payload bytes a second, up to 1 TB.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    bytes_per_second: Option<Bytes>,
    /// Burst of payload bytes: 10 ms to 60 s of `bytes_per_second`. Default 25 ms of it, at least 4 KiB.
    byte_burst: Option<Bytes>,
    /// Whose datagrams and bytes count: `client`, `target` or `both`, each with its own limit. Default `client`.
    from: Sender,
    /// What shares one limit: `address` (a client address), `route` (a proxy), `port` (a port that the gateway listens
    /// on), `gateway` (all proxies that run this plugin config), or any other key of `rate_limiting`; or a list, whose
    /// values together make one key. Default `address`.
    limit_by: OneOrMany,
    /// Prefix length of IPv4 addresses that share a limit, 1 to 32. Default 32.
    #[schemars(range(min = 1, max = 32))]
    ipv4_prefix: u8,
    /// Prefix length of IPv6 addresses that share a limit, 1 to 128. Default 64, the usual size for one customer.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: u8,
    /// What happens to sessions that lack the value of `limit_by`: `address` counts them by the client's address,
    /// `allow` does not limit them, `deny` rejects them. Default `address`.
    on_missing: Missing,
    /// Keys in memory, 1 to 1,000,000; each takes up to 300 bytes while it is in use. Further keys share the limits of
    /// datagrams and bytes. Default 100,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_keys: usize,
}

/// Whose datagrams count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Sender {
    /// The client's.
    #[default]
    Client,
    /// The target's.
    Target,
    /// Both.
    Both,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_sessions: None,
            sessions_per_second: None,
            session_burst: None,
            datagrams_per_second: None,
            datagram_burst: None,
            bytes_per_second: None,
            byte_burst: None,
            from: Sender::Client,
            limit_by: OneOrMany::One("address".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            max_keys: 100_000,
        }
    }
}

/// The plugin.
pub(crate) struct UdpRateLimiting {
    key_by: KeyBy,
    gate: Option<SessionGate>,
    datagrams: Option<(Caps, Arc<CapTable>)>,
    bytes: Option<(Caps, Arc<CapTable>)>,
}

const REASONS: GateReasons = GateReasons { concurrent: "udp_limit_sessions", rate: "udp_limit_rate" };
const SESSIONS: Metric = Metric::counter(
    "ferrum_udp_rate_limiting_sessions_total",
    "Sessions by outcome: accepted, concurrent (too many open), rate (too many new ones).",
);
const EVICTED: Metric = Metric::counter(
    "ferrum_udp_rate_limiting_evicted_total",
    "Keys evicted while they still counted, because more than `max_keys` were in use.",
);
const SHARED: Metric = Metric::counter(
    "ferrum_udp_rate_limiting_shared_total",
    "Sessions that share limits with others because more than `max_keys` keys are in use.",
);

impl Plugin for UdpRateLimiting {
    const NAME: &'static str = "udp_rate_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits the sessions, datagrams and bytes of UDP and DTLS proxies.";
    const EXAMPLE: &'static str = include_str!("../../examples/udp_rate_limiting.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let settings = GateSettings {
            concurrent: Setting { name: "max_sessions", value: config.max_sessions },
            rate: Setting { name: "sessions_per_second", value: config.sessions_per_second },
            burst: Setting { name: "session_burst", value: config.session_burst },
            max_keys: config.max_keys,
        };
        let needs_gate = SessionGate::is_needed(&settings);
        if config.datagrams_per_second.is_none() && config.bytes_per_second.is_none() {
            if !needs_gate {
                problems.add("config", "nothing is limited").remedy =
                    Some("give `max_sessions`, `sessions_per_second`, `datagrams_per_second` or `bytes_per_second`".into());
            }
            if config.from != Sender::Client {
                problems.add("config.from", "has no effect without a limit of datagrams or bytes");
            }
        }
        if config.datagrams_per_second.is_none() && config.datagram_burst.is_some() {
            problems.add("config.datagram_burst", "there is no burst without `datagrams_per_second`");
        }
        let datagrams = config
            .datagrams_per_second
            .map(|rate| Cap { rate, burst: config.datagram_burst.unwrap_or(rate).max(1) });
        let bytes = Cap::read(
            Setting { name: "bytes_per_second", value: config.bytes_per_second },
            Setting { name: "byte_burst", value: config.byte_burst },
            &mut problems,
        );
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let shared = world.meters().counter(SHARED, &["plugin_config"], &[owner]);
        let table = |what: &str, cap: Option<Cap>| {
            let cap = cap?;
            let caps = match config.from {
                Sender::Client => Caps { up: Some(cap), down: None },
                Sender::Target => Caps { up: None, down: Some(cap) },
                Sender::Both => Caps { up: Some(cap), down: Some(cap) },
            };
            let name = format!("{what} of {}", config.max_keys);
            let make = || CapTable::new(caps, config.max_keys, Instant::now(), shared.clone());
            Some((caps, world.kept(&name, make)))
        };
        let (datagrams, bytes) = (table("datagrams", datagrams), table("bytes", bytes));
        let gate = SessionGate::new(&settings, REASONS, [SESSIONS, EVICTED], world, &mut problems);
        let key_settings = KeySettings {
            name: "limit_by",
            limit_by: config.limit_by,
            ipv4_prefix: config.ipv4_prefix,
            ipv6_prefix: config.ipv6_prefix,
            on_missing: config.on_missing,
        };
        let key_by = KeyBy::new(key_settings, &mut problems);
        problems.into_result(Self { key_by, gate: needs_gate.then_some(gate), datagrams, bytes })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::OnlyForDatagrams])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        if self.gate.is_some() || self.key_by.denies() {
            hooks.on_connect(self.clone());
        }
        if self.datagrams.is_some() || self.bytes.is_some() {
            hooks.on_transfer(self);
        }
    }

    fn start(self: &Arc<Self>, _starter: &mut Starter<'_>) {
        for (caps, table) in [&self.datagrams, &self.bytes].into_iter().flatten() {
            table.set(*caps, Instant::now());
        }
    }
}

impl OnConnect for UdpRateLimiting {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        let proxy = seat.proxy();
        let keyed = match &self.gate {
            Some(gate) => self.key_by.of_session(session, proxy, gate.hasher()),
            None => self.key_by.of_session(session, proxy, std::hash::DefaultHasher::new()),
        };
        let (key, gate) = match (keyed, &self.gate) {
            (Keyed::Denied, _) => return Gate::refuse("udp_limit_key_missing"),
            (Keyed::Key(key), Some(gate)) => (key, gate),
            (Keyed::Nobody, _) | (_, None) => return Gate::Open,
        };
        match gate.enter(key) {
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

impl OnTransfer for UdpRateLimiting {
    fn meters(&self, session: &Session, seat: Seat<'_>, meters: &mut Meters) {
        let proxy = seat.proxy();
        let rates = |table: &CapTable| match self.key_by.of_session(session, proxy, table.hasher()) {
            Keyed::Key(key) => Some(table.rates(key, Instant::now())),
            Keyed::Nobody | Keyed::Denied => None,
        };
        if let Some(rates) = self.datagrams.as_ref().and_then(|(_, table)| rates(table)) {
            meters.up.extend(rates.up.map(Meter::Datagrams));
            meters.down.extend(rates.down.map(Meter::Datagrams));
        }
        if let Some(rates) = self.bytes.as_ref().and_then(|(_, table)| rates(table)) {
            meters.up.extend(rates.up.map(Meter::Rate));
            meters.down.extend(rates.down.map(Meter::Rate));
        }
    }
}

#[cfg(test)]
mod tests;
