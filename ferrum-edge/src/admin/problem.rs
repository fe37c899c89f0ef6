//! The admin API's errors, as RFC 9457 documents.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway_core::config::problem::{Problem, Problems};
use serde_json::{Value, json};

use crate::source::database::{ApprovalError, WriteError};
use crate::store::StoreError;
use crate::store::seal::SealError;

/// Problems told at a time.
const MAX_PROBLEMS: usize = 1000;

/// A refusal, boxed: it is large, and rare.
pub(super) type Refused = Box<Response>;

/// An error document. `code` is stable, for machines.
pub(super) fn problem(status: StatusCode, code: &'static str, detail: &str) -> Response {
    with_errors(status, code, detail, Vec::new())
}

/// The code of an error document, beside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code(pub(super) &'static str);

fn with_errors(status: StatusCode, code: &'static str, detail: &str, errors: Vec<Value>) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut document = json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
    });
    if !errors.is_empty() {
        document["errors"] = Value::Array(errors);
    }
    let text = format!("{document}\n");
    let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], text).into_response();
    response.extensions_mut().insert(Code(code));
    response
}

/// What is wrong with an object, each with a pointer to the field.
pub(super) fn invalid(problems: &Problems) -> Response {
    let errors = problems.0.iter().take(MAX_PROBLEMS).map(
        |problem| json!({ "pointer": pointer(problem), "detail": problem.message, "remedy": problem.shown_remedy() }),
    );
    let detail = match problems.count() {
        1 => "There is 1 problem; nothing was changed".to_owned(),
        many => format!("There are {many} problems; nothing was changed"),
    };
    with_errors(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail, errors.collect())
}

/// Too many requests are being answered.
pub(super) fn crowded() -> Response {
    let mut response =
        problem(StatusCode::SERVICE_UNAVAILABLE, "crowded", "Too many requests are being answered");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A name that stands twice in one object of a body.
pub(super) fn twice(pointer: &str) -> Response {
    let detail = format!("Duplicate key `{pointer}`; nothing was changed");
    let errors =
        vec![json!({ "pointer": pointer, "detail": "duplicate name", "remedy": "keep one of the two" })];
    with_errors(StatusCode::BAD_REQUEST, "duplicate_key", &detail, errors)
}

/// Why nothing was written.
pub(super) fn refused(error: &WriteError) -> Response {
    told(error, None)
}

/// The same; a condition of the request's own has a status of its own (RFC 9110 §13.1).
fn told(error: &WriteError, status: Option<StatusCode>) -> Response {
    let detail = format!("{error}; nothing was changed");
    let at = |at: &str| {
        let path = Problem::new(at, "");
        vec![json!({ "pointer": pointer(&path), "detail": error.to_string() })]
    };
    match error {
        WriteError::Invalid(problems) => invalid(problems),
        WriteError::NotFound { at: place, .. } => {
            with_errors(status.unwrap_or(StatusCode::NOT_FOUND), "not_found", &detail, at(place))
        }
        WriteError::NoTarget { .. } => problem(StatusCode::NOT_FOUND, "not_found", &detail),
        WriteError::Exists { at: place, .. } => {
            with_errors(status.unwrap_or(StatusCode::CONFLICT), "exists", &detail, at(place))
        }
        WriteError::Condition(error) => told(error, Some(StatusCode::PRECONDITION_FAILED)),
        WriteError::Approval(error) => problem(approval_status(error), error.code(), &error.to_string()),
        WriteError::TooManyPending { .. } => problem(StatusCode::CONFLICT, "too_many_changes", &detail),
        WriteError::TooLargeToPend { .. } => {
            problem(StatusCode::UNPROCESSABLE_ENTITY, "too_large_to_approve", &detail)
        }
        WriteError::OutOfScope(detail) => problem(StatusCode::FORBIDDEN, "out_of_scope", detail),
        WriteError::Moved { .. } => problem(StatusCode::PRECONDITION_FAILED, "changed", &detail),
        WriteError::Changed { at: place, .. } => {
            with_errors(StatusCode::PRECONDITION_FAILED, "changed", &detail, at(place))
        }
        WriteError::Seal(all) => {
            let errors = all.iter().take(MAX_PROBLEMS).map(|(at, source)| {
                let pointer = format!("{}{}", pointer(&Problem::new(at.as_str(), "")), source.pointer());
                json!({ "pointer": pointer, "detail": source.to_string(), "remedy": source.remedy() })
            });
            let is_key = all.iter().all(|(_, source)| matches!(source, SealError::NoKey(_)));
            let code = if is_key { "no_key" } else { "invalid" };
            let first = all.first().map(|(_, source)| source.to_string()).unwrap_or_default();
            let more = match all.len().saturating_sub(1) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let detail = format!("{first}{more}; nothing was changed");
            with_errors(StatusCode::UNPROCESSABLE_ENTITY, code, &detail, errors.collect())
        }
        WriteError::Port(_) => problem(StatusCode::CONFLICT, "port", &detail),
        WriteError::Store(error) => store(error),
        WriteError::Stopping => problem(StatusCode::SERVICE_UNAVAILABLE, "stopping", &detail),
    }
}

fn approval_status(error: &ApprovalError) -> StatusCode {
    match error {
        ApprovalError::Unknown(_) => StatusCode::NOT_FOUND,
        ApprovalError::Decided(..) | ApprovalError::Base { .. } => StatusCode::CONFLICT,
        ApprovalError::NoReason => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::FORBIDDEN,
    }
}

/// What the database said.
pub(super) fn store(error: &StoreError) -> Response {
    let (status, code) = match error {
        StoreError::NoHistory { .. } => (StatusCode::NOT_FOUND, "no_history"),
        StoreError::TooMany { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "too_many"),
        StoreError::Id { .. } | StoreError::Document { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        StoreError::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        StoreError::Full { .. } => (StatusCode::INSUFFICIENT_STORAGE, "full"),
        StoreError::Unknown { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "database"),
    };
    let detail = format!("{error} ({})", error.remedy());
    let mut response = problem(status, code, &detail);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// A problem's path as a JSON pointer (RFC 6901): `proxies[2].hosts[0]` is `/proxies/2/hosts/0`.
fn pointer(problem: &Problem) -> String {
    let mut pointer = String::new();
    for part in problem.path.split(['.', '[']).filter(|part| !part.is_empty()) {
        pointer.push('/');
        pointer.push_str(&part.trim_end_matches(']').replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// Any other path.
pub(super) async fn not_found(uri: Uri) -> Response {
    let known = "/livez, /readyz, /startupz, /metrics and /v1/status; in database mode also those of /v1/openapi.json";
    problem(StatusCode::NOT_FOUND, "not_found", &format!("There is no {}; there are {known}", uri.path()))
}

/// Any other method; `Allow` is added by the router.
pub(super) async fn method_not_allowed() -> Response {
    problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This method is not allowed here; `Allow` has those that are",
    )
}
