//! Runs one round: threads with their runtimes and connections, the window, and the samples taken beside it.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::driver::{self, Driver, Fault};
use crate::measure::live::{self, LiveLatency};
use crate::measure::process::{self, MachineTime, Usage};
use crate::measure::{Tally, Watched};
use crate::pace::Window;
use crate::plan::{Plan, Protocol};

mod first_answer;
mod lanes;
mod worker;
mod world;

pub use first_answer::first_answer;

/// Everything a round has to say, before it is judged.
#[derive(Debug, Clone)]
pub struct RoundOutcome {
    pub tally: Tally,
    pub window: Duration,
    /// CPU time and memory of the watched processes within the window.
    pub watched: Vec<(Watched, Consumed)>,
    pub generator: Consumed,
    pub machine: MachineTime,
    /// Memory and CPU time of the watched processes over time, first sample at the window's start.
    pub samples: Vec<Sample>,
    /// Verified answers in each slice of the window, by the time the slice ended.
    pub progress: Vec<(Duration, u64)>,
}

/// What a process used within the window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Consumed {
    pub cpu: Duration,
    pub resident_bytes: u64,
    pub peak_resident_bytes: u64,
    pub threads: u64,
    /// The process was gone at the end.
    pub gone: bool,
}

/// Resident bytes, and CPU time since the window's start, of the watched processes, in their order.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Duration,
    pub resident_bytes: Vec<u64>,
    pub cpu: Vec<Duration>,
}

/// Where a running round is, for progress bars.
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    Connecting {
        done: u64,
        of: u64,
    },
    WarmingUp {
        left: Duration,
    },
    /// With the 50th and the 99th percentile of the latency so far, in microseconds, within an eighth.
    Running {
        elapsed: Duration,
        of: Duration,
        completed: u64,
        latency: Option<[f64; 2]>,
    },
}

/// What the threads of a round share. Counters of each thread stand apart and are written by that thread alone.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    /// Connections that were opened or given up.
    pub(crate) settled: AtomicU64,
    pub(crate) window: watch::Receiver<Option<Window>>,
    pub(crate) completed: Vec<AtomicU64>,
    pub(crate) latency: Vec<LiveLatency>,
    /// Ends the window early.
    pub(crate) stop: Arc<Stop>,
    pub(crate) stoppable: bool,
}

/// One thread's share of a round.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) thread: usize,
    pub(crate) threads: usize,
    /// Numbers of its connections.
    pub(crate) connections: std::ops::Range<u32>,
}

/// Ends a window early.
#[derive(Debug, Default)]
pub struct Stop {
    told: AtomicBool,
    at: OnceLock<Instant>,
}

impl Stop {
    /// Ends the window now; later calls change nothing.
    pub fn now(&self) {
        self.at.get_or_init(Instant::now);
        self.told.store(true, Ordering::Release);
    }

    /// Whether the window was ended.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

/// What a round has around it.
pub struct Surroundings<'a> {
    pub watched: &'a [Watched],
    /// Called a few times a second.
    pub tell: &'a mut dyn FnMut(Progress),
    /// Ends the window early once it is set.
    pub stop: Option<Arc<Stop>>,
}

/// Makes a thread's driver.
pub type MakeDriver<D> = dyn Fn(&Rc<Plan>) -> Result<D, Fault> + Send + Sync;

/// Runs one round and waits for its end. `tell` is called a few times a second.
///
/// # Errors
/// No runtime or thread could be made, or the plan cannot work at all. A server that fails is no error here: it
/// shows in the outcome's faults.
pub fn run(plan: &Plan, watched: &[Watched], tell: &mut dyn FnMut(Progress)) -> Result<RoundOutcome, Fault> {
    run_in(plan, Surroundings { watched, tell, stop: None })
}

