//! What was changed, when and by whom: `/v1/revisions`.

use axum::Json;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::bulk::{changes, fields, summary};
use super::problem::{Refused, problem, store};
use super::query::{nothing_else, number, page_size, pairs, switch, value};
use super::request::{AuthorizedRequest, expected, tagged};
use super::resources::{REVISION, answer};
use super::timestamp::time;
use crate::access::Role;
use crate::source::database::{Documents, Request, Rollback};
use crate::store::{Difference, MAX_REVISIONS, RevisionInfo};

/// Revisions of a page when nobody says how many.
const DEFAULT_REVISIONS: usize = 50;
/// Differences that are answered at a time.
const MAX_DIFFERENCES: usize = 10_000;

fn shown(info: &RevisionInfo) -> Value {
    json!({
        "revision": info.revision,
        "at": time(info.at),
        "author": info.author.name,
        "source": info.author.source,
        "note": info.note,
        "created": info.counts.created,
        "updated": info.counts.updated,
        "deleted": info.counts.deleted,
    })
}

/// `GET /v1/revisions`: the newest first.
pub(super) async fn list(asked: AuthorizedRequest, RawQuery(query): RawQuery) -> Response {
    let listed = async {
        let mut pairs = pairs(query.as_deref());
        let before = number(&mut pairs, "before")?;
        let limit = page_size(&mut pairs, DEFAULT_REVISIONS, MAX_REVISIONS)?;
        nothing_else(&pairs)?;
        let found = asked.reconciler.store().revisions(before, limit).await;
        let revisions = found.map_err(|error| Box::new(store(&error)))?;
        let next = revisions.last().map(|info| info.revision).filter(|_| revisions.len() == limit);
        let items: Vec<_> = revisions.iter().map(shown).collect();
        Ok(Json(json!({ "items": items, "next": next.map(|next| next.to_string()) })).into_response())
    };
    answer(listed.await)
}

/// `GET /v1/revisions/{revision}`: with what it changed.
pub(super) async fn get(asked: AuthorizedRequest, Path(revision): Path<String>) -> Response {
    let got = async {
        let revision = parsed(&revision)?;
        let info = asked.reconciler.store().revision_info(revision).await;
        let Some(info) = info.map_err(|error| Box::new(store(&error)))? else {
            let detail = format!("There is no revision {revision}, or it is no longer kept");
            return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)));
        };
        let changes = asked.reconciler.store().revision_changes(revision).await;
        let changes = changes.map_err(|error| Box::new(store(&error)))?;
        let mut answer = shown(&info);
        differences(&mut answer, &changes);
        Ok(Json(answer).into_response())
    };
    answer(got.await)
}

/// `GET /v1/diff?from=&to=`: what is different between two revisions; `to` is the newest unless it is said.
pub(super) async fn diff(asked: AuthorizedRequest, RawQuery(query): RawQuery) -> Response {
    let compared = async {
        let mut pairs = pairs(query.as_deref());
        let Some(from) = number(&mut pairs, "from")? else {
            return Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", "`from` is missing")));
        };
        let store_of = asked.reconciler.store();
        let to = match number(&mut pairs, "to")? {
            Some(to) => to,
            None => store_of.revision().await.map_err(|error| Box::new(store(&error)))?,
        };
        nothing_else(&pairs)?;
        let changes = store_of.diff(from, to).await.map_err(|error| Box::new(store(&error)))?;
        let mut answer = json!({ "from": from, "to": to });
        differences(&mut answer, &changes);
        Ok(Json(answer).into_response())
    };
    answer(compared.await)
}

/// `POST /v1/revisions/{revision}/rollback`: makes the configuration what it was then, as a new revision.
pub(super) async fn rollback(
    asked: AuthorizedRequest,
    Path(revision): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let rolled = async {
        let revision = parsed(&revision)?;
        let mut pairs = pairs(query.as_deref());
        let validate_only = switch(&mut pairs, "validate_only")?;
        let details = switch(&mut pairs, "details")?;
        let keep_credentials = switch(&mut pairs, "keep_credentials")?;
        let note = value(&mut pairs, "note")?.unwrap_or_else(|| format!("back to revision {revision}"));
        nothing_else(&pairs)?;
        let request = Request {
            steps: Vec::new(),
            prune: Vec::new(),
            rollback: Some(Rollback { revision, keep_credentials }),
            expected: expected(&headers)?,
            validate_only,
            note,
            grants: asked.caller.grants.clone(),
            consent: asked.consent(Role::Admin),
        };
        let written = super::writing::write(&asked, request).await?;
        let headers = [(REVISION, written.revision.to_string())];
        let mut summary = summary(&written, validate_only);
        if details {
            summary["changes"] = changes(&written);
        }
        if validate_only && details {
            fields(&asked, &written, &mut summary).await?;
        }
        summary["credentials_restored"] = json!(written.revived);
        Ok(tagged((headers, Json(summary)).into_response(), written.revision))
    };
    answer(rolled.await)
}

fn parsed(revision: &str) -> Result<u64, Refused> {
    revision
        .parse()
        .map_err(|_| Box::new(problem(StatusCode::BAD_REQUEST, "bad_revision", "A revision is a number")))
}

/// Each changed object before and after, without its secrets.
fn differences(answer: &mut Value, changes: &[Difference]) {
    let side = |change: &Difference, document: &Option<String>| {
        document.as_deref().map(|document| Documents::shown(change.kind, document))
    };
    let shown = changes.iter().take(MAX_DIFFERENCES).map(|change| {
        json!({
            "kind": change.kind.as_str(),
            "id": change.id,
            "before": side(change, &change.before),
            "after": side(change, &change.after),
        })
    });
    answer["changes"] = Value::Array(shown.collect());
    answer["truncated"] = json!(changes.len() > MAX_DIFFERENCES);
}
