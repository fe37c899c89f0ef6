//! Limits bytes a second in each direction: of streams and datagrams, of WebSockets, and of the bodies of HTTP requests and responses.
//!
//! The gateway delays bytes of TCP, TLS, WebSockets and bodies, so flow control slows the sender down. Plain TCP still goes from socket to
//! socket in the kernel. Excess datagrams are dropped and counted. Connections with the same key share one rate evenly: each of ten gets a
//! tenth. If several of these plugins run for a proxy, all of them apply.
//!
//! A changed rate applies to open sessions at once, and keeps their usage. An added or removed plugin config applies to them within
//! `session_check`. Bytes count as they pass the gateway: decrypted for TLS and DTLS, with frames for WebSockets.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::limit::{Meter, Meters};
use gateway_core::metrics::Metric;
use gateway_core::plugin::{
    Family, Gate, Hooks, OnConnect, OnRequest, OnResponse, OnTransfer, Plugin, Refusal, Seat, Starter, Step,
    World,
};
use gateway_core::stream::session::{Direction, Session};
use gateway_plugin_common::caller_key::{KeyBy, KeySettings, Keyed, Missing};
use gateway_plugin_common::one_or_many::OneOrMany;
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::admission::byte_caps::{Cap, CapTable, Caps, Setting};

/// Settings of `bandwidth_limit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Bytes a second from clients, up to 1 TB. This or `download` is required.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    upload: Option<Bytes>,
    /// Burst from clients in bytes: 10 ms to 60 s of `upload`. Default 25 ms of it, at least 4 KiB, which keeps the
    /// rate within 1 % over 10 s.
    upload_burst: Option<Bytes>,
    /// Bytes a second to clients, up to 1 TB.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    download: Option<Bytes>,
    /// Burst to clients in bytes: 10 ms to 60 s of `download`. Default 25 ms of it, at least 4 KiB.
    download_burst: Option<Bytes>,
    /// Whose bytes count together: `route` (those of a proxy), `port` (those of a port that the gateway listens on), `owner` (those of
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
    /// What happens to traffic that lacks the value of `limit_by`: `address` counts it by the client's address, `allow`
    /// does not limit it, `deny` rejects it. Default `address`.
    on_missing: Missing,
    /// Keys with their own rates, 1 to 1,000,000; each takes about 250 bytes of memory while it is in use. Further keys
    /// share one rate. Default 100,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_keys: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            upload: None,
            upload_burst: None,
            download: None,
            download_burst: None,
            limit_by: OneOrMany::One("route".into()),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            on_missing: Missing::Address,
            max_keys: 100_000,
        }
    }
}

/// The plugin.
pub(crate) struct BandwidthLimit {
    caps: Caps,
    key_by: KeyBy,
    table: Arc<CapTable>,
}

const SHARED: Metric = Metric::counter(
    "ferrum_bandwidth_limit_shared_total",
    "Sessions and bodies that share a rate with others because more than `max_keys` keys are in use.",
);
const KEY_MISSING: &str = "bandwidth_limit_key_missing";

impl Plugin for BandwidthLimit {
    const NAME: &'static str = "bandwidth_limit";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits the bytes a second of streams, datagrams, WebSockets and bodies.";
    const EXAMPLE: &'static str = include_str!("../../examples/bandwidth_limit.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let caps = Caps {
            up: Cap::read(
                Setting { name: "upload", value: config.upload },
                Setting { name: "upload_burst", value: config.upload_burst },
                &mut problems,
            ),
            down: Cap::read(
                Setting { name: "download", value: config.download },
                Setting { name: "download_burst", value: config.download_burst },
                &mut problems,
            ),
        };
        if config.upload.is_none() && config.download.is_none() {
            problems.add("config", "nothing is limited").remedy = Some("give `upload` or `download`".into());
        }
        let settings = KeySettings {
            name: "limit_by",
            limit_by: config.limit_by,
            ipv4_prefix: config.ipv4_prefix,
            ipv6_prefix: config.ipv6_prefix,
            on_missing: config.on_missing,
        };
        let key_by = KeyBy::new(settings, &mut problems);
        problems.into_result(())?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let shared = world.meters().counter(SHARED, &["plugin_config"], &[owner]);
        let max_keys = config.max_keys;
        // A table of another size begins anew.
        let make = || CapTable::new(caps, max_keys, Instant::now(), shared);
        Ok(Self { caps, key_by, table: world.kept(&format!("rates of {max_keys}"), make) })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.key_by.attend(hooks);
        if self.key_by.denies() {
            hooks.on_connect(self.clone());
        }
        hooks.on_transfer(self.clone());
        // Both: who may not go on is refused before anything is sent.
        hooks.on_request(self.clone());
        if self.caps.down.is_some() {
            hooks.on_response(self);
        }
    }

    fn start(self: &Arc<Self>, _starter: &mut Starter<'_>) {
        self.table.set(self.caps, Instant::now());
    }
}

impl BandwidthLimit {
    fn meters_of(&self, keyed: Keyed, meters: &mut Meters) {
        let Keyed::Key(key) = keyed else { return };
        let rates = self.table.rates(key, Instant::now());
        meters.up.extend(rates.up.map(Meter::Rate));
        meters.down.extend(rates.down.map(Meter::Rate));
    }

    fn session_key(&self, session: &Session, seat: Seat<'_>) -> Keyed {
        self.key_by.of_session(session, seat.proxy(), self.table.hasher())
    }
}

impl OnConnect for BandwidthLimit {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        match self.session_key(session, seat) {
            Keyed::Denied => Gate::Refuse(Refusal::new(KEY_MISSING)),
            Keyed::Key(_) | Keyed::Nobody => Gate::Open,
        }
    }
}

impl OnTransfer for BandwidthLimit {
    fn meters(&self, session: &Session, seat: Seat<'_>, meters: &mut Meters) {
        self.meters_of(self.session_key(session, seat), meters);
    }
}

impl OnRequest for BandwidthLimit {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let keyed = self.key_by.of_exchange(exchange, seat.proxy(), self.table.hasher());
        if keyed == Keyed::Denied {
            let reply = Reply::new(Cause::Forbidden).detail("the request lacks what it is counted by");
            return Step::reply(reply.reason(KEY_MISSING));
        }
        if let Keyed::Key(key) = keyed {
            exchange.state.put(seat, key);
        }
        if self.caps.up.is_some() && !exchange.body.is_empty() {
            let mut meters = Meters::default();
            self.meters_of(keyed, &mut meters);
            exchange.body = std::mem::take(&mut exchange.body).metered(meters, Direction::Up);
        }
        Step::Next
    }
}

impl OnResponse for BandwidthLimit {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            && let Some(key) = exchange.state.of::<u64>(seat)
        {
            let mut meters = Meters::default();
            self.meters_of(Keyed::Key(*key), &mut meters);
            *response.body_mut() = std::mem::take(response.body_mut()).metered(meters, Direction::Down);
        }
        Step::Next
    }
}

#[cfg(test)]
mod tests;
