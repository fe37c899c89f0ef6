//! The Prometheus text format, version 0.0.4. Reads the workers' numbers and never makes a worker wait.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::record::{Metric, metric};
use gateway_core::snapshot::Snapshot;
use gateway_protocols::supervise::Tasks;
use tokio::time::Instant;

use super::histogram::{BOUNDS, Merged};
use super::labels::{CLASS_NAMES, CLASSES, SESSIONS, VERSIONS, request_labels};
use super::process::Process;
use super::shard::{GRPC_STATUSES, PHASES, WorkerTelemetry};
use super::{AcmeStanding, CertificateEnd, Telemetry, histogram::Count, program_log};

/// What is served as `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Targets with a series of their own; a target beyond is missing from the metric, never from the admin API.
pub const MAX_TARGET_SERIES: usize = 10_000;

/// Everything, as text.
pub fn render(telemetry: &Telemetry, snapshot: &Snapshot, connections: usize, tasks: &Tasks) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    exchanges(&mut page, telemetry);
    connections_and_sessions(&mut page, telemetry, connections);
    proxies(&mut page, telemetry);
    consumers(&mut page, telemetry);
    timings(&mut page, telemetry);
    dials(&mut page, telemetry);
    targets(&mut page, telemetry, snapshot);
    configuration(&mut page, telemetry, snapshot);
    program(&mut page, tasks);
    process(&mut page, telemetry);
    page.0
}

/// The text so far.
struct Page(String);

impl Page {
    /// One metric without labels.
    fn single(&mut self, metric: &Metric, value: impl fmt::Display) {
        self.head(metric);
        self.sample(metric.name, format_args!(""), value);
    }

