//! One member of an upstream and what is known about it.

pub(super) mod connections;
pub(super) mod failures;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::Instant;

use super::latency::Latency;
use super::queue::Queue;
use crate::config::model::{ActiveHealth, PassiveHealth, TargetRules};
use crate::health::{Active, HealthChange, Passive};
use crate::limit::epoch::Epoch;
use connections::{ConnectionLimit, Tally};
use failures::FailureLog;

/// Where an exchange may go. Shared by all workers; replaced on reload, while what it learned stays.
#[derive(Debug)]
pub struct Target {
    /// As configured.
    pub rules: Arc<TargetRules>,
    /// Made when they are first asked for: most of a million targets never are.
    names: OnceLock<Box<TargetNames>>,
    vitals: Arc<Vitals>,
    active: Option<Arc<Active>>,
    passive: Option<Arc<Passive>>,
}

/// What a target is called.
#[derive(Debug)]
struct TargetNames {
    /// `host:port`, with brackets around an IPv6 address; `unix:` and the path of a Unix socket.
    authority: Arc<str>,
    /// The authority as a header value, for a port that is not the scheme's default.
    authority_value: HeaderValue,
    /// The host alone as a header value, with brackets around an IPv6 address; `localhost` for a Unix socket.
    host_value: HeaderValue,
}

/// The share of a target that is warm. A cold one begins with a tenth of it.
pub(super) const WARM: u64 = 1000;

/// What stays with a host and port across reloads.
#[derive(Debug)]
pub(super) struct Vitals {
    key: u64,
    epoch: Epoch,
    pub(super) in_flight: AtomicU32,
    /// Counted where their number is limited.
    connections: OnceLock<Box<Tally>>,
    /// When it was added or brought back, in milliseconds since the epoch; 0 when it was there from the beginning.
    well_since: AtomicU64,
    /// Who waits for it to have room. Set once an upstream with a queue has it.
    queue: OnceLock<Arc<Queue>>,
    pub(super) latency: Latency,
    /// For operators.
    failures: FailureLog,
    /// Exchanges that it had no room for, likewise.
    refused: FailureLog,
}

/// A target as the admin API shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetStatus {
    /// Whether it gets traffic while others do.
    pub healthy: bool,
    /// The verdict of probes; `None` when nobody probes.
    pub probed_healthy: Option<bool>,
    /// The verdict of traffic; `None` when nobody watches.
    pub observed_healthy: Option<bool>,
    /// When traffic tries it again; `None` when it is observed healthy or waits for a probe.
    pub retried_in: Option<Duration>,
    /// Exchanges under way; stays 0 unless the algorithm counts them.
    pub in_flight: u32,
    /// Connections it has; `None` unless their number is limited.
    pub connections: Option<u32>,
    /// Recent time to the first byte; `None` unless the algorithm measures it.
    pub latency: Option<Duration>,
}

impl Target {
    /// A target under these rules; it keeps what is known about `known`, the same host and port before a reload.
    pub(super) fn new(
        rules: &Arc<TargetRules>,
        health: Health<'_>,
        known: Option<&Self>,
        epoch: Epoch,
    ) -> Self {
        Self {
            names: OnceLock::new(),
            rules: rules.clone(),
            vitals: known.map_or_else(|| Arc::new(Vitals::new(epoch)), |known| known.vitals.clone()),
            active: health.active(known),
            passive: health.passive(known, epoch),
        }
    }

    /// Whether a new target under these rules would differ in nothing.
    pub(super) fn is_current(&self, rules: &TargetRules, health: Health<'_>) -> bool {
        *self.rules == *rules
            && self.active.as_ref().map(|active| active.rules()) == health.active
            && match (&self.passive, health.passive) {
                (Some(passive), Some(rules)) => passive.is_current(rules, health.probes()),
                (passive, rules) => passive.is_none() && rules.is_none(),
            }
    }

    /// A number no other host and port of this upstream has, the same across reloads.
    pub fn key(&self) -> u64 {
        self.vitals.key
    }

    /// The value of a `Host` header: without the port where it is the scheme's default.
    pub fn host_header(&self, default_port: u16) -> &HeaderValue {
        let names = self.names();
        if self.rules.port == default_port { &names.host_value } else { &names.authority_value }
    }

