//! Objects one at a time: `/v1/{kind}` and `/v1/{kind}/{id}`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, RawQuery};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::file::File;
use gateway_core::config::model::Id;
use serde_json::{Map, Value, json};

use super::Admin;
use super::problem::{Refused, problem, store};
use super::query::{nothing_else, page_size, pairs, switch, value};
use super::request::{
    AuthorizedRequest, is_known, key, kind, object, out_of_scope, own_id, precondition, tagged,
};
use super::timestamp::time;
use super::writing::write;
use crate::access::Role;
use crate::source::database::{Documents, ObjectOutcome, Precondition, Request, WriteStep};
use crate::store::{DEFAULT_PAGE, MAX_PAGE, Object, Query};

/// An object as it is answered.
pub(super) fn shown(object: &Object) -> Value {
    let mut value = Documents::shown(object.kind, &object.document);
    if let Value::Object(fields) = &mut value {
        fields.insert("created_at".to_owned(), time(object.created_at));
        fields.insert("updated_at".to_owned(), time(object.updated_at));
        fields.insert("revision".to_owned(), json!(object.revision));
    }
    value
}

/// `GET /v1/{kind}`: a page, in the order of ids.
pub(super) async fn list(
    asked: AuthorizedRequest,
    Path(of): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(listed(&asked, &of, query).await)
}

async fn listed(asked: &AuthorizedRequest, of: &str, query: Option<String>) -> Result<Response, Refused> {
    let kind = kind(of)?;
    let mut pairs = pairs(query.as_deref());
    let after = value(&mut pairs, "after")?;
    let limit = page_size(&mut pairs, DEFAULT_PAGE, MAX_PAGE)?;
    // Who may see no credentials may not try whether they are these either.
    let about_secrets = |key: &str| key.split('.').next() == Some("credentials");
    if kind == ObjectKind::Consumers && pairs.iter().any(|(key, _)| about_secrets(key)) {
        let detail = "Consumers can't be searched by their credentials";
        return Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail)));
    }
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !is_field(kind, key)) {
        let detail = format!("The query's `{key}` is no field of {}", kind.as_str());
        return Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", &detail)));
    }
    if asked.caller.grants.is_some() && kind == ObjectKind::Consumers {
        return Err(out_of_scope("Your grants cover no consumers: their credentials are for everything"));
    }
    let found = asked.reconciler.store().list(&Query { kind, after, limit, filters: pairs }).await;
    let page = found.map_err(|error| Box::new(store(&error)))?;
    // A page may have fewer objects than asked for then, and still a next one.
    let visible = page.objects.iter().filter(|object| asked.may_see(kind, &object.id).is_ok());
    let items: Vec<_> = visible.map(shown).collect();
    Ok(Json(json!({ "items": items, "next": page.next })).into_response())
}

/// Whether objects of a kind may have a field of this name, or of what stands before its first point.
fn is_field(kind: ObjectKind, name: &str) -> bool {
    let schema = File::schema().as_value();
    let of_kind = &schema["properties"][kind.as_str()]["items"]["$ref"];
    let object = of_kind.as_str().and_then(|place| schema.pointer(place.trim_start_matches('#')));
    let name = name.split('.').next().unwrap_or_default();
    object.is_some_and(|object| object["properties"].get(name).is_some())
}

/// `GET /v1/{kind}/{id}`.
pub(super) async fn get(
    asked: AuthorizedRequest,
    path: Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    answer(got(&asked, &path, &headers).await)
}

async fn got(
    asked: &AuthorizedRequest,
    path: &Path<(String, String)>,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let (kind, id) = key(path)?;
    let object = found(asked, kind, &id).await?;
    if is_known(headers, object.revision) {
        return Ok(tagged(StatusCode::NOT_MODIFIED.into_response(), object.revision));
    }
    let body = Json(shown(&object)).into_response();
    Ok(tagged(body, object.revision))
}

/// One object, as it is stored.
pub(super) async fn found(asked: &AuthorizedRequest, kind: ObjectKind, id: &Id) -> Result<Object, Refused> {
    asked.may_see(kind, id.as_str())?;
    match asked.reconciler.store().get(kind, id.as_str()).await {
        Ok(Some(object)) => Ok(object),
        Ok(None) => {
            let detail = format!("There is no {} `{id}`", kind.singular());
            Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)))
        }
        Err(error) => Err(Box::new(store(&error))),
    }
}

/// `POST /v1/{kind}`: creates; without an id it is given one.
pub(super) async fn create(
    asked: AuthorizedRequest,
    Path(of): Path<String>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let created = async {
        let (kind, document) = (kind(&of)?, object(&body)?);
        let id = match own_id(&document)? {
            Some(id) => id,
            None => fresh_id(),
        };
        let step = WriteStep::Put { kind, id, document, only: Precondition::Absent };
        one(&asked, query.as_deref(), step).await
    };
    answer(created.await)
}

/// `PUT /v1/{kind}/{id}`: creates or replaces.
pub(super) async fn put(asked: AuthorizedRequest, named: Named, body: Bytes) -> Response {
    let put = |(kind, id), document, only| WriteStep::Put { kind, id, document, only };
    answer(changed(&asked, named, &body, Precondition::Any, put).await)
}

/// `PATCH /v1/{kind}/{id}`: a merge patch (RFC 7396).
pub(super) async fn patch(asked: AuthorizedRequest, named: Named, body: Bytes) -> Response {
    let merge = |(kind, id), patch, only| WriteStep::Merge { kind, id, patch, only };
    if is_json_patch(&named.headers) {
        return no_json_patch();
    }
    answer(changed(&asked, named, &body, Precondition::Present, merge).await)
}

