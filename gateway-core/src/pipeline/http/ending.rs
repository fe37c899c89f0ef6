//! The end of an exchange: exactly one record, however it comes.

use std::pin::Pin;
use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use super::close::Close;
use super::deciding::{self, Circumstances};
use crate::balance::{AttemptOutcome, Flight, Pick, Settled, Target};
use crate::http::body::{Body, Meter};
use crate::http::dialect::{Dialect, grpc_status};
use crate::http::downstream::Delivery;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::http::tunnel::Tunnel;
use crate::http::upstream::{Failure, TargetResponse};
use crate::limit::collected::ExpectedBody;
use crate::limit::concurrency::Permit;
use crate::plugin::seat::{Around, AttemptEnd};
use crate::plugin::unrouted::Unrouted;
use crate::reason::DecidingSetting;
use crate::record::{ExchangeRecord, Recorder};
use crate::snapshot::{Route, Snapshot};
use crate::stream::drain::Drain;
use crate::stream::session::Session;

/// Waits for an answer, until the whole exchange must be over. The future is pinned where it is: passed by value it would
/// be copied at each step.
pub(super) async fn until<F: Future<Output = Result<(), Box<Reply>>>>(
    deadline: Option<Instant>,
    answering: Pin<&mut F>,
) -> Result<(), Box<Reply>> {
    let Some(deadline) = deadline else { return answering.await };
    let in_time = tokio::time::timeout_at(deadline, answering).await;
    in_time.unwrap_or_else(|_| Err(Box::new(Reply::new(Cause::TotalTimeout))))
}

/// What is known of an exchange so far; writes its record when it goes, however it goes.
pub(super) struct ExchangeEnding<'s> {
    pub(super) recorder: &'s dyn Recorder,
    drain: &'s Drain,
    pub(super) exchange: Box<Exchange>,
    pub(super) meter: Meter,
    pub(super) route: Option<&'s Route>,
    pub(super) target: Option<&'s Target>,
    /// The target's answer, until it is on its way. It is here rather than returned so that no future copies it.
    pub(super) answer: Option<Response<Body>>,
    /// Brings the client back to the target. Response hooks do not see it: it is this client's, not the response's, and a
    /// cache would take it for a response that nobody else may get.
    pub(super) cookie: Option<HeaderValue>,
    /// The target's end, once it has agreed to switch protocols.
    pub(super) tunnel: Option<Tunnel>,
    /// Counts against the gateway's ceiling to the end.
    pub(super) place: Option<Permit>,
    /// Memory for the rest of the request's body, until the end.
    pub(super) expected: Option<ExpectedBody>,
    /// Held to the end, so that balancing by load sees streaming responses too.
    pub(super) flight: Flight,
    /// Of the response, once there is one.
    pub(super) status: Option<StatusCode>,
    /// Of the response, in its head or its trailers.
    grpc_status: Option<u16>,
    pub(super) cause: Option<Cause>,
    /// Why the last attempt failed.
    pub(super) failure: Option<Box<dyn std::error::Error + Send + Sync>>,
    pub(super) attempts: u32,
    pub(super) first_byte: Option<Duration>,
    /// When the attempt began whose answer was taken, and what has come of a body that comes piece by piece.
    target_body: Option<(Instant, Option<Meter>)>,
    pub(super) response_bytes: u64,
    /// Counts what is taken out of a response that comes piece by piece: all that is known of one that is cut off.
    sent: Option<Meter>,
    pub(super) finished: bool,
    /// The configuration that it is served by; `None` when nobody waits for an answer.
    snapshot: Option<&'s Snapshot>,
    /// Plugins have seen the reply to an exchange that no chain runs for.
    is_shown: bool,
    /// The exchange's hooks have ended it already.
    handed_over: bool,
}

impl<'s> ExchangeEnding<'s> {
    /// Nothing is known yet but that it began.
    pub(super) fn new(
        recorder: &'s dyn Recorder,
        drain: &'s Drain,
        exchange: Box<Exchange>,
        snapshot: Option<&'s Snapshot>,
    ) -> Self {
        recorder.began();
        Self {
            recorder,
            drain,
            meter: exchange.body.meter(),
            exchange,
            route: None,
            target: None,
            answer: None,
            cookie: None,
            tunnel: None,
            place: None,
            expected: None,
            flight: Flight::default(),
            status: None,
            grpc_status: None,
            cause: None,
            failure: None,
            attempts: 0,
            first_byte: None,
            target_body: None,
            response_bytes: 0,
            sent: None,
            finished: false,
            snapshot,
            is_shown: false,
            handed_over: false,
        }
    }

