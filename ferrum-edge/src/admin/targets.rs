//! The targets of an upstream, one at a time: `/v1/upstreams/{id}/targets`. A target is named by `host:port`, a Unix socket by
//! `unix:/run/app.sock` and a service by `srv:NAME`; slashes are encoded as `%2F`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;
use gateway_core::config::problem::Problems;
use serde_json::{Map, Value, json};

use super::problem::{Refused, invalid, problem};
use super::request::{AuthorizedRequest, object, precondition};
use super::resources::{answer, found, one};
use crate::source::database::{Precondition, TargetAddress, TargetChange, WriteStep};

/// `GET /v1/upstreams/{id}/targets`.
pub(super) async fn list(asked: AuthorizedRequest, Path(id): Path<String>) -> Response {
    let listed = async {
        let object = found(&asked, ObjectKind::Upstreams, &parsed(&id)?).await?;
        let document: Value = serde_json::from_str(&object.document).unwrap_or_default();
        let targets = document.get("targets").cloned().unwrap_or_else(|| json!([]));
        Ok(Json(json!({ "items": targets, "next": null })).into_response())
    };
    answer(listed.await)
}

/// `PUT /v1/upstreams/{id}/targets/{target}`: adds the target, or changes what the body says of it.
pub(super) async fn put(
    asked: AuthorizedRequest,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let put = async {
        let (id, address, only) = (parsed(&id)?, address(&name)?, condition(&headers)?);
        let target = if body.is_empty() { Map::new() } else { object(&body)? };
        names_the_same(&target, &address)?;
        let change = TargetChange::Put(target);
        one(&asked, query.as_deref(), WriteStep::Target { id, address, change, only }).await
    };
    answer(put.await)
}

/// `DELETE /v1/upstreams/{id}/targets/{target}`. The last one can't go: an upstream has at least one.
pub(super) async fn delete(
    asked: AuthorizedRequest,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let (id, address, only) = (parsed(&id)?, address(&name)?, condition(&headers)?);
        let change = TargetChange::Remove;
        one(&asked, query.as_deref(), WriteStep::Target { id, address, change, only }).await
    };
    answer(deleted.await)
}

/// `If-Match` is about the upstream. Without it a target is changed in the upstream as it is by then, so that servers that
/// register at the same time don't keep each other out.
fn condition(headers: &HeaderMap) -> Result<Precondition, Refused> {
    match precondition(headers, Precondition::Present)? {
        Precondition::IfNone => {
            let detail = "If-None-Match says nothing about a target; send If-Match";
            Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_condition", detail)))
        }
        only => Ok(only),
    }
}

fn parsed(id: &str) -> Result<Id, Refused> {
    id.parse().map_err(|problems| Box::new(invalid(&problems)))
}

/// A body that names another target than the path would change two things at a time, or neither.
fn names_the_same(target: &Map<String, Value>, address: &TargetAddress) -> Result<(), Refused> {
    let TargetAddress { host, port } = address;
    let given = |name: &str| target.get(name).filter(|value| !value.is_null());
    let mut problems = Problems::default();
    if given("host").is_some_and(|_| !address.has_host(target.get("host"))) {
        problems.add("host", "the path names another host").remedy =
            Some(format!("leave it out, or write `{host}`"));
    }
    if given("port").is_some_and(|known| known.as_u64() != port.map(u64::from)) {
        problems.add("port", "the path names another port").remedy = Some("leave it out".to_owned());
    }
    if problems.is_empty() { Ok(()) } else { Err(Box::new(invalid(&problems))) }
}

/// Unix sockets and services have no port.
pub(super) fn address(name: &str) -> Result<TargetAddress, Refused> {
    if name.starts_with("unix:/") || name.strip_prefix("srv:").is_some_and(|service| !service.is_empty()) {
        return Ok(TargetAddress { host: name.to_owned(), port: None });
    }
    let parts = name.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok()?;
        let is_host = !host.is_empty() && !host.eq_ignore_ascii_case("unix");
        is_host.then(|| TargetAddress { host: host.to_ascii_lowercase(), port: Some(port) })
    });
    parts.ok_or_else(|| {
        let detail = format!(
            "`{name}` is no target; write `host:port`, `unix:%2Fpath` or `srv:_http._tcp.shop.example.com`"
        );
        Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail))
    })
}
