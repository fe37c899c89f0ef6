//! Carries out a request once, however often its client sends it: by the header field `Idempotency-Key`
//! (draft-ietf-httpapi-idempotency-key-header).
//!
//! The answer to the first request with a key is stored for `ttl`, and requests with the same key of the same caller get it
//! again, with `Idempotent-Replayed: true`; the target sees the first one only. A key that comes with another request (method,
//! host, path, query, content type or body; and, where no plugin has recognised the caller, the credentials it came with: the
//! well-known header fields such as `Authorization`, `Cookie` or `X-API-Key`, those that a plugin of the proxy reads, or the client
//! certificate; behind a `forward_auth` without `caller_header` nearly all header fields) is refused with 422, and one whose request
//! is under way with 409, or waits for it. The client gets the answer while it is stored; it is stored even when the client is gone by then.
//!
//! The key is free again after answers in `unstored_statuses`, and when the target was never reached. When nobody knows whether
//! a request was carried out, `on_unknown` decides. Answers longer than `max_response`, and event streams, are not
//! stored; their keys are remembered, and repeated requests get 409. A call of gRPC whose client goes on sending after the
//! first answer can't have a key: its body is read first. WebSockets have none.
//!
//! A `script`, `wasm` or `ext_proc` of the proxy needs `before: request_deduplication`: stored answers would be given without asking it.

mod local;
mod recording;
mod saved;
mod settings;
mod shared;
mod visit;

use std::hash::Hasher;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Attempt, AttemptEnd, Capabilities, Capability, Family, Hooks, Need, Needs, OnAttempt, OnRequest,
    OnResponse, Plugin, Seat, Starter, Step, World,
};
use gateway_plugin_common::caller_key::Keyed;
use gateway_plugin_common::redis_link::{RedisLink, Sha256};
use http::{HeaderMap, Response, StatusCode};
use sfv::{BareItem, Item};

use local::{Limits, Meters, Table};
use saved::Saved;
use settings::{Config, Rules};
use shared::SharedKeys;
use visit::Ticket;

/// A caller and its key, hashed.
type Key = [u8; 32];
/// What a request looks like, hashed.
type Print = [u8; 32];

/// What is known of a key whose request has ended, or is another one.
enum KeyStatus {
    /// The answer.
    Answered(Arc<Saved>),
    /// Whether it was carried out is not known.
    Unknown,
    /// It was carried out, and its answer is not stored.
    Spent,
    /// The key belongs to another request.
    Other,
}

/// What became of a request.
enum RequestOutcome {
    Answered(Arc<Saved>),
    Unknown,
    Spent,
    /// It was not carried out.
    Free,
}

/// The plugin.
pub(crate) struct RequestDeduplication {
    rules: Rules,
    table: Arc<Table>,
    shared: Option<Arc<SharedKeys>>,
    counts: Arc<Counts>,
}

/// What became of requests.
struct Counts {
    first: Counter,
    replayed: Counter,
    refused: [Counter; REFUSALS.len()],
    stored: Counter,
    free: Counter,
    unknown: Counter,
    spent: Counter,
    local: Counter,
    allowed: Counter,
    denied: Counter,
}

/// Why a request is refused; the order of [`REFUSALS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeduplicationRefusal {
    Missing,
    Invalid,
    Scope,
    TooLarge,
    Other,
    UnderWay,
    Unknown,
    Spent,
    Full,
    Away,
}

/// The label in metrics, the status, the reason in records, and what the client is told.
const REFUSALS: [(&str, u16, &str, &str); 10] = [
    ("missing", 400, "idempotency_key_missing", "this request needs an idempotency key"),
    ("invalid", 400, "idempotency_key_invalid", "the idempotency key is malformed"),
    ("scope", 403, "idempotency_scope_missing", "the request lacks what its key belongs to"),
    ("too_large", 413, "idempotency_body_too_large", "the body is too large for a request with a key"),
    ("mismatch", 422, "idempotency_key_reused", "the idempotency key was used for another request"),
    ("conflict", 409, "idempotency_conflict", "a request with this idempotency key is under way"),
    ("unknown", 409, "idempotency_outcome_unknown", "whether this request was carried out is not known"),
    ("spent", 409, "idempotency_answer_not_stored", "this request was carried out, its answer is not stored"),
    ("full", 503, "idempotency_store_full", "retry later"),
    ("away", 503, "idempotency_store_away", "retry later"),
];

