//! Whether a failed attempt may be made again, and after how long.

use std::time::Duration;

use http::{Method, StatusCode};

use super::body::Body;
use super::dialect::Dialect;
use crate::config::model::Retry;
use crate::http::upstream::Failure;
use crate::limit::backoff;
use crate::limit::budget::RetryBudget;

/// The attempts of one exchange.
#[derive(Debug)]
pub struct Attempts<'a> {
    rules: &'a Retry,
    budget: &'a RetryBudget,
    /// Whether the request may be carried out twice.
    repeats: bool,
    /// Whether it is a call of one of the gRPC methods that are named: its message ends without an answer.
    is_call: bool,
    method: &'a Method,
    made: u32,
    stale: u32,
    failovers: u32,
    hedges: u32,
}

/// Dead kept connections replaced within one exchange, beyond which the target counts as failing.
const MAX_STALE: u32 = 3;

/// Other targets tried within one exchange after one that can't be reached. With more of them out of reach at a time,
/// waiting for each costs more than an error.
const MAX_FAILOVERS: u32 = 8;

/// Bytes of a request's body that are held for a retry.
pub const MAX_HELD: u64 = 64 << 10;

impl<'a> Attempts<'a> {
    /// No attempt made yet. `path` is what targets get.
    pub fn new(
        rules: &'a Retry,
        budget: &'a RetryBudget,
        method: &'a Method,
        dialect: Dialect,
        path: impl FnOnce() -> String,
    ) -> Self {
        let is_named = || {
            let path = path();
            let path = path.split('?').next().unwrap_or_default();
            rules.grpc_methods.iter().any(|known| **known == *path)
        };
        let is_call = dialect == Dialect::Grpc && !rules.grpc_methods.is_empty();
        let repeats = rules.methods.contains(method) || is_call && is_named();
        if rules.max_retries > 0 {
            // Shared by all workers, so touched only where it is going to be asked.
            budget.request(tokio::time::Instant::now());
        }
        Self {
            rules,
            budget,
            repeats,
            is_call: is_call && repeats,
            method,
            made: 0,
            stale: 0,
            failovers: 0,
            hedges: 0,
        }
    }

    /// Attempts made so far.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Whether a retry may need this body again, which is short enough to be at hand: how the client's bytes arrive must not
    /// decide whether there is one. Bodies of unknown length are not waited for; who sends them may wait for an answer. A client that
    /// expects `100-continue` gets it from the gateway then.
    #[inline]
    pub fn holds(&self, body: &Body) -> bool {
        self.rules.max_retries > 0
            && self.repeats
            && body.replay().is_none()
            && body.exact_length().map_or(self.is_call, |length| length <= MAX_HELD)
    }

    /// Notes that an attempt begins.
    pub fn begin(&mut self) {
        self.made += 1;
    }

    /// Notes that an attempt begins beside others; it is no retry.
    pub fn begin_hedge(&mut self) {
        self.made += 1;
        self.hedges += 1;
    }

    /// Whether an answer with this status is one to try again after, as long as there may be retries.
    pub fn wants_again(&self, status: StatusCode) -> bool {
        // 425 asks the client to send its request again, and nobody else (RFC 8470 §5.2).
        status != StatusCode::TOO_EARLY && self.rules.status_codes.contains(&status.as_u16()) && self.repeats
    }

    /// The pause before trying again after `failure`; `None` when it may not be tried again.
    ///
    /// A kept connection that died before it answered is replaced at once when the request may be sent twice; that
    /// happens without any retry rule, since the target has done nothing wrong. So does going `elsewhere`, where there is
    /// an untried target, when this one can't be reached: nobody has seen the request.
    pub fn after_failure(
        &mut self,
        failure: &Failure,
        replayable: bool,
        elsewhere: impl FnOnce() -> bool,
    ) -> Option<Duration> {
        // A reply has been decided on: another attempt would come to the same.
        if !replayable || failure.reply.is_some() {
            return None;
        }
        let safe_to_repeat = !failure.reached_wire || self.method.is_idempotent();
        if failure.stale && safe_to_repeat && self.stale < MAX_STALE {
            self.stale += 1;
            return Some(Duration::ZERO);
        }
        if failure.is_connect()
            && !failure.reached_wire
            && self.rules.on_connect_failure
            && self.failovers < MAX_FAILOVERS
            && elsewhere()
        {
            self.failovers += 1;
            return Some(Duration::ZERO);
        }
        let allowed = if failure.is_connect() { self.rules.on_connect_failure } else { self.repeats };
        if allowed { self.spend() } else { None }
    }

    /// The pause before trying again after a response with `status`; `None` when it is passed on.
    pub fn after_status(&mut self, status: StatusCode, replayable: bool) -> Option<Duration> {
        if replayable && self.wants_again(status) { self.spend() } else { None }
    }

    fn spend(&self) -> Option<Duration> {
        let retries = self.made.saturating_sub(1 + self.stale + self.failovers + self.hedges);
        if retries >= self.rules.max_retries {
            return None;
        }
        self.budget.retry(tokio::time::Instant::now()).then(|| backoff::pause(self.rules.backoff, retries))
    }
}
