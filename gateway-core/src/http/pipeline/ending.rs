//! The end of an exchange: exactly one record, however it comes.

use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::Instant;

use super::Close;
use crate::balance::{Flight, Settled, Target};
use crate::config::snapshot::Route;
use crate::http::body::{Body, Meter};
use crate::http::downstream::Delivery;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::limit::concurrency::Permit;
use crate::record::{ExchangeRecord, Recorder};
use crate::stream::relay::Tunnel;

/// What is known of an exchange so far; writes its record when it goes, however it goes.
pub(super) struct Ending<'s> {
    pub(super) recorder: &'s dyn Recorder,
    pub(super) exchange: Box<Exchange>,
    pub(super) meter: Meter,
    pub(super) route: Option<&'s Route>,
    pub(super) target: Option<&'s Target>,
    /// The target's end, once it has agreed to switch protocols.
    pub(super) tunnel: Option<Tunnel>,
    /// Counts against the gateway's ceiling to the end.
    pub(super) place: Option<Permit>,
    /// Held to the end, so that balancing by load sees streaming responses too.
    pub(super) flight: Flight,
    pub(super) status: StatusCode,
    pub(super) cause: Option<Cause>,
    pub(super) attempts: u32,
    pub(super) first_byte: Option<Duration>,
    pub(super) response_bytes: u64,
    pub(super) finished: bool,
}

impl<'s> Ending<'s> {
    /// Nothing is known yet but that it began.
    pub(super) fn new(recorder: &'s dyn Recorder, exchange: Box<Exchange>) -> Self {
        recorder.began();
        Self {
            recorder,
            meter: exchange.body.meter(),
            exchange,
            route: None,
            target: None,
            tunnel: None,
            place: None,
            flight: Flight::default(),
            status: StatusCode::OK,
            cause: None,
            attempts: 0,
            first_byte: None,
            response_bytes: 0,
            finished: false,
        }
    }

    /// The response that says `reply`, noted as what ended the exchange.
    pub(super) fn reply(&mut self, reply: Reply) -> Response<Body> {
        self.cause = Some(reply.cause);
        let close = reply.close;
        let mut response = reply.into_response(self.exchange.dialect);
        if close {
            response.extensions_mut().insert(Close);
        }
        response
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
        self.response_bytes = delivery.bytes;
        self.finished = true;
        self.cause = delivery.cut.or(self.cause);
        delivery
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

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let cut = if self.finished { self.cause } else { Some(self.cause.unwrap_or(Cause::ClientGone)) };
        let status = match (self.finished, cut) {
            (false, Some(cause)) => cause.status().as_u16(),
            _ => self.status.as_u16(),
        };
        let record = ExchangeRecord {
            exchange: &self.exchange,
            route: self.route,
            target: self.target,
            status,
            cause: cut,
            attempts: self.attempts,
            first_byte: self.first_byte,
            duration: self.exchange.started.elapsed(),
            request_bytes: self.meter.bytes(),
            response_bytes: self.response_bytes,
        };
        if let Some(route) = self.route {
            route.chain.end(&record);
        }
        self.recorder.exchange(&record);
    }
}