    /// The response that says `reply`, noted as what ended the exchange.
    pub(super) fn reply(&mut self, mut reply: Reply) -> Response<Body> {
        self.show(&mut reply);
        self.cause = Some(reply.cause);
        self.exchange.note_reply(&reply);
        // Nobody reads the rest of the request: its connection is told so before the response goes out.
        self.exchange.body = Body::empty();
        let close = reply.close;
        let mut response = self.exchange.response_of(reply);
        if close {
            response.extensions_mut().insert(Close);
        }
        response
    }

    /// Shows plugins the reply to an exchange that no chain runs for.
    fn show(&mut self, reply: &mut Reply) {
        if let (Some(unrouted), false) = (self.unrouted(), self.is_shown) {
            self.is_shown = true;
            let panics = unrouted.reply(&mut self.exchange, reply);
            (0..panics.0).for_each(|_| self.recorder.panicked());
        }
    }

    /// The plugins that see it because no chain does.
    fn unrouted(&self) -> Option<&'s Unrouted> {
        let has_chain = self.route.is_some_and(|route| route.quarantine.is_none());
        self.snapshot.filter(|_| !has_chain).map(|snapshot| &snapshot.unrouted)
    }

    /// Notes the head of the response, and those of its headers that logs ask for.
    pub(super) fn answered(&mut self, response: &Response<Body>, logged: &[HeaderName]) {
        self.status = Some(response.status());
        self.sent = (!response.body().is_at_hand()).then(|| response.body().meter());
        if self.exchange.dialect == Dialect::Grpc {
            self.grpc_status = grpc_status(response.headers());
        }
        if !logged.is_empty() {
            self.exchange.keep_answer(response, logged);
        }
    }

    /// Takes the target's answer to the attempt that began then.
    pub(super) fn take_answer(&mut self, response: Response<Body>, begun: Instant) -> &mut Response<Body> {
        let response = self.answer.insert(response);
        let body = response.body_mut();
        let meter = (!body.is_at_hand()).then(|| {
            body.time();
            body.meter()
        });
        self.target_body = Some((begun, meter));
        response
    }

    /// From the start of the attempt to the target's last byte; `None` where that has not come.
    fn last_byte(&self) -> Option<Duration> {
        match self.target_body.as_ref()? {
            (begun, Some(meter)) => Some(meter.ended()?.duration_since(*begun)),
            (_, None) => self.first_byte,
        }
    }

    /// Adds the cookie that brings the client back to its target.
    pub(super) fn keep_client(&mut self) {
        if let (Some(cookie), Some(response)) = (self.cookie.take(), &mut self.answer) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }

    /// Reports an attempt that failed.
    pub(super) fn settle_failure(&mut self, pick: Pick<'_>, failure: &Failure) {
        let now = Instant::now();
        let outcome = note_failure(pick.target, failure, now);
        self.settle(pick.report(outcome, now));
    }

    /// Notes what came of an attempt.
    pub(super) fn settle(&mut self, settled: Settled) {
        self.flight = settled.flight;
        if let (Some(change), Some(target)) = (settled.health, self.target) {
            self.recorder.health(target, change);
        }
    }

    /// Notes how sending the response ended.
    pub(super) fn delivered(&mut self, delivery: Delivery) -> Delivery {
        // Where sending ended at a deadline, nobody says how far it came.
        let is_late = delivery.cut == Some(Cause::TotalTimeout);
        self.response_bytes = if is_late { self.sent() } else { delivery.bytes };
        self.finished = true;
        self.cause = delivery.cut.or(self.cause);
        self.status = delivery.status.or(self.status);
        self.grpc_status = delivery.grpc_status.or_else(|| self.exchange.said_status()).or(self.grpc_status);
        delivery
    }

    fn sent(&self) -> u64 {
        self.sent.as_ref().map_or(0, Meter::bytes)
    }

    /// When the whole exchange must be over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let total = self.route?.proxy.timeouts.total;
        let total = (total > Duration::ZERO).then(|| self.exchange.started + total);
        match (total, self.exchange.deadline) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        }
    }
}

