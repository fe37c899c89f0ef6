//! What leaves the gateway about its traffic: metrics and access records.

pub mod access_log;
mod acme;
mod consumers;
mod datagram;
mod exemplars;
pub(crate) mod fine_histogram;
mod histogram;
pub(crate) mod inherited;
mod labels;
mod load;
pub(crate) mod moment;
mod native;
pub(crate) mod page_format;
mod process;
pub(crate) mod program_log;
mod protobuf;
pub(crate) mod push;
mod shard;
pub(crate) mod sinks;
pub(crate) mod tails;
mod traffic;
pub mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwapOption;
use gateway_core::balance::Target;
use gateway_core::config::model::{Id, Settings};
use gateway_core::health::HealthChange;
use gateway_core::metrics::ExponentialHistogram;
use gateway_core::snapshot::compile::Compiled;
use gateway_core::stream::relay::Carried;

use access_log::{AccessLog, AccessLogError};
pub(crate) use acme::{AcmeCounts, AcmeStanding, AcmeStatus};
use histogram::Merged;
use inherited::CountTable;
use labels::CLASSES;
pub(crate) use load::Load;
pub use shard::{MAX_PROXY_SERIES, WorkerTelemetry};
use shard::{PAGE, log_health};
use sinks::Sinks;

/// Metrics and records of one gateway.
pub struct Telemetry {
    workers: Vec<Arc<WorkerTelemetry>>,
    log: Option<AccessLog>,
    pub(crate) sinks: Arc<Sinks>,
    started: Instant,
    started_at: SystemTime,
    configs: Mutex<Configs>,
    /// Written by the control runtime's few threads, never by a worker.
    pub(crate) control: ControlCounts,
}

/// When a certificate in use ends.
pub(crate) struct CertificateEnd {
    /// Where the configuration names it.
    pub(crate) at: String,
    pub(crate) file: PathBuf,
    /// In seconds since 1970.
    pub(crate) ends: i64,
    /// From how many seconds before that on it is warned of.
    pub(crate) warned: i64,
    /// Whether the gateway renews it by itself.
    pub(crate) is_renewed: bool,
}

/// What is known of a service that targets are found by.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceStatus {
    /// Servers that were found last.
    pub(crate) servers: usize,
    /// When they were found.
    pub(crate) found_at: Option<SystemTime>,
    /// Why the last lookup failed; `None` when it did not.
    pub(crate) error: Option<String>,
}

/// Counts one kind of event.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What this gateway did with changes that another user has to approve.
#[derive(Debug, Default)]
pub(crate) struct ApprovalCounts {
    pub(crate) proposed: Count,
    pub(crate) approved: Count,
    pub(crate) rejected: Count,
    pub(crate) withdrawn: Count,
    /// Applied without approval.
    pub(crate) forced: Count,
    /// Approvals that failed because an object had changed meanwhile.
    pub(crate) conflicts: Count,
}

/// What happens outside the workers.
#[derive(Default)]
pub(crate) struct ControlCounts {
    pub(crate) failed: AtomicU64,
    pub(crate) recovered: AtomicU64,
    pub(crate) probes_good: AtomicU64,
    pub(crate) probes_bad: AtomicU64,
    pub(crate) lookups_good: AtomicU64,
    pub(crate) lookups_bad: AtomicU64,
    services: Mutex<BTreeMap<Arc<str>, ServiceStatus>>,
    pub(crate) certificates_refused: AtomicU64,
    /// Changed files that can't be used, by the setting that names them; those before them go on serving.
    pub(crate) certificates_unusable: Mutex<BTreeMap<&'static str, Vec<String>>>,
    /// Changes that another user has to approve.
    pub(crate) approvals: ApprovalCounts,
    /// Those that wait in the database.
    pub(crate) changes_pending: AtomicU64,
    pub(crate) admin_tokens_refused: AtomicU64,
    pub(crate) admin_sites_refused: AtomicU64,
    pub(crate) logins_accepted: AtomicU64,
    pub(crate) logins_refused: AtomicU64,
    pub(crate) logins_throttled: AtomicU64,
    /// Entries of the audit.
    pub(crate) audit: Arc<crate::audit_recorder::Counts>,
    /// The certificates in use.
    pub(crate) certificate_ends: Mutex<Vec<CertificateEnd>>,
    /// The certificates that the gateway gets by itself.
    pub(crate) acme: AcmeCounts,
    /// What the gateway that this one replaced has counted.
    pub(crate) inherited_counts: ArcSwapOption<CountTable>,
    /// When the last successor (SIGUSR2) failed to take over, and why.
    pub(crate) successor_failure: Mutex<Option<(SystemTime, String)>>,
    /// The proxies whose files for TLS towards targets are of no use, and why.
    pub(crate) target_tls_unusable: Mutex<Vec<(Id, String)>>,
    /// How loaded the gateway was when it was last looked at.
    pub(crate) load: Mutex<Load>,
    pub(crate) broken: AtomicU64,
    pub(crate) database_away: AtomicBool,
    /// Bytes of sessions that were open when metrics were read, up and down by protocol.
    session_bytes: [[AtomicU64; 2]; labels::SESSIONS.len()],
}

