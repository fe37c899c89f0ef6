//! Limits what GraphQL operations may ask for: depth, aliases, cost, size, batches, names, types, and introspection.
//!
//! Operations come by POST (JSON, a batch of them, `application/graphql`, or a form with files), by GET, and over WebSockets
//! (`subscribe` of graphql-transport-ws, `start` of its predecessor). What can't be read is refused rather than forwarded: other content
//! types, content codings (`request_decompression` with `before: graphql_limits` removes them), persisted queries unless they are allowed.
//! No schema is needed: fields are counted by their names, with fragments where they are spread.

mod document;
mod form;
mod request;
mod scan;
mod settings;

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Capabilities, Capability, Decision, Family, Hooks, OnMessage, OnRequest, OnResponse, Passage, Plugin,
    Seat, Step, Verdict, World,
};
use gateway_core::stream::session::{Direction, Message, MessageKind, Session};
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use settings::{Config, Limits};

/// The plugin.
pub(crate) struct GraphqlLimits {
    limits: Arc<Limits>,
    world: World,
    passed: Counter,
    refused: Counter,
}

/// An upgrade that was let through without an operation: only a WebSocket may come of it.
#[derive(Debug, Clone, Copy)]
struct NothingRead;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GraphqlRefusal {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl GraphqlRefusal {
    /// The request is not GraphQL, or not such as can be read.
    fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason, message: message.into() }
    }

    /// The request is not written as GraphQL has it.
    fn malformed(message: impl Into<String>) -> Self {
        Self::bad("graphql_malformed", message)
    }

    /// The request asks for what it may not.
    fn denied(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, reason, message: message.into() }
    }
}

/// Requests that are larger than this are read on another thread.
const LARGE: usize = 8 << 10;
/// The close code for what breaks a limit (RFC 6455 §7.4.1).
const POLICY: u16 = 1008;
const REQUESTS: Metric = Metric::counter(
    "ferrum_graphql_limits_requests_total",
    "GraphQL requests and subscriptions by outcome: passed, refused (would_refuse in a dry run).",
);

impl Plugin for GraphqlLimits {
    const NAME: &'static str = "graphql_limits";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str = "Limits what GraphQL operations may ask for.";
    const EXAMPLE: &'static str = include_str!("../../examples/graphql_limits.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let limits = settings::read(config, &mut problems);
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        problems.into_result(Self {
            passed: count("passed"),
            refused: count(if limits.dry_run { "would_refuse" } else { "refused" }),
            limits: Arc::new(limits),
            world: world.clone(),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::ReadsNoDatagrams])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self.clone());
        hooks.on_message(self);
    }
}

impl OnRequest for GraphqlLimits {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        // A WebSocket's operations come as messages. A target that switches no protocols reads an upgrade as the GET it is.
        let query = exchange.request.uri.query().unwrap_or_default();
        if exchange.dialect == Dialect::Upgrade && !request::is_in_query(query) {
            exchange.state.put(seat, NothingRead);
            return Step::Next;
        }
        match *exchange.method() {
            Method::OPTIONS => Step::Next,
            Method::GET | Method::HEAD => {
                let found = request::of_query(query)
                    .and_then(|operation| document::check(&self.limits, &[operation], true));
                self.outcome(exchange, found).map_or(Step::Next, Step::reply)
            }
            Method::POST => Step::wait(self.post(exchange)),
            _ => {
                let fault = GraphqlRefusal {
                    status: StatusCode::METHOD_NOT_ALLOWED,
                    reason: "graphql_method",
                    message: "GraphQL takes GET and POST".into(),
                };
                self.outcome(exchange, Err(fault)).map_or(Step::Next, Step::reply)
            }
        }
    }
}

impl OnResponse for GraphqlLimits {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let is_unread = exchange.state.of::<NothingRead>(seat).is_some() && exchange.is_from_target();
        if !is_unread || !response.status().is_success() {
            return Step::Next;
        }
        // The target found an operation where none was seen, such as a stored one under a name of its own.
        let message = "the request asked for a WebSocket, and the target answered without one";
        let fault = GraphqlRefusal::bad("graphql_not_switched", message);
        self.outcome(exchange, Err(fault)).map_or(Step::Next, Step::reply)
    }
}

impl OnMessage for GraphqlLimits {
    fn on_message<'a>(&'a self, _session: &'a Session, message: Message<'_>, _seat: Seat<'a>) -> Passage<'a> {
        match (message.direction, message.kind) {
            (Direction::Down, _) => Passage::Forward,
            (Direction::Up, MessageKind::Text) if message.payload.len() > LARGE => {
                let payload = std::mem::take(message.payload);
                Passage::Wait(Box::pin(self.large_message(payload)))
            }
            (Direction::Up, MessageKind::Text) => self.passage(&check_message(&self.limits, message.payload)),
            (Direction::Up, MessageKind::Binary) => self.passage(&binary()),
            // Proxies for datagrams are refused.
            (Direction::Up, MessageKind::Datagram) => Passage::Drop,
            (Direction::Up, MessageKind::Control) => Passage::Forward,
        }
    }
}

