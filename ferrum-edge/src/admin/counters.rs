//! The counters of open sessions as server-sent events: `/v1/sessions/counters`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gateway_core::config::model::Id;
use gateway_core::stream::relay::Carried;
use gateway_protocols::udp::Wanted;
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::problem::problem;
use super::query::{nothing_else, number, pairs};
use super::resources::answer;
use super::sessions::{Filter, ask, bad};
use crate::engine::Engine;

/// Where counters are followed.
pub(super) const PATH: &str = "/v1/sessions/counters";
/// Clients that follow them at a time.
const MAX_CLIENTS: usize = 16;
/// Seconds between two events, unless the query says otherwise, and at most.
const EVERY: u64 = 1;
const MAX_EVERY: u64 = 3600;
/// Proxies with counters of their own, by protocol; more are left out.
const MAX_GROUPS: usize = 10_000;

static CLIENTS: Semaphore = Semaphore::const_new(MAX_CLIENTS);

/// Open sessions of a proxy and protocol, and what they have carried.
#[derive(Debug, Default)]
struct Group {
    open: u64,
    carried: Carried,
}

type Groups = BTreeMap<(Id, &'static str), Group>;

/// `GET`: an event a second, until the client goes.
pub(super) async fn follow(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let asked = || {
        let mut pairs = pairs(query.as_deref());
        let filter = Filter::take(&mut pairs)?;
        let every = number(&mut pairs, "interval")?.unwrap_or(EVERY);
        nothing_else(&pairs)?;
        if !(1..=MAX_EVERY).contains(&every) {
            return Err(bad("`interval` is a number of seconds from 1 to 3600"));
        }
        let Ok(permit) = CLIENTS.try_acquire() else {
            let detail = format!("{MAX_CLIENTS} others follow already; try again when one of them has gone");
            return Err(Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, "too_many", &detail)));
        };
        let mut ticks = interval(Duration::from_secs(every));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let following = (engine.clone(), Arc::new(filter), ticks, permit);
        let events =
            futures_util::stream::unfold(following, |(engine, filter, mut ticks, permit)| async move {
                let event = next(&engine, &filter, &mut ticks).await;
                Some((Ok::<_, Infallible>(event), (engine, filter, ticks, permit)))
            });
        let mut response = Response::new(Body::from_stream(events));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    };
    answer(asked())
}

async fn next(engine: &Engine, filter: &Arc<Filter>, ticks: &mut Interval) -> Bytes {
    let _at: Instant = ticks.tick().await;
    let mut groups = Groups::new();
    let mut add = |proxy: &Id, protocol: &'static str, open: u64, carried: Carried| {
        if groups.len() >= MAX_GROUPS && !groups.contains_key(&(proxy.clone(), protocol)) {
            return;
        }
        let group = groups.entry((proxy.clone(), protocol)).or_default();
        group.open += open;
        group.carried.up += carried.up;
        group.carried.down += carried.down;
    };
    engine.shared.sessions.each(|open| {
        if filter.matches(&open.about) {
            let carried = open.traffic.as_ref().map(|traffic| traffic.live.carried());
            add(&open.about.proxy, open.about.protocol, 1, carried.unwrap_or_default());
        }
    });
    for told in ask(engine, Wanted::Sum, filter.clone()).await {
        for sum in told.sums {
            add(&sum.proxy, sum.protocol, sum.open, sum.carried);
        }
    }
    let open: u64 = groups.values().map(|group| group.open).sum();
    let proxies: Vec<Value> = groups
        .iter()
        .map(|((proxy, protocol), Group { open, carried })| {
            json!({
                "proxy": proxy.as_str(),
                "protocol": protocol,
                "open": open,
                "bytes_up": carried.up,
                "bytes_down": carried.down,
            })
        })
        .collect();
    let at = Rfc3339(SystemTime::now()).to_string();
    let data = json!({ "at": at, "open": open, "proxies": proxies });
    Bytes::from(format!("event: counters\ndata: {data}\n\n"))
}
