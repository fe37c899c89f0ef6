//! One worker's share of the numbers. Only its thread writes, so that no write ever waits for another core.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gateway_core::balance::Target;
use gateway_core::config::model::Id;
use gateway_core::health::HealthChange;
use gateway_core::http::reply::Cause;
use gateway_core::http::upstream::Phases;
use gateway_core::limit::bucket::{Bucket, BucketState};
use gateway_core::limit::epoch::Epoch;
use gateway_core::limit::window::Allowance;
use gateway_core::record::{ExchangeRecord, Recorder, SessionRecord};
use gateway_core::stream::relay::Carried;
use gateway_protocols::recorder::ConnectionRecorder;
use gateway_telemetry::record::Record;
use tokio::time::Instant;

use super::access_log::Share;
use super::consumers::ConsumerTable;
use super::exemplars::Exemplars;
use super::histogram::{Count, Histogram, Merged, bucket_of};
use super::labels::{CLASSES, SESSIONS, VERSIONS, class_of, session_place, version_of};
use super::native::{self, BucketIndex, Native, Sparse};
use super::sinks::Sinks;

/// Proxies with a series of their own; the others share one.
pub const MAX_PROXY_SERIES: usize = 10_000;
/// Proxies with histograms of their own: each is forty lines of a scrape.
pub(super) const MAX_PROXY_HISTOGRAMS: usize = 1000;
/// Proxies whose counters are allocated together.
pub(super) const PAGE: usize = 64;
/// Reasons with a counter of their own; the table of causes has half as many.
const MAX_REASONS: usize = 64;
/// Statuses of gRPC calls, OK to UNAUTHENTICATED.
pub(super) const GRPC_STATUSES: usize = 17;
/// Protocols with reasons of ended sessions that have a counter of their own; the rest share the last one.
const MAX_ENDS: usize = 128;

/// One worker's share; written by its thread only.
///
/// Aligned so that no two workers' shares meet in a cache line, nor in the pair of lines that is fetched together.
#[derive(Default)]
#[repr(align(128))]
pub struct WorkerTelemetry {
    pub(super) began: Count,
    pub(super) ended: Count,
    pub(super) request_bytes: Count,
    pub(super) response_bytes: Count,
    pub(super) retries: Count,
    /// By status; what is beyond the last one that gRPC has shares the last place.
    pub(super) grpc: [Count; GRPC_STATUSES + 1],
    /// Hedges whose answer was taken, other hedges, and those that the budget withheld.
    pub(super) hedges: [Count; 3],
    pub(super) accepted: Count,
    pub(super) refused: Count,
    pub(super) closed: Count,
    pub(super) panics: Count,
    pub(super) failed: Count,
    pub(super) recovered: Count,
    pub(super) durations: [[Histogram; CLASSES]; VERSIONS.len()],
    pub(super) first_bytes: Histogram,
    pub(super) last_bytes: Histogram,
    pub(super) natives: [[Native; CLASSES]; VERSIONS.len()],
    pub(super) native_first_bytes: Native,
    pub(super) reasons: Reasons,
    pub(super) proxies: ProxyTable,
    pub(super) consumers: ConsumerTable,
    pub(super) timings: TimingTable,
    pub(super) exemplars: Exemplars,
    pub(super) sessions: [SessionCounts; SESSIONS.len()],
    pub(super) ends: SessionEnds,
    /// Records that were not written, because anybody could have had too many written.
    pub(super) withheld: Count,
    unproven: Unproven,
    pub(super) dials: Dials,
    log: Option<Arc<Share>>,
    sinks: Arc<Sinks>,
}

/// Ended sessions of one protocol.
#[derive(Default)]
pub(super) struct SessionCounts {
    pub(super) ended: Count,
    pub(super) up: Count,
    pub(super) down: Count,
    pub(super) dropped: Count,
}

/// How many records are written of clients that may not exist: a flood of datagrams with forged addresses must not take the
/// place of others in the log.
#[derive(Default)]
struct Unproven {
    rule: OnceLock<Bucket>,
    state: BucketState,
}

impl Unproven {
    /// Records a second.
    const RATE: u32 = 10;
    /// Records at once.
    const BURST: u32 = 100;

    fn admits(&self, now: Instant) -> bool {
        let rule = || Bucket::new(Self::RATE, Duration::from_secs(1), Self::BURST, Epoch::starting(now));
        matches!(self.rule.get_or_init(rule).take(&self.state, 1, now), Allowance::Granted { .. })
    }
}

