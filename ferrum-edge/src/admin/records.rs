//! Following access records as they come: `/v1/access-log`.

use std::convert::Infallible;
use std::net::IpAddr;
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
use ipnet::IpNet;
use serde_json::Value;

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

/// What the query of records asks for.
pub(super) struct Wanted {
    proxies: Vec<String>,
    statuses: Vec<String>,
    slower_than: Duration,
    consumers: Vec<String>,
    clients: Vec<IpNet>,
    paths: Vec<String>,
}

impl Wanted {
    /// Takes it out of a query.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub(super) fn take(pairs: &mut Vec<(String, String)>) -> Result<Self, Refused> {
        let slower_than = number(pairs, "slower_than")?.map_or(Duration::ZERO, Duration::from_millis);
        let mut all = |name: &str| -> Vec<String> {
            pairs.extract_if(.., |(key, _)| key == name).map(|(_, value)| value).collect()
        };
        let clients = all("client").iter().map(|text| network(text)).collect::<Result<_, _>>()?;
        let wanted = Self {
            proxies: all("proxy"),
            statuses: all("status"),
            slower_than,
            consumers: all("consumer"),
            clients,
            paths: all("path"),
        };
        match wanted.statuses.iter().find(|status| status_range(status).is_none()) {
            Some(bad) => Err(bad_query(&format!("`{bad}` is not a status, such as 404, 5xx or 500-504"))),
            None => Ok(wanted),
        }
    }

    /// Whether a written record is wanted.
    pub(super) fn passes(&self, record: &Value) -> bool {
        let among = |list: &[String], name: &str| {
            list.is_empty() || list.iter().any(|one| record[name].as_str() == Some(one))
        };
        let status = record["http.response.status_code"].as_u64();
        let is_status = |text: &String| {
            status.zip(status_range(text)).is_some_and(|(status, (from, to))| (from..=to).contains(&status))
        };
        let took = record["http.server.request.duration"].as_f64();
        let took = took.or_else(|| record["session.duration"].as_f64()).unwrap_or_default();
        let client = || record["client.address"].as_str()?.parse::<IpAddr>().ok();
        let path = record["url.path"].as_str().unwrap_or_default();
        among(&self.proxies, "proxy.id")
            && among(&self.consumers, "enduser.id")
            && (self.statuses.is_empty() || self.statuses.iter().any(is_status))
            && took >= self.slower_than.as_secs_f64()
            && (self.clients.is_empty()
                || client().is_some_and(|ip| self.clients.iter().any(|net| net.contains(&ip))))
            && (self.paths.is_empty() || self.paths.iter().any(|prefix| path.starts_with(prefix.as_str())))
    }
}

/// An address, or a block of them.
pub(super) fn network(text: &str) -> Result<IpNet, Refused> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let parsed = text.parse().ok().or_else(address);
    parsed.ok_or_else(|| bad_query(&format!("`{text}` is neither an address nor a block such as 10.0.0.0/8")))
}

/// `404`, `5xx` or `500-504`.
pub(super) fn status_range(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str, digits: usize| {
        let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    if let Some(class) = text.strip_suffix("xx") {
        let class = number(class, 1).filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let bounds = (number(from, 3)?, number(to, 3)?);
    Some(bounds).filter(|(from, to)| (100..=599).contains(from) && from <= to && *to <= 599)
}

fn bad_query(detail: &str) -> Refused {
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail))
}

fn filter(query: Option<&str>) -> Result<Filter, Refused> {
    let mut pairs = pairs(query);
    let wanted = Wanted::take(&mut pairs)?;
    nothing_else(&pairs)?;
    let Wanted { proxies, statuses, slower_than, consumers, clients, paths } = wanted;
    let statuses: Vec<_> = statuses.into_iter().map(StatusMatch::Text).collect();
    let when = match statuses.is_empty() {
        true => None,
        false => Some(compile(&Condition { statuses, ..Condition::default() }, "", Use::Response)),
    };
    let when = when.transpose().map_err(|problems| {
        let detail = problems.0.first().map_or_else(String::new, ToString::to_string);
        bad_query(&detail)
    })?;
    Ok(Filter { proxies, when, slower_than, consumers, clients, paths })
}
