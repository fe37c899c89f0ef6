//! Shows the gateway's metrics to a visitor. Reads the workers' numbers and never makes a worker wait.

mod durations;

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::metrics::{Labels, MetricVisitor, Number};
use gateway_core::metrics::{Metric, names};
use gateway_core::snapshot::Snapshot;
use gateway_protocols::supervise::Tasks;
use tokio::time::Instant;

use super::labels::{CLASS_NAMES, CLASSES, SESSIONS};
use super::process::Process;
use super::shard::{GRPC_STATUSES, WorkerTelemetry};
use super::{AcmeStanding, CertificateEnd, Telemetry, histogram::Count, program_log};

/// Targets with a series of their own; a target beyond is missing from the metric, never from the admin API.
pub const MAX_TARGET_SERIES: usize = 10_000;

/// Shows everything that is not a plugin's.
pub fn visit(
    telemetry: &Telemetry,
    snapshot: &Snapshot,
    connections: usize,
    tasks: &Tasks,
    visitor: &mut dyn MetricVisitor,
) {
    let walk = &mut Walk(visitor);
    exchanges(walk, telemetry);
    connections_and_sessions(walk, telemetry, connections);
    proxies(walk, telemetry);
    consumers(walk, telemetry);
    durations::proxies(walk, telemetry);
    durations::dials(walk, telemetry);
    targets(walk, telemetry, snapshot);
    configuration(walk, telemetry, snapshot);
    program(walk, tasks);
    process(walk, telemetry);
}

/// Who sees the metrics.
struct Walk<'v>(&'v mut dyn MetricVisitor);

impl Walk<'_> {
    /// One metric without labels.
    fn single(&mut self, metric: &Metric, value: impl Into<Number>) {
        self.head(metric);
        self.sample(&[], value);
    }

    fn head(&mut self, metric: &Metric) {
        self.0.metric(metric);
    }

    fn sample(&mut self, labels: &Labels<'_>, value: impl Into<Number>) {
        self.0.number(labels, value.into());
    }
}

fn sum(telemetry: &Telemetry, of: impl Fn(&WorkerTelemetry) -> &Count) -> u64 {
    telemetry.workers.iter().map(|worker| of(worker).value()).fold(0, u64::wrapping_add)
}

fn exchanges(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    durations::requests(walk, telemetry);
    walk.single(&names::ACTIVE_REQUESTS, telemetry.active_requests());
    durations::first_bytes(walk, telemetry);
    durations::last_bytes(walk, telemetry);
    walk.single(&names::REQUEST_BYTES, sum(telemetry, |worker| &worker.request_bytes));
    walk.single(&names::RESPONSE_BYTES, sum(telemetry, |worker| &worker.response_bytes));
    walk.head(&names::GRPC_RESPONSES);
    for status in 0..=GRPC_STATUSES {
        let count = sum(telemetry, |worker| &worker.grpc[status]);
        let name = if status < GRPC_STATUSES { status.to_string() } else { "_other".to_owned() };
        if count > 0 {
            walk.sample(&[("rpc_grpc_status_code", &name)], count);
        }
    }
    walk.single(&names::RETRIES, sum(telemetry, |worker| &worker.retries));
    walk.head(&names::HEDGES);
    for (n, result) in ["won", "lost", "withheld"].into_iter().enumerate() {
        let count = sum(telemetry, |worker| &worker.hedges[n]);
        walk.sample(&[("result", result)], count);
    }
    walk.single(&names::PANICS, sum(telemetry, |worker| &worker.panics));
    walk.head(&names::REPLIES);
    let mut reasons = BTreeMap::<&str, u64>::new();
    for (reason, count) in telemetry.workers.iter().flat_map(|worker| worker.reasons.iter()) {
        *reasons.entry(reason).or_default() += count;
    }
    for (reason, count) in reasons {
        walk.sample(&[("reason", reason)], count);
    }
}

