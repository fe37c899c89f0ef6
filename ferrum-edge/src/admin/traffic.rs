//! The traffic of now by proxy and target: `/v1/traffic`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::time::Instant;

use super::query::{nothing_else, pairs, switch_on};
use super::resources::answer;
use super::status;
use crate::engine::Engine;

/// Where it is asked for.
pub(super) const PATH: &str = "/v1/traffic";

/// Targets whose state is answered.
const MAX_TARGETS: usize = 10_000;
/// Proxies that are named, with or without traffic.
const MAX_PROXIES: usize = 10_000;

/// `GET /v1/traffic`: counts since somebody began to watch, which is the first time somebody asks. Who asks again sees
/// by the difference what happened in between.
pub(super) async fn look(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let asked = || {
        let mut pairs = pairs(query.as_deref());
        let with_targets = switch_on(&mut pairs, "targets")?;
        nothing_else(&pairs).map(|()| with_targets)
    };
    answer(asked().map(|with_targets| {
        let mut counts = engine.telemetry.sinks.tails.traffic();
        let snapshot = engine.snapshot();
        let now = Instant::now();
        let mut targets = Vec::new();
        // Named upstreams, then those that proxies have to themselves.
        let named = snapshot.upstreams.iter();
        let own = snapshot.by_id.iter().filter(|(_, route)| !route.proxy.backend.is_named);
        let own = own.map(|(_, route)| (&route.proxy.backend.upstream.id, &route.targets));
        for (upstream, group) in named.chain(own).take(if with_targets { usize::MAX } else { 0 }) {
            for one in group.list().iter().take(MAX_TARGETS.saturating_sub(targets.len())) {
                let mut shown = status::target(one, now);
                shown["upstream"] = json!(upstream.as_str());
                targets.push(shown);
            }
        }
        let proxies = if with_targets { MAX_PROXIES } else { 0 };
        counts["proxies"] = snapshot.by_id.iter().map(|(id, _)| json!(id.as_str())).take(proxies).collect();
        counts["targets"] = json!(targets);
        counts["active_requests"] = json!(engine.telemetry.active_requests());
        counts["connections"] = json!(engine.shared.connections());
        counts["revision"] = json!(snapshot.revision);
        counts["version"] = json!(env!("CARGO_PKG_VERSION"));
        Json(counts).into_response()
    }))
}