    /// `host:port`, with brackets around an IPv6 address; `unix:` and the path of a Unix socket.
    pub fn authority(&self) -> &Arc<str> {
        &self.names().authority
    }

    fn names(&self) -> &TargetNames {
        self.names.get_or_init(|| Box::new(TargetNames::new(&self.rules)))
    }

    /// Whether it gets traffic while others do.
    pub fn is_healthy(&self, now: Instant) -> bool {
        !self.active.as_ref().is_some_and(|active| active.is_down())
            && !self.passive.as_ref().is_some_and(|passive| passive.is_down(now))
    }

    /// Why it gets no traffic while others do; `None` when it does.
    pub fn unhealthy_because(&self, now: Instant) -> Option<String> {
        let probed = self.active.as_ref().filter(|active| active.is_down());
        let probed = probed.map(|active| match active.failure() {
            Some(why) => format!("probe: {why}"),
            None => "probe failed".to_owned(),
        });
        let observed = || {
            let passive = self.passive.as_ref().filter(|passive| passive.is_down(now))?;
            Some(
                passive
                    .cause()
                    .map_or_else(|| "traffic failed".to_owned(), |kind| format!("traffic: {kind}")),
            )
        };
        probed.or_else(observed)
    }

    /// Keeps why a probe went wrong, for operators.
    pub fn note_probe_failure(&self, why: String) {
        if let Some(active) = &self.active {
            active.note_failure(why);
        }
    }

    /// Takes one probe's result, from one prober at a time. Says when the target as a whole changed sides.
    pub fn probed(&self, good: bool, now: Instant) -> Option<HealthChange> {
        let before = self.is_healthy(now);
        self.active.as_ref().and_then(|active| active.feed(good));
        self.passive.as_ref().and_then(|passive| passive.probed(good));
        match (before, self.is_healthy(now)) {
            (true, false) => Some(HealthChange::Failed),
            (false, true) => {
                self.vitals.warm_up(now);
                Some(HealthChange::Recovered)
            }
            _ => None,
        }
    }

    /// Whether it may get one more exchange.
    pub(super) fn has_room(&self) -> bool {
        self.rules.max_requests.is_none_or(|most| self.vitals.in_flight.load(Relaxed) < most.get())
            && self.has_connection()
    }

    /// Whether it may have one more connection for an exchange alone, or one of those it has can give way to it.
    pub(super) fn has_connection(&self) -> bool {
        self.rules.max_connections.is_none_or(|most| self.vitals.connections().busy() < most.get())
    }

    /// The limit on its connections, where there is one.
    pub fn connection_limit(&self) -> Option<ConnectionLimit> {
        let most = self.rules.max_connections?;
        Some(ConnectionLimit { vitals: self.vitals.clone(), most })
    }

    /// What its connections are told apart by from those to the same host and port in other upstreams, where they are counted.
    pub fn counted_as(&self) -> Option<u64> {
        self.rules.max_connections.map(|_| self.vitals.key)
    }

    /// Its share of the traffic while it warms up, of [`WARM`]: a tenth at first, and growing with the time it is well.
    pub(super) fn warmth(&self, now: u64, slow_start: u64) -> u64 {
        let back = self.passive.as_ref().map_or(0, |passive| passive.back_since(now));
        let since = self.vitals.well_since.load(Relaxed).max(back);
        let warm = now.saturating_sub(since);
        if since == 0 || warm >= slow_start { WARM } else { (WARM * warm / slow_start).max(WARM / 10) }
    }

    /// Notes that it was added to an upstream that has traffic already.
    pub(super) fn added(&self, now: Instant) {
        self.vitals.warm_up(now);
    }

    /// Wakes those in this queue when it has room again. The first queue of an upstream stays its only one.
    pub(super) fn wakes(&self, queue: &Arc<Queue>) {
        self.vitals.queue.get_or_init(|| queue.clone());
    }

    /// The queue it wakes.
    pub(super) fn queue(&self) -> Option<&Arc<Queue>> {
        self.vitals.queue.get()
    }

    /// What is known about it at this moment.
    pub fn status(&self, now: Instant) -> TargetStatus {
        TargetStatus {
            healthy: self.is_healthy(now),
            probed_healthy: self.active.as_ref().map(|active| !active.is_down()),
            observed_healthy: self.passive.as_ref().map(|passive| !passive.is_down(now)),
            retried_in: self.passive.as_ref().and_then(|passive| passive.out_for(now)).flatten(),
            in_flight: self.vitals.in_flight.load(Relaxed),
            connections: self.rules.max_connections.map(|_| self.vitals.connections().open()),
            latency: self.vitals.latency.average(),
        }
    }

