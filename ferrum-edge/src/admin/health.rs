//! Whether the process lives, is ready for traffic, and has started.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use gateway_core::config::model::Readiness;
use gateway_core::limit::overload::OverloadLevel;
use gateway_core::snapshot::Snapshot;
use tokio::time::Instant;

use super::Admin;
use crate::engine::Engine;
use crate::engine::listeners::Addresses;

/// One thing looked at.
struct Check {
    name: &'static str,
    good: bool,
    says: String,
}

/// The process answers.
pub(super) async fn live(query: RawQuery) -> Response {
    answer(&[Check { name: "process", good: true, says: "it answers".into() }], query)
}

/// Configuration is applied and listeners take connections; not ready as soon as a drain begins, nor when what
/// `gateway.not_ready_when` names is so.
pub(super) async fn ready(State(admin): State<Admin>, query: RawQuery) -> Response {
    let engine = &admin.engine;
    let draining = engine.is_draining();
    let drain = if draining { "the gateway drains" } else { "no drain has begun" };
    let mut checks = started_checks(engine);
    checks.push(tasks(engine));
    checks.push(Check { name: "drain", good: !draining, says: drain.into() });
    let snapshot = engine.snapshot();
    let rules = snapshot.settings.not_ready_when;
    checks.push(proxies(engine, &snapshot, rules));
    if rules.overloaded {
        let level = engine.shared.overload.level();
        let good = level != OverloadLevel::RefuseMost;
        checks.push(Check { name: "overload", good, says: level.as_str().to_owned() });
    }
    if rules.no_healthy_target {
        checks.push(targets(&snapshot));
    }
    if rules.source_unreachable {
        let away = source_away(&admin);
        let good = away.is_none();
        checks.push(Check { name: "source", good, says: away.unwrap_or_else(|| "it answers".to_owned()) });
    }
    answer(&checks, query)
}

/// Which proxies are closed.
fn proxies(engine: &Engine, snapshot: &Snapshot, rules: Readiness) -> Check {
    let all = snapshot.by_id.len();
    let failed = engine.streams.failed();
    let failed = failed.iter().filter(|(id, _)| !snapshot.quarantined.contains_key(*id)).count();
    let closed = snapshot.quarantined.len() + failed;
    let is_all = rules.all_proxies_closed && all > 0 && closed >= all;
    let is_any = rules.any_proxy_closed && closed > 0;
    Check { name: "proxies", good: !is_all && !is_any, says: format!("{closed} of {all} are closed") }
}

/// Whether an upstream with health checks has a healthy target.
fn targets(snapshot: &Snapshot) -> Check {
    let now = Instant::now();
    let (mut healthy, mut known) = (0, 0);
    for target in snapshot.upstreams.iter().flat_map(|(_, targets)| targets.list()) {
        let status = target.status(now);
        if status.probed_healthy.is_some() || status.observed_healthy.is_some() {
            known += 1;
            healthy += usize::from(status.healthy);
        }
    }
    Check {
        name: "targets",
        good: known == 0 || healthy > 0,
        says: format!("{healthy} of {known} are healthy"),
    }
}

/// Why the database or the control plane does not answer; `None` when it does, or there is none.
fn source_away(admin: &Admin) -> Option<String> {
    let away = admin.reconciler.as_ref().and_then(|reconciler| reconciler.standing().away);
    if let Some((_, why)) = away {
        return Some(why);
    }
    #[cfg(feature = "fleet")]
    if let Some(crate::fleet::FleetRole::Edge(edge)) = &admin.fleet {
        let standing = edge.standing();
        return match standing.connected {
            Some(_) => None,
            None => Some(standing.problem.unwrap_or_else(|| "not connected".to_owned())),
        };
    }
    None
}

/// Configuration is applied and listeners are bound.
pub(super) async fn started(State(engine): State<Arc<Engine>>, query: RawQuery) -> Response {
    answer(&started_checks(&engine), query)
}

fn started_checks(engine: &Engine) -> Vec<Check> {
    let revision = engine.snapshot().revision;
    // An empty store has revision 0 and is as good as any other.
    let applied = engine.telemetry.config_status().applied_at.is_some();
    let config = Check { name: "configuration", good: applied, says: format!("revision {revision}") };
    // The admin listener comes after the others, so that its answer alone says that they are bound.
    let listeners = Check { name: "listeners", good: true, says: listeners(&engine.addresses) };
    vec![config, listeners]
}

/// Everything that must keep running does.
fn tasks(engine: &Engine) -> Check {
    let ended = engine.ended_workers();
    let down: Vec<_> = engine.shared.tasks.list().into_iter().filter(|(_, state)| state.down > 0).collect();
    let mut says: Vec<_> =
        down.iter().map(|(name, state)| format!("{name} is down ({})", state.down)).collect();
    if ended > 0 {
        says.push(format!("{ended} workers have ended"));
    }
    let good = says.is_empty();
    Check { name: "tasks", good, says: if good { "all run".into() } else { says.join(", ") } }
}

fn listeners(addresses: &Addresses) -> String {
    let shown = |address: Option<SocketAddr>| address.map_or_else(|| "off".to_owned(), |at| at.to_string());
    format!("http {}, https {}", shown(addresses.http), shown(addresses.https))
}

/// 200 when all is good, else 503; a line for each check when `verbose` is asked for.
fn answer(checks: &[Check], RawQuery(query): RawQuery) -> Response {
    let good = checks.iter().all(|check| check.good);
    let is_verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part == "verbose" || part.starts_with("verbose=") && part != "verbose=false")
    });
    let mut text = String::new();
    for check in checks.iter().filter(|check| is_verbose || !check.good) {
        let sign = if check.good { '+' } else { '-' };
        let written = writeln!(text, "[{sign}] {}: {}", check.name, check.says);
        debug_assert!(written.is_ok(), "a string takes whatever is written");
    }
    text.push_str(if good { "ok\n" } else { "not ready\n" });
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
