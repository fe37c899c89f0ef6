//! Whether the process lives, is ready for traffic, and has started.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::engine::Engine;
use crate::engine::listeners::Addresses;

/// Where health is asked for: always answered, whoever else keeps the listener busy.
pub(super) const PATHS: [&str; 4] = ["/livez", "/healthz", "/readyz", "/startupz"];

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

/// Configuration is applied and listeners take connections; not ready as soon as a drain begins.
pub(super) async fn ready(State(engine): State<Arc<Engine>>, query: RawQuery) -> Response {
    let draining = engine.is_draining();
    let drain = if draining { "the gateway drains" } else { "no drain has begun" };
    let mut checks = started_checks(&engine);
    checks.push(tasks(&engine));
    checks.push(Check { name: "drain", good: !draining, says: drain.into() });
    answer(&checks, query)
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
