//! What the gateway is doing, as one document.

mod failing;
mod findings;

use std::borrow::Cow;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use gateway_core::balance::Target;
use gateway_core::config::catalog::{Closes, ObjectKind};
use gateway_core::config::warning::{self, Expiry};
use gateway_core::http::credentials::redact_text;
use gateway_core::snapshot::Snapshot;
use gateway_protocols::supervise::Tasks;
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Admin;
use crate::control::certificate_files;
use crate::engine::Engine;
use crate::export::{AcmeStatus, CertificateEnd, ConfigStatus, Load, Telemetry};
use crate::source::database::Reconciler;
use crate::source::warnings;
use findings::Findings;

/// Quarantined proxies named in one answer; their number is always told.
const MAX_QUARANTINED: usize = 100;
/// Broken objects named in one answer; their number is always told.
const MAX_BROKEN: usize = 100;
/// Problems told of one object.
const MAX_PROBLEMS: usize = 20;
/// Upstreams named in one answer; their number is always told.
const MAX_UPSTREAMS: usize = 1000;
/// Warnings named in one answer; their number is always told.
const MAX_WARNINGS: usize = 100;
/// Proxies that are looked through for warnings.
const MAX_LOOKED_THROUGH: usize = 10_000;
/// Consumers that are looked through for warnings.
const MAX_CONSUMERS: usize = 100_000;
/// Certificates of a CA named in one answer; their number is always told.
const MAX_CERTIFICATES: usize = 1000;
/// Targets named of one upstream.
const MAX_TARGETS: usize = 100;

/// The document. Its fields are stable; others may be added.
pub(super) async fn status(State(admin): State<Admin>) -> Json<Value> {
    let Admin { engine, reconciler, .. } = &admin;
    let snapshot = engine.snapshot();
    let (started, started_at) = engine.telemetry.started();
    let mut document = redacted(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "started_at": time(started_at),
        "uptime_seconds": started.elapsed().as_secs(),
        "draining": engine.is_draining(),
        "workers": engine.workers(),
        "listeners": {
            "http": engine.addresses.http,
            "https": engine.addresses.https,
            "all_http": engine.addresses.all_http,
            "all_https": engine.addresses.all_https,
        },
        "connections": engine.shared.connections(),
        "overload": overload(&engine.telemetry.control.load.lock().unwrap_or_else(PoisonError::into_inner)),
        "tasks": tasks(&engine.shared.tasks),
        "successor": successor(&engine.telemetry),
        "config": config(&engine.telemetry.config_status()),
        "fleet": fleet(&admin),
        "database": match reconciler {
            Some(reconciler) => database(reconciler).await,
            None => Value::Null,
        },
        "plugin_tasks": engine.tasks.status(),
        "log_sinks": engine.telemetry.sinks.status(),
        "proxies": proxies(&snapshot, engine),
        "upstreams": upstreams(&snapshot),
        "services": services(&engine.telemetry),
        "acme": acme(&engine.telemetry),
        "certificates": certificates(&engine.telemetry),
        "redis": redis(&snapshot, engine),
        "warnings": warned(&snapshot, engine),
    }));
    document["proxies"]["scripts_unreadable"] = redacted(failing::script_folders(&snapshot).await);
    document["problems"] = Findings::of(&document).document();
    Json(document)
}

/// The connections of `gateway.redis` that a plugin uses.
fn redis(snapshot: &Snapshot, engine: &Engine) -> Value {
    let used = engine.meters.gauges("ferrum_redis_up").into_iter();
    let known = used.filter_map(|(labels, up)| Some((labels.into_iter().next()?, up)));
    let servers = snapshot.settings.redis.as_ref();
    let known = known.filter(|(name, _)| servers.is_some_and(|servers| servers.contains_key(name)));
    let shown = |(name, up): (Box<str>, i64)| {
        let last_error = if up == 1 { None } else { engine.world.redis_error(&name) };
        json!({ "name": name, "up": up == 1, "last_error": last_error })
    };
    known.map(shown).collect()
}

/// What the gateway is in a fleet; `null` outside of one.
#[cfg(feature = "fleet")]
fn fleet(admin: &Admin) -> Value {
    crate::fleet::standing(admin.fleet.as_ref())
}

#[cfg(not(feature = "fleet"))]
fn fleet(_: &Admin) -> Value {
    Value::Null
}