/// Counts by reason. A reason's place is its cause's; its word is learnt when it first happens.
pub(super) struct Reasons([(OnceLock<&'static str>, Count); MAX_REASONS]);

impl Default for Reasons {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }
}

impl Reasons {
    fn count(&self, place: usize, reason: &'static str) {
        if let Some((word, count)) = self.0.get(place) {
            word.get_or_init(|| reason);
            count.add(1);
        }
    }

    /// What has happened so far.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().filter_map(|(word, count)| Some((*word.get()?, count.value())))
    }
}

/// Ended sessions by protocol and reason. A place is taken by what first happens; all beyond share the last.
pub(super) struct SessionEnds(Box<[(OnceLock<SessionEnd>, Count); MAX_ENDS]>);

/// The place of a protocol in [`SESSIONS`], and why its sessions ended.
type SessionEnd = (usize, &'static str);

impl Default for SessionEnds {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Default::default())))
    }
}

impl SessionEnds {
    fn count(&self, protocol: usize, reason: &'static str) {
        let found = self.0[..MAX_ENDS - 1].iter().find(|(end, _)| {
            let end = end.get_or_init(|| (protocol, reason));
            *end == (protocol, reason)
        });
        match found {
            Some((_, count)) => count.add(1),
            None => {
                let (end, count) = &self.0[MAX_ENDS - 1];
                end.get_or_init(|| (SESSIONS.len() - 1, "other"));
                count.add(1);
            }
        }
    }

    /// What has happened so far.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionEnd, u64)> {
        self.0.iter().filter_map(|(end, count)| Some((*end.get()?, count.value())))
    }
}

/// How long new connections take, by upstream and phase. Touched once a connection, so a lock costs nothing.
#[derive(Default)]
pub(super) struct Dials(Mutex<HashMap<Id, Box<[Histogram; PHASES.len()]>>>);

/// The steps to a connection, as a label.
pub(super) const PHASES: [&str; 3] = ["dns", "connect", "tls"];

impl Dials {
    fn observe(&self, upstream: &Id, phases: Phases) {
        let mut dials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if dials.len() >= MAX_PROXY_HISTOGRAMS && !dials.contains_key(upstream) {
            return;
        }
        let histograms = dials.entry(upstream.clone()).or_default();
        for (histogram, took) in histograms.iter().zip([phases.dns, phases.connect, phases.tls]) {
            took.into_iter().for_each(|took| histogram.observe(took));
        }
    }

    /// Adds what was seen so far.
    pub(super) fn add_to(&self, sums: &mut BTreeMap<Id, [Merged; PHASES.len()]>) {
        let dials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (upstream, histograms) in &*dials {
            let sums = sums.entry(upstream.clone()).or_default();
            sums.iter_mut().zip(&**histograms).for_each(|(sum, histogram)| sum.add(histogram));
        }
    }
}

/// Exchanges of one proxy by status class.
pub(super) type ProxyCounts = [Count; CLASSES];

/// Counts by the proxies' slots, allocated a page at a time, when one of its proxies first has traffic.
pub(super) struct ProxyTable {
    pages: Box<[OnceLock<Box<[ProxyCounts; PAGE]>>]>,
    pub(super) other: ProxyCounts,
    pub(super) none: ProxyCounts,
}

impl Default for ProxyTable {
    fn default() -> Self {
        Self {
            pages: (0..MAX_PROXY_SERIES.div_ceil(PAGE)).map(|_| OnceLock::new()).collect(),
            other: ProxyCounts::default(),
            none: ProxyCounts::default(),
        }
    }
}

impl ProxyTable {
    fn of(&self, slot: usize) -> &ProxyCounts {
        match self.pages.get(slot / PAGE) {
            Some(page) if slot < MAX_PROXY_SERIES => {
                &page.get_or_init(|| Box::new(std::array::from_fn(|_| ProxyCounts::default())))[slot % PAGE]
            }
            _ => &self.other,
        }
    }

    /// The counts at a slot, if its page was ever written to.
    pub(super) fn read(&self, slot: usize) -> Option<&ProxyCounts> {
        self.pages.get(slot / PAGE)?.get().map(|page| &page[slot % PAGE])
    }
}

/// One proxy's durations: buckets with written bounds, and exponential ones.
#[derive(Debug, Default)]
pub(super) struct Durations {
    pub(super) classic: Histogram,
    pub(super) native: Sparse,
}