    pub(super) fn vitals(&self) -> &Arc<Vitals> {
        &self.vitals
    }

    pub(super) fn observer(&self) -> Option<&Passive> {
        self.passive.as_deref()
    }

    /// Whether only clients that it is kept for still get to it: its weight is 0.
    pub fn is_draining(&self) -> bool {
        self.rules.weight == 0
    }

    pub(super) fn weight(&self) -> u64 {
        u64::from(self.rules.weight.max(1))
    }
}

impl Vitals {
    fn new(epoch: Epoch) -> Self {
        static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
        Self {
            key: NEXT_KEY.fetch_add(1, Relaxed),
            epoch,
            in_flight: AtomicU32::new(0),
            connections: OnceLock::new(),
            well_since: AtomicU64::new(0),
            queue: OnceLock::new(),
            latency: Latency::default(),
            failures: FailureLog::default(),
            refused: FailureLog::default(),
        }
    }

    fn connections(&self) -> &Tally {
        self.connections.get_or_init(Box::default)
    }

    pub(super) fn millis(&self, now: Instant) -> u64 {
        self.epoch.millis(now)
    }

    /// Begins the slow start.
    pub(super) fn warm_up(&self, now: Instant) {
        self.well_since.store(self.millis(now).max(1), Relaxed);
    }

    /// Counts an exchange, unless there are `most` already.
    pub(super) fn enter(&self, most: Option<NonZeroU32>) -> bool {
        let before = self.in_flight.fetch_add(1, Relaxed);
        let entered = most.is_none_or(|most| before < most.get());
        if !entered {
            self.in_flight.fetch_sub(1, Relaxed);
        }
        entered
    }

    /// Ends an exchange.
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.wake();
    }

    /// Wakes the first of those who wait for it to have room.
    pub(super) fn wake(&self) {
        if let Some(queue) = self.queue.get() {
            queue.wake();
        }
    }
}

/// The health rules of an upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Health<'u> {
    pub(super) active: Option<&'u ActiveHealth>,
    pub(super) passive: Option<&'u PassiveHealth>,
}

impl Health<'_> {
    /// Good probes in a row that make a target well again, when there are probes.
    fn probes(self) -> Option<u32> {
        self.active.map(|active| active.healthy_threshold)
    }

    /// The same rules keep the whole state, changed ones only the verdict.
    fn active(self, known: Option<&Target>) -> Option<Arc<Active>> {
        let rules = self.active?;
        Some(match known.and_then(|known| known.active.as_ref()) {
            Some(active) if active.rules() == rules => active.clone(),
            Some(active) => Arc::new(Active::resume(rules, active.is_down())),
            None => Arc::new(Active::new(rules)),
        })
    }

    /// The same rules keep the whole state; changed ones begin anew, since their windows cannot be compared.
    fn passive(self, known: Option<&Target>, epoch: Epoch) -> Option<Arc<Passive>> {
        let rules = self.passive?;
        let probes = self.probes();
        Some(match known.and_then(|known| known.passive.as_ref()) {
            Some(passive) if passive.is_current(rules, probes) => passive.clone(),
            _ => Arc::new(Passive::new(rules, probes, epoch)),
        })
    }
}

impl TargetNames {
    fn new(rules: &TargetRules) -> Self {
        if rules.socket().is_some() {
            const LOCALHOST: HeaderValue = HeaderValue::from_static("localhost");
            return Self { authority: rules.host.clone(), authority_value: LOCALHOST, host_value: LOCALHOST };
        }
        let host = match rules.host.contains(':') {
            true => format!("[{}]", rules.host),
            false => rules.host.to_string(),
        };
        let authority = format!("{host}:{}", rules.port);
        // One piece of memory for both headers.
        let text = Bytes::copy_from_slice(authority.as_bytes());
        let host_value = header_value(text.slice(..host.len()));
        Self { authority: Arc::from(authority), authority_value: header_value(text), host_value }
    }
}

/// A host that passed the configuration's checks is a valid header value; should one ever not be, requests carry a
/// name no server answers for instead of somebody else's.
fn header_value(text: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| HeaderValue::from_static("invalid."))
}