/// Runs one round in these surroundings.
///
/// # Errors
/// As for [`run`].
pub fn run_in(plan: &Plan, around: Surroundings<'_>) -> Result<RoundOutcome, Fault> {
    match plan.target.protocol {
        Protocol::Http1 => run_driver(plan, around, Arc::new(driver::h1::H1::new)),
        Protocol::Http2 => run_driver(plan, around, Arc::new(driver::h2::H2::new)),
        Protocol::Http3 => run_driver(plan, around, Arc::new(driver::h3::H3::new)),
        Protocol::Grpc => run_driver(plan, around, Arc::new(driver::grpc::Grpc::new)),
        Protocol::WebSocket => run_driver(plan, around, Arc::new(driver::ws::WebSocket::new)),
        Protocol::Tcp => run_driver(plan, around, Arc::new(driver::tcp::Tcp::new)),
        Protocol::Udp => run_driver(plan, around, Arc::new(driver::udp::Udp::new)),
        Protocol::Dtls => run_driver(plan, around, Arc::new(driver::dtls::Dtls::new)),
    }
}

/// Runs one round with a driver of the caller's choice.
///
/// # Errors
/// As for [`run`].
pub fn run_driver<D: Driver>(
    plan: &Plan,
    around: Surroundings<'_>,
    make: Arc<MakeDriver<D>>,
) -> Result<RoundOutcome, Fault> {
    let Surroundings { watched, tell, stop } = around;
    let threads = plan.threads.clamp(1, plan.load.connections.max(1) as usize);
    let (open_window, window) = watch::channel(None);
    let shared = Arc::new(SharedCounters {
        settled: AtomicU64::new(0),
        window,
        completed: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        latency: (0..threads).map(|_| LiveLatency::default()).collect(),
        stoppable: stop.is_some(),
        stop: stop.unwrap_or_default(),
    });
    let workers = spawn_workers(plan, threads, &shared, &make)?;
    wait_connected(plan, &shared, &workers, tell);
    let window = Window::starting_now(plan.timing.warm_up, plan.timing.duration);
    open_window.send_replace(Some(window));
    let sampled = sample(window, watched, &shared, tell);
    let mut tally = Tally::default();
    for worker in workers {
        tally.add(&worker.join().map_err(|_| Fault::protocol("a generator thread panicked"))??);
    }
    Ok(RoundOutcome { tally, ..sampled })
}

type Worker = JoinHandle<Result<Tally, Fault>>;

fn spawn_workers<D: Driver>(
    plan: &Plan,
    threads: usize,
    shared: &Arc<SharedCounters>,
    make: &Arc<MakeDriver<D>>,
) -> Result<Vec<Worker>, Fault> {
    let total = plan.load.connections as usize;
    (0..threads)
        .map(|thread| {
            let bound = |thread: usize| u32::try_from(total * thread / threads).unwrap_or(u32::MAX);
            let seat = Seat { thread, threads, connections: bound(thread)..bound(thread + 1) };
            let (plan, shared, make) = (plan.clone(), Arc::clone(shared), Arc::clone(make));
            thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || worker::run(plan, &seat, &shared, &*make))
                .map_err(Fault::Io)
        })
        .collect()
}

