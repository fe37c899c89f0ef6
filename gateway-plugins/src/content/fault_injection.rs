//! Delays or refuses a share of the requests on purpose, to see how clients bear it.
//!
//! Which requests are hit is random, for the delay and the abort separately. Narrow it with `when`.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Hooks, OnRequest, Plugin, Seat, Step, Verdict, World};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `fault_injection`; at least one of `delay` and `abort`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Delays requests. Default: none.
    delay: Option<Delay>,
    /// Rejects requests. Default: none.
    abort: Option<Abort>,
}

/// Share of delayed requests, and the delay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delay {
    /// Share of requests in percent, 0 to 100; fractions are allowed.
    #[schemars(range(min = 0, max = 100))]
    percentage: f64,
    /// The delay, up to 60 s.
    #[schemars(range(min = 0.001, max = 60))]
    duration: Millis,
}

/// Share of rejected requests, and the status.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Abort {
    /// Share of requests in percent, 0 to 100; fractions are allowed.
    #[schemars(range(min = 0, max = 100))]
    percentage: f64,
    /// Status, 400 to 599. gRPC clients get the corresponding gRPC status. Default 503.
    #[serde(default = "unavailable")]
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
}

fn unavailable() -> u16 {
    503
}

/// The plugin.
pub(crate) struct FaultInjection {
    delay: Option<(f64, Duration)>,
    abort: Option<(f64, StatusCode)>,
    delayed: Counter,
    aborted: Counter,
}

const FAULTS: Metric =
    Metric::counter("ferrum_fault_injection_faults_total", "Requests delayed or refused on purpose.");

impl Plugin for FaultInjection {
    const NAME: &'static str = "fault_injection";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Delays or rejects a share of the requests, to test how clients cope.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        if config.delay.is_none() && config.abort.is_none() {
            return Err(Problems::one("config", "neither `delay` nor `abort` is given"));
        }
        let counter = |kind: &str| {
            let owner = world.owner().map_or("", |owner| owner.config.as_str());
            world.meters().counter(FAULTS, &["plugin_config", "fault"], &[owner, kind])
        };
        Ok(Self {
            delay: config.delay.map(|it| (it.percentage, it.duration.duration())),
            abort: config
                .abort
                .and_then(|it| Some((it.percentage, StatusCode::from_u16(it.status_code).ok()?))),
            delayed: counter("delay"),
            aborted: counter("abort"),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for FaultInjection {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let delay = self.delay.filter(|(percentage, _)| hits(*percentage)).map(|(_, delay)| delay);
        let abort = self.abort.filter(|(percentage, _)| hits(*percentage)).map(|(_, status)| status);
        if abort.is_some() {
            self.aborted.add(1);
            exchange.note("fault_injection.abort", true);
        }
        let refusal = move || {
            abort.map(|status| {
                let reply =
                    Reply::new(Cause::Plugin).status(status).detail("this failure is made on purpose");
                reply.reason("fault_injected")
            })
        };
        let Some(delay) = delay else { return refusal().map_or(Step::Next, Step::reply) };
        self.delayed.add(1);
        exchange.note("fault_injection.delay", u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        Step::wait(async move {
            tokio::time::sleep(delay).await;
            refusal().map_or(Verdict::Next, Verdict::reply)
        })
    }
}

/// True for this share of calls.
fn hits(percentage: f64) -> bool {
    fastrand::f64() * 100.0 < percentage
}

#[cfg(test)]
mod tests;
