//! The sessions of this gateway: `/v1/sessions`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::stream::relay::Carried;
use gateway_core::stream::sessions::About;
use gateway_protocols::udp::{DatagramId, PortAnswer, Question, Wanted};
use gateway_protocols::worker::Order;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::problem::{Refused, problem};
use super::query::{nothing_else, page_size, pairs, value};
use super::resources::answer;
use crate::engine::Engine;
use gateway_telemetry::json::Rfc3339;

/// All of them.
pub(super) const PATH: &str = "/v1/sessions";
/// One of them.
pub(super) const ONE: &str = "/v1/sessions/{id}";

/// Sessions of a page when nobody says how many.
const DEFAULT_PAGE: usize = 100;
/// Sessions of a page.
const MAX_PAGE: usize = 1000;

/// How long workers are given to look through their UDP ports.
const ANSWER: Duration = Duration::from_secs(5);

/// The protocols that sessions have.
pub(super) const PROTOCOLS: [&str; 7] = ["tcp", "udp", "dtls", "websocket", "event_stream", "grpc", "http"];

/// Which sessions are meant.
#[derive(Default)]
pub(super) struct Filter {
    proxy: Option<String>,
    owner: Option<String>,
    consumer: Option<String>,
    protocol: Option<String>,
    client: Option<IpAddr>,
    port: Option<u16>,
}

impl Filter {
    pub(super) fn take(pairs: &mut Vec<(String, String)>) -> Result<Self, Refused> {
        let (proxy, consumer) = (value(pairs, "proxy")?, value(pairs, "consumer")?);
        let owner = value(pairs, "owner")?;
        let client = value(pairs, "client")?.map(|text| text.parse::<IpAddr>());
        let client = client.transpose().map_err(|_| bad("`client` is an IP address"))?;
        let port = value(pairs, "port")?.map(|text| text.parse());
        let port = port.transpose().map_err(|_| bad("`port` is a number from 1 to 65535"))?;
        let protocol = value(pairs, "protocol")?;
        if protocol.as_deref().is_some_and(|protocol| !PROTOCOLS.contains(&protocol)) {
            return Err(bad(&format!("`protocol` is one of {}", PROTOCOLS.join(", "))));
        }
        Ok(Self { proxy, owner, consumer, protocol, client, port })
    }

    /// Whether every session is meant.
    fn is_any(&self) -> bool {
        let Self { proxy, owner, consumer, protocol, client, port } = self;
        let is_any = proxy.is_none() && owner.is_none() && consumer.is_none();
        is_any && protocol.is_none() && client.is_none() && port.is_none()
    }

    pub(super) fn matches(&self, about: &About) -> bool {
        self.proxy.as_deref().is_none_or(|proxy| about.proxy.as_str() == proxy)
            && self
                .owner
                .as_deref()
                .is_none_or(|owner| about.owner.as_ref().is_some_and(|it| it.as_str() == owner))
            && self.consumer.as_deref().is_none_or(|consumer| about.consumer.as_deref() == Some(consumer))
            && self.protocol.as_deref().is_none_or(|protocol| about.protocol == protocol)
            && self.client.is_none_or(|client| about.client == client.to_canonical())
            && self.port.is_none_or(|port| about.port == port)
    }
}

/// One session; `carried` is `None` where its bytes are those of an exchange.
fn shown(
    id: &dyn std::fmt::Display,
    about: &About,
    since: tokio::time::Instant,
    carried: Option<Carried>,
) -> Value {
    let About { protocol, proxy, owner, consumer, client, port } = about;
    json!({
        "id": id.to_string(),
        "protocol": protocol,
        "proxy": proxy.as_str(),
        "owner": owner.as_ref().map(|owner| owner.as_str()),
        "consumer": consumer.as_deref(),
        "client": client,
        "port": port,
        "bytes_up": carried.map(|carried| carried.up),
        "bytes_down": carried.map(|carried| carried.down),
        "since": Rfc3339(SystemTime::now() - since.elapsed()).to_string(),
    })
}

/// Where a page begins: behind a session of the table, or behind one of a UDP port, which come after all of those.
enum After {
    Table(u64),
    Datagram(DatagramId),
}

impl After {
    fn of(text: Option<String>) -> Result<Self, Refused> {
        let Some(text) = text else { return Ok(Self::Table(0)) };
        let read = text.parse().map(Self::Table).or_else(|_| text.parse().map(Self::Datagram));
        read.map_err(|()| bad("`after` is `next` of the page before"))
    }
}