fn wait_connected(plan: &Plan, shared: &SharedCounters, workers: &[Worker], tell: &mut dyn FnMut(Progress)) {
    let of = u64::from(plan.load.connections);
    // Connecting ends by itself at its own limit; the margin is for the last handshakes.
    let deadline = Instant::now() + plan.timing.connect + Duration::from_secs(1);
    loop {
        let done = shared.settled.load(Ordering::Relaxed);
        tell(Progress::Connecting { done, of });
        let dead = workers.iter().any(JoinHandle::is_finished);
        if done >= of || dead || Instant::now() >= deadline {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

struct Sampler<'a> {
    watched: &'a [Watched],
    before: Vec<Option<Usage>>,
    peaks: Vec<u64>,
}

fn sample(
    window: Window,
    watched: &[Watched],
    shared: &SharedCounters,
    tell: &mut dyn FnMut(Progress),
) -> RoundOutcome {
    let of = window.length();
    while let Some(left) = left_until(window.from) {
        tell(Progress::WarmingUp { left });
        thread::sleep(left.min(Duration::from_millis(200)));
    }
    let completed = || shared.completed.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    let mut sampler = Sampler::begin(watched);
    let (own_before, machine_before) = (process::own_usage(), process::machine_time());
    let slice = (of / 20).clamp(Duration::from_millis(10), Duration::from_millis(500));
    tell(Progress::Running { elapsed: Duration::ZERO, of, completed: 0, latency: None });
    let (mut samples, mut progress) = (vec![sampler.take(Duration::ZERO)], Vec::new());
    while let Some(left) = left_until(window.until).filter(|_| !shared.stop.is_told()) {
        nap(left.min(slice), shared);
        let elapsed = window.from.elapsed().min(of);
        let completed = completed();
        samples.push(sampler.take(elapsed));
        progress.push((elapsed, completed));
        let latency = live::percentiles(&shared.latency, [50.0, 99.0]);
        tell(Progress::Running { elapsed, of, completed, latency });
    }
    // Not by this thread's clock: it may wake late, and no lane asked anything meanwhile.
    let ended = shared.stop.at.get().copied().unwrap_or(window.until).min(window.until);
    let length = ended.saturating_duration_since(window.from).max(Duration::from_millis(1));
    let (own, machine) = (process::own_usage(), process::machine_time());
    RoundOutcome {
        tally: Tally::default(),
        window: length,
        watched: sampler.end(),
        generator: Consumed {
            cpu: own.cpu.saturating_sub(own_before.cpu),
            resident_bytes: own.resident_bytes,
            peak_resident_bytes: own.resident_bytes,
            threads: own.threads,
            gone: false,
        },
        machine: MachineTime {
            busy: machine.busy.saturating_sub(machine_before.busy),
            idle: machine.idle.saturating_sub(machine_before.idle),
            stolen: machine.stolen.saturating_sub(machine_before.stolen),
        },
        samples,
        progress,
    }
}

/// Sleeps, but not past the early end of a window that can have one.
fn nap(time: Duration, shared: &SharedCounters) {
    if !shared.stoppable {
        return thread::sleep(time);
    }
    let begun = Instant::now();
    while begun.elapsed() < time && !shared.stop.is_told() {
        thread::sleep(Duration::from_millis(2));
    }
}

fn left_until(moment: Instant) -> Option<Duration> {
    moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

impl<'a> Sampler<'a> {
    fn begin(watched: &'a [Watched]) -> Self {
        let before: Vec<_> = watched.iter().map(|watched| process::usage(watched.pid)).collect();
        Self { watched, peaks: vec![0; watched.len()], before }
    }

    fn take(&mut self, at: Duration) -> Sample {
        let mut sample = Sample { at, resident_bytes: Vec::new(), cpu: Vec::new() };
        for (number, watched) in self.watched.iter().enumerate() {
            let now = process::usage(watched.pid).unwrap_or_default();
            let before = self.before.get(number).copied().flatten().unwrap_or_default();
            if let Some(peak) = self.peaks.get_mut(number) {
                *peak = (*peak).max(now.resident_bytes);
            }
            sample.resident_bytes.push(now.resident_bytes);
            sample.cpu.push(now.cpu.saturating_sub(before.cpu));
        }
        sample
    }

    fn end(&self) -> Vec<(Watched, Consumed)> {
        let consumed = |watched: &Watched, before: Option<Usage>, peak: u64| {
            let after = process::usage(watched.pid);
            let (Some(before), Some(after)) = (before, after) else {
                return Consumed { gone: true, ..Consumed::default() };
            };
            Consumed {
                cpu: after.cpu.saturating_sub(before.cpu),
                resident_bytes: after.resident_bytes,
                peak_resident_bytes: peak.max(after.resident_bytes),
                threads: after.threads,
                gone: false,
            }
        };
        self.watched
            .iter()
            .zip(self.before.iter().zip(&self.peaks))
            .map(|(watched, (before, peak))| (watched.clone(), consumed(watched, *before, *peak)))
            .collect()
    }
}
