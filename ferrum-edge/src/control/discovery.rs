//! Resolves the SRV records behind discovered targets, again whenever their TTL ends, and puts changed answers in use.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use gateway_core::config::model::Model;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::discovery::{self, Service};
use gateway_protocols::dns::DnsError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::export::ServiceStatus;

/// Lookups under way at a time.
const MAX_LOOKUPS: usize = 32;
/// The delay before a failed lookup is retried, and the longest one after several failures in a row.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often to check whether a staged configuration has been published.
const STAGED_STEP: Duration = Duration::from_millis(20);
/// How long a start and a reload wait for the first answers.
const FIRST_ANSWERS: Duration = Duration::from_secs(3);

/// The records of a name and their TTL.
type SrvAnswer = Result<(Arc<[Service]>, Duration), DnsError>;

/// The names of the configuration in use, and the lookups under way.
#[derive(Default)]
struct Lookups {
    names: HashMap<Arc<str>, Schedule>,
    running: JoinSet<(Arc<str>, SrvAnswer)>,
}

/// When a name is looked up next.
struct Schedule {
    at: Instant,
    failures: u32,
    is_running: bool,
}

/// Runs until the gateway ends.
///
/// # Errors
/// Never.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), Infallible> {
    let mut changes = engine.changes();
    let mut lookups = Lookups::default();
    lookups.follow(&engine);
    loop {
        lookups.start(|name| {
            let dns = engine.shared.dns.clone();
            async move { dns.services(&name).await }
        });
        let next = lookups.next();
        tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => lookups.follow(&engine),
                Err(_) => return Ok(()),
            },
            Some(Ok((name, answer))) = lookups.running.join_next() => {
                // It may have left the configuration during the lookup.
                if lookups.reschedule(&name, &answer) {
                    publish(&engine, name, answer).await;
                }
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

impl Lookups {
    /// Takes the names of the configuration in use; new ones are due immediately.
    fn follow(&mut self, engine: &Engine) {
        let names = of_snapshot(&engine.snapshot());
        self.names.retain(|name, _| names.contains(name));
        engine.telemetry.control.services().retain(|name, _| names.contains(name));
        names.into_iter().for_each(|name| self.add(name));
    }

    fn add(&mut self, name: Arc<str>) {
        let due = || Schedule { at: Instant::now(), failures: 0, is_running: false };
        self.names.entry(name).or_insert_with(due);
    }

    /// When the next lookup is due; `None` while it has to wait for one under way.
    fn next(&self) -> Option<Instant> {
        let is_full = self.running.len() >= MAX_LOOKUPS;
        self.names.values().filter(|it| !it.is_running && !is_full).map(|it| it.at).min()
    }

    /// Starts the lookups that are due.
    fn start<F>(&mut self, lookup: impl Fn(Arc<str>) -> F)
    where
        F: Future<Output = SrvAnswer> + Send + 'static,
    {
        let now = Instant::now();
        for (name, schedule) in self.names.iter_mut().filter(|(_, it)| !it.is_running && it.at <= now) {
            if self.running.len() >= MAX_LOOKUPS {
                return;
            }
            schedule.is_running = true;
            let (name, lookup) = (name.clone(), lookup(name.clone()));
            self.running.spawn(async move {
                // A task that panicked would end without its name, which would then count as running for ever.
                let answer = AssertUnwindSafe(lookup).catch_unwind().await;
                let panicked =
                    |_| DnsError::Failed { name: name.clone(), reason: "the lookup panicked".into() };
                let answer = answer.map_err(panicked).flatten();
                (name, answer)
            });
        }
    }

    /// Says when to look the name up again. `false` when the configuration does not have it any more.
    fn reschedule(&mut self, name: &str, answer: &SrvAnswer) -> bool {
        let Some(schedule) = self.names.get_mut(name) else { return false };
        schedule.is_running = false;
        match answer {
            Ok((_, ttl)) => {
                schedule.failures = 0;
                schedule.at = Instant::now() + *ttl;
            }
            Err(error) => {
                if schedule.failures == 0 {
                    tracing::warn!(%error, "service lookup failed; keeping the targets of the last answer");
                }
                let (first, longest) = RETRY_DELAYS;
                schedule.at = Instant::now() + longest.min(first * (1 << schedule.failures.min(5)));
                schedule.failures = schedule.failures.saturating_add(1);
            }
        }
        true
    }
}

/// Puts an answer in use. An error keeps the targets of the last one.
async fn publish(engine: &Engine, name: Arc<str>, answer: SrvAnswer) {
    let control = &engine.telemetry.control;
    match answer {
        Ok((services, _)) => {
            control.lookups_good.fetch_add(1, Ordering::Relaxed);
            while !engine.discovered(&name, &services) {
                // A configuration is about to be published; it comes first.
                tokio::time::sleep(STAGED_STEP).await;
            }
            let found_at = Some(SystemTime::now());
            let status = ServiceStatus { servers: services.len(), found_at, error: None };
            control.services().insert(name, status);
        }
        Err(error) => {
            control.lookups_bad.fetch_add(1, Ordering::Relaxed);
            control.services().entry(name).or_default().error = Some(error.to_string());
        }
    }
}

/// Resolves the names of a configuration that have no answer yet, so that it starts with its targets. Waits a few seconds
/// at most; [`run`] retries later.
pub(crate) async fn prepare(engine: &Arc<Engine>, names: BTreeSet<Arc<str>>) {
    let mut running = JoinSet::new();
    for name in names.into_iter().filter(|name| !engine.knows(name)).take(MAX_LOOKUPS) {
        let engine = engine.clone();
        running.spawn(async move {
            if let Ok((services, _)) = engine.shared.dns.services(&name).await {
                engine.learn(&name, &services);
            }
        });
    }
    let all = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(FIRST_ANSWERS, all).await.is_err() {
        tracing::warn!(
            "service lookups are still under way; their targets get traffic once they are resolved"
        );
    }
}

/// The service names in a model.
pub(crate) fn of_model(model: &Model) -> BTreeSet<Arc<str>> {
    model.upstreams.iter().flat_map(|upstream| discovery::names(upstream)).map(Arc::from).collect()
}

/// Waits until each service of the configuration in use was looked up once, a few seconds at most.
pub(crate) async fn settled(engine: Arc<Engine>) {
    let names = of_snapshot(&engine.snapshot());
    let looked_up = || {
        let known = engine.telemetry.control.services();
        names.iter().all(|name| known.contains_key(name))
    };
    let deadline = Instant::now() + FIRST_ANSWERS;
    while !looked_up() && Instant::now() < deadline {
        tokio::time::sleep(STAGED_STEP).await;
    }
}

fn of_snapshot(snapshot: &Snapshot) -> BTreeSet<Arc<str>> {
    snapshot.discovered.iter().flat_map(|(_, upstream)| discovery::names(upstream)).map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn broken() -> SrvAnswer {
        panic!("a defect of the resolver")
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_again_after_a_lookup_that_panicked() {
        let mut lookups = Lookups::default();
        lookups.add("shop".into());
        for delay in [1, 2, 4] {
            lookups.start(|_| broken());
            assert_eq!(lookups.next(), None, "it is under way");
            let (name, answer) = lookups.running.join_next().await.unwrap().unwrap();
            assert_eq!(
                answer.as_ref().unwrap_err().to_string(),
                "shop could not be resolved: the lookup panicked"
            );
            assert!(lookups.reschedule(&name, &answer));
            let next = lookups.next().expect("it is due again");
            assert_eq!(next, Instant::now() + Duration::from_secs(delay));
            tokio::time::advance(Duration::from_secs(delay)).await;
        }
        lookups.start(|_| async { Ok((Arc::from([]), Duration::from_secs(60))) });
        let (name, answer) = lookups.running.join_next().await.unwrap().unwrap();
        lookups.reschedule(&name, &answer);
        assert_eq!(lookups.next(), Some(Instant::now() + Duration::from_secs(60)), "as the TTL says");
    }
}