impl Durations {
    fn observe(&self, duration: Duration, place: BucketIndex) {
        self.classic.observe(duration);
        self.native.count(place);
    }
}

/// How long one proxy's exchanges take.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pub(super) total: Durations,
    /// There once a target has answered.
    first_byte: OnceLock<Box<Durations>>,
    last_byte: OnceLock<Box<Histogram>>,
}

impl Timing {
    /// How long its targets took to answer, if one did.
    pub(super) fn first_byte(&self) -> Option<&Durations> {
        self.first_byte.get().map(|durations| &**durations)
    }

    /// How long they took to send their whole answers.
    pub(super) fn last_byte(&self) -> Option<&Histogram> {
        self.last_byte.get().map(|durations| &**durations)
    }
}

/// Where an exchange's durations are counted, found once for all histograms.
struct PhaseBuckets {
    total: BucketIndex,
    first_byte: Option<(Duration, BucketIndex)>,
    last_byte: Option<(Duration, usize)>,
}

impl PhaseBuckets {
    fn of(record: &ExchangeRecord<'_>) -> Self {
        let first_byte = record.first_byte.map(|took| (took, native::place(took)));
        let last_byte = record.last_byte.map(|took| (took, bucket_of(took)));
        Self { total: native::place(record.duration), first_byte, last_byte }
    }
}

/// Timings by the proxies' slots, each allocated with its proxy's first exchange.
pub(super) struct TimingTable(Box<[OnceLock<Box<Timing>>]>);

impl Default for TimingTable {
    fn default() -> Self {
        Self((0..MAX_PROXY_HISTOGRAMS).map(|_| OnceLock::new()).collect())
    }
}

impl TimingTable {
    fn observe(&self, slot: usize, record: &ExchangeRecord<'_>, places: &PhaseBuckets) {
        let Some(timing) = self.0.get(slot) else { return };
        let timing = timing.get_or_init(Box::default);
        timing.total.observe(record.duration, places.total);
        if let Some((took, place)) = places.first_byte {
            timing.first_byte.get_or_init(Box::default).observe(took, place);
        }
        if let Some((took, bucket)) = places.last_byte {
            timing.last_byte.get_or_init(Box::default).observe_in(bucket, took);
        }
    }

    /// The timing at a slot, if there was an exchange.
    pub(super) fn read(&self, slot: usize) -> Option<&Timing> {
        self.0.get(slot)?.get().map(|timing| &**timing)
    }
}

impl WorkerTelemetry {
    pub(super) fn new(log: Option<Arc<Share>>, sinks: Arc<Sinks>) -> Self {
        Self { log, sinks, ..Self::default() }
    }
}

impl Recorder for WorkerTelemetry {
    fn panicked(&self) {
        self.panics.add(1);
    }

    fn began(&self) {
        self.began.add(1);
    }

    fn exchange(&self, record: &ExchangeRecord<'_>) {
        self.ended.add(1);
        let class = class_of(record.status);
        let version = version_of(record.exchange.version());
        self.durations[version][class].observe(record.duration);
        let places = PhaseBuckets::of(record);
        self.natives[version][class].count(places.total);
        self.exemplars.observe(record, version, class);
        let proxy = match record.route {
            Some(route) => {
                self.timings.observe(route.slot as usize, record, &places);
                self.proxies.of(route.slot as usize)
            }
            None => &self.proxies.none,
        };
        proxy[class].add(1);
        if let Some(identity) = &record.exchange.identity {
            self.consumers.count(&identity.name, class);
        }
        if let Some((took, place)) = places.first_byte {
            self.first_bytes.observe(took);
            self.native_first_bytes.count(place);
        }
        if let Some((took, bucket)) = places.last_byte {
            self.last_bytes.observe_in(bucket, took);
        }
        // Most exchanges have no request body, and writing less is cheaper than looking.
        if record.request_bytes > 0 {
            self.request_bytes.add(record.request_bytes);
        }
        self.response_bytes.add(record.response_bytes);
        if let Some(status) = record.grpc_status {
            self.grpc[usize::from(status).min(GRPC_STATUSES)].add(1);
        }
        if record.attempts > 1 {
            let hedged = record.exchange.hedged();
            self.retries.add(u64::from((record.attempts - 1).saturating_sub(hedged.sent)));
            if hedged.sent > 0 {
                let won = u64::from(hedged.won.is_some());
                self.hedges[0].add(won);
                self.hedges[1].add(u64::from(hedged.sent).saturating_sub(won));
            }
        }
        if record.route.is_some_and(|route| route.hedger.is_some()) && record.exchange.hedged().withheld {
            self.hedges[2].add(1);
        }
        if let Some(cause) = record.cause {
            self.reasons.count(cause as usize, cause.reason());
        }
        if record.cause.is_some_and(is_upstream_failure) {
            log_failure(record);
        }
        if let Some(log) = &self.log {
            log.exchange(record);
        }
        self.sinks.record(Record::Exchange(record));
    }

