//! Refuses requests whose body is larger than allowed.
//!
//! A body that says its length is refused before a byte of it is read; another one as soon as it has sent too much. The
//! proxy's own `max_request_body` holds as well: the smaller of both counts.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Foreseen, Foresight, Hooks, OnRequest, Plugin, Seat, Step, World};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `request_size_limiting`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Size of a body as it is sent, in bytes; at least 1. Required.
    #[schemars(range(min = 1))]
    max_size: Bytes,
    /// Rejects bodies without `Content-Length` with 411. Default false.
    #[serde(default)]
    require_content_length: bool,
}

/// The plugin.
pub(crate) struct RequestSizeLimiting {
    max: u64,
    require_length: bool,
}

impl Plugin for RequestSizeLimiting {
    const NAME: &'static str = "request_size_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Rejects requests whose body is too large.";
    const EXAMPLE: &'static str = include_str!("../../examples/request_size_limiting.yaml");
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self { max: config.max_size.0, require_length: config.require_content_length })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let said = format!("{} bytes, the limit is {}", foresight.body_bytes, self.max);
        Some(match foresight.body_bytes > self.max {
            true => Foreseen::refuses(self.refusal(), said, false),
            false => Foreseen::Passes(said),
        })
    }
}

impl RequestSizeLimiting {
    fn refusal(&self) -> Reply {
        let reply = Reply::new(Cause::BodyTooLarge).reason("request_too_large");
        reply.detail(format!("at most {} bytes are taken", self.max))
    }
}

impl OnRequest for RequestSizeLimiting {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        match exchange.body.exact_length() {
            Some(length) if length > self.max => Step::reply(self.refusal()),
            // A body is never longer than it said: whoever reads it from the wire sees to that.
            Some(_) => Step::Next,
            None if self.require_length => Step::reply(
                Reply::new(Cause::BadRequest)
                    .status(StatusCode::LENGTH_REQUIRED)
                    .reason("length_required")
                    .detail("the length of the body is required"),
            ),
            None => {
                // Around the body, whose own limit stays.
                let body = std::mem::take(&mut exchange.body);
                exchange.body = Body::stream(body).limited(self.max);
                Step::Next
            }
        }
    }
}

#[cfg(test)]
mod tests;
