//! Turns what the engine measured into what a result file says.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Connections, FaultCount, Latency, LittlesLaw, MachineLoad, OpenLoop, Round, Usage};
use crate::engine::{Consumed, RoundOutcome, Sample};
use crate::measure::{Role, Tally};
use crate::plan::{Pace, Plan};
use crate::report::judge;

impl Round {
    /// Works out a round's figures and judges them.
    #[must_use]
    pub fn new(plan: &Plan, outcome: &RoundOutcome) -> Self {
        let tally = &outcome.tally;
        let window_seconds = outcome.window.as_secs_f64();
        let completed = tally.completed;
        let rate = count(completed) / window_seconds;
        let latency = Latency { buckets: buckets(&tally.latency), ..Latency::new(&tally.latency) };
        let generator_cores = plan.threads.min(available_cores());
        let used = |name: &str, consumed: &Consumed, cores: f64| Usage {
            name: name.to_owned(),
            role: None,
            cpu_seconds: consumed.cpu.as_secs_f64(),
            cores_used: consumed.cpu.as_secs_f64() / window_seconds,
            cores_allowed: cores,
            cpu_us_per_request: per_request(consumed.cpu, completed),
            resident_bytes: consumed.resident_bytes,
            peak_resident_bytes: consumed.peak_resident_bytes,
            threads: consumed.threads,
        };
        let of_role = |role: Role| {
            outcome.watched.iter().find(|(watched, _)| watched.role == role).map(|(watched, consumed)| {
                Usage { role: Some(role), ..used(&watched.name, consumed, watched.cores) }
            })
        };
        let generator = used("proto_bench", &outcome.generator, count(generator_cores as u64));
        let open = match plan.load.pace {
            Pace::Closed => None,
            Pace::Open { rate } => Some(rate),
        };
        let mut round = Self {
            window_seconds,
            completed,
            rate,
            body_bytes: tally.body_bytes,
            statuses: tally.statuses.clone(),
            faults: tally
                .faults
                .iter()
                .map(|(kind, (count, example))| FaultCount {
                    kind: *kind,
                    count: *count,
                    example: example.clone(),
                })
                .collect(),
            unstamped: tally.unstamped,
            littles_law: open.is_none().then(|| littles_law(plan, tally, rate, window_seconds)),
            latency,
            service: open.map(|_| Latency::new(&tally.service)),
            generator_lateness: open.map(|_| Latency::new(&tally.lateness)),
            connect: opening_times(tally),
            connections: Connections {
                asked: plan.load.connections,
                opened: tally.opened,
                reopened: tally.reopened,
                negotiated: tally.negotiated.clone(),
            },
            open_loop: open.map(|asked_rate| open_loop(asked_rate, rate, tally)),
            subject: of_role(Role::Subject),
            backend: of_role(Role::Backend),
            machine: machine_load(outcome, window_seconds),
            generator,
            memory: over_time(outcome, |sample, at| sample.resident_bytes.get(at).copied()),
            cpu: cores_over_time(outcome),
            progress: outcome.progress.iter().map(|(at, count)| (at.as_secs_f64(), *count)).collect(),
            counts: None,
            marks: Vec::new(),
            void: Vec::new(),
        };
        judge::judge(plan, outcome, &mut round);
        round
    }
}

impl Latency {
    /// The usual percentiles of a histogram of nanoseconds.
    #[must_use]
    pub fn new(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |percentile: f64| microseconds(histogram.value_at_percentile(percentile));
        let mut curve: Vec<(f64, f64)> = [0.0, 10.0, 25.0, 50.0, 75.0].map(|p| (p, at(p))).to_vec();
        let mut rest = 10.0;
        // 90, 95, 97.5, 99, 99.5, 99.75, 99.9, … as far as the number of samples carries.
        while rest * count(histogram.len()) >= 100.0 && rest > 1e-4 {
            curve.extend([rest, rest / 2.0, rest / 4.0].map(|rest| (100.0 - rest, at(100.0 - rest))));
            rest /= 10.0;
        }
        curve.push((100.0, microseconds(histogram.max())));
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            stdev_us: histogram.stdev() / 1e3,
            min_us: microseconds(histogram.min()),
            p50_us: at(50.0),
            p90_us: at(90.0),
            p95_us: at(95.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            p9999_us: at(99.99),
            max_us: microseconds(histogram.max()),
            curve,
            buckets: Vec::new(),
        }
    }
}

/// Ends of buckets within a power of ten.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];

