//! Writes, and the answer to those that wait until another user approves them.

use axum::Json;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::problem::{Refused, refused};
use super::request::AuthorizedRequest;
use super::timestamp::time;
use crate::source::database::{CommittedWrite, Request, WriteOutcome};
use crate::store::PendingChange;

/// Where changes are that wait.
pub(super) const CHANGES: &str = "/v1/changes";

/// Writes as the caller asks.
///
/// # Errors
/// The answer of a refused write, and that of one that waits for an approval.
pub(super) async fn write(asked: &AuthorizedRequest, request: Request) -> Result<CommittedWrite, Refused> {
    match asked.reconciler.write(asked.author(), asked.draft(), request).await {
        Ok(WriteOutcome::Committed(written)) => Ok(written),
        Ok(WriteOutcome::Pending(change)) => Err(Box::new(accepted(&change))),
        Err(error) => Err(Box::new(refused(&error))),
    }
}

/// The answer to a write that waits.
fn accepted(change: &PendingChange) -> Response {
    let mut document = pending_document(change);
    document["detail"] =
        json!("The change waits until another user approves it; the configuration is as it was");
    let mut response = (StatusCode::ACCEPTED, Json(document)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("{CHANGES}/{}", change.number)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// A change that another user has to approve, as it is answered.
pub(super) fn pending_document(change: &PendingChange) -> Value {
    json!({
        "number": change.number,
        "state": change.state.as_str(),
        "author": change.author.name,
        "source": change.author.source,
        "role": change.role,
        "note": change.note,
        "base": change.base,
        "created_at": time(change.created_at),
        "expires_at": time(change.expires_at),
        "decided_by": change.decided_by,
        "decided_at": change.decided_at.map(time),
        "reason": change.reason,
        "revision": change.revision,
        "objects": change.objects,
    })
}
