//! Following access records as they come: `/v1/access-log`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gateway_core::condition::written::{Condition, StatusMatch};
use gateway_core::condition::{Use, compile};
use gateway_core::snapshot::Snapshot;

use super::problem::{Refused, problem};
use super::query::{nothing_else, number, pairs};
use super::resources::answer;
use crate::engine::Engine;
use crate::export::tails::{Filter, MAX_TAILS};

/// Where records are followed.
pub(super) const PATH: &str = "/v1/access-log";
/// After so long without a record an empty line is sent, by which a client that is gone is noticed.
const QUIET: Duration = Duration::from_secs(5);

/// `GET`: one JSON line for each record that passes the query's filters, until the client goes.
pub(super) async fn follow(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    answer(filter(query.as_deref()).and_then(|filter| {
        known(&filter.proxies, &engine.snapshot())?;
        let tails = &engine.telemetry.sinks.tails;
        let Some(following) = tails.follow(filter) else {
            let detail = format!("{MAX_TAILS} others follow already; try again when one of them has gone");
            return Err(Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, "too_many", &detail)));
        };
        let lines = futures_util::stream::unfold(following, |mut following| async {
            let mut lines = following.next(QUIET).await;
            if lines.is_empty() {
                lines.push(b'\n');
            }
            Some((Ok::<_, Infallible>(Bytes::from(lines)), following))
        });
        let mut response = Response::new(Body::from_stream(lines));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(response)
    }))
}

/// Whoever names a proxy that is not there would wait for its records for ever.
fn known(proxies: &[String], snapshot: &Snapshot) -> Result<(), Refused> {
    match proxies.iter().find(|id| snapshot.by_id.get(id.as_str()).is_none()) {
        None => Ok(()),
        Some(unknown) => {
            let detail = format!("There is no proxy `{unknown}`");
            Err(Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)))
        }
    }
}

fn filter(query: Option<&str>) -> Result<Filter, Refused> {
    let mut pairs = pairs(query);
    let slower_than = number(&mut pairs, "slower_than")?.map_or(Duration::ZERO, Duration::from_millis);
    let mut all = |name: &str| -> Vec<String> {
        pairs.extract_if(.., |(key, _)| key == name).map(|(_, value)| value).collect()
    };
    let (proxies, statuses) = (all("proxy"), all("status"));
    nothing_else(&pairs)?;
    let statuses: Vec<_> = statuses.into_iter().map(StatusMatch::Text).collect();
    let when = match statuses.is_empty() {
        true => None,
        false => Some(compile(&Condition { statuses, ..Condition::default() }, "", Use::Response)),
    };
    let when = when.transpose().map_err(|problems| {
        let detail = problems.0.first().map_or_else(String::new, ToString::to_string);
        Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", &detail))
    })?;
    Ok(Filter { proxies, when, slower_than })
}
