//! Gives gRPC calls a deadline, shortens those that are too long, and tells the target what is left.
//!
//! A client's deadline is its `grpc-timeout`. What comes out of the rules here is the exchange's deadline: when it passes, the call
//! ends with `DEADLINE_EXCEEDED`, whatever the target does. The target gets it as `grpc-timeout`, less the time spent in the
//! gateway so far. Requests that are not gRPC (or gRPC-Web) pass untouched.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Attempt, Family, Hooks, OnAttempt, OnRequest, Plugin, Seat, Step, World};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

/// Settings of `grpc_deadline`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Deadline of calls without one, 1 ms to 24 h. Default none.
    #[schemars(range(min = 0.001, max = 86_400))]
    default_deadline: Option<Millis>,
    /// Longest deadline; longer ones are shortened to it. 1 ms to 24 h. Default none.
    #[schemars(range(min = 0.001, max = 86_400))]
    max_deadline: Option<Millis>,
    /// Rejects calls without a deadline, with `INVALID_ARGUMENT`. Default false.
    require_deadline: bool,
    /// Sends the target the remaining time instead of the whole deadline. Default true.
    subtract_elapsed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { default_deadline: None, max_deadline: None, require_deadline: false, subtract_elapsed: true }
    }
}

/// The plugin.
pub(crate) struct GrpcDeadline {
    default: Option<Duration>,
    max: Option<Duration>,
    require: bool,
    subtract: bool,
    counts: Counts,
}

struct Counts {
    kept: Counter,
    defaulted: Counter,
    shortened: Counter,
    refused: Counter,
}

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CALLS: Metric = Metric::counter(
    "ferrum_grpc_deadline_calls_total",
    "gRPC calls by deadline: kept, defaulted, shortened, refused.",
);

impl Plugin for GrpcDeadline {
    const NAME: &'static str = "grpc_deadline";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Adds a deadline to gRPC calls without one, and shortens long ones.";
    const EXAMPLE: &'static str = include_str!("../../examples/grpc_deadline.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let (default, max) = (config.default_deadline, config.max_deadline);
        if default.is_none() && max.is_none() && !config.require_deadline {
            problems.add("config", "nothing is asked of deadlines").remedy =
                Some("give `default_deadline`, `max_deadline` or `require_deadline: true`".into());
        }
        if default.is_some() && config.require_deadline {
            problems.add("config.default_deadline", "with `require_deadline` every call has a deadline");
        }
        if let (Some(default), Some(max)) = (default, max)
            && default.0 > max.0
        {
            problems.add("config.default_deadline", "this is longer than `max_deadline`");
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |outcome| world.meters().counter(CALLS, &["plugin_config", "outcome"], &[owner, outcome]);
        problems.into_result(Self {
            default: default.map(Millis::duration),
            max: max.map(Millis::duration),
            require: config.require_deadline,
            subtract: config.subtract_elapsed,
            counts: Counts {
                kept: count("kept"),
                defaulted: count("defaulted"),
                shortened: count("shortened"),
                refused: count("refused"),
            },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_attempt(self);
    }
}

impl OnRequest for GrpcDeadline {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if exchange.dialect != Dialect::Grpc {
            return Step::Next;
        }
        let told = exchange.deadline.map(|deadline| deadline.saturating_duration_since(exchange.started));
        let refusal = match told {
            None if exchange.request.headers.contains_key(TIMEOUT) => {
                Some(("grpc_timeout_malformed", "the grpc-timeout header is malformed"))
            }
            None if self.require => Some(("grpc_deadline_missing", "the call needs a deadline")),
            _ => None,
        };
        if let Some((reason, detail)) = refusal {
            self.counts.refused.add(1);
            return Step::reply(Reply::new(Cause::BadRequest).reason(reason).detail(detail));
        }
        let Some(wanted) = told.or(self.default).or(self.max) else { return Step::Next };
        let given = self.max.map_or(wanted, |max| wanted.min(max));
        match told {
            None => &self.counts.defaulted,
            Some(told) if given < told => &self.counts.shortened,
            Some(_) => &self.counts.kept,
        }
        .add(1);
        exchange.deadline = Some(exchange.started + given);
        exchange.request.headers.insert(TIMEOUT, written(given));
        Step::Next
    }
}

impl OnAttempt for GrpcDeadline {
    fn on_attempt<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        _attempt: Attempt<'a>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        if exchange.dialect != Dialect::Grpc || !self.subtract {
            return Step::Next;
        }
        let Some(deadline) = exchange.deadline else { return Step::Next };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Step::reply(Reply::new(Cause::TotalTimeout));
        }
        exchange.request.headers.insert(TIMEOUT, written(left));
        Step::Next
    }
}

/// A duration as `grpc-timeout` has it: at most eight digits and a unit (gRPC over HTTP/2, "Timeout"). Rounded down, but
/// never to nothing.
fn written(left: Duration) -> HeaderValue {
    const MAX: u128 = 99_999_999;
    let (micros, millis) = (left.as_micros(), left.as_millis());
    let text = match (micros, millis) {
        (..=MAX, _) => format!("{}u", micros.max(1)),
        (_, ..=MAX) => format!("{millis}m"),
        _ => format!("{}S", left.as_secs().min(99_999_999)),
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("1S"))
}

#[cfg(test)]
mod tests;