/// Answers by how long they took, from the shortest to the longest.
fn buckets(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let powers = (2..13).map(|power| 10_u64.pow(power));
    let mut ends = powers.flat_map(|power| STEPS.map(|step| power * step / 10)).peekable();
    let mut made: Vec<(u64, u64)> = Vec::new();
    for each in histogram.iter_recorded() {
        let taken = each.value_iterated_to();
        while ends.peek().is_some_and(|end| *end < taken) {
            let end = ends.next().unwrap_or_default();
            // Empty ones before the first answer are left out.
            if made.last().is_some_and(|(last, _)| *last != end) {
                made.push((end, 0));
            }
        }
        let end = ends.peek().copied().unwrap_or(u64::MAX);
        match made.last_mut() {
            Some((last, count)) if *last == end => *count += each.count_at_value(),
            _ => made.push((end, each.count_at_value())),
        }
    }
    made.into_iter().map(|(end, count)| (microseconds(end), count)).collect()
}

/// How long connections took to open; nobody draws a curve of it.
fn opening_times(tally: &Tally) -> Option<Latency> {
    let opened = !tally.connect.is_empty();
    opened.then(|| Latency { curve: Vec::new(), ..Latency::new(&tally.connect) })
}

fn littles_law(plan: &Plan, tally: &Tally, rate: f64, window_seconds: f64) -> LittlesLaw {
    let lanes = plan.lanes();
    let mean_seconds = tally.latency.mean() / 1e9;
    let edges = (count(tally.unfinished_ns) - count(tally.outside_ns)) / 1e9 / window_seconds;
    let in_flight = rate * mean_seconds + edges;
    // A window that was ended early has edges that no lane knew of; they hide one longest latency at most.
    let hidden = (count(tally.latency.max()) / 1e9 / window_seconds).min(1.0);
    let share = in_flight / f64::from(lanes);
    // Lanes that open their connection anew have nothing in flight meanwhile.
    let waits_between = tally.reopened > 0 || tally.fault_count() > 0;
    // In a very short window it shows that lanes need a moment to begin.
    let too_short = window_seconds < 1.0;
    let enough = share >= 0.95 - hidden || waits_between || too_short;
    LittlesLaw { in_flight, lanes, holds: enough && share <= 1.05 + hidden }
}

fn open_loop(asked_rate: f64, rate: f64, tally: &Tally) -> OpenLoop {
    OpenLoop {
        asked_rate,
        sustained: rate >= asked_rate * 0.99 && tally.never_started == 0,
        never_started: tally.never_started,
    }
}

fn machine_load(outcome: &RoundOutcome, window_seconds: f64) -> MachineLoad {
    let ours: Duration =
        outcome.watched.iter().map(|(_, consumed)| consumed.cpu).sum::<Duration>() + outcome.generator.cpu;
    let cores = |time: Duration| time.as_secs_f64() / window_seconds;
    MachineLoad {
        busy: cores(outcome.machine.busy),
        idle: cores(outcome.machine.idle),
        stolen: cores(outcome.machine.stolen),
        foreign: cores(outcome.machine.busy.saturating_sub(ours)),
    }
}

/// A figure of the process under test, by the seconds into the window.
fn over_time<T>(outcome: &RoundOutcome, figure: impl Fn(&Sample, usize) -> Option<T>) -> Vec<(f64, T)> {
    let Some(at) = outcome.watched.iter().position(|(watched, _)| watched.role == Role::Subject) else {
        return Vec::new();
    };
    let samples = outcome.samples.iter();
    samples.filter_map(|sample| Some((sample.at.as_secs_f64(), figure(sample, at)?))).collect()
}

/// Cores the process under test used from one sample to the next.
fn cores_over_time(outcome: &RoundOutcome) -> Vec<(f64, f64)> {
    let used = over_time(outcome, |sample, at| sample.cpu.get(at).map(Duration::as_secs_f64));
    used.windows(2)
        .filter_map(|pair| {
            let [(from, before), (until, after)] = pair else { return None };
            let time = until - from;
            (time > 0.0).then(|| (*until, (after - before).max(0.0) / time))
        })
        .collect()
}

fn per_request(cpu: Duration, completed: u64) -> f64 {
    if completed == 0 { 0.0 } else { cpu.as_secs_f64() * 1e6 / count(completed) }
}

fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn microseconds(nanoseconds: u64) -> f64 {
    count(nanoseconds) / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds here stay far below 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}