fn connections_and_sessions(walk: &mut Walk<'_>, telemetry: &Telemetry, connections: usize) {
    walk.single(&names::CONNECTIONS, connections);
    walk.single(&names::ACCEPTED, sum(telemetry, |worker| &worker.accepted));
    walk.single(&names::REFUSED, sum(telemetry, |worker| &worker.refused));
    walk.single(&names::SESSIONS_WITHHELD, sum(telemetry, |worker| &worker.withheld));
    let load = *telemetry.control.load.lock().unwrap_or_else(PoisonError::into_inner);
    walk.single(&names::OVERLOAD_LEVEL, load.level as u32);
    if let Some(limit) = load.memory_limit {
        walk.single(&names::OVERLOAD_MEMORY_LIMIT, limit);
    }
    walk.single(&names::WORKER_DELAY, load.delay.as_secs_f64());
    walk.head(&names::SESSIONS);
    for (place, protocol) in SESSIONS.into_iter().enumerate() {
        let ended = sum(telemetry, |worker| &worker.sessions[place].ended);
        walk.sample(&[("protocol", protocol)], ended);
    }
    walk.head(&names::SESSION_ENDS);
    let mut ends = BTreeMap::<(usize, &str), u64>::new();
    for (end, count) in telemetry.workers.iter().flat_map(|worker| worker.ends.iter()) {
        *ends.entry(end).or_default() += count;
    }
    for ((place, reason), count) in ends {
        let labels = &[("protocol", SESSIONS[place]), ("reason", reason)];
        walk.sample(labels, count);
    }
    walk.head(&names::SESSION_BYTES);
    for (place, protocol) in SESSIONS.into_iter().enumerate() {
        let up = sum(telemetry, |worker| &worker.sessions[place].up);
        let down = sum(telemetry, |worker| &worker.sessions[place].down);
        let open = &telemetry.control.session_bytes[place];
        let [open_up, open_down] = open.each_ref().map(|bytes| bytes.load(Relaxed));
        for (direction, bytes) in [("up", up + open_up), ("down", down + open_down)] {
            let labels = &[("protocol", protocol), ("direction", direction)];
            walk.sample(labels, bytes);
        }
    }
    walk.head(&names::SESSION_DROPPED);
    for (place, protocol) in SESSIONS.into_iter().enumerate() {
        let dropped = sum(telemetry, |worker| &worker.sessions[place].dropped);
        walk.sample(&[("protocol", protocol)], dropped);
    }
}

fn proxies(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    walk.head(&names::PROXY_REQUESTS);
    let mut series = |proxy: &str, counts: [u64; CLASSES]| {
        for (class, count) in CLASS_NAMES.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let labels = &[("proxy", proxy), ("http_response_status_class", class)];
            walk.sample(labels, count);
        }
    };
    for (slot, owner) in telemetry.configs().owners.iter().enumerate() {
        let Some(owner) = owner else { continue };
        let now = telemetry.proxy_counts(slot);
        series(owner.id.as_str(), std::array::from_fn(|class| now[class].wrapping_sub(owner.since[class])));
    }
    let of = |counts: fn(&WorkerTelemetry) -> &[Count; CLASSES]| {
        std::array::from_fn(|class| sum(telemetry, |worker| &counts(worker)[class]))
    };
    series("_other", of(|worker| &worker.proxies.other));
    series("_none", of(|worker| &worker.proxies.none));
}

/// How many exchanges each recognised caller has.
fn consumers(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let (mut sums, mut other) = (BTreeMap::new(), [0; CLASSES]);
    telemetry.workers.iter().for_each(|worker| worker.consumers.add_to(&mut sums, &mut other));
    walk.head(&names::CONSUMER_REQUESTS);
    let named = sums.iter().map(|(name, counts)| (&**name, counts));
    for (name, counts) in named.chain([("_other", &other)]) {
        for (class, count) in CLASS_NAMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
            let labels = &[("consumer", name), ("http_response_status_class", class)];
            walk.sample(labels, *count);
        }
    }
}