/// Whether a body is a list of operations (RFC 6902), which is no merge patch.
fn is_json_patch(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json-patch+json")
}

/// RFC 5789 §2.2.
fn no_json_patch() -> Response {
    const ACCEPTED: &str = "application/merge-patch+json, application/json";
    let detail = "A patch is a JSON merge patch (RFC 7396)";
    let mut response = problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_a_merge_patch", detail);
    response.headers_mut().insert("accept-patch", HeaderValue::from_static(ACCEPTED));
    response
}

/// `DELETE /v1/{kind}/{id}`.
pub(super) async fn delete(asked: AuthorizedRequest, Named { path, query, headers }: Named) -> Response {
    let deleted = async {
        let (kind, id) = key(&path)?;
        let only = precondition(&headers, Precondition::Present)?;
        one(&asked, query.as_deref(), WriteStep::Delete { kind, id, only }).await
    };
    answer(deleted.await)
}

/// Does with the object of a path what a body says; `otherwise` has to hold when the request makes no condition.
async fn changed(
    asked: &AuthorizedRequest,
    Named { path, query, headers }: Named,
    body: &Bytes,
    otherwise: Precondition,
    step: impl FnOnce((ObjectKind, Id), Map<String, Value>, Precondition) -> WriteStep,
) -> Result<Response, Refused> {
    let (kind, id) = key(&path)?;
    let document = object(body)?;
    same_id(&document, &id)?;
    let only = precondition(&headers, otherwise)?;
    one(asked, query.as_deref(), step((kind, id), document, only)).await
}

/// Which object a request is about, and under which conditions.
pub(super) struct Named {
    path: Path<(String, String)>,
    query: Option<String>,
    headers: HeaderMap,
}

impl FromRequestParts<Admin> for Named {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, PathRejection> {
        let path = Path::from_request_parts(parts, admin).await?;
        Ok(Self { path, query: parts.uri.query().map(str::to_owned), headers: parts.headers.clone() })
    }
}

/// Does one thing, and answers with what the object is now.
pub(super) async fn one(
    asked: &AuthorizedRequest,
    query: Option<&str>,
    step: WriteStep,
) -> Result<Response, Refused> {
    let mut pairs = pairs(query);
    let validate_only = switch(&mut pairs, "validate_only")?;
    let note = value(&mut pairs, "note")?.unwrap_or_default();
    nothing_else(&pairs)?;
    let (kind, id) = (step.key().0, step.key().1.clone());
    let request = Request {
        steps: vec![(String::new(), step)],
        prune: Vec::new(),
        rollback: None,
        expected: None,
        validate_only,
        note,
        grants: asked.caller.grants.clone(),
        consent: asked.consent(Role::Write),
    };
    let written = write(asked, request).await?;
    #[cfg(feature = "fleet")]
    let lacking = super::edges_lacking::line(asked, &written);
    let done = written.ops.first().map(|(done, _)| *done);
    let revision = HeaderValue::from(written.revision);
    let mut response = if done == Some(ObjectOutcome::Deleted) {
        StatusCode::NO_CONTENT.into_response()
    } else if validate_only {
        let checked =
            json!({ "valid": true, "revision": written.revision, "needs_approval": written.needs_approval });
        Json(checked).into_response()
    } else {
        let object = match written.object {
            Some(object) => object,
            None => found(asked, kind, &id).await?,
        };
        let status = if done == Some(ObjectOutcome::Created) { StatusCode::CREATED } else { StatusCode::OK };
        let body = (status, Json(shown(&object))).into_response();
        tagged(body, object.revision)
    };
    if response.status() == StatusCode::CREATED
        && let Ok(location) = HeaderValue::from_str(&format!("/v1/{kind}/{id}"))
    {
        response.headers_mut().insert(LOCATION, location);
    }
    response.headers_mut().insert(REVISION, revision);
    let is_put = kind == ObjectKind::Proxies && !validate_only && done != Some(ObjectOutcome::Deleted);
    let closed = is_put.then(|| asked.reconciler.engine().streams.failed().remove(&id)).flatten();
    if let Some(problem) = closed.and_then(|problem| HeaderValue::from_str(&problem).ok()) {
        response.headers_mut().insert(PORT_CLOSED, problem);
    }
    #[cfg(feature = "fleet")]
    if let Some(lacking) = lacking.and_then(|lacking| HeaderValue::from_str(&lacking).ok()) {
        response.headers_mut().insert(EDGES_LACKING, lacking);
    }
    Ok(response)
}

/// The edges of a control plane whose version lacks the plugin of the written plugin config.
#[cfg(feature = "fleet")]
const EDGES_LACKING: &str = "ferrum-edges-lacking";

/// Why the ports of the written proxy could not be opened. The write itself stands, and the gateway tries again.
const PORT_CLOSED: &str = "ferrum-port-closed";

/// The revision every worker serves by the time of the answer.
pub(super) const REVISION: &str = "ferrum-revision";

fn same_id(document: &Map<String, Value>, id: &Id) -> Result<(), Refused> {
    match own_id(document)? {
        Some(own) if own != *id => {
            let detail = format!("The body's id is `{own}`, the path's is `{id}`");
            Err(Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail)))
        }
        _ => Ok(()),
    }
}

/// An id nobody has thought of.
fn fresh_id() -> Id {
    let text = format!("{:032x}", fastrand::u128(..));
    text.parse().expect("hexadecimal digits make an id")
}

/// One of the two.
pub(super) fn answer(result: Result<Response, Refused>) -> Response {
    result.unwrap_or_else(|refused| *refused)
}
