//! Runs the health probes of every upstream that has them, and follows reloads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::balance::Target;
use gateway_core::config::model::{ActiveHealth, BackendTls};
use gateway_core::snapshot::Snapshot;
use gateway_protocols::probe::Prober;
use gateway_protocols::supervise::Tasks;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::export::Telemetry;

/// Probes under way at a time; others wait, so that thousands of targets don't take every descriptor.
const MAX_PROBES: usize = 256;
/// The first probe comes within this, so that what is known of a target soon is more than a guess.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// One target to be asked.
#[derive(Clone)]
struct Job {
    target: Arc<Target>,
    rules: ActiveHealth,
    tls: Option<Arc<BackendTls>>,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target, &other.target) && self.rules == other.rules && self.tls == other.tls
    }
}

/// A target's own number, which no other of any upstream has and which it keeps over reloads.
type Key = u64;

struct RunningProbe {
    job: Job,
    task: JoinHandle<()>,
}

impl Drop for RunningProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Probes until the gateway ends.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), Infallible> {
    let mut changes = engine.changes();
    let mut probes = Probes::new(&engine);
    loop {
        probes.follow(&engine.snapshot());
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Everything that is being asked.
struct Probes {
    prober: Arc<Prober>,
    places: Arc<Semaphore>,
    telemetry: Arc<Telemetry>,
    tasks: Arc<Tasks>,
    running: HashMap<Key, RunningProbe>,
}

impl Probes {
    fn new(engine: &Engine) -> Self {
        Self {
            prober: Arc::new(Prober::new(engine.shared.dns.clone(), engine.shared.client_tls.clone())),
            places: Arc::new(Semaphore::new(MAX_PROBES)),
            telemetry: engine.telemetry.clone(),
            tasks: engine.shared.tasks.clone(),
            running: HashMap::new(),
        }
    }

    /// Starts what a configuration adds and stops what it no longer wants; the rest goes on undisturbed.
    fn follow(&mut self, snapshot: &Snapshot) {
        let jobs = jobs(snapshot);
        self.running.retain(|key, run| jobs.get(key).is_some_and(|job| *job == run.job));
        for (key, job) in jobs {
            if let Entry::Vacant(place) = self.running.entry(key) {
                let (prober, places) = (self.prober.clone(), self.places.clone());
                let (telemetry, asked) = (self.telemetry.clone(), job.clone());
                let start = move || ask(prober.clone(), places.clone(), telemetry.clone(), asked.clone());
                let task = tokio::spawn(self.tasks.clone().supervise("health_probe", start));
                place.insert(RunningProbe { job, task });
            }
        }
    }
}

/// Everything a configuration wants asked.
fn jobs(snapshot: &Snapshot) -> HashMap<Key, Job> {
    let mut jobs = HashMap::new();
    for (_, route) in &snapshot.tended {
        let backend = &route.proxy.backend;
        let Some(rules) = backend.upstream.active_health.as_deref() else { continue };
        for target in route.targets.list() {
            // Of several proxies with one upstream, one says how certificates are judged; those that verify go first.
            let job = Job { target: target.clone(), rules: rules.clone(), tls: backend.tls.clone() };
            match jobs.entry(target.key()) {
                Entry::Vacant(place) => drop(place.insert(job)),
                Entry::Occupied(mut known) => {
                    if strictness(&job.tls) > strictness(&known.get().tls) {
                        known.insert(job);
                    }
                }
            }
        }
    }
    jobs
}

/// Orders TLS rules so that the choice among them doesn't hang on the order of a map.
fn strictness(tls: &Option<Arc<BackendTls>>) -> (bool, String) {
    tls.as_ref().map_or((false, String::new()), |tls| (tls.verify, format!("{tls:?}")))
}

/// Asks one target over and over.
async fn ask(
    prober: Arc<Prober>,
    places: Arc<Semaphore>,
    telemetry: Arc<Telemetry>,
    job: Job,
) -> Result<(), Infallible> {
    let Job { target, rules, tls } = job;
    tokio::time::sleep(FIRST_WITHIN.min(rules.interval).mul_f64(fastrand::f64())).await;
    loop {
        let Ok(place) = places.acquire().await else { return Ok(()) };
        let result = prober.probe(&target, &rules, tls.as_deref()).await;
        drop(place);
        if let Err(error) = &result {
            tracing::debug!(target = %target.authority(), %error, "a probe failed");
            target.note_probe_failure(error.to_string());
        }
        let change = target.probed(result.is_ok(), Instant::now());
        telemetry.probed(&target, result.is_ok(), change);
        tokio::time::sleep(jittered(rules.interval)).await;
    }
}

/// The interval give or take a tenth, so that the probes of many gateways don't beat in time.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests;
