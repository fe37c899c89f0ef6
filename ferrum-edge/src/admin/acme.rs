//! `/v1/acme/renew`: orders a certificate now, regardless of its dates.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::problem::{Refused, problem};
use super::query::{nothing_else, pairs, value};
use super::resources::answer;
use crate::engine::Engine;

/// The path of the endpoint.
pub(super) const PATH: &str = "/v1/acme/renew";

/// `POST ?name=NAME`: requests a renewal of the certificate with this name. `acme` in the status shows the result.
pub(super) async fn renew(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let noted = || {
        let mut pairs = pairs(query.as_deref());
        let name = value(&mut pairs, "name")?;
        nothing_else(&pairs)?;
        let name = name.ok_or_else(|| refused(StatusCode::BAD_REQUEST, "bad_query", "`name` is missing"))?;
        let counts = &engine.telemetry.control.acme;
        let names = counts.request_renewal(&name).ok_or_else(|| {
            let detail = format!("The gateway gets no certificate with the name `{name}` from a CA");
            refused(StatusCode::NOT_FOUND, "not_found", &detail)
        })?;
        let document = json!({ "names": names.iter().collect::<Vec<_>>() });
        Ok((StatusCode::ACCEPTED, Json(document)).into_response())
    };
    answer(noted())
}

fn refused(status: StatusCode, code: &'static str, detail: &str) -> Refused {
    Box::new(problem(status, code, detail))
}
