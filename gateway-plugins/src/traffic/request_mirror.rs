//! Sends copies of requests to a second server, to try a new version with real traffic. Its answers are thrown away.
//!
//! The original never waits for the copy: copies go through a bounded queue, sent by a task of its own, and are dropped
//! and counted when it is full. A request with a body is copied when its body has passed; one whose body is cut off or
//! too large is not. A copy is the request as the first target gets it, field by field, credentials among them unless
//! `remove_headers` names those. WebSockets, and requests that the gateway answers itself, are not copied.

mod queue;

use std::sync::Arc;
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use bytes::{Bytes, BytesMut};
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{self, Millis};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::calls::{Client, Endpoint, Server};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Attempt, Family, Hooks, OnAttempt, OnRequest, Plugin, Seat, Starter, Step, World,
};
use gateway_plugin_common::parse;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName};
use schemars::JsonSchema;
use serde::Deserialize;

use queue::{Copy, Queue};

/// Settings of `request_mirror`; either `url` or `upstream_id`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("older" = "leave_out"))]
pub(crate) struct Config {
    /// Server that receives the copies, as `http://host:port` or `https://host`; without a path.
    url: Option<String>,
    /// Upstream that receives the copies, over plain HTTP.
    upstream_id: Option<String>,
    /// Share of requests to copy, in percent, 0 to 100; fractions are allowed. Default 100.
    #[schemars(range(min = 0, max = 100))]
    percentage: f64,
    /// Size of the largest body to copy. Up to 256 copies wait in memory. Default 64 KiB.
    max_body: units::Bytes,
    /// Concurrent copies. Default 64.
    #[schemars(range(min = 1, max = 10_000))]
    max_in_flight: usize,
    /// Time limit for the second server's response head, and again for its body. Default 5 s.
    #[schemars(range(min = 0.001, max = 600))]
    timeout: Millis,
    /// What is copied: `as_sent`, with path, host and header fields as the first target receives them, or
    /// `as_received`, with path and query as the client sent them and the header fields after the plugins before this
    /// one. Default `as_sent`.
    request: CopiedRequest,
    /// Header fields to remove from copies, such as `authorization`. Default none.
    remove_headers: Vec<String>,
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CopiedRequest {
    /// The request that the first target receives.
    AsSent,
    /// The request that the client sent.
    AsReceived,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: None,
            upstream_id: None,
            percentage: 100.0,
            max_body: units::Bytes(64 << 10),
            max_in_flight: 64,
            timeout: Millis(5000),
            request: CopiedRequest::AsSent,
            remove_headers: Vec::new(),
        }
    }
}

/// The plugin.
pub(crate) struct RequestMirror {
    client: Client,
    percentage: f64,
    max_body: u64,
    max_in_flight: usize,
    timeout: Duration,
    request: CopiedRequest,
    removed: Vec<HeaderName>,
    queue: Arc<Queue>,
    counts: Counts,
}

/// What became of requests.
#[derive(Clone)]
struct Counts {
    sent: Counter,
    failed: Counter,
    dropped: Counter,
    too_large: Counter,
}

const COPIES: Metric = Metric::counter(
    "ferrum_request_mirror_requests_total",
    "Requests copied to a second server, by result of the copy.",
);