pub(super) fn bad(detail: &str) -> Refused {
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail))
}

/// `GET /v1/sessions`: a page, the oldest first, and then those of UDP ports.
pub(super) async fn list(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    answer(listed(&engine, query.as_deref()).await)
}

async fn listed(engine: &Engine, query: Option<&str>) -> Result<Response, Refused> {
    let mut pairs = pairs(query);
    let filter = Arc::new(Filter::take(&mut pairs)?);
    let after = After::of(value(&mut pairs, "after")?)?;
    let limit = page_size(&mut pairs, DEFAULT_PAGE, MAX_PAGE)?;
    nothing_else(&pairs)?;
    let sessions = &engine.shared.sessions;
    let (found, behind) = match after {
        After::Table(after) => (sessions.list(after, limit, |about| filter.matches(about)), None),
        After::Datagram(after) => (Vec::new(), Some(after)),
    };
    let mut items: Vec<_> = found
        .iter()
        .map(|open| {
            shown(&open.id, &open.about, open.since, open.traffic.as_ref().map(|it| it.live.carried()))
        })
        .collect();
    let mut next = found.last().map(|last| last.id.to_string());
    let told = ask(engine, Wanted::List(behind, limit), filter).await;
    let open = sessions.count() + told.iter().map(|told| told.open).sum::<usize>();
    let mut datagrams: Vec<_> = told.into_iter().flat_map(|told| told.listed).collect();
    datagrams.sort_unstable_by_key(|session| session.id.order());
    for session in datagrams.into_iter().take(limit - items.len()) {
        items.push(shown(&session.id, &session.about, session.since, Some(session.carried)));
        next = Some(session.id.to_string());
    }
    let next = next.filter(|_| items.len() == limit);
    Ok(Json(json!({ "items": items, "next": next, "open": open })).into_response())
}

/// What all UDP ports of all workers say. One that takes too long is left out.
pub(super) async fn ask(engine: &Engine, wanted: Wanted, filter: Arc<Filter>) -> Vec<PortAnswer> {
    let (answers, mut told) = mpsc::unbounded_channel();
    let filter: Arc<dyn Fn(&About) -> bool + Send + Sync> = Arc::new(move |about| filter.matches(about));
    engine.tell(|| Order::Ask(Question { wanted, filter: filter.clone(), answers: answers.clone() }));
    drop(answers);
    let mut all = Vec::new();
    let collect = async {
        while let Some(told) = told.recv().await {
            all.push(told);
        }
    };
    let _in_time = tokio::time::timeout(ANSWER, collect).await;
    all
}

/// `DELETE /v1/sessions?proxy=&consumer=`: ends all of a proxy or a consumer.
pub(super) async fn end_all(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    answer(all_ended(&engine, query.as_deref()).await)
}

async fn all_ended(engine: &Engine, query: Option<&str>) -> Result<Response, Refused> {
    let mut pairs = pairs(query);
    let filter = Arc::new(Filter::take(&mut pairs)?);
    nothing_else(&pairs)?;
    if filter.is_any() {
        return Err(bad("Say whose sessions are meant: `proxy`, `consumer`, `protocol`, `client` or `port`"));
    }
    let ended = engine.shared.sessions.end_all(|about| filter.matches(about));
    let told = ask(engine, Wanted::End, filter).await;
    let ended = ended + told.iter().map(|told| told.ended).sum::<usize>();
    Ok(Json(json!({ "ended": ended })).into_response())
}

/// `DELETE /v1/sessions/{id}`: ends one.
pub(super) async fn end(State(engine): State<Arc<Engine>>, Path(id): Path<String>) -> Response {
    let is_ended = match id.parse::<DatagramId>() {
        Ok(id) => {
            let any = Arc::new(Filter::default());
            ask(&engine, Wanted::EndOne(id), any).await.iter().any(|told| told.ended > 0)
        }
        Err(()) => id.parse().is_ok_and(|id| engine.shared.sessions.end(id)),
    };
    match is_ended {
        true => StatusCode::NO_CONTENT.into_response(),
        false => {
            let detail = format!("There is no session {id}; it may have ended");
            problem(StatusCode::NOT_FOUND, "not_found", &detail)
        }
    }
}
