//! `/v1/audit`: what is read of the audit.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Admin;
use super::problem::{Refused, problem, store};
use super::query::{nothing_else, number, page_size, pairs, value};
use super::resources::answer;
use crate::audit::log::{AuditLogError, CheckedLog, page, verify};
use crate::audit::{KINDS, OUTCOMES, Query, SOURCES};
use crate::store::MAX_AUDIT_PAGE;

/// Where entries are read.
pub(super) const PATH: &str = "/v1/audit";
/// Where the chain is looked through.
pub(super) const VERIFY: &str = "/v1/audit/verify";

/// Entries of a page when nobody says how many.
const DEFAULT_PAGE: usize = 100;

/// `GET /v1/audit`: a page, the newest first.
pub(super) async fn list(State(admin): State<Admin>, RawQuery(asked): RawQuery) -> Response {
    let listed = async {
        let query = query(asked.as_deref())?;
        let limit = query.limit;
        let lines = match &admin.reconciler {
            Some(reconciler) => {
                reconciler.store().audit_page(&query).await.map_err(|error| Box::new(store(&error)))?
            }
            None => of_log(&admin, move |path| page(path, &query)).await?,
        };
        let next = lines.last().filter(|_| lines.len() == limit).map(|line| json!(line.seq.to_string()));
        let next = next.unwrap_or_default();
        // As they were written: whoever hashes an entry without its `hash` gets that hash.
        let items: Vec<_> = lines.iter().map(|line| line.with_hash()).collect();
        let text = format!("{{\"items\":[{}],\"next\":{next}}}\n", items.join(","));
        let mut response = text.into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    };
    answer(listed.await)
}

/// `GET /v1/audit/verify`: whether the chain is whole.
pub(super) async fn check(State(admin): State<Admin>, RawQuery(asked): RawQuery) -> Response {
    let checked = async {
        nothing_else(&pairs(asked.as_deref()))?;
        let verified = match &admin.reconciler {
            Some(reconciler) => {
                reconciler.store().audit_verified().await.map_err(|error| Box::new(store(&error)))?
            }
            None => of_log(&admin, |path| verify(&[path]).map(CheckedLog::whole)).await?,
        };
        Ok(Json(verified).into_response())
    };
    answer(checked.await)
}

/// Reads the audit log, which is all there is where the configuration comes from a file.
async fn of_log<T: Send + 'static>(
    admin: &Admin,
    read: impl FnOnce(&std::path::Path) -> Result<T, AuditLogError> + Send + 'static,
) -> Result<T, Refused> {
    let Some(path) = admin.engine.audit.log_file() else {
        let detail = "No audit is kept; set `gateway.audit_log` to a file";
        return Err(Box::new(problem(StatusCode::NOT_FOUND, "no_audit", detail)));
    };
    let failed = |detail: String| Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "audit_log", &detail));
    match tokio::task::spawn_blocking(move || read(&path)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("Reading the audit log failed".to_owned())),
    }
}

fn query(asked: Option<&str>) -> Result<Query, Refused> {
    let mut pairs = pairs(asked);
    let query = Query {
        limit: page_size(&mut pairs, DEFAULT_PAGE, MAX_AUDIT_PAGE)?,
        before: number(&mut pairs, "before")?,
        since: time(&mut pairs, "since")?,
        until: time(&mut pairs, "until")?,
        actor: value(&mut pairs, "actor")?,
        source: value(&mut pairs, "source")?,
        outcome: value(&mut pairs, "outcome")?,
        kind: value(&mut pairs, "kind")?,
        id: value(&mut pairs, "id")?,
    };
    nothing_else(&pairs)?;
    for (name, given, known) in [
        ("outcome", &query.outcome, OUTCOMES),
        ("source", &query.source, SOURCES),
        ("kind", &query.kind, &KINDS[..]),
    ] {
        if given.as_deref().is_some_and(|given| !known.contains(&given)) {
            return Err(bad(&format!("`{name}` is one of {}", known.join(", "))));
        }
    }
    Ok(query)
}

fn time(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, Refused> {
    let Some(text) = value(pairs, name)? else { return Ok(None) };
    let millis = gateway_telemetry::json::millis_of(&text);
    millis.map(Some).ok_or_else(|| bad(&format!("`{name}` is a time such as 2026-11-22T10:00:00Z")))
}

fn bad(detail: &str) -> Refused {
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail))
}
