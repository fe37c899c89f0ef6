//! What keys of traffic quotas have used: `/v1/usage`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::problem::{invalid, problem};
use super::query::{count, nothing_else, number, pairs, value};
use super::resources::answer;
use crate::engine::Engine;

/// Where usage is shown.
pub(super) const PATH: &str = "/v1/usage";
/// The plugin that counts it.
const PLUGIN: &str = "traffic_quota";

/// Keys that `top` may ask for.
pub(super) const MAX_TOP: usize = 1000;

/// `GET /v1/usage`: of every plugin config of `traffic_quota` that is in use what its keys have used.
pub(super) async fn show(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let shown = async {
        let mut pairs = pairs(query.as_deref());
        let config = value(&mut pairs, "plugin_config")?;
        let mut asked = Map::new();
        for name in ["key", "history"] {
            if let Some(given) = value(&mut pairs, name)? {
                asked.insert(name.into(), json!(given));
            }
        }
        if let Some(since) = number(&mut pairs, "since")? {
            asked.insert("since".into(), json!(since));
        }
        if let Some(top) = count(&mut pairs, "top", MAX_TOP)? {
            asked.insert("top".into(), json!(top));
        }
        nothing_else(&pairs)?;
        let asked = Value::Object(asked);
        let plugins: Vec<_> = engine.snapshot().running(PLUGIN).into_iter().cloned().collect();
        // A long history is no work for the listener's own thread.
        let items = tokio::task::spawn_blocking(move || {
            let wanted = plugins
                .iter()
                .filter(|(known, _)| config.as_deref().is_none_or(|id| known.id.as_str() == id));
            let each = wanted.map(|(config, plugin)| {
                let mut usage = plugin.act("usage", &asked)?;
                usage["plugin_config"] = json!(config.id.as_str());
                Ok(usage)
            });
            each.collect::<Result<Vec<Value>, _>>()
        });
        match items.await {
            Ok(Ok(items)) => Ok(Json(json!({ "items": items })).into_response()),
            Ok(Err(problems)) => Err(Box::new(invalid(&problems))),
            Err(_) => {
                let detail = "The plugin failed; the log says how";
                Err(Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)))
            }
        }
    };
    answer(shown.await)
}
