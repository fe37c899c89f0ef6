//! A picked target, and what its exchange reports back.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::Targets;
use crate::balance::target::{Target, Vitals};
use crate::health::breaker::{Breakers, Permit, Verdict};
use crate::health::passive::FailureKind;
use crate::health::{BreakerChange, HealthChange};

/// A target picked for one try of an exchange or session.
///
/// It ends in [`Pick::report`], or by being dropped, which says nothing about the target (the client went away, a
/// plugin refused). Either way half-open slots and the count of exchanges in flight come back by themselves.
#[derive(Debug)]
#[must_use = "dropping it says that the target was not used"]
pub struct Pick<'t> {
    /// Where to.
    pub target: &'t Arc<Target>,
    /// Its place in [`Targets::list`], for [`crate::balance::Ask::tried`].
    pub index: usize,
    /// No healthy target was left, so that this one is tried all the same.
    pub degraded: bool,
    pub(in crate::balance) group: &'t Targets,
    pub(in crate::balance) breakers: Option<&'t Breakers>,
    pub(in crate::balance) permit: Option<Permit<'t>>,
    pub(in crate::balance) measures_latency: bool,
    pub(in crate::balance) flight: BorrowedFlight<'t>,
}

/// How a try ended, as far as the target is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A response's head arrived.
    Response {
        /// What it says. For gRPC, the HTTP status that corresponds to the gRPC status.
        status: StatusCode,
        /// From the request's last byte, or from the pick, to the response's first byte.
        first_byte: Duration,
    },
    /// A stream session's connection is made.
    Connected {
        /// Name lookup and handshakes.
        took: Duration,
    },
    /// No connection could be made: name lookup, refusal, handshake, or the time for them.
    ConnectFailed,
    /// The connection broke, or brought nonsense, before the response's head.
    Broken,
    /// The response's head did not arrive in time.
    TimedOut,
    /// Another target answered before, and this one was asked no further. Nobody knows whether it would have answered, so that
    /// this counts for its latency alone.
    Outrun {
        /// How long it had not answered.
        waited: Duration,
    },
    /// The try ended for reasons that are not the target's.
    Cancelled,
}

/// What a report leaves behind.
#[derive(Debug)]
pub struct Settled {
    /// Keeps the exchange counted; hold it until the body's or session's end.
    pub flight: Flight,
    /// Set when this report made the target change sides.
    pub health: Option<HealthChange>,
    /// Set when this report opened or closed the target's breaker.
    pub breaker: Option<BreakerChange>,
}

/// Counts an exchange as in flight until dropped. Empty, and free, where nothing needs the count.
#[derive(Debug, Default)]
pub struct Flight(Option<Arc<Vitals>>);

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(vitals) = self.0.take() {
            vitals.leave();
        }
    }
}

/// The borrowed form of [`Flight`], for as long as the pick lives.
#[derive(Debug)]
pub(in crate::balance) struct BorrowedFlight<'t>(Option<&'t Arc<Vitals>>);

impl<'t> BorrowedFlight<'t> {
    /// `None` when the target has as many as it may have.
    pub(in crate::balance) fn begin(target: &'t Target, counts: bool) -> Option<Self> {
        if !target.has_connection() {
            return None;
        }
        if !counts {
            return Some(Self(None));
        }
        let vitals = target.vitals();
        vitals.enter(target.rules.max_requests).then(|| Self(Some(vitals)))
    }

    /// Hands the count over to a guard that borrows nothing.
    fn detach(mut self) -> Flight {
        Flight(self.0.take().cloned())
    }
}

impl Drop for BorrowedFlight<'_> {
    fn drop(&mut self) {
        if let Some(vitals) = self.0.take() {
            vitals.leave();
        }
    }
}

impl Pick<'_> {
    /// Whether it holds one of the half-open slots of the target's breaker.
    pub fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_probe)
    }

    /// Tells passive health, the breaker and the latency average how the try went.
    ///
    /// Every try reports at most once, which is why this takes the pick away; what must go on is in [`Settled`].
    pub fn report(self, outcome: AttemptOutcome, now: Instant) -> Settled {
        if matches!(outcome, AttemptOutcome::Response { .. } | AttemptOutcome::Connected { .. }) {
            self.target.vitals().succeeded();
        }
        let health = self.inform_health(outcome, now);
        if self.measures_latency {
            self.inform_latency(outcome, now);
        }
        let verdict = self.breakers.map_or(Verdict::Neutral, |breakers| verdict(breakers, outcome));
        let breaker = self.permit.and_then(|permit| permit.settle(verdict, now));
        Settled { flight: self.flight.detach(), health, breaker }
    }

    fn inform_health(&self, outcome: AttemptOutcome, now: Instant) -> Option<HealthChange> {
        let observer = self.target.observer()?;
        let failed = |kind| self.group.failed(self.target, kind, now);
        match outcome {
            AttemptOutcome::Response { status, .. } if observer.is_failure(status) => {
                failed(FailureKind::Status(status))
            }
            AttemptOutcome::ConnectFailed => failed(FailureKind::Connect),
            AttemptOutcome::Broken => failed(FailureKind::Broken),
            AttemptOutcome::TimedOut => failed(FailureKind::TimedOut),
            AttemptOutcome::Response { .. } | AttemptOutcome::Connected { .. } if self.degraded => {
                let change = observer.recovered(now);
                if change.is_some() {
                    self.target.vitals().warm_up(now);
                }
                change
            }
            AttemptOutcome::Response { .. }
            | AttemptOutcome::Connected { .. }
            | AttemptOutcome::Outrun { .. }
            | AttemptOutcome::Cancelled => None,
        }
    }

    fn inform_latency(&self, outcome: AttemptOutcome, now: Instant) {
        let vitals = self.target.vitals();
        let at = vitals.millis(now);
        match outcome {
            AttemptOutcome::Response { status, first_byte } if !status.is_server_error() => {
                vitals.latency.sample(first_byte, at);
            }
            AttemptOutcome::Connected { took } => vitals.latency.sample(took, at),
            // A fast failure must not look like a fast target.
            AttemptOutcome::Response { .. }
            | AttemptOutcome::ConnectFailed
            | AttemptOutcome::Broken
            | AttemptOutcome::TimedOut => {
                vitals.latency.penalise(at);
            }
            AttemptOutcome::Outrun { waited } => vitals.latency.at_least(waited, at),
            AttemptOutcome::Cancelled => {}
        }
    }
}

fn verdict(breakers: &Breakers, outcome: AttemptOutcome) -> Verdict {
    match outcome {
        AttemptOutcome::Response { status, .. } if breakers.is_failure(status) => Verdict::Failure,
        AttemptOutcome::Response { .. } | AttemptOutcome::Connected { .. } => Verdict::Success,
        AttemptOutcome::ConnectFailed if breakers.counts_connection_errors() => Verdict::Failure,
        AttemptOutcome::Broken | AttemptOutcome::TimedOut => Verdict::Failure,
        AttemptOutcome::ConnectFailed | AttemptOutcome::Outrun { .. } | AttemptOutcome::Cancelled => {
            Verdict::Neutral
        }
    }
}