    fn head(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        self.push(format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", help.trim()));
    }

    /// `labels` as they stand within the braces.
    fn sample(&mut self, name: &str, labels: fmt::Arguments<'_>, value: impl fmt::Display) {
        match labels.as_str() {
            Some("") => self.push(format_args!("{name} {value}\n")),
            _ => self.push(format_args!("{name}{{{labels}}} {value}\n")),
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, merged: &Merged) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for ((_, bound), count) in BOUNDS.iter().zip(&merged.buckets) {
            sum += count;
            self.push(format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {sum}\n"));
        }
        let (count, seconds) = (merged.count(), merged.seconds());
        self.push(format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}\n"));
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        self.push(format_args!("{name}_sum{braces} {seconds}\n{name}_count{braces} {count}\n"));
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        let written = self.0.write_fmt(text);
        debug_assert!(written.is_ok(), "a string takes whatever is written");
    }
}

/// A label's value, escaped.
struct Label<'l>(&'l str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn sum(telemetry: &Telemetry, of: impl Fn(&WorkerTelemetry) -> &Count) -> u64 {
    telemetry.workers.iter().map(|worker| of(worker).value()).fold(0, u64::wrapping_add)
}

fn exchanges(page: &mut Page, telemetry: &Telemetry) {
    let name = metric::REQUEST_DURATION.name;
    page.head(&metric::REQUEST_DURATION);
    for version in 0..VERSIONS.len() {
        for class in 0..CLASSES {
            let mut merged = Merged::default();
            telemetry.workers.iter().for_each(|worker| merged.add(&worker.durations[version][class]));
            // A series appears when it first happens: most gateways never speak every version.
            if merged.count() > 0 {
                page.histogram(name, &request_labels(version, class), &merged);
            }
        }
    }
    page.single(&metric::ACTIVE_REQUESTS, telemetry.active_requests());
    let mut merged = Merged::default();
    telemetry.workers.iter().for_each(|worker| merged.add(&worker.first_bytes));
    page.head(&metric::UPSTREAM_DURATION);
    page.histogram(metric::UPSTREAM_DURATION.name, "", &merged);
    page.single(&metric::REQUEST_BYTES, sum(telemetry, |worker| &worker.request_bytes));
    page.single(&metric::RESPONSE_BYTES, sum(telemetry, |worker| &worker.response_bytes));
    page.head(&metric::GRPC_RESPONSES);
    for status in 0..=GRPC_STATUSES {
        let count = sum(telemetry, |worker| &worker.grpc[status]);
        let name = if status < GRPC_STATUSES { status.to_string() } else { "_other".to_owned() };
        if count > 0 {
            page.sample(metric::GRPC_RESPONSES.name, format_args!("rpc_grpc_status_code=\"{name}\""), count);
        }
    }
    page.single(&metric::RETRIES, sum(telemetry, |worker| &worker.retries));
    page.head(&metric::HEDGES);
    for (n, result) in ["won", "lost", "withheld"].into_iter().enumerate() {
        let count = sum(telemetry, |worker| &worker.hedges[n]);
        page.sample(metric::HEDGES.name, format_args!("result=\"{result}\""), count);
    }
    page.single(&metric::PANICS, sum(telemetry, |worker| &worker.panics));
    page.head(&metric::REPLIES);
    let mut reasons = BTreeMap::<&str, u64>::new();
    for (reason, count) in telemetry.workers.iter().flat_map(|worker| worker.reasons.iter()) {
        *reasons.entry(reason).or_default() += count;
    }
    for (reason, count) in reasons {
        page.sample(metric::REPLIES.name, format_args!("reason=\"{reason}\""), count);
    }
}

fn connections_and_sessions(page: &mut Page, telemetry: &Telemetry, connections: usize) {
    page.single(&metric::CONNECTIONS, connections);
    page.single(&metric::ACCEPTED, sum(telemetry, |worker| &worker.accepted));
    page.single(&metric::REFUSED, sum(telemetry, |worker| &worker.refused));
    page.single(&metric::SESSIONS_WITHHELD, sum(telemetry, |worker| &worker.withheld));
    let load = *telemetry.control.load.lock().unwrap_or_else(PoisonError::into_inner);
    page.single(&metric::OVERLOAD_LEVEL, load.level as u8);
    if let Some(limit) = load.memory_limit {
        page.single(&metric::OVERLOAD_MEMORY_LIMIT, limit);
    }
    page.single(&metric::WORKER_DELAY, load.delay.as_secs_f64());
    page.head(&metric::SESSIONS);
    for (place, protocol) in SESSIONS.iter().enumerate() {
        let ended = sum(telemetry, |worker| &worker.sessions[place].ended);
        page.sample(metric::SESSIONS.name, format_args!("protocol=\"{protocol}\""), ended);
    }
    page.head(&metric::SESSION_ENDS);
    let mut ends = BTreeMap::<(usize, &str), u64>::new();
    for (end, count) in telemetry.workers.iter().flat_map(|worker| worker.ends.iter()) {
        *ends.entry(end).or_default() += count;
    }
    for ((place, reason), count) in ends {
        let labels = format_args!("protocol=\"{}\",reason=\"{reason}\"", SESSIONS[place]);
        page.sample(metric::SESSION_ENDS.name, labels, count);
    }
    page.head(&metric::SESSION_BYTES);
    for (place, protocol) in SESSIONS.iter().enumerate() {
        let up = sum(telemetry, |worker| &worker.sessions[place].up);
        let down = sum(telemetry, |worker| &worker.sessions[place].down);
        let open = &telemetry.control.session_bytes[place];
        let [open_up, open_down] = open.each_ref().map(|bytes| bytes.load(Relaxed));
        for (direction, bytes) in [("up", up + open_up), ("down", down + open_down)] {
            let labels = format_args!("protocol=\"{protocol}\",direction=\"{direction}\"");
            page.sample(metric::SESSION_BYTES.name, labels, bytes);
        }
    }
    page.head(&metric::SESSION_DROPPED);
    for (place, protocol) in SESSIONS.iter().enumerate() {
        let dropped = sum(telemetry, |worker| &worker.sessions[place].dropped);
        page.sample(metric::SESSION_DROPPED.name, format_args!("protocol=\"{protocol}\""), dropped);
    }
}

fn proxies(page: &mut Page, telemetry: &Telemetry) {
    let name = metric::PROXY_REQUESTS.name;
    page.head(&metric::PROXY_REQUESTS);
    let mut series = |proxy: &str, counts: [u64; CLASSES]| {
        for (class, count) in CLASS_NAMES.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let labels = format_args!("proxy=\"{}\",http_response_status_class=\"{class}\"", Label(proxy));
            page.sample(name, labels, count);
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
fn consumers(page: &mut Page, telemetry: &Telemetry) {
    let (mut sums, mut other) = (BTreeMap::new(), [0; CLASSES]);
    telemetry.workers.iter().for_each(|worker| worker.consumers.add_to(&mut sums, &mut other));
    page.head(&metric::CONSUMER_REQUESTS);
    let named = sums.iter().map(|(name, counts)| (&**name, counts));
    for (name, counts) in named.chain([("_other", &other)]) {
        for (class, count) in CLASS_NAMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
            let labels = format_args!("consumer=\"{}\",http_response_status_class=\"{class}\"", Label(name));
            page.sample(metric::CONSUMER_REQUESTS.name, labels, count);
        }
    }
}

/// How long each proxy's exchanges take.
fn timings(page: &mut Page, telemetry: &Telemetry) {
    let timed = telemetry.timings();
    page.head(&metric::PROXY_DURATION);
    for (id, timings) in &timed {
        page.histogram(
            metric::PROXY_DURATION.name,
            &format!("proxy=\"{}\"", Label(id.as_str())),
            &timings.total,
        );
    }
    page.head(&metric::PROXY_UPSTREAM_DURATION);
    for (id, timings) in timed.iter().filter(|(_, timings)| timings.first_byte.count() > 0) {
        let labels = format!("proxy=\"{}\"", Label(id.as_str()));
        page.histogram(metric::PROXY_UPSTREAM_DURATION.name, &labels, &timings.first_byte);
    }
}

fn dials(page: &mut Page, telemetry: &Telemetry) {
    let mut sums = BTreeMap::new();
    telemetry.workers.iter().for_each(|worker| worker.dials.add_to(&mut sums));
    page.head(&metric::UPSTREAM_CONNECTION);
    for (upstream, merged) in &sums {
        for (phase, merged) in PHASES.iter().zip(merged).filter(|(_, merged)| merged.count() > 0) {
            let labels = format!("upstream=\"{}\",phase=\"{phase}\"", Label(upstream.as_str()));
            page.histogram(metric::UPSTREAM_CONNECTION.name, &labels, merged);
        }
    }
}

/// The connections of those targets that may have only so many.
fn connections(page: &mut Page, snapshot: &Snapshot) {
    let now = Instant::now();
    let all = snapshot.upstreams.iter().flat_map(|(id, targets)| targets.list().iter().map(move |t| (id, t)));
    let limited = all.filter_map(|(id, target)| Some((id, target, target.rules.max_connections?)));
    let limited: Vec<_> = limited.take(MAX_TARGET_SERIES).collect();
    for metric in [&metric::TARGET_CONNECTIONS, &metric::TARGET_MAX_CONNECTIONS] {
        page.head(metric);
        for (upstream, target, most) in &limited {
            let labels = format_args!(
                "upstream=\"{}\",target=\"{}\"",
                Label(upstream.as_str()),
                Label(target.authority())
            );
            let now_open = target.status(now).connections.unwrap_or(0);
            let is_limit = metric.name == metric::TARGET_MAX_CONNECTIONS.name;
            page.sample(metric.name, labels, if is_limit { most.get() } else { now_open });
        }
    }
}

fn targets(page: &mut Page, telemetry: &Telemetry, snapshot: &Snapshot) {
    let now = Instant::now();
    page.head(&metric::TARGET_HEALTHY);
    let all = snapshot.upstreams.iter().flat_map(|(id, targets)| targets.list().iter().map(move |t| (id, t)));
    for (upstream, target) in all.take(MAX_TARGET_SERIES) {
        let labels = format_args!(
            "upstream=\"{}\",target=\"{}\"",
            Label(upstream.as_str()),
            Label(target.authority())
        );
        page.sample(metric::TARGET_HEALTHY.name, labels, u8::from(target.is_healthy(now)));
    }
    connections(page, snapshot);
    let control = &telemetry.control;
    let failed = sum(telemetry, |worker| &worker.failed) + control.failed.load(Relaxed);
    let recovered = sum(telemetry, |worker| &worker.recovered) + control.recovered.load(Relaxed);
    page.head(&metric::TARGET_CHANGES);
    page.sample(metric::TARGET_CHANGES.name, format_args!("to=\"unhealthy\""), failed);
    page.sample(metric::TARGET_CHANGES.name, format_args!("to=\"healthy\""), recovered);
    page.head(&metric::PROBES);
    let (good, bad) = (control.probes_good.load(Relaxed), control.probes_bad.load(Relaxed));
    page.sample(metric::PROBES.name, format_args!("result=\"good\""), good);
    page.sample(metric::PROBES.name, format_args!("result=\"bad\""), bad);
    services(page, telemetry);
}

fn services(page: &mut Page, telemetry: &Telemetry) {
    let control = &telemetry.control;
    page.head(&metric::SERVICE_LOOKUPS);
    let (good, bad) = (control.lookups_good.load(Relaxed), control.lookups_bad.load(Relaxed));
    page.sample(metric::SERVICE_LOOKUPS.name, format_args!("result=\"found\""), good);
    page.sample(metric::SERVICE_LOOKUPS.name, format_args!("result=\"failed\""), bad);
    page.head(&metric::SERVICE_SERVERS);
    for (name, status) in control.services().iter().take(MAX_TARGET_SERIES) {
        page.sample(
            metric::SERVICE_SERVERS.name,
            format_args!("service=\"{}\"", Label(name)),
            status.servers,
        );
    }
}

fn configuration(page: &mut Page, telemetry: &Telemetry, snapshot: &Snapshot) {
    let status = telemetry.config_status();
    page.single(&metric::CONFIG_REVISION, status.revision);
    page.single(&metric::CONFIG_APPLIED, seconds(status.applied_at.unwrap_or(UNIX_EPOCH)));
    page.single(&metric::CONFIG_REFUSED, status.refused);
    page.single(&metric::CONFIG_PROXIES, snapshot.by_id.len());
    page.single(&metric::CONFIG_QUARANTINED, snapshot.quarantined.len());
    page.single(&metric::CONFIG_BROKEN, telemetry.control.broken.load(Relaxed));
    page.single(&metric::DATABASE_UP, u8::from(!telemetry.control.database_away.load(Relaxed)));
    page.single(&metric::CERTIFICATES_REFUSED, telemetry.control.certificates_refused.load(Relaxed));
    acme(page, telemetry);
    page.head(&metric::ADMIN_REFUSED);
    let control = &telemetry.control;
    for (reason, count) in [("token", &control.admin_tokens_refused), ("site", &control.admin_sites_refused)]
    {
        page.sample(metric::ADMIN_REFUSED.name, format_args!("reason=\"{reason}\""), count.load(Relaxed));
    }
    page.head(&metric::CONSOLE_LOGINS);
    for (outcome, count) in [
        ("accepted", &control.logins_accepted),
        ("refused", &control.logins_refused),
        ("throttled", &control.logins_throttled),
    ] {
        page.sample(metric::CONSOLE_LOGINS.name, format_args!("outcome=\"{outcome}\""), count.load(Relaxed));
    }
    let audit = &control.audit;
    page.head(&metric::AUDIT_ENTRIES);
    for (outcome, count) in
        [("allowed", &audit.allowed), ("refused", &audit.refused), ("failed", &audit.failed)]
    {
        page.sample(metric::AUDIT_ENTRIES.name, format_args!("outcome=\"{outcome}\""), count.load(Relaxed));
    }
    page.single(&metric::AUDIT_SUPPRESSED, audit.suppressed.load(Relaxed));
    page.single(&metric::AUDIT_LOST, audit.lost.load(Relaxed));
    page.head(&metric::CERTIFICATE_ENDS);
    for CertificateEnd { file, ends, is_renewed, .. } in
        &*telemetry.control.certificate_ends.lock().unwrap_or_else(PoisonError::into_inner)
    {
        let file = file.display().to_string();
        let source = if *is_renewed { "acme" } else { "file" };
        let labels = format_args!("file=\"{}\",source=\"{source}\"", Label(&file));
        page.sample(metric::CERTIFICATE_ENDS.name, labels, ends);
    }
    let (written, dropped) = telemetry.log.as_ref().map_or((0, 0), |log| (log.written(), log.dropped()));
    page.single(&metric::LOG_WRITTEN, written);
    page.single(&metric::LOG_DROPPED, dropped);
    page.single(&metric::WORKERS, telemetry.workers.len());
}

/// The certificates that the gateway gets by itself.
fn acme(page: &mut Page, telemetry: &Telemetry) {
    let acme = &telemetry.control.acme;
    page.head(&metric::ACME_ORDERS);
    for (result, count) in [("issued", &acme.issued), ("failed", &acme.failed)] {
        page.sample(metric::ACME_ORDERS.name, format_args!("result=\"{result}\""), count.load(Relaxed));
    }
    page.head(&metric::ACME_CERTIFICATES);
    let all = acme.statuses();
    for standing in [AcmeStanding::Good, AcmeStanding::Missing, AcmeStanding::Failing] {
        let count = all.iter().filter(|status| status.standing() == standing).count();
        let labels = format_args!("status=\"{}\"", standing.as_str());
        page.sample(metric::ACME_CERTIFICATES.name, labels, count);
    }
}

/// The program log and the tasks that must keep running.
fn program(page: &mut Page, tasks: &Tasks) {
    let counts = program_log::counts();
    page.head(&metric::PROGRAM_LOG_LINES);
    for (result, count) in [("written", counts.written), ("lost", counts.lost), ("left_out", counts.left_out)]
    {
        page.sample(metric::PROGRAM_LOG_LINES.name, format_args!("result=\"{result}\""), count);
    }
    page.single(&metric::PROGRAM_LOG_ERRORS, counts.write_errors);
    let tasks = tasks.list();
    page.head(&metric::TASKS_DOWN);
    for (name, state) in &tasks {
        page.sample(metric::TASKS_DOWN.name, format_args!("task=\"{name}\""), state.down);
    }
    page.head(&metric::TASK_FAILURES);
    for (name, state) in &tasks {
        page.sample(metric::TASK_FAILURES.name, format_args!("task=\"{name}\""), state.failures);
    }
}

fn process(page: &mut Page, telemetry: &Telemetry) {
    page.head(&metric::BUILD_INFO);
    page.sample(metric::BUILD_INFO.name, format_args!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1);
    let Process { cpu_seconds, resident, virtual_memory, threads, fds, max_fds } = Process::read();
    if let Some(cpu) = cpu_seconds {
        page.single(&metric::PROCESS_CPU, cpu);
    }
    for (metric, value) in [
        (metric::PROCESS_MEMORY, resident),
        (metric::PROCESS_VIRTUAL_MEMORY, virtual_memory),
        (metric::PROCESS_THREADS, threads),
        (metric::PROCESS_FDS, fds),
        (metric::PROCESS_MAX_FDS, max_fds),
    ] {
        if let Some(value) = value {
            page.single(&metric, value);
        }
    }
    page.single(&metric::PROCESS_START, seconds(telemetry.started().1));
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