const REQUESTS: Metric = Metric::counter(
    "ferrum_request_deduplication_requests_total",
    "Requests with an idempotency key, or that need one, by result: first, replayed, or the reason for rejection.",
);
const ANSWERS: Metric = Metric::counter(
    "ferrum_request_deduplication_answers_total",
    "First requests that ended, by what is remembered: stored, free (the key can be used again), unknown, spent (carried out, no answer stored).",
);
const SHARED: Metric = Metric::counter(
    "ferrum_request_deduplication_shared_total",
    "Requests during an outage of the shared store, by result: local, allowed, denied.",
);
const BYTES: Metric =
    Metric::gauge("ferrum_request_deduplication_bytes", "Bytes of memory for keys and stored responses.");
const KEYS: Metric = Metric::gauge("ferrum_request_deduplication_keys", "Keys in memory.");
const EVICTED: Metric = Metric::counter(
    "ferrum_request_deduplication_evicted_total",
    "Keys evicted before they expired, because `max_size` was reached.",
);

/// Characters a key may have.
const MAX_KEY: usize = 255;

impl Plugin for RequestDeduplication {
    const NAME: &'static str = "request_deduplication";
    const FAMILY: Family = Family::Caching;
    const SUMMARY: &'static str =
        "Carries out a request once, however often it is sent with the same Idempotency-Key.";
    const EXAMPLE: &'static str = include_str!("../examples/request_deduplication.yaml");
    const NEEDS: &'static [Needs] = &[Needs::new("wait_timeout", Need::Is("concurrent", "wait"))];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let redis = config.redis.take();
        let rules = settings::read(config, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let gauge = |metric| world.meters().gauge(metric, &["plugin_config"], &[owner]);
        let meters = Meters {
            bytes: gauge(BYTES),
            keys: gauge(KEYS),
            evicted: world.meters().counter(EVICTED, &["plugin_config"], &[owner]),
        };
        let table = world.kept("table", || Table::new(meters));
        // More than may be on its way to the store is not stored.
        let stored = rules.max_response.min(shared::MAX_UNDER_WAY as u64);
        let link = |redis| RedisLink::new(&redis, world).storing(stored);
        let shared = redis.map(|redis| Arc::new(SharedKeys::new(link(redis))));
        Ok(Self { rules, table, shared, counts: Arc::new(Counts::new(world, owner)) })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AnswersForTarget, Capability::TakesInspectedResponses])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.rules.scope.attend(hooks);
        hooks.on_request(self.clone());
        hooks.on_attempt(self.clone());
        hooks.on_response(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Some(shared) = &self.shared {
            let link = shared.link.clone();
            starter.task("redis", move |control| link.clone().run(control));
        }
    }
}

impl Counts {
    fn new(world: &World, owner: &str) -> Self {
        let count = |metric, outcome| {
            world.meters().counter(metric, &["plugin_config", "outcome"], &[owner, outcome])
        };
        Self {
            first: count(REQUESTS, "first"),
            replayed: count(REQUESTS, "replayed"),
            refused: REFUSALS.map(|(label, ..)| count(REQUESTS, label)),
            stored: count(ANSWERS, "stored"),
            free: count(ANSWERS, "free"),
            unknown: count(ANSWERS, "unknown"),
            spent: count(ANSWERS, "spent"),
            local: count(SHARED, "local"),
            allowed: count(SHARED, "allowed"),
            denied: count(SHARED, "denied"),
        }
    }
}