/// What is found of a binary message.
fn binary() -> Result<(), GraphqlRefusal> {
    Err(GraphqlRefusal::bad("graphql_unsupported", "binary messages are not read"))
}

fn check_message(limits: &Limits, payload: &[u8]) -> Result<(), GraphqlRefusal> {
    if payload.len() as u64 > limits.max_body {
        return Err(GraphqlRefusal::bad("graphql_too_large", "the message is too large"));
    }
    request::of_message(payload)?.map_or(Ok(()), |operation| document::check(limits, &[operation], false))
}

impl GraphqlLimits {
    async fn post(&self, exchange: &mut Exchange) -> Verdict {
        let kind = match request::kind(exchange, &self.limits) {
            Ok(kind) => kind,
            Err(fault) => return self.verdict(exchange, Err(fault)),
        };
        let max = match kind {
            request::BodyFormat::Form(_) => self.limits.max_upload,
            _ => self.limits.max_body,
        };
        let (bytes, trailers) = match exchange.body.collect(max).await {
            Ok(read) => read,
            Err(BodyError::TooLarge { limit }) => {
                let message = format!("the request has more than {limit} bytes");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                let fault = GraphqlRefusal { status, reason: "graphql_too_large", message };
                return self.verdict(exchange, Err(fault));
            }
            Err(error) => return Verdict::Reply(error.into_reply()),
        };
        let (limits, body) = (self.limits.clone(), bytes.clone());
        let check = move || {
            request::of_body(&kind, &body, &limits).and_then(|found| document::check(&limits, &found, false))
        };
        let found = if bytes.len() <= LARGE {
            check()
        } else {
            match self.world.run_blocking(check).await {
                Ok(found) => found,
                Err(_) if self.limits.dry_run => Err(GraphqlRefusal::bad("graphql_busy", "")),
                Err(_) => return Verdict::reply(Reply::new(Cause::Overloaded)),
            }
        };
        exchange.body = match trailers {
            Some(trailers) => Body::full_with_trailers(bytes, trailers),
            None => Body::full(bytes),
        };
        self.verdict(exchange, found)
    }

    async fn large_message(&self, payload: Bytes) -> Decision {
        let (limits, read) = (self.limits.clone(), payload.clone());
        // With every thread busy it can't be looked at, and does not go on.
        let busy = || Err(GraphqlRefusal::bad("graphql_busy", "there is no time to read the message"));
        let found = self.world.run_blocking(move || check_message(&limits, &read)).await;
        match self.judge(&found.unwrap_or_else(|_| busy())) {
            true => Decision::Forward(payload),
            false => Decision::Close(POLICY),
        }
    }

    /// What becomes of a message.
    fn passage(&self, found: &Result<(), GraphqlRefusal>) -> Passage<'static> {
        if self.judge(found) { Passage::Forward } else { Passage::Close(POLICY) }
    }

    /// Whether a message may go on.
    fn judge(&self, found: &Result<(), GraphqlRefusal>) -> bool {
        if found.is_ok() { &self.passed } else { &self.refused }.add(1);
        found.is_ok() || self.limits.dry_run
    }

    fn verdict(&self, exchange: &mut Exchange, found: Result<(), GraphqlRefusal>) -> Verdict {
        self.outcome(exchange, found).map_or(Verdict::Next, Verdict::reply)
    }

    /// The refusal, where there is one.
    fn outcome(&self, exchange: &mut Exchange, found: Result<(), GraphqlRefusal>) -> Option<Reply> {
        let Err(fault) = found else {
            self.passed.add(1);
            return None;
        };
        self.refused.add(1);
        if self.limits.dry_run {
            exchange.note("graphql_limits.would_refuse", fault.reason);
            return None;
        }
        // As GraphQL's clients read errors.
        let document = serde_json::json!({
            "errors": [{ "message": fault.message, "extensions": { "code": fault.reason } }],
        });
        let cause = if fault.status == StatusCode::FORBIDDEN { Cause::Forbidden } else { Cause::BadRequest };
        let mut reply = Reply::new(cause)
            .status(fault.status)
            .reason(fault.reason)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if fault.status == StatusCode::METHOD_NOT_ALLOWED {
            let methods = if fault.reason == "graphql_method" { "GET, POST" } else { "POST" };
            reply = reply.header(ALLOW, HeaderValue::from_static(methods));
        }
        reply.body = Some(Body::full(document.to_string()));
        Some(reply)
    }
}

/// For the fuzzer: whatever a document is, it is judged.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(data: &[u8]) {
    let limits = settings::read(Config::default(), &mut Problems::default());
    let form = request::BodyFormat::Form("x".into());
    for format in [request::BodyFormat::Document, request::BodyFormat::Json, form] {
        let operations = request::of_body(&format, &Bytes::copy_from_slice(data), &limits);
        _ = operations.and_then(|operations| document::check(&limits, &operations, false));
    }
    _ = check_message(&limits, data);
}

#[cfg(test)]
mod tests;