/// The connections of those targets that may have only so many.
fn connections(walk: &mut Walk<'_>, snapshot: &Snapshot) {
    let now = Instant::now();
    let all = snapshot.upstreams.iter().flat_map(|(id, targets)| targets.list().iter().map(move |t| (id, t)));
    let limited = all.filter_map(|(id, target)| Some((id, target, target.rules.max_connections?)));
    let limited: Vec<_> = limited.take(MAX_TARGET_SERIES).collect();
    for metric in [&names::TARGET_CONNECTIONS, &names::TARGET_MAX_CONNECTIONS] {
        walk.head(metric);
        for (upstream, target, most) in &limited {
            let labels = &[("upstream", upstream.as_str()), ("target", target.authority())];
            let now_open = target.status(now).connections.unwrap_or(0);
            let is_limit = metric.name == names::TARGET_MAX_CONNECTIONS.name;
            walk.sample(labels, if is_limit { most.get() } else { now_open });
        }
    }
}

fn targets(walk: &mut Walk<'_>, telemetry: &Telemetry, snapshot: &Snapshot) {
    let now = Instant::now();
    walk.head(&names::TARGET_HEALTHY);
    let all = snapshot.upstreams.iter().flat_map(|(id, targets)| targets.list().iter().map(move |t| (id, t)));
    for (upstream, target) in all.take(MAX_TARGET_SERIES) {
        let labels = &[("upstream", upstream.as_str()), ("target", target.authority())];
        walk.sample(labels, target.is_healthy(now));
    }
    connections(walk, snapshot);
    let control = &telemetry.control;
    let failed = sum(telemetry, |worker| &worker.failed) + control.failed.load(Relaxed);
    let recovered = sum(telemetry, |worker| &worker.recovered) + control.recovered.load(Relaxed);
    walk.head(&names::TARGET_CHANGES);
    walk.sample(&[("to", "unhealthy")], failed);
    walk.sample(&[("to", "healthy")], recovered);
    walk.head(&names::PROBES);
    let (good, bad) = (control.probes_good.load(Relaxed), control.probes_bad.load(Relaxed));
    walk.sample(&[("result", "good")], good);
    walk.sample(&[("result", "bad")], bad);
    services(walk, telemetry);
}

fn services(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let control = &telemetry.control;
    walk.head(&names::SERVICE_LOOKUPS);
    let (good, bad) = (control.lookups_good.load(Relaxed), control.lookups_bad.load(Relaxed));
    walk.sample(&[("result", "found")], good);
    walk.sample(&[("result", "failed")], bad);
    walk.head(&names::SERVICE_SERVERS);
    for (name, status) in control.services().iter().take(MAX_TARGET_SERIES) {
        walk.sample(&[("service", name)], status.servers);
    }
}

