//! The growing configuration: proxies with key_auth, access_control and a consumer of their own, written through the
//! admin API while traffic flows, every answer checked to come from the right proxy for the right consumer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::driver::Fault;
use crate::engine::{self, RoundOutcome, Stop, Surroundings};
use crate::measure::Watched;
use crate::plan::{ExpectBody, Load, Method, Pace, Plan, Protocol, Target};
use crate::report::Round;
use crate::report::model::{Batch, Refusals, Scale};

pub mod api;
pub(crate) mod http;
mod probe;
mod walker;
mod writer;

pub use http::HttpError;

/// What is to grow, how far, and under which load.
#[derive(Debug, Clone)]
pub struct Options {
    pub admin: SocketAddr,
    pub token: String,
    /// The gateway's HTTP listener.
    pub gateway: SocketAddr,
    /// The echo backend that all proxies forward to.
    pub backend: SocketAddr,
    pub proxies: u64,
    pub batch: u64,
    /// Proxies written with one call.
    pub chunk: u64,
    /// Connections, one request in flight on each.
    pub workers: u32,
    pub duration: Duration,
    pub warm_up: Duration,
    pub threads: usize,
    /// Proxies of each batch whose refusals are checked.
    pub refusals: u64,
    /// How long an acknowledged proxy may take to answer.
    pub visible_limit: Duration,
}

/// Why the test cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    #[error("the admin API: {0}")]
    Admin(#[source] HttpError),
    #[error("the admin API refused a batch with status {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("proxy {proxy} was acknowledged and does not answer within {limit:?}: {last}")]
    Invisible { proxy: u64, limit: Duration, last: String },
    #[error("the gateway: {0}")]
    Gateway(#[source] HttpError),
    #[error("a round could not be run: {0}")]
    Round(#[from] Fault),
    #[error("the thread that writes ended unexpectedly")]
    Writer,
}

/// How far the test is, for progress.
pub type Tell<'a> = dyn FnMut(&str) + 'a;

/// Longest load beside the writing of one batch; writing a batch of a million may take long.
const LONGEST_WRITE: Duration = Duration::from_secs(3600);

/// Runs the whole test.
///
/// # Errors
/// The admin API refuses or is silent, or an acknowledged proxy never answers. Wrong answers under load are no error:
/// they make their batch void.
pub fn run(options: &Options, watched: &[Watched], tell: &mut Tell<'_>) -> Result<Scale, ScaleError> {
    let mut scale = Scale::default();
    let mut present = 0;
    while present < options.proxies {
        let next = (present + options.batch).min(options.proxies);
        tell(&format!("writing proxies {present} to {next}"));
        let (written, during_writes) = write_under_load(options, present..next, watched)?;
        present = next;
        tell(&format!("{present} proxies, load"));
        let (plan, outcome) = load(options, present, options.warm_up, options.duration, watched)?;
        let steady = Round::new(&plan, &outcome);
        tell(&format!("{present} proxies, refusals"));
        let refusals = probe::refusals(options, present).map_err(ScaleError::Gateway)?;
        let first = scale.batches.first().map_or(steady.rate, |batch: &Batch| batch.steady.rate);
        scale.batches.push(Batch {
            proxies: present,
            write: written.write,
            during_writes,
            percent_of_first: if first > 0.0 { steady.rate / first * 100.0 } else { 0.0 },
            steady,
            refusals,
            visible: written.visible,
        });
    }
    Ok(scale)
}

/// Writes a batch while the proxies that are there already are under load.
fn write_under_load(
    options: &Options,
    numbers: std::ops::Range<u64>,
    watched: &[Watched],
) -> Result<(writer::BatchOutcome, Option<Round>), ScaleError> {
    if numbers.start == 0 {
        return Ok((writer::write(options, numbers)?, None));
    }
    let present = numbers.start;
    let stop = Arc::new(Stop::default());
    let begun = Arc::new(AtomicBool::new(false));
    let writing = {
        let (options, stop, begun) = (options.clone(), Arc::clone(&stop), Arc::clone(&begun));
        thread::spawn(move || {
            // Load first, then writes: the window must contain them all.
            while !begun.load(Ordering::Relaxed) && !stop.is_told() {
                thread::sleep(Duration::from_millis(5));
            }
            let written = writer::write(&options, numbers);
            stop.now();
            written
        })
    };
    let outcome = load_while_writing(options, present, watched, &stop, &begun);
    // If the load could not run, the writer must not wait for it.
    stop.now();
    let written = writing.join().map_err(|_| ScaleError::Writer)??;
    let (plan, outcome) = outcome?;
    Ok((written, Some(Round::new(&plan, &outcome))))
}

fn load_while_writing(
    options: &Options,
    present: u64,
    watched: &[Watched],
    stop: &Arc<Stop>,
    begun: &AtomicBool,
) -> Result<(Plan, RoundOutcome), ScaleError> {
    let plan = plan(options, Duration::ZERO, LONGEST_WRITE);
    let mut tell = |progress| {
        if matches!(progress, engine::Progress::Running { .. }) {
            begun.store(true, Ordering::Relaxed);
        }
    };
    let around = Surroundings { watched, tell: &mut tell, stop: Some(Arc::clone(stop)) };
    let outcome = engine::run_driver(&plan, around, Arc::new(walker::maker(options, present)))?;
    Ok((plan, outcome))
}

fn load(
    options: &Options,
    present: u64,
    warm_up: Duration,
    duration: Duration,
    watched: &[Watched],
) -> Result<(Plan, RoundOutcome), ScaleError> {
    let plan = plan(options, warm_up, duration);
    let around = Surroundings { watched, tell: &mut |_| {}, stop: None };
    let outcome = engine::run_driver(&plan, around, Arc::new(walker::maker(options, present)))?;
    Ok((plan, outcome))
}

fn plan(options: &Options, warm_up: Duration, duration: Duration) -> Plan {
    let mut plan = Plan::new(Target::at(Protocol::Http1, false, options.gateway));
    plan.load = Load { connections: options.workers, streams: 1, pace: Pace::Closed };
    plan.timing.warm_up = warm_up;
    plan.timing.duration = duration;
    plan.threads = options.threads;
    plan.message.method = Method::Get;
    plan.message.payload = 0;
    // The walker checks the whole body itself.
    plan.expect.body = ExpectBody::Echo;
    plan
}

impl Refusals {
    /// Whether every request that had to be refused was, with the right status.
    #[must_use]
    pub fn all(&self) -> bool {
        self.refused == self.asked && self.let_through == 0
    }
}
