//! The targets of an upstream, one at a time: `/v1/upstreams/{id}/targets`. A target is named by `host:port`, a Unix socket by
//! `unix:/run/app.sock` and a service by `srv:NAME`; slashes are encoded as `%2F`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;
use gateway_core::config::problem::Problems;
use serde_json::{Map, Value, json};

use super::problem::{Refused, invalid, problem};
use super::request::{AuthorizedRequest, object};
use super::resources::{answer, found, one};
use crate::source::database::{Precondition, WriteStep};

/// `GET /v1/upstreams/{id}/targets`.
pub(super) async fn list(asked: AuthorizedRequest, Path(id): Path<String>) -> Response {
    let listed = async {
        let (targets, _) = targets(&asked, &parsed(&id)?).await?;
        Ok(Json(json!({ "items": targets, "next": null })).into_response())
    };
    answer(listed.await)
}

/// `PUT /v1/upstreams/{id}/targets/{target}`: adds the target, or changes what the body says of it.
pub(super) async fn put(
    asked: AuthorizedRequest,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let put = async {
        let id = parsed(&id)?;
        let (mut targets, revision) = targets(&asked, &id).await?;
        let (host, port) = place(&name)?;
        let mut target = if body.is_empty() { Map::new() } else { object(&body)? };
        names_the_same(&target, &host, port)?;
        target.insert("host".to_owned(), json!(host));
        match port {
            Some(port) => _ = target.insert("port".to_owned(), json!(port)),
            None => _ = target.shift_remove("port"),
        }
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
    asked: AuthorizedRequest,
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
async fn targets(asked: &AuthorizedRequest, id: &Id) -> Result<(Vec<Value>, u64), Refused> {
    let object = found(asked, ObjectKind::Upstreams, id).await?;
    let document: Value = serde_json::from_str(&object.document).unwrap_or_default();
    let targets = document.get("targets").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok((targets, object.revision))
}

/// Somebody else's change in between is not overwritten.
fn step(id: Id, targets: Vec<Value>, revision: u64) -> WriteStep {
    let patch = Map::from_iter([("targets".to_owned(), Value::Array(targets))]);
    WriteStep::Merge { kind: ObjectKind::Upstreams, id, patch, only: Precondition::Revision(revision) }
}

/// A body that names another target than the path would change two things at a time, or neither.
fn names_the_same(target: &Map<String, Value>, host: &str, port: Option<u16>) -> Result<(), Refused> {
    let given = |name: &str| target.get(name).filter(|value| !value.is_null());
    let mut problems = Problems::default();
    if given("host").is_some_and(|_| !has_host(target.get("host"), host)) {
        problems.add("host", "the path names another host").remedy =
            Some(format!("leave it out, or write `{host}`"));
    }
    if given("port").is_some_and(|known| known.as_u64() != port.map(u64::from)) {
        problems.add("port", "the path names another port").remedy = Some("leave it out".to_owned());
    }
    if problems.is_empty() { Ok(()) } else { Err(Box::new(invalid(&problems))) }
}

/// The host and the port; Unix sockets and services have none.
fn place(name: &str) -> Result<(String, Option<u16>), Refused> {
    if name.starts_with("unix:/") || name.strip_prefix("srv:").is_some_and(|service| !service.is_empty()) {
        return Ok((name.to_owned(), None));
    }
    let parts = name.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok()?;
        Some((host.to_ascii_lowercase(), Some(port))).filter(|(host, _)| !host.is_empty() && host != "unix")
    });
    parts.ok_or_else(|| {
        let detail = format!(
            "`{name}` is no target; write `host:port`, `unix:%2Fpath` or `srv:_http._tcp.shop.example.com`"
        );
        Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail))
    })
}

fn is_at(target: &Value, host: &str, port: Option<u16>) -> bool {
    let known = target.get("port").and_then(Value::as_u64);
    has_host(target.get("host"), host) && known == port.map(u64::from)
}

/// Names are the same in any case; paths of sockets are not.
fn has_host(known: Option<&Value>, host: &str) -> bool {
    let Some(known) = known.and_then(Value::as_str) else { return false };
    let known = known.trim_start_matches('[').trim_end_matches(']');
    if host.starts_with("unix:") { known == host } else { known.eq_ignore_ascii_case(host) }
}