fn configuration(walk: &mut Walk<'_>, telemetry: &Telemetry, snapshot: &Snapshot) {
    let status = telemetry.config_status();
    walk.single(&names::CONFIG_REVISION, status.revision);
    walk.single(&names::CONFIG_APPLIED, seconds(status.applied_at.unwrap_or(UNIX_EPOCH)));
    walk.single(&names::CONFIG_REFUSED, status.refused);
    walk.single(&names::CONFIG_PROXIES, snapshot.by_id.len());
    walk.single(&names::CONFIG_QUARANTINED, snapshot.quarantined.len());
    walk.single(&names::CONFIG_BROKEN, telemetry.control.broken.load(Relaxed));
    walk.single(&names::DATABASE_UP, !telemetry.control.database_away.load(Relaxed));
    walk.single(&names::CERTIFICATES_REFUSED, telemetry.control.certificates_refused.load(Relaxed));
    acme(walk, telemetry);
    walk.head(&names::ADMIN_REFUSED);
    let control = &telemetry.control;
    for (reason, count) in [("token", &control.admin_tokens_refused), ("site", &control.admin_sites_refused)]
    {
        walk.sample(&[("reason", reason)], count.load(Relaxed));
    }
    walk.head(&names::CONSOLE_LOGINS);
    for (outcome, count) in [
        ("accepted", &control.logins_accepted),
        ("refused", &control.logins_refused),
        ("throttled", &control.logins_throttled),
    ] {
        walk.sample(&[("outcome", outcome)], count.load(Relaxed));
    }
    let approvals = &control.approvals;
    walk.head(&names::APPROVALS);
    for (outcome, count) in [
        ("proposed", &approvals.proposed),
        ("approved", &approvals.approved),
        ("rejected", &approvals.rejected),
        ("withdrawn", &approvals.withdrawn),
        ("forced", &approvals.forced),
        ("conflict", &approvals.conflicts),
    ] {
        walk.sample(&[("outcome", outcome)], count.get());
    }
    walk.single(&names::CHANGES_PENDING, control.changes_pending.load(Relaxed));
    let audit = &control.audit;
    walk.head(&names::AUDIT_ENTRIES);
    for (outcome, count) in
        [("allowed", &audit.allowed), ("refused", &audit.refused), ("failed", &audit.failed)]
    {
        walk.sample(&[("outcome", outcome)], count.load(Relaxed));
    }
    walk.single(&names::AUDIT_SUPPRESSED, audit.suppressed.load(Relaxed));
    walk.single(&names::AUDIT_LOST, audit.lost.load(Relaxed));
    walk.head(&names::CERTIFICATE_ENDS);
    for CertificateEnd { file, ends, is_renewed, .. } in
        &*telemetry.control.certificate_ends.lock().unwrap_or_else(PoisonError::into_inner)
    {
        let file = file.display().to_string();
        let source = if *is_renewed { "acme" } else { "file" };
        let labels = &[("file", file.as_str()), ("source", source)];
        walk.sample(labels, *ends);
    }
    let (written, dropped) = telemetry.log.as_ref().map_or((0, 0), |log| (log.written(), log.dropped()));
    walk.single(&names::LOG_WRITTEN, written);
    walk.single(&names::LOG_DROPPED, dropped);
    walk.single(&names::WORKERS, telemetry.workers.len());
}

/// The certificates that the gateway gets by itself.
fn acme(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let acme = &telemetry.control.acme;
    walk.head(&names::ACME_ORDERS);
    for (result, count) in [("issued", &acme.issued), ("failed", &acme.failed)] {
        walk.sample(&[("result", result)], count.load(Relaxed));
    }
    walk.head(&names::ACME_CERTIFICATES);
    let all = acme.statuses();
    for standing in [AcmeStanding::Good, AcmeStanding::Missing, AcmeStanding::Failing] {
        let count = all.iter().filter(|status| status.standing() == standing).count();
        let labels = &[("status", standing.as_str())];
        walk.sample(labels, count);
    }
}

/// The program log and the tasks that must keep running.
fn program(walk: &mut Walk<'_>, tasks: &Tasks) {
    let counts = program_log::counts();
    walk.head(&names::PROGRAM_LOG_LINES);
    for (result, count) in [("written", counts.written), ("lost", counts.lost), ("left_out", counts.left_out)]
    {
        walk.sample(&[("result", result)], count);
    }
    walk.single(&names::PROGRAM_LOG_ERRORS, counts.write_errors);
    let tasks = tasks.list();
    walk.head(&names::TASKS_DOWN);
    for (name, state) in &tasks {
        walk.sample(&[("task", name)], state.down);
    }
    walk.head(&names::TASK_FAILURES);
    for (name, state) in &tasks {
        walk.sample(&[("task", name)], state.failures);
    }
}

fn process(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    walk.head(&names::BUILD_INFO);
    walk.sample(&[("version", env!("CARGO_PKG_VERSION"))], true);
    let Process { cpu_seconds, resident, virtual_memory, threads, fds, max_fds } = Process::read();
    if let Some(cpu) = cpu_seconds {
        walk.single(&names::PROCESS_CPU, cpu);
    }
    for (metric, value) in [
        (names::PROCESS_MEMORY, resident),
        (names::PROCESS_VIRTUAL_MEMORY, virtual_memory),
        (names::PROCESS_THREADS, threads),
        (names::PROCESS_FDS, fds),
        (names::PROCESS_MAX_FDS, max_fds),
    ] {
        if let Some(value) = value {
            walk.single(&metric, value);
        }
    }
    walk.single(&names::PROCESS_START, seconds(telemetry.started().1));
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
