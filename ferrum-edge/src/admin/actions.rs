//! What plugins do on request, such as removing stored responses: `/v1/plugins/{plugin}/actions/{action}`.
//!
//! It is about this one running gateway: nothing is written, and others on the same database don't hear of it.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::config::model::PluginConfig;
use gateway_core::plugin::Built;
use serde_json::{Value, json};

use super::problem::{Refused, invalid, problem};
use super::query::{nothing_else, pairs, value};
use super::request::object;
use super::resources::answer;
use crate::engine::Engine;

/// Where actions are asked for.
pub(super) const PATH: &str = "/v1/plugins/{plugin}/actions/{action}";

/// `POST`: every plugin of this name that is in use does it, or the one of the config that the query names.
pub(super) async fn act(
    State(engine): State<Arc<Engine>>,
    Path((name, action)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let acted = async {
        let mut pairs = pairs(query.as_deref());
        let config = value(&mut pairs, "plugin_config")?;
        nothing_else(&pairs)?;
        let input = if body.is_empty() { json!({}) } else { Value::Object(object(&body)?) };
        let plugins = running(&engine, &name, config.as_deref())?;
        // A plugin may look at all it has; that is no work for the listener's own thread.
        let results = tokio::task::spawn_blocking(move || {
            let each = plugins.iter().map(|(config, plugin)| {
                let result = plugin.act(&action, &input)?;
                Ok(json!({ "plugin_config": config.id.as_str(), "result": result }))
            });
            each.collect::<Result<Vec<Value>, _>>()
        });
        match results.await {
            Ok(Ok(results)) => Ok(Json(json!({ "results": results })).into_response()),
            Ok(Err(problems)) => Err(Box::new(invalid(&problems))),
            Err(_) => {
                let detail = "The plugin failed; the log says how";
                Err(Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)))
            }
        }
    };
    answer(acted.await)
}

type BuiltPlugins = Vec<(Arc<PluginConfig>, Arc<dyn Built>)>;

fn running(engine: &Engine, name: &str, config: Option<&str>) -> Result<BuiltPlugins, Refused> {
    let snapshot = engine.snapshot();
    let members = snapshot.running(name).into_iter();
    let running: BuiltPlugins =
        members.filter(|(known, _)| config.is_none_or(|id| known.id.as_str() == id)).cloned().collect();
    if running.is_empty() {
        let detail = match config {
            Some(id) => format!("No plugin config `{id}` of `{name}` is in use"),
            None => format!("No plugin `{name}` is in use"),
        };
        return Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)));
    }
    Ok(running)
}
