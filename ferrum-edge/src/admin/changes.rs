//! Changes that another user has to approve: `/v1/changes`.

use axum::Json;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use serde_json::{Value, json};

use super::bulk::{changes, summary};
use super::problem::{Refused, problem, refused, store};
use super::query::{nothing_else, number, page_size, pairs, switch, value};
use super::request::{AuthorizedRequest, expected, tagged};
use super::resources::{REVISION, answer};
use super::writing::{pending_document, write};
use crate::source::database::{Approval, Consent, Documents, Refusal, Request, may_decide, may_see};
use crate::store::{PendingDocument, PendingState};

/// Where one is.
pub(super) const ONE: &str = "/v1/changes/{number}";
pub(super) const APPROVE: &str = "/v1/changes/{number}/approve";
pub(super) const REJECT: &str = "/v1/changes/{number}/reject";
/// How they may stand, for queries.
pub(super) const STATES: [&str; 5] = ["pending", "approved", "rejected", "withdrawn", "expired"];

/// The number of changes on a page by default, and the most that a request may ask for.
const PAGE: (usize, usize) = (100, 200);

/// `GET /v1/changes`: the newest first.
pub(super) async fn list(asked: AuthorizedRequest, RawQuery(query): RawQuery) -> Response {
    let listed = async {
        let mut pairs = pairs(query.as_deref());
        let before = number(&mut pairs, "before")?;
        let limit = page_size(&mut pairs, PAGE.0, PAGE.1)?;
        let state = value(&mut pairs, "state")?;
        nothing_else(&pairs)?;
        let state = state.map(|name| PendingState::from_name(&name).ok_or(name)).transpose();
        let state = state.map_err(|name| {
            let detail = format!("`state` is one of {}, not `{name}`", STATES.join(", "));
            Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", &detail)) as Refused
        })?;
        let found = asked.reconciler.store().pending_changes(state, before, limit, now()).await;
        let changes = found.map_err(|error| Box::new(store(&error)))?;
        let next = changes.last().map(|change| change.number).filter(|_| changes.len() == limit);
        let grants = asked.caller.grants.as_deref();
        let items: Vec<_> =
            changes.iter().filter(|change| may_see(grants, change)).map(pending_document).collect();
        let rules = asked.reconciler.approval_rules();
        let rules = rules.map(|rules| json!({ "roles": rules.roles, "objects": rules.objects }));
        let next = next.map(|next| next.to_string());
        Ok(Json(json!({ "items": items, "next": next, "rules": rules })).into_response())
    };
    answer(listed.await)
}

/// `GET /v1/changes/{number}`: with each object before and after.
pub(super) async fn get(asked: AuthorizedRequest, Path(number): Path<String>) -> Response {
    let got = async {
        let number = parsed(&number)?;
        let from = asked.reconciler.store();
        let failed = |error: &crate::store::StoreError| Box::new(store(error)) as Refused;
        let found = from.pending_change(number).await.map_err(|error| failed(&error))?;
        let found = found.map(|(change, documents)| (change.at(now()), documents));
        let seen = found.filter(|(change, _)| may_see(asked.caller.grants.as_deref(), change));
        let Some((change, documents)) = seen else {
            let detail = format!("There is no change {number}, or your grants do not cover its objects");
            return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)));
        };
        let revision = from.revision().await.map_err(|error| failed(&error))?;
        let mut document = pending_document(&change);
        let mut changes = Vec::with_capacity(documents.len());
        for one in &documents {
            changes.push(compared(&asked, one).await?);
        }
        document["changes"] = Value::Array(changes);
        let rules = asked.reconciler.approval_rules();
        let refusal = may_decide(rules.as_deref(), &asked.caller, &change).err();
        document["refusal"] =
            json!(refusal.map(|error| json!({ "code": error.code(), "detail": error.to_string() })));
        Ok(tagged(Json(document).into_response(), revision))
    };
    answer(got.await)
}

/// An object before and after without its secrets, and whether it still is as it was.
async fn compared(asked: &AuthorizedRequest, one: &PendingDocument) -> Result<Value, Refused> {
    let Some(kind) = ObjectKind::named(&one.kind) else {
        return Ok(json!({ "kind": one.kind, "id": one.id, "fits": false }));
    };
    let now = asked.reconciler.store().get(kind, &one.id).await.map_err(|error| Box::new(store(&error)))?;
    let side =
        |document: &Option<String>| document.as_deref().map(|document| Documents::shown(kind, document));
    Ok(json!({
        "kind": one.kind,
        "id": one.id,
        "action": one.action(),
        "before": side(&one.before),
        "after": side(&one.after),
        "fits": now.map(|object| object.document) == one.before,
    }))
}

/// `POST /v1/changes/{number}/approve`: applies it as one revision.
pub(super) async fn approve(
    asked: AuthorizedRequest,
    Path(number): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let approved = async {
        let number = parsed(&number)?;
        let mut pairs = pairs(query.as_deref());
        let is_emergency = switch(&mut pairs, "emergency")?;
        let validate_only = switch(&mut pairs, "validate_only")?;
        let reason = value(&mut pairs, "note")?.unwrap_or_default();
        nothing_else(&pairs)?;
        let approval = Approval { number, by: asked.caller.clone(), reason, is_emergency };
        let request = Request {
            steps: Vec::new(),
            prune: Vec::new(),
            rollback: None,
            expected: expected(&headers)?,
            validate_only,
            note: String::new(),
            grants: asked.caller.grants.clone(),
            consent: Consent::Approval(approval),
        };
        let written = write(&asked, request).await?;
        let headers = [(REVISION, written.revision.to_string())];
        let mut document = summary(&written, validate_only);
        document["changes"] = changes(&written);
        Ok(tagged((headers, Json(document)).into_response(), written.revision))
    };
    answer(approved.await)
}

/// `POST /v1/changes/{number}/reject`: ends it without applying it.
pub(super) async fn reject(
    asked: AuthorizedRequest,
    Path(number): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(ended(&asked, &number, query.as_deref(), Refusal::Reject).await)
}

/// `DELETE /v1/changes/{number}`: its author takes it back.
pub(super) async fn withdraw(
    asked: AuthorizedRequest,
    Path(number): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(ended(&asked, &number, query.as_deref(), Refusal::Withdraw).await)
}

async fn ended(
    asked: &AuthorizedRequest,
    number: &str,
    query: Option<&str>,
    refusal: Refusal,
) -> Result<Response, Refused> {
    let number = parsed(number)?;
    let mut pairs = pairs(query);
    let reason = value(&mut pairs, "note")?.unwrap_or_default();
    nothing_else(&pairs)?;
    let ended = asked.reconciler.end_change(number, refusal, &asked.caller, reason, asked.draft()).await;
    ended.map_err(|error| Box::new(refused(&error)))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn parsed(number: &str) -> Result<u64, Refused> {
    number.parse().map_err(|_| {
        Box::new(problem(StatusCode::BAD_REQUEST, "bad_number", "A change is a number")) as Refused
    })
}

/// Milliseconds since 1970 UTC.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
