//! Looks up the services that targets are found by, again when what was found ends, and puts what changed in use.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use gateway_core::config::discovery::{self, Service};
use gateway_core::config::model::Model;
use gateway_core::config::snapshot::Snapshot;
use gateway_protocols::dns::{Dns, DnsError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::app::engine::Engine;
use crate::export::ServiceStatus;

/// Lookups under way at a time.
const MAX_LOOKUPS: usize = 32;
/// The pause after a lookup that failed, and the longest one after several in a row.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often it is looked whether a configuration that is staged has been published.
const STAGED_STEP: Duration = Duration::from_millis(20);
/// How long a start and a reload wait for services that nothing is known of.
const FIRST_ANSWERS: Duration = Duration::from_secs(3);

/// When a name is looked up again.
struct Next {
    at: Instant,
    failures: u32,
    is_asked: bool,
}

type Answer = Result<(Arc<[Service]>, Duration), DnsError>;

/// Looks until the gateway ends.
///
/// # Errors
/// Never.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), String> {
    let mut changes = engine.changes();
    let mut known: HashMap<Arc<str>, Next> = HashMap::new();
    let mut asked: JoinSet<(Arc<str>, Answer)> = JoinSet::new();
    follow(&engine, &mut known);
    loop {
        ask(&engine.shared.dns, &mut known, &mut asked);
        let is_full = asked.len() >= MAX_LOOKUPS;
        let next = known.values().filter(|next| !next.is_asked && !is_full).map(|next| next.at).min();
        tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => follow(&engine, &mut known),
                Err(_) => return Ok(()),
            },
            Some(Ok((name, answer))) = asked.join_next() => take(&engine, &mut known, (name, answer)).await,
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// Looks up what a configuration names and nothing is known of, so that it begins with its targets. Waits no longer than a
/// few seconds; [`run`] looks further.
pub(crate) async fn prepare(engine: &Arc<Engine>, names: BTreeSet<Arc<str>>) {
    let mut asked = JoinSet::new();
    for name in names.into_iter().filter(|name| !engine.knows(name)).take(MAX_LOOKUPS) {
        let engine = engine.clone();
        asked.spawn(async move {
            if let Ok((services, _)) = engine.shared.dns.services(&name).await {
                engine.learn(&name, &services);
            }
        });
    }
    let all = async { while asked.join_next().await.is_some() {} };
    if tokio::time::timeout(FIRST_ANSWERS, all).await.is_err() {
        tracing::warn!("not all services were found in time; their targets get traffic once they are");
    }
}

/// The services that a model names.
pub(crate) fn of_model(model: &Model) -> BTreeSet<Arc<str>> {
    model.upstreams.iter().flat_map(|upstream| discovery::names(upstream)).map(Arc::from).collect()
}

/// Waits until the services of the configuration in use were looked up once, for some seconds at the most.
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

/// Takes the names of the configuration in use; new ones are due at once.
fn follow(engine: &Engine, known: &mut HashMap<Arc<str>, Next>) {
    let names = of_snapshot(&engine.snapshot());
    known.retain(|name, _| names.contains(name));
    engine.telemetry.control.services().retain(|name, _| names.contains(name));
    for name in names {
        known.entry(name).or_insert_with(|| Next { at: Instant::now(), failures: 0, is_asked: false });
    }
}

fn ask(dns: &Arc<Dns>, known: &mut HashMap<Arc<str>, Next>, asked: &mut JoinSet<(Arc<str>, Answer)>) {
    let now = Instant::now();
    for (name, next) in known.iter_mut().filter(|(_, next)| !next.is_asked && next.at <= now) {
        if asked.len() >= MAX_LOOKUPS {
            return;
        }
        next.is_asked = true;
        let (dns, name) = (dns.clone(), name.clone());
        asked.spawn(async move {
            let answer = dns.services(&name).await;
            (name, answer)
        });
    }
}

/// Takes an answer. A failure leaves what was found before.
async fn take(engine: &Engine, known: &mut HashMap<Arc<str>, Next>, (name, answer): (Arc<str>, Answer)) {
    // It may have gone while it was asked for.
    let Some(next) = known.get_mut(&name) else { return };
    next.is_asked = false;
    let control = &engine.telemetry.control;
    match answer {
        Ok((services, ttl)) => {
            control.lookups_good.fetch_add(1, Ordering::Relaxed);
            *next = Next { at: Instant::now() + ttl, failures: 0, is_asked: false };
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
            if next.failures == 0 {
                tracing::warn!(%error, "a service was not found; the targets found before stay in use");
            }
            next.failures = next.failures.saturating_add(1);
            next.at = Instant::now() + PAUSES.1.min(PAUSES.0 * (1 << (next.failures - 1).min(5)));
            control.services().entry(name).or_default().error = Some(error.to_string());
        }
    }
}
