//! The audit of the admin API: who asks, what becomes of it, and `/v1/audit`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Admin;
use super::endpoints::OUTCOMES;
use super::problem::{Code, problem, store};
use super::request::{Refused, nothing_else, number, page_size, pairs, value};
use super::resources::answer;
use crate::access::Caller;
use crate::audit::log::{AuditLogError, page, verify};
use crate::audit::recorder::Recorder;
use crate::audit::{Draft, Outcome, Query, Who};
use crate::store::MAX_AUDIT_PAGE;

/// Where entries are read.
pub(super) const PATH: &str = "/v1/audit";
/// Where the chain is looked through.
pub(super) const VERIFY: &str = "/v1/audit/verify";

/// Entries of a page when nobody says how many.
const DEFAULT_PAGE: usize = 100;
/// What callers without a valid token are called.
const UNKNOWN: &str = "unknown";

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    /// An address with a port, or the process behind a Unix socket.
    pub(super) address: Option<String>,
    /// The subject of the certificate that was shown.
    pub(super) certificate: Option<String>,
}

/// What somebody tries, as far as it is known before an answer.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    peer: Option<Arc<Peer>>,
    action: String,
    changes: bool,
    only_checks: bool,
}

impl Attempt {
    pub(super) fn of(request: &Request) -> Self {
        let (method, uri) = (request.method(), request.uri());
        let pairs = pairs(uri.query());
        let is_on = |value: &str| !matches!(value, "false" | "0");
        Self {
            peer: request.extensions().get::<Arc<Peer>>().cloned(),
            action: format!("{method} {}", uri.path()),
            changes: !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS),
            only_checks: pairs.iter().any(|(key, value)| key == "validate_only" && is_on(value)),
        }
    }

    /// Who it is.
    pub(super) fn who(&self, caller: Option<&Caller>) -> Who {
        let peer = self.peer.as_deref();
        Who {
            actor: caller.map_or_else(|| UNKNOWN.to_owned(), |caller| caller.name.to_string()),
            role: caller.map(|caller| caller.role.as_str()),
            certificate: peer.and_then(|peer| peer.certificate.clone()),
            source: caller.map_or("admin-api", |caller| caller.source),
            peer: peer.and_then(|peer| peer.address.clone()),
        }
    }

    /// For the entry that a change writes itself.
    pub(super) fn draft(&self, caller: &Caller) -> Draft {
        Draft::new(self.who(Some(caller)), self.action.clone(), Outcome::Allowed)
    }

    /// Records how it ended. A good end of what writes to the database is there already.
    pub(super) fn ended(
        &self,
        recorder: &Recorder,
        (caller, response): (Option<&Caller>, &Response),
        writes: bool,
    ) {
        let status = response.status();
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !is_denied && (!self.changes || self.only_checks || (writes && status.is_success())) {
            return;
        }
        let outcome = match status.as_u16() {
            ..400 => Outcome::Allowed,
            400..500 => Outcome::Refused,
            _ => Outcome::Failed,
        };
        let reason = response.extensions().get::<Code>().map(|code| code.0.to_owned());
        let draft = Draft::new(self.who(caller), self.action.clone(), outcome);
        recorder.record(Draft { status: Some(status.as_u16()), reason, ..draft });
    }
}

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
            None => of_log(&admin, |path| verify(path).map(|(verified, _)| verified)).await?,
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
        limit: page_size(&mut pairs, (DEFAULT_PAGE, MAX_AUDIT_PAGE))?,
        before: number(&mut pairs, "before")?,
        since: time(&mut pairs, "since")?,
        until: time(&mut pairs, "until")?,
        actor: value(&mut pairs, "actor"),
        source: value(&mut pairs, "source"),
        outcome: value(&mut pairs, "outcome"),
        kind: value(&mut pairs, "kind"),
        id: value(&mut pairs, "id"),
    };
    nothing_else(&pairs)?;
    if query.outcome.as_deref().is_some_and(|outcome| !OUTCOMES.contains(&outcome)) {
        return Err(bad("`outcome` is allowed, refused or failed"));
    }
    Ok(query)
}

fn time(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, Refused> {
    let Some(text) = value(pairs, name) else { return Ok(None) };
    let millis = gateway_telemetry::json::millis_of(&text);
    millis.map(Some).ok_or_else(|| bad(&format!("`{name}` is a time such as 2026-11-22T10:00:00Z")))
}

fn bad(detail: &str) -> Refused {
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail))
}