/// The document without the credentials of URLs, which names and messages of any part may contain.
fn redacted(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact_text(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = redacted(item.take())),
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = redacted(field.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

fn overload(load: &Load) -> Value {
    json!({
        "level": load.level.as_str(),
        "memory_bytes": load.memory,
        "memory_limit_bytes": load.memory_limit,
        "descriptors": load.descriptors,
        "descriptor_limit": load.descriptor_limit,
        "delay_seconds": load.delay.as_secs_f64(),
    })
}

/// The last successor that failed to take over; `null` if none has.
fn successor(telemetry: &Telemetry) -> Value {
    let failure = telemetry.control.successor_failure.lock().unwrap_or_else(PoisonError::into_inner);
    failure.as_ref().map_or(Value::Null, |(at, why)| json!({ "failed_at": time(*at), "problem": why }))
}

/// The tasks that must keep running.
fn tasks(tasks: &Tasks) -> Value {
    let shown = tasks.list().into_iter().map(|(name, state)| {
        let failure = state.last_failure.map(|(at, cause)| json!({ "at": time(at), "cause": cause }));
        json!({ "name": name, "down": state.down, "failures": state.failures, "last_failure": failure })
    });
    shown.collect()
}

fn time(time: SystemTime) -> String {
    Rfc3339(time).to_string()
}

fn config(status: &ConfigStatus) -> Value {
    let refusal = status
        .last_refusal
        .as_ref()
        .map(|(at, why)| json!({ "at": time(*at), "problems": why.lines().collect::<Vec<_>>() }));
    json!({
        "revision": status.revision,
        "applied_at": status.applied_at.map(time),
        "reloads": status.reloads,
        "refused": status.refused,
        "last_refusal": refusal,
        "restart_needed": status.restart_needed,
    })
}

/// How the database stands, and what in it can't be used.
async fn database(reconciler: &Reconciler) -> Value {
    let standing = reconciler.standing();
    let catalog = reconciler.catalog().await;
    let broken = catalog.broken().iter().take(MAX_BROKEN).map(|(kind, id, object)| {
        let problems: Vec<_> = object.problems.0.iter().take(MAX_PROBLEMS).map(ToString::to_string).collect();
        let mut told = json!({ "kind": kind.as_str(), "id": id, "problems": problems });
        if kind == ObjectKind::PluginConfigs {
            told["closes"] = match catalog.closes(id, object) {
                Closes::Nothing => json!("nothing"),
                Closes::Proxy(proxy) => json!({ "proxy": proxy.as_str() }),
                Closes::Owner(owner) => json!({ "owner": owner.as_str() }),
                Closes::Naming => json!("proxies that name it"),
                Closes::Everything => json!("every proxy"),
            };
        }
        told
    });
    json!({
        "location": reconciler.store().location().to_string(),
        "revision": standing.revision,
        "answers": standing.away.is_none(),
        "away_since": standing.away.as_ref().map(|(since, _)| time(*since)),
        "away_because": standing.away.as_ref().map(|(_, cause)| cause),
        "last_good": reconciler.last_good().map(|(path, copy)| json!({
            "path": path.display().to_string(),
            "revision": copy.revision,
            "problem": copy.problem,
        })),
        "pending_changes": reconciler.pending_changes(),
        "broken_count": catalog.broken().len(),
        "broken": broken.collect::<Vec<_>>(),
    })
}

fn proxies(snapshot: &Snapshot, engine: &Engine) -> Value {
    let closed = snapshot.quarantined.iter().filter_map(|(id, route)| Some((id, route.quarantine.as_ref()?)));
    let named: Vec<_> = closed
        .take(MAX_QUARANTINED)
        .map(|(id, why)| {
            let problems: Vec<_> = why.0.iter().take(MAX_PROBLEMS).map(ToString::to_string).collect();
            json!({ "id": id.as_str(), "problems": problems })
        })
        .collect();
    let failed = engine.streams.failed();
    let ports: Vec<_> = failed
        .iter()
        .take(MAX_QUARANTINED)
        .map(|(id, why)| json!({ "id": id.as_str(), "problem": why }))
        .collect();
    json!({
        "count": snapshot.by_id.len(),
        "quarantined_count": snapshot.quarantined.len(),
        "quarantined": named,
        "ports_closed_count": failed.len(),
        "ports_closed": ports,
        "failing": failing::proxies(snapshot),
    })
}

/// What is served and probably not meant. `null` where there is too much to look through for each answer.
fn warned(snapshot: &Snapshot, engine: &Engine) -> Value {
    if snapshot.by_id.len() > MAX_LOOKED_THROUGH || snapshot.consumers.len() > MAX_CONSUMERS {
        return Value::Null;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let ends = engine.telemetry.control.certificate_ends.lock().unwrap_or_else(PoisonError::into_inner);
    let expiry = |end: &CertificateEnd| {
        let CertificateEnd { at, file, ends, warned, .. } = end;
        (at.clone(), Expiry { file: file.clone(), seconds: ends - now, warned: *warned })
    };
    let expiries = ends.iter().map(expiry).collect();
    drop(ends);
    let mut model = snapshot.model();
    // Without them every group that a plugin names would be unknown.
    model.consumers = snapshot.consumers.iter().filter_map(|(_, known)| known.consumer.clone()).collect();
    let mut warnings = warnings::of_compiled(&model, snapshot, expiries);
    let unusable = &engine.telemetry.control.target_tls_unusable;
    let unusable = unusable.lock().unwrap_or_else(PoisonError::into_inner).clone();
    warnings.extend(warning::silenced(certificate_files::unusable_warnings(&unusable), &model));
    let changed = &engine.telemetry.control.certificates_unusable;
    let changed = changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    warnings.extend(warning::silenced(certificate_files::changed_warnings(&changed), &model));
    let acme = engine.telemetry.control.acme.statuses();
    warnings.extend(warning::silenced(acme.iter().filter_map(AcmeStatus::warning).collect(), &model));
    drop(acme);
    let fixed = engine.telemetry.config_status().restart_needed;
    warnings.extend(warning::silenced(fixed.into_iter().map(warnings::restart_needed).collect(), &model));
    let shown: Vec<_> = warnings.iter().take(MAX_WARNINGS).map(warnings::document).collect();
    json!({ "count": warnings.len(), "list": shown })
}

fn upstreams(snapshot: &Snapshot) -> Value {
    let now = Instant::now();
    let mut ids: Vec<_> = snapshot.upstreams.iter().map(|(id, _)| id).collect();
    ids.sort();
    let named: Vec<_> = ids
        .into_iter()
        .take(MAX_UPSTREAMS)
        .filter_map(|id| Some((id, snapshot.upstreams.get(id)?)))
        .map(|(id, targets)| {
            let named: Vec<_> = targets.list().iter().take(MAX_TARGETS).map(|one| target(one, now)).collect();
            json!({ "id": id.as_str(), "target_count": targets.list().len(), "targets": named })
        })
        .collect();
    json!({ "count": snapshot.upstreams.len(), "list": named })
}

/// The services that targets are found by.
fn services(telemetry: &Telemetry) -> Value {
    let known = telemetry.control.services();
    let shown: Vec<_> = known
        .iter()
        .take(MAX_UPSTREAMS)
        .map(|(name, status)| {
            json!({
                "name": &**name,
                "servers": status.servers,
                "found_at": status.found_at.map(time),
                "error": status.error,
            })
        })
        .collect();
    json!({ "count": known.len(), "list": shown })
}

/// The certificates that are read from files.
fn certificates(telemetry: &Telemetry) -> Value {
    let ends = telemetry.control.certificate_ends.lock().unwrap_or_else(PoisonError::into_inner);
    let shown: Vec<_> = ends
        .iter()
        .take(MAX_CERTIFICATES)
        .map(|end| {
            let seconds = u64::try_from(end.ends).unwrap_or_default();
            let ends_at = time(UNIX_EPOCH + std::time::Duration::from_secs(seconds));
            json!({ "at": end.at, "file": end.file.display().to_string(), "ends_at": ends_at, "renewed": end.is_renewed })
        })
        .collect();
    json!({ "count": ends.len(), "list": shown })
}

/// The certificates that the gateway gets by itself.
fn acme(telemetry: &Telemetry) -> Value {
    let known = telemetry.control.acme.statuses();
    let shown: Vec<_> = known
        .iter()
        .take(MAX_CERTIFICATES)
        .map(|status| {
            json!({
                "names": status.names.iter().collect::<Vec<_>>(),
                "file": status.file.display().to_string(),
                "status": status.standing().as_str(),
                "ends_at": status.ends_at.map(time),
                "next_order_at": status.next_order_at.map(time),
                "failures": status.failures,
                "failed_at": status.failed_at.map(time),
                "problem": status.problem,
            })
        })
        .collect();
    json!({ "count": known.len(), "list": shown })
}

/// A target as it is answered.
pub(super) fn target(target: &Target, now: Instant) -> Value {
    let status = target.status(now);
    json!({
        "address": &**target.authority(),
        "weight": target.rules.weight,
        "healthy": status.healthy,
        "unhealthy_because": target.unhealthy_because(now),
        "failures": failing::failures(target, now),
        "full": failing::full(target, now),
        "probed_healthy": status.probed_healthy,
        "observed_healthy": status.observed_healthy,
        "retried_in_seconds": status.retried_in.map(|left| left.as_secs_f64()),
        "in_flight": status.in_flight,
        "connections": status.connections,
        "max_connections": target.rules.max_connections,
        "latency_seconds": status.latency.map(|latency| latency.as_secs_f64()),
    })
}