impl Plugin for RequestMirror {
    const NAME: &'static str = "request_mirror";
    const FAMILY: Family = Family::Traffic;
    const SUMMARY: &'static str = "Sends copies of requests to a second server and discards its responses.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let endpoint = endpoint(config.url.as_deref(), config.upstream_id.as_deref(), &mut problems);
        let names = config.remove_headers.iter().enumerate();
        let removed = names.filter_map(|(n, name)| {
            parse::header_name(&format!("config.remove_headers[{n}]"), name, &mut problems)
        });
        let removed = removed.collect();
        let (Some(endpoint), true) = (endpoint, problems.is_empty()) else { return Err(problems) };
        let timeout = config.timeout.duration();
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(COPIES, &["plugin_config", "outcome"], &[owner, outcome]);
        Ok(Self {
            client: world.client(endpoint.within_setting(timeout, "timeout"))?,
            percentage: config.percentage,
            max_body: config.max_body.0,
            max_in_flight: config.max_in_flight,
            timeout,
            request: config.request,
            removed,
            queue: world.kept("queue", Queue::new),
            counts: Counts {
                sent: count("sent"),
                failed: count("failed"),
                dropped: count("dropped"),
                too_large: count("too_large"),
            },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        if self.request == CopiedRequest::AsSent {
            hooks.on_attempt(self);
        }
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        // It captures no plugin: the plugin's end is what ends it.
        let (queue, client) = (self.queue.clone(), self.client.clone());
        let (max_in_flight, timeout, counts) = (self.max_in_flight, self.timeout, self.counts.clone());
        starter.task("send", move |control| {
            queue::send(queue.clone(), client.clone(), max_in_flight, timeout, counts.clone(), control)
        });
    }
}

fn endpoint(url: Option<&str>, upstream: Option<&str>, problems: &mut Problems) -> Option<Endpoint> {
    match (url, upstream) {
        (Some(url), None) => match Endpoint::of_url(url) {
            Ok((_, uri)) if uri.path_and_query().is_some_and(|target| target.as_str() != "/") => {
                problems.add("config.url", "has a path, but copies keep their own").remedy =
                    Some("leave it out; the plugin `rewrite` changes paths".into());
                None
            }
            Ok((endpoint, _)) => Some(endpoint),
            Err(message) => {
                problems.add("config.url", message);
                None
            }
        },
        (None, Some(id)) => Some(Endpoint::new(Server::Upstream(Arc::from(id)), false)),
        _ => {
            problems.add("config", "needs either `url` or `upstream_id`");
            None
        }
    }
}

impl OnRequest for RequestMirror {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if exchange.dialect == Dialect::Upgrade || fastrand::f64() * 100.0 >= self.percentage {
            return Step::Next;
        }
        if exchange.body.exact_length().is_some_and(|length| length > self.max_body) {
            self.counts.too_large.add(1);
            return Step::Next;
        }
        let draft = Arc::new(Draft::default());
        match self.request {
            CopiedRequest::AsSent => exchange.state.put(seat, draft.clone()),
            CopiedRequest::AsReceived => self.put_head(&draft, self.received(exchange)),
        }
        // What is at hand is copied as it is, so that the original can still be sent again.
        if let Some(mut body) = exchange.body.replay() {
            let bytes = if body.is_empty() { Some(Bytes::new()) } else { body.take_full() };
            if let Some(bytes) = bytes {
                self.put_body(&draft, bytes);
            }
            return Step::Next;
        }
        let (queue, counts, max) = (self.queue.clone(), self.counts.clone(), self.max_body);
        let mut kept = Some(BytesMut::new());
        let body = std::mem::take(&mut exchange.body);
        exchange.body = body.tee(move |piece| match piece {
            Some(piece) => {
                let is_over = kept.as_ref().is_some_and(|bytes| (bytes.len() + piece.len()) as u64 > max);
                if is_over {
                    kept = None;
                    counts.too_large.add(1);
                } else if let Some(bytes) = &mut kept {
                    bytes.extend_from_slice(piece);
                }
            }
            None => {
                if let Some(copy) = kept.take().and_then(|bytes| draft.complete(Part::Body(bytes.freeze()))) {
                    queue.put(copy, &counts.dropped);
                }
            }
        });
        Step::Next
    }
}

impl OnAttempt for RequestMirror {
    fn on_attempt<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        attempt: Attempt<'a>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let draft = exchange.state.of::<Arc<Draft>>(seat).cloned();
        if let Some(draft) = draft.filter(|_| attempt.number == 1) {
            self.put_head(&draft, self.copy_of(exchange, attempt, seat));
        }
        Step::Next
    }
}

/// A copy of which the head or the body is not known yet: the body may have passed before the head is sent once more, or after.
#[derive(Default)]
struct Draft(AtomicRefCell<(Option<Copy>, Option<Bytes>)>);

/// What became known of a copy.
enum Part {
    Head(Copy),
    Body(Bytes),
}

impl Draft {
    /// Notes a part; the copy, once both are known.
    fn complete(&self, part: Part) -> Option<Copy> {
        let (head, body) = &mut *self.0.borrow_mut();
        match part {
            Part::Head(known) => *head = Some(known),
            Part::Body(known) => *body = Some(known),
        }
        if body.is_none() {
            return None;
        }
        Some(head.take()?.with_body(body.take()?))
    }
}

impl RequestMirror {
    fn put_head(&self, draft: &Draft, head: Copy) {
        draft
            .complete(Part::Head(head))
            .into_iter()
            .for_each(|copy| self.queue.put(copy, &self.counts.dropped));
    }

    fn put_body(&self, draft: &Draft, body: Bytes) {
        draft
            .complete(Part::Body(body))
            .into_iter()
            .for_each(|copy| self.queue.put(copy, &self.counts.dropped));
    }

    /// The head that a target gets.
    fn copy_of(&self, exchange: &Exchange, attempt: Attempt<'_>, seat: Seat<'_>) -> Copy {
        let mut headers = exchange.request.headers.clone();
        for (name, value) in exchange.forwarding.fields() {
            headers.append(name, value.clone());
        }
        headers.insert(HOST, exchange.host_for(attempt.target, seat.proxy()).clone());
        self.head(exchange, exchange.path_for(&attempt.target.rules, seat).into_owned(), headers)
    }

    /// The head that the client sent.
    fn received(&self, exchange: &Exchange) -> Copy {
        let target = exchange.uri().path_and_query().map_or("/", |target| target.as_str());
        self.head(exchange, target.to_owned(), exchange.request.headers.clone())
    }

    fn head(&self, exchange: &Exchange, target: String, mut headers: HeaderMap) -> Copy {
        for name in &self.removed {
            headers.remove(name);
        }
        // The call writes its own.
        headers.remove(CONTENT_LENGTH);
        Copy { method: exchange.request.method.clone(), target, headers, body: Bytes::new() }
    }
}

#[cfg(test)]
mod tests;
