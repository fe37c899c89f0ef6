//! What configurations may contain: `/v1/schema` and `/v1/plugins`, for forms and completion.

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gateway_core::config::file::File;
use gateway_core::plugin::Entry;
use serde_json::{Map, Value, json};

use super::Admin;

/// The JSON Schema of objects and files.
pub(super) const SCHEMA: &str = "/v1/schema";
/// The plugins of this gateway.
pub(super) const PLUGINS: &str = "/v1/plugins";

/// `GET /v1/schema`: as `ferrum-edge schema` prints it.
pub(super) async fn schema() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| format!("{}\n", File::schema().as_value()));
    ([(CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

/// `GET /v1/plugins`: in the order in which requests meet them, each with the schema of its settings.
pub(super) async fn plugins(State(admin): State<Admin>) -> Response {
    let items: Vec<Value> = admin.plugins.iter().map(document).collect();
    Json(json!({ "items": items, "next": null })).into_response()
}

/// A plugin as `ferrum-edge plugins --output json` prints it, and the kind of credential that it checks.
pub(crate) fn document(entry: &Entry) -> Value {
    let actions: Map<String, Value> =
        entry.actions.iter().map(|(name, about)| ((*name).to_owned(), json!(about))).collect();
    json!({
        "name": entry.name,
        "family": entry.family.name(),
        "summary": entry.summary,
        "example": entry.example,
        "schema": (entry.schema)().as_value(),
        "actions": actions,
    })
}
