//! The targets of an upstream, one at a time: `/v1/upstreams/{id}/targets`. A target is named by `host:port`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::Kind;
use gateway_core::config::model::Id;
use serde_json::{Map, Value, json};

use super::problem::{Refused, invalid, problem};
use super::request::{Asked, object};
use super::resources::{answer, found, one};
use crate::source::database::{Precondition, Step};

/// `GET /v1/upstreams/{id}/targets`.
pub(super) async fn list(asked: Asked, Path(id): Path<String>) -> Response {
    let listed = async {
        let (targets, _) = targets(&asked, &parsed(&id)?).await?;
        Ok(Json(json!({ "items": targets, "next": null })).into_response())
    };
    answer(listed.await)
}

/// `PUT /v1/upstreams/{id}/targets/{target}`: adds the target, or changes what the body says of it.
pub(super) async fn put(
    asked: Asked,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let put = async {
        let id = parsed(&id)?;
        let (mut targets, revision) = targets(&asked, &id).await?;
        let (host, port) = place(&name)?;
        let mut target = if body.is_empty() { Map::new() } else { object(&body)? };
        target.insert("host".to_owned(), json!(host));
        target.insert("port".to_owned(), json!(port));
        match targets.iter_mut().find(|target| is_at(target, &host, port)) {
            Some(known) => *known = Value::Object(target),
            None => targets.push(Value::Object(target)),
        }
        one(&asked, query.as_deref(), step(id, targets, revision)).await
    };
    answer(put.await)
}

/// `DELETE /v1/upstreams/{id}/targets/{target}`. The last one can't go: an upstream has at least one.
pub(super) async fn delete(
    asked: Asked,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let deleted = async {
        let id = parsed(&id)?;
        let (mut targets, revision) = targets(&asked, &id).await?;
        let (host, port) = place(&name)?;
        let before = targets.len();
        targets.retain(|target| !is_at(target, &host, port));
        if targets.len() == before {
            let detail = format!("The upstream `{id}` has no target `{name}`");
            return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)));
        }
        one(&asked, query.as_deref(), step(id, targets, revision)).await
    };
    answer(deleted.await)
}

fn parsed(id: &str) -> Result<Id, Refused> {
    id.parse().map_err(|problems| Box::new(invalid(&problems)))
}

/// The targets as they are stored, and the upstream's revision.
async fn targets(asked: &Asked, id: &Id) -> Result<(Vec<Value>, u64), Refused> {
    let object = found(asked, Kind::Upstreams, id).await?;
    let document: Value = serde_json::from_str(&object.document).unwrap_or_default();
    let targets = document.get("targets").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok((targets, object.revision))
}

/// Somebody else's change in between is not overwritten.
fn step(id: Id, targets: Vec<Value>, revision: u64) -> Step {
    let patch = Map::from_iter([("targets".to_owned(), Value::Array(targets))]);
    Step::Merge { kind: Kind::Upstreams, id, patch, only: Precondition::Revision(revision) }
}

fn place(name: &str) -> Result<(String, u16), Refused> {
    let parts = name.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_ascii_lowercase(), port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
    });
    parts.ok_or_else(|| {
        let detail = format!("`{name}` is no target; write `host:port`");
        Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail))
    })
}

fn is_at(target: &Value, host: &str, port: u16) -> bool {
    let same_host = target
        .get("host")
        .and_then(Value::as_str)
        .is_some_and(|known| known.trim_start_matches('[').trim_end_matches(']').eq_ignore_ascii_case(host));
    same_host && target.get("port").and_then(Value::as_u64) == Some(u64::from(port))
}