impl ControlCounts {
    /// Bytes of open sessions that nobody has counted yet.
    pub(crate) fn add_session_bytes(&self, protocol: &str, carried: Carried) {
        let [up, down] = &self.session_bytes[labels::session_place(protocol)];
        up.fetch_add(carried.up, Ordering::Relaxed);
        down.fetch_add(carried.down, Ordering::Relaxed);
    }

    /// What is known of the services that targets are found by.
    pub(crate) fn services(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, ServiceStatus>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines kept of why the last configuration was refused.
pub const MAX_REFUSAL_LINES: usize = 100;

/// What became of the configurations so far.
#[derive(Default)]
struct Configs {
    status: ConfigStatus,
    /// The settings before the first reload.
    at_start: Option<Arc<Settings>>,
    owners: Vec<Option<Owner>>,
}

/// What became of the configurations so far.
#[derive(Debug, Clone, Default)]
pub struct ConfigStatus {
    /// The revision in use.
    pub revision: u64,
    /// When it was applied.
    pub applied_at: Option<SystemTime>,
    /// How many reloads were carried out.
    pub reloads: u64,
    /// How many were refused.
    pub refused: u64,
    /// When the last one was refused, and why, one problem a line.
    pub last_refusal: Option<(SystemTime, String)>,
    /// Settings that a reload has changed and that are used from the next start on.
    pub restart_needed: Vec<&'static str>,
}

/// The proxy at a slot. Slots are given to other proxies when theirs is gone, so that a count may only begin where the
/// one before ended.
struct Owner {
    id: Id,
    since: [u64; CLASSES],
    /// The same of its timings; `None` where nobody was timed before.
    since_timed: Option<Box<Timings>>,
    /// The same of its native histograms, empty where nobody was timed before.
    since_native: [native::Before; 2],
}

/// How long a proxy's exchanges take: in all, and until the target answers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timings {
    total: Merged,
    first_byte: Merged,
    last_byte: Merged,
}

impl Telemetry {
    /// Telemetry for so many workers.
    ///
    /// # Errors
    /// When the access log can't be opened.
    pub fn new(workers: usize, settings: &Settings) -> Result<Self, AccessLogError> {
        Self::with_sinks(workers, settings, Sinks::default())
    }

    /// The same, with further places that access records go to.
    pub(crate) fn with_sinks(
        workers: usize,
        settings: &Settings,
        sinks: Sinks,
    ) -> Result<Self, AccessLogError> {
        let sinks = Arc::new(sinks);
        let log = settings.access_log.as_ref().map(|rules| AccessLog::start(rules, workers)).transpose()?;
        let share = |worker| log.as_ref().and_then(|log| log.share(worker));
        Ok(Self {
            workers: (0..workers)
                .map(|worker| Arc::new(WorkerTelemetry::new(share(worker), sinks.clone())))
                .collect(),
            log,
            sinks,
            started: Instant::now(),
            started_at: SystemTime::now(),
            configs: Mutex::default(),
            control: ControlCounts::default(),
        })
    }

    /// The share of one worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerTelemetry> {
        self.workers[index].clone()
    }

    /// A configuration is put in use.
    pub fn applied(&self, compiled: &Compiled) {
        let mut configs = self.configs();
        configs.status.revision = compiled.snapshot.revision;
        configs.status.applied_at = Some(SystemTime::now());
        for route in &compiled.gone {
            if let Some(owner) = configs.owners.get_mut(route.slot as usize) {
                *owner = None;
            }
        }
        for route in &compiled.put {
            let (id, slot) = (&route.proxy.id, route.slot as usize);
            if slot >= MAX_PROXY_SERIES {
                continue;
            }
            if configs.owners.len() <= slot {
                configs.owners.resize_with(slot + 1, || None);
            }
            if configs.owners[slot].as_ref().is_none_or(|owner| owner.id != *id) {
                let timed = self.proxy_timings(slot);
                configs.owners[slot] = Some(Owner {
                    id: id.clone(),
                    since: self.proxy_counts(slot),
                    since_timed: (timed != Timings::default()).then(|| Box::new(timed)),
                    since_native: self.native_so_far(slot),
                });
            }
        }
    }

    /// A configuration was refused; one problem a line, of which the first [`MAX_REFUSAL_LINES`] are kept.
    pub fn refused(&self, why: impl std::fmt::Display) {
        let why = why.to_string();
        let mut kept: Vec<&str> = why.lines().take(MAX_REFUSAL_LINES).collect();
        let more = format!("and {} more lines", why.lines().count() - kept.len());
        if why.lines().nth(MAX_REFUSAL_LINES).is_some() {
            kept.push(&more);
        }
        let why = kept.join("\n");
        let mut configs = self.configs();
        configs.status.refused += 1;
        configs.status.last_refusal = Some((SystemTime::now(), why));
    }

    /// The settings that the gateway was started with. `before` are those before a reload: of the first one they are kept.
    pub(crate) fn at_start(&self, before: &Arc<Settings>) -> Arc<Settings> {
        self.configs().at_start.get_or_insert_with(|| before.clone()).clone()
    }

