//! Says how long a request took in the gateway and at its target, in `Server-Timing`, which browsers show to developers.
//!
//! `gateway` is the time before the target was asked, `target` the time from there to the head of its response, all
//! attempts together, both in milliseconds. It tells everybody how long things take: narrow it with `when` where that
//! should not be known.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::{Attempt, Family, Hooks, OnAttempt, OnResponse, Plugin, Seat, Step, World};
use http::{HeaderName, HeaderValue, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

/// Settings of `server_timing`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("older" = "leave_out"))]
pub(crate) struct Config {
    /// Name of the metric for the gateway; an empty text omits it. Default `gateway`.
    gateway_name: String,
    /// Name of the metric for the target; an empty text omits it. Default `target`.
    target_name: String,
    /// Keeps the target's own `Server-Timing`; otherwise it is removed. Default true.
    keep_target: bool,
    /// Other origins whose scripts may read the timing (`Timing-Allow-Origin`), `*` for all. Default: only the page's
    /// own.
    allow_origin: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gateway_name: "gateway".into(),
            target_name: "target".into(),
            keep_target: true,
            allow_origin: None,
        }
    }
}

/// The plugin.
pub(crate) struct ServerTiming {
    gateway: String,
    target: String,
    keeps: bool,
    allowed: Option<HeaderValue>,
}

/// When the target was first asked.
struct FirstAttempt(Instant);

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");

impl Plugin for ServerTiming {
    const NAME: &'static str = "server_timing";
    const FAMILY: Family = Family::Observability;
    const SUMMARY: &'static str = "Reports the time in the gateway and at the target in `Server-Timing`.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        for (option, name) in [("gateway_name", &config.gateway_name), ("target_name", &config.target_name)] {
            // A token (RFC 9110 §5.6.2), which is what a header's name is.
            if !name.is_empty() && HeaderName::from_bytes(name.as_bytes()).is_err() {
                problems.add(format!("config.{option}"), format!("`{name}` is not a token")).remedy =
                    Some("use letters, digits and `-`".into());
            }
        }
        if config.gateway_name.is_empty() && config.target_name.is_empty() {
            problems.add("config", "both names are empty, so nothing would be said");
        }
        let allowed = config.allow_origin.and_then(|origin| {
            let value = HeaderValue::from_str(&origin).ok();
            if value.is_none() {
                problems.add("config.allow_origin", "has characters that a header may not have");
            }
            value
        });
        problems.into_result(Self {
            gateway: config.gateway_name,
            target: config.target_name,
            keeps: config.keep_target,
            allowed,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_attempt(self.clone());
        hooks.on_response(self);
    }
}

impl OnAttempt for ServerTiming {
    fn on_attempt<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        attempt: Attempt<'a>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if attempt.number == 1 {
            exchange.state.put(seat, FirstAttempt(Instant::now()));
        }
        Step::Next
    }
}

impl OnResponse for ServerTiming {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let now = Instant::now();
        let asked = exchange.state.of::<FirstAttempt>(seat).map(|FirstAttempt(at)| *at);
        let headers = response.headers_mut();
        if !self.keeps {
            headers.remove(SERVER_TIMING);
        }
        let gateway = asked.unwrap_or(now).duration_since(exchange.started);
        let target = asked.map(|asked| now.duration_since(asked));
        let parts = [(&self.gateway, Some(gateway)), (&self.target, target)];
        let said = parts.into_iter().filter(|(name, _)| !name.is_empty());
        let said =
            said.filter_map(|(name, took)| Some(format!("{name};dur={:.1}", took?.as_secs_f64() * 1000.0)));
        let said: Vec<String> = said.collect();
        if let Ok(value) = HeaderValue::from_str(&said.join(", "))
            && !value.is_empty()
        {
            headers.append(SERVER_TIMING, value);
        }
        if let Some(allowed) = &self.allowed {
            headers.insert(TIMING_ALLOW_ORIGIN, allowed.clone());
        }
        Step::Next
    }
}

#[cfg(test)]
mod tests;