impl ExchangeEnding<'_> {
    /// Writes the record now, and gives the session what the plugins keep: they go on in it.
    pub(super) fn hand_over(&mut self, session: &mut Session) {
        self.write();
        self.handed_over = true;
        session.take_over(&mut self.exchange);
    }

    fn deciding_setting(&self, cause: Cause, word: &str) -> Option<DecidingSetting> {
        let limits = self.snapshot.map(|snapshot| &snapshot.settings.limits);
        let circumstances = Circumstances {
            route: self.route.map(|route| &route.state),
            max_request_body: limits.map_or(0, |limits| limits.max_request_body),
            has_answer: self.first_byte.is_some(),
            failure: self.failure.as_deref(),
        };
        deciding::deciding_setting(cause, word, circumstances)
    }

    /// The id of the plugin config whose hook answered.
    fn plugin_config(&self) -> Option<&str> {
        let (config, _) =
            self.route?.chain.members().nth(usize::from(self.exchange.decider()?).checked_sub(1)?)?;
        Some(config.id.as_str())
    }

    fn write(&self) {
        // Nobody else ends an exchange in the middle.
        let left = match self.exchange.client.is_withdrawn() {
            true => Cause::Revoked,
            false if self.drain.is_over() => Cause::Drained,
            false => Cause::ClientGone,
        };
        let cut = if self.finished { self.cause } else { Some(self.cause.unwrap_or(left)) };
        let status = match (self.finished, self.cause, self.status) {
            // The client has it already.
            (false, None, Some(status)) if self.sent() > 0 => status,
            (false, None, _) => left.status(),
            // Also when the client went away in the middle of a reply.
            (_, _, Some(status)) => status,
            (_, cause, None) => cause.map_or(StatusCode::OK, Cause::status),
        };
        let exchange = &*self.exchange;
        let reason = cut.map(|cause| exchange.own_reason().unwrap_or_else(|| cause.reason()));
        let record = ExchangeRecord {
            exchange,
            route: self.route.map(|route| &route.state),
            target: self.target,
            status: status.as_u16(),
            grpc_status: self.grpc_status.filter(|_| exchange.dialect == Dialect::Grpc),
            cause: cut,
            reason,
            decided: cut.zip(reason).and_then(|(cause, word)| self.deciding_setting(cause, word)),
            plugin_config: cut.and_then(|_| self.plugin_config()),
            is_error: cut.is_some_and(|cause| cause != Cause::Plugin || !exchange.is_no_error()),
            failure: self.failure.as_deref().or_else(|| exchange.failure()),
            attempts: self.attempts,
            first_byte: self.first_byte,
            last_byte: self.last_byte(),
            duration: exchange.started.elapsed(),
            request_bytes: self.meter.bytes(),
            response_bytes: if self.finished { self.response_bytes } else { self.sent() },
        };
        let panics = match (self.unrouted(), self.route, self.snapshot) {
            (Some(unrouted), ..) => unrouted.end(&record).0,
            (None, Some(route), Some(snapshot)) => {
                let around = Around { state: route, consumers: &snapshot.consumers, target: self.target };
                route.chain.end(&record, around).0
            }
            _ => 0,
        };
        (0..panics).for_each(|_| self.recorder.panicked());
        self.recorder.exchange(&record);
    }
}

impl Drop for ExchangeEnding<'_> {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        // A panic while another unwinds would end the process.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.write())).is_err() {
            self.recorder.panicked();
        }
    }
}

/// The status by which an answer counts for retries, health checks and circuit breakers.
pub(super) fn judged(exchange: &Exchange, answer: &TargetResponse) -> StatusCode {
    exchange.dialect.outcome(answer.response.status(), answer.response.headers())
}

/// What plugins are told of an attempt that was answered.
pub(super) fn answered(answer: &TargetResponse) -> AttemptEnd<'static> {
    let (status, first_byte) = (answer.response.status(), answer.first_byte);
    AttemptEnd::Answered { status, first_byte, reused: answer.reused }
}

/// What plugins are told of an attempt that failed.
pub(super) fn failed(failure: &Failure) -> AttemptEnd<'_> {
    AttemptEnd::Failed { cause: failure.cause, source: failure.source.as_deref() }
}

/// What a failed attempt says about the target, which keeps the reason if it is to blame.
pub(super) fn note_failure(target: &Target, failure: &Failure, now: Instant) -> AttemptOutcome {
    let outcome = outcome_of(failure.cause);
    if outcome != AttemptOutcome::Cancelled {
        let detail = || failure.source.as_ref().map(ToString::to_string).unwrap_or_default();
        target.note_failure(failure.cause.reason(), detail, now);
    }
    outcome
}

/// What a failure says about the target.
fn outcome_of(cause: Cause) -> AttemptOutcome {
    match cause {
        Cause::DnsFailed
        | Cause::ConnectFailed
        | Cause::ConnectTimeout
        | Cause::TlsFailed
        | Cause::TlsCertificate => AttemptOutcome::ConnectFailed,
        Cause::UpstreamTimeout => AttemptOutcome::TimedOut,
        Cause::UpstreamClosed | Cause::UpstreamGarbage => AttemptOutcome::Broken,
        // The client's own doing, or ours: says nothing about the target.
        _ => AttemptOutcome::Cancelled,
    }
}