    /// Notes which settings the gateway uses only from its next start on.
    pub(crate) fn restart_needed(&self, settings: Vec<&'static str>) {
        self.configs().status.restart_needed = settings;
    }

    /// A reload is in use.
    pub(crate) fn reloaded(&self) {
        self.configs().status.reloads += 1;
    }

    /// What became of the configurations so far.
    pub fn config_status(&self) -> ConfigStatus {
        self.configs().status.clone()
    }

    /// When the gateway started.
    pub fn started(&self) -> (Instant, SystemTime) {
        (self.started, self.started_at)
    }

    /// Opens the access log's file anew, after the old one was moved away.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
        self.sinks.reopen();
    }

    /// Writes every record that waits; later ones are not written any more.
    pub fn flush(&self) {
        if let Some(log) = &self.log {
            log.close();
        }
        self.sinks.close();
    }

    /// A probe of a target ended, and perhaps changed what is known of it.
    pub(crate) fn probed(&self, target: &Target, good: bool, change: Option<HealthChange>) {
        let result = if good { &self.control.probes_good } else { &self.control.probes_bad };
        result.fetch_add(1, Ordering::Relaxed);
        let Some(change) = change else { return };
        let changes = match change {
            HealthChange::Failed => &self.control.failed,
            HealthChange::Recovered => &self.control.recovered,
        };
        changes.fetch_add(1, Ordering::Relaxed);
        log_health(target, change, "probe");
    }

    fn configs(&self) -> MutexGuard<'_, Configs> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exchanges at a slot by status class, over all workers, since the start.
    fn proxy_counts(&self, slot: usize) -> [u64; CLASSES] {
        debug_assert!(slot < MAX_PROXY_SERIES.next_multiple_of(PAGE), "callers stay within the table");
        let mut sums = [0_u64; CLASSES];
        for counts in self.workers.iter().filter_map(|worker| worker.proxies.read(slot)) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count.value());
            }
        }
        sums
    }
}

impl Telemetry {
    /// Exchanges under way.
    pub(crate) fn active_requests(&self) -> u64 {
        let sum = |of: fn(&WorkerTelemetry) -> u64| self.workers.iter().map(|worker| of(worker)).sum::<u64>();
        // The end is read first: one that ends between the two reads then counts as open, and never as less than none.
        let ended = sum(|worker| worker.ended.value());
        sum(|worker| worker.began.value()).saturating_sub(ended)
    }

    /// The timings at a slot, over all workers, since the start.
    fn proxy_timings(&self, slot: usize) -> Timings {
        let mut sums = Timings::default();
        for timing in self.workers.iter().filter_map(|worker| worker.timings.read(slot)) {
            sums.total.add(&timing.total.classic);
            if let Some(first_byte) = timing.first_byte() {
                sums.first_byte.add(&first_byte.classic);
            }
            if let Some(last_byte) = timing.last_byte() {
                sums.last_byte.add(last_byte);
            }
        }
        sums
    }

    fn native_so_far(&self, slot: usize) -> [native::Before; 2] {
        let timings = || self.workers.iter().filter_map(move |worker| worker.timings.read(slot));
        let first_bytes = timings().filter_map(|timing| Some(&timing.first_byte()?.native));
        [native::so_far(timings().map(|timing| &timing.total.native)), native::so_far(first_bytes)]
    }

    /// The native histograms of the proxies that were asked since they are there: in all, and until the target answers.
    fn native_timings(&self) -> Vec<(Id, ExponentialHistogram, ExponentialHistogram)> {
        let configs = self.configs();
        let owned = configs.owners.iter().enumerate().take(shard::MAX_PROXY_HISTOGRAMS);
        let timed = owned.filter_map(|(slot, owner)| {
            let owner = owner.as_ref()?;
            let timings = || self.workers.iter().filter_map(move |worker| worker.timings.read(slot));
            let [before, before_first] = &owner.since_native;
            let total = timings().map(|timing| &timing.total.native);
            let first_byte = timings().filter_map(|timing| Some(&timing.first_byte()?.native));
            let total = native::merged_since(total, before);
            let first_byte = native::merged_since(first_byte, before_first);
            (total.count() > 0).then(|| (owner.id.clone(), total, first_byte))
        });
        timed.collect()
    }

    /// The timings of the proxies that were asked since they are there.
    pub(crate) fn timings(&self) -> Vec<(Id, Timings)> {
        let configs = self.configs();
        let owned = configs.owners.iter().enumerate().take(shard::MAX_PROXY_HISTOGRAMS);
        let timed = owned.filter_map(|(slot, owner)| {
            let owner = owner.as_ref()?;
            let before = owner.since_timed.as_deref().copied().unwrap_or_default();
            let now = self.proxy_timings(slot);
            let (total, first_byte) =
                (now.total.since(&before.total), now.first_byte.since(&before.first_byte));
            let last_byte = now.last_byte.since(&before.last_byte);
            (total.count() > 0).then(|| (owner.id.clone(), Timings { total, first_byte, last_byte }))
        });
        timed.collect()
    }
}

#[cfg(test)]
mod tests;