    fn health(&self, target: &Target, change: HealthChange) {
        match change {
            HealthChange::Failed => self.failed.add(1),
            HealthChange::Recovered => self.recovered.add(1),
        }
        log_health(target, change, "traffic");
    }

    fn session_bytes(&self, protocol: &'static str, carried: Carried) {
        let counts = &self.sessions[session_place(protocol)];
        counts.up.add(carried.up);
        counts.down.add(carried.down);
    }

    fn session_dropped(&self, protocol: &'static str, datagrams: u64) {
        self.sessions[session_place(protocol)].dropped.add(datagrams);
    }

    fn session(&self, record: &SessionRecord<'_>) {
        let place = session_place(record.protocol);
        let counts = &self.sessions[place];
        counts.ended.add(1);
        self.ends.count(place, record.reason);
        counts.up.add(record.uncounted.up);
        counts.down.add(record.uncounted.down);
        let is_unproven = record.session.unproven && record.target.is_none();
        if is_unproven && !self.unproven.admits(Instant::now()) {
            return self.withheld.add(1);
        }
        if let Some(log) = &self.log {
            log.session(record);
        }
        self.sinks.record(Record::Session(record));
    }
}

impl ConnectionRecorder for WorkerTelemetry {
    fn accepted(&self) {
        self.accepted.add(1);
    }

    fn refused(&self) {
        self.refused.add(1);
    }

    fn closed(&self) {
        self.closed.add(1);
    }

    fn panicked(&self) {
        self.panics.add(1);
    }

    fn dialled(&self, upstream: &Id, phases: Phases) {
        self.dials.observe(upstream, phases);
    }
}

/// Whether the way to the target failed, which an operator wants to see without an access log.
fn is_upstream_failure(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::DnsFailed
            | Cause::ConnectFailed
            | Cause::ConnectTimeout
            | Cause::TlsFailed
            | Cause::TlsCertificate
            | Cause::UpstreamClosed
            | Cause::UpstreamGarbage
            | Cause::UpstreamTimeout
            | Cause::NoTarget
            | Cause::CircuitOpen
    )
}

/// A target changed sides: rare, and what operators look for first.
pub(super) fn log_health(target: &Target, change: HealthChange, by: &'static str) {
    match change {
        HealthChange::Failed => {
            let cause = target.unhealthy_because(Instant::now());
            tracing::warn!(target = %target.authority(), by, cause, "a target became unhealthy");
        }
        HealthChange::Recovered => {
            tracing::warn!(target = %target.authority(), by, "a target is healthy again")
        }
    }
}

/// Names the proxy, the target and the reason. The program log limits how often a line is repeated.
#[cold]
fn log_failure(record: &ExchangeRecord<'_>) {
    let proxy = record.route.map_or("", |route| route.proxy.id.as_str());
    let target = record.target.map_or("", |target| &**target.authority());
    let error = record.failure.map(ToString::to_string);
    let setting = record.decided.map(|decided| decided.name);
    let limit = record.decided.and_then(|decided| decided.limit).map(|limit| limit.to_string());
    tracing::warn!(proxy, target, reason = record.reason, error, setting, limit, "upstream request failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a proxy's histograms cost each worker before their first duration.
    #[test]
    fn an_unused_histogram_costs_no_more_than_its_budget() {
        const BUDGET: usize = 200;
        let table = TimingTable::default();
        assert!(table.0.iter().all(|slot| slot.get().is_none()), "nothing is allocated ahead");
        assert!(size_of_val(&*table.0) <= BUDGET * table.0.len());
        // A proxy whose targets never answered has one histogram and the room for the other.
        let timing = Timing::default();
        assert!(timing.first_byte().is_none());
        assert!(size_of::<Timing>() - size_of::<Durations>() <= BUDGET, "{}", size_of::<Timing>());
    }
}