impl OnRequest for RequestDeduplication {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if !self.rules.methods.contains(exchange.method()) || exchange.dialect == Dialect::Upgrade {
            return Step::Next;
        }
        let text = match key_text(&exchange.request.headers, &self.rules.header) {
            Ok(Some(text)) => text,
            Ok(None) if !self.rules.required => return Step::Next,
            Ok(None) => return Step::reply(self.refuse(exchange, DeduplicationRefusal::Missing)),
            Err(Malformed) => return Step::reply(self.refuse(exchange, DeduplicationRefusal::Invalid)),
        };
        let mut hash = Sha256::default();
        match self.rules.scope.of_exchange(exchange, seat.proxy(), &mut hash) {
            Keyed::Key(_) => {}
            Keyed::Nobody => return Step::Next,
            Keyed::Denied => return Step::reply(self.refuse(exchange, DeduplicationRefusal::Scope)),
        }
        hash.write(text.as_bytes());
        Step::wait(self.arrive(exchange, seat, hash.digest()))
    }
}

/// A field with a key can't be understood.
struct Malformed;

/// The key of a request: a string of structured fields, or its content without quotation marks.
fn key_text(headers: &HeaderMap, name: &http::HeaderName) -> Result<Option<String>, Malformed> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Malformed);
    }
    let text = value.to_str().map_err(|_| Malformed)?.trim();
    let key = if text.starts_with('"') {
        let item = sfv::Parser::new(text).parse::<Item>().map_err(|_| Malformed)?;
        match item.bare_item {
            BareItem::String(key) => key.as_str().to_owned(),
            _ => return Err(Malformed),
        }
    } else {
        let is_plain = text.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b','));
        Some(text.to_owned()).filter(|_| is_plain).ok_or(Malformed)?
    };
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Malformed);
    }
    Ok(Some(key))
}

impl OnAttempt for RequestDeduplication {
    fn on_attempt<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        _attempt: Attempt<'a>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if let Some(Some(ticket)) = exchange.state.of_mut::<Option<Ticket>>(seat) {
            ticket.sent += 1;
        }
        Step::Next
    }

    fn after_attempt(
        &self,
        exchange: &mut Exchange,
        _attempt: Attempt<'_>,
        end: AttemptEnd<'_>,
        seat: Seat<'_>,
    ) {
        let never_sent = |cause| {
            matches!(
                cause,
                Cause::DnsFailed
                    | Cause::ConnectFailed
                    | Cause::ConnectTimeout
                    | Cause::TlsFailed
                    | Cause::TlsCertificate
                    | Cause::VersionUnsupported
            )
        };
        let AttemptEnd::Failed { cause, .. } = end else { return };
        if never_sent(cause)
            && let Some(Some(ticket)) = exchange.state.of_mut::<Option<Ticket>>(seat)
        {
            ticket.sent = ticket.sent.saturating_sub(1);
        }
    }
}

impl OnResponse for RequestDeduplication {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let ticket = exchange.state.of_mut::<Option<Ticket>>(seat).and_then(Option::take);
        match ticket {
            // Dropped, it says what is known without an answer of the target's.
            Some(ticket) if exchange.is_from_target() => self.keep(ticket, response, seat),
            _ => Step::Next,
        }
    }
}

impl RequestDeduplication {
    /// What the local table may hold.
    fn limits(&self) -> Limits {
        let Rules { max_size, ttl, on_full, .. } = self.rules;
        Limits { bytes: max_size, ttl, on_full }
    }

    fn refuse(&self, exchange: &mut Exchange, why: DeduplicationRefusal) -> Reply {
        let row = why as usize;
        let (label, status, reason, detail) = REFUSALS[row];
        self.counts.refused[row].add(1);
        exchange.note("request_deduplication.outcome", label);
        let cause = match why {
            DeduplicationRefusal::Scope => Cause::Forbidden,
            DeduplicationRefusal::TooLarge => Cause::BodyTooLarge,
            DeduplicationRefusal::Full | DeduplicationRefusal::Away => Cause::Overloaded,
            _ => Cause::BadRequest,
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let reply = Reply::new(cause).status(status).reason(reason).detail(detail);
        match why {
            DeduplicationRefusal::UnderWay | DeduplicationRefusal::Full | DeduplicationRefusal::Away => {
                reply.header(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"))
            }
            _ => reply,
        }
    }
}

#[cfg(test)]
mod tests;
