//! The admin API's errors, as RFC 9457 documents.

use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error document. `code` is stable, for machines.
pub(super) fn problem(status: StatusCode, code: &'static str, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let document = json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
    });
    (status, [(CONTENT_TYPE, "application/problem+json")], format!("{document}\n")).into_response()
}

/// Any other path.
pub(super) async fn not_found(uri: Uri) -> Response {
    let known = "/livez, /readyz, /startupz, /metrics and /v1/status";
    problem(StatusCode::NOT_FOUND, "not_found", &format!("There is no {}; there are {known}", uri.path()))
}

/// Any other method; `Allow` is added by the router.
pub(super) async fn method_not_allowed() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET and HEAD are allowed here")
}
