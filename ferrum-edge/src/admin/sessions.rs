//! The sessions of this gateway: `/v1/sessions`.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::stream::sessions::{About, OpenSession};
use serde_json::{Value, json};

use super::problem::problem;
use super::request::{Refused, nothing_else, number, page_size, pairs, value};
use super::resources::answer;
use crate::app::Engine;
use crate::export::Rfc3339;

/// All of them.
pub(super) const PATH: &str = "/v1/sessions";
/// One of them.
pub(super) const ONE: &str = "/v1/sessions/{id}";

/// Sessions of a page when nobody says how many.
const DEFAULT_PAGE: usize = 100;
/// Sessions of a page.
const MAX_PAGE: usize = 1000;

/// Which sessions are meant.
struct Filter {
    proxy: Option<String>,
    consumer: Option<String>,
}

impl Filter {
    fn take(pairs: &mut Vec<(String, String)>) -> Self {
        Self { proxy: value(pairs, "proxy"), consumer: value(pairs, "consumer") }
    }

    fn matches(&self, about: &About) -> bool {
        self.proxy.as_deref().is_none_or(|proxy| about.proxy.as_str() == proxy)
            && self.consumer.as_deref().is_none_or(|consumer| about.consumer.as_deref() == Some(consumer))
    }
}

fn shown(session: &Arc<OpenSession>) -> Value {
    let About { protocol, proxy, consumer, client } = &session.about;
    json!({
        "id": session.id.to_string(),
        "protocol": protocol,
        "proxy": proxy.as_str(),
        "consumer": consumer.as_deref(),
        "client": client,
        "since": Rfc3339(SystemTime::now() - session.since.elapsed()).to_string(),
    })
}

/// `GET /v1/sessions`: a page, the oldest first.
pub(super) async fn list(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let listed = || {
        let mut pairs = pairs(query.as_deref());
        let filter = Filter::take(&mut pairs);
        let after = number(&mut pairs, "after")?.unwrap_or(0);
        let limit = page_size(&mut pairs, (DEFAULT_PAGE, MAX_PAGE))?;
        nothing_else(&pairs)?;
        let sessions = &engine.shared.sessions;
        let found = sessions.list(after, limit, |about| filter.matches(about));
        let next = found.last().filter(|_| found.len() == limit).map(|last| last.id.to_string());
        let items: Vec<_> = found.iter().map(shown).collect();
        let page = json!({ "items": items, "next": next, "open": sessions.count() });
        Ok::<_, Refused>(Json(page).into_response())
    };
    answer(listed())
}

/// `DELETE /v1/sessions?proxy=&consumer=`: ends all of a proxy or a consumer.
pub(super) async fn end_all(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let ended = || {
        let mut pairs = pairs(query.as_deref());
        let filter = Filter::take(&mut pairs);
        nothing_else(&pairs)?;
        if filter.proxy.is_none() && filter.consumer.is_none() {
            let detail = "Say whose sessions are meant: `proxy`, `consumer` or both";
            return Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail)));
        }
        let ended = engine.shared.sessions.end_all(|about| filter.matches(about));
        Ok(Json(json!({ "ended": ended })).into_response())
    };
    answer(ended())
}

/// `DELETE /v1/sessions/{id}`: ends one.
pub(super) async fn end(State(engine): State<Arc<Engine>>, Path(id): Path<String>) -> Response {
    let is_ended = id.parse().is_ok_and(|id| engine.shared.sessions.end(id));
    match is_ended {
        true => StatusCode::NO_CONTENT.into_response(),
        false => {
            let detail = format!("There is no session {id}; it may have ended");
            problem(StatusCode::NOT_FOUND, "not_found", &detail)
        }
    }
}
