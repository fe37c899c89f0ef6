//! Keeps clients from responses that are larger than allowed.
//!
//! A response that says its length is replaced by a 502, and so is one of which too much came with its head. Another is cut off
//! where it has sent too much, so that the client sees it is not whole; with `buffer` it is read first, and a too large one is
//! a 502 as well.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::{Exchange, LateReason};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnResponse, Plugin, Seat, Step, Verdict, World};
use gateway_plugin_common::headers;
use http::header::CONTENT_LENGTH;
use http::{Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `response_size_limiting`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Size of a body as the target sends it, in bytes; at least 1. Required.
    #[schemars(range(min = 1))]
    max_size: Bytes,
    /// Buffers responses without `Content-Length`, up to the limit, before the first byte is sent. Event streams
    /// (`text/event-stream`), lines of JSON (`application/x-ndjson`) and gRPC are not buffered, and are cut off at the
    /// limit. Default false.
    #[serde(default)]
    buffer: bool,
}

/// The plugin.
pub(crate) struct ResponseSizeLimiting {
    max: u64,
    buffer: bool,
}

impl Plugin for ResponseSizeLimiting {
    const NAME: &'static str = "response_size_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Rejects or cuts off responses that are too large.";
    const EXAMPLE: &'static str = include_str!("../../examples/response_size_limiting.yaml");
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self { max: config.max_size.0, buffer: config.buffer })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

const TOO_LARGE: &str = "response_too_large";

fn too_large() -> Reply {
    Reply::new(Cause::UpstreamGarbage)
        .status(StatusCode::BAD_GATEWAY)
        .reason(TOO_LARGE)
        .detail("the response is larger than allowed")
}

impl OnResponse for ResponseSizeLimiting {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        // A switch of protocols has no body, and what follows is no response.
        if !exchange.is_from_target() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Step::Next;
        }
        match response.body().exact_length() {
            Some(length) if length > self.max => return Step::reply(too_large()),
            Some(_) => return Step::Next,
            None => {}
        }
        let is_read = self.buffer && *exchange.method() != Method::HEAD;
        // A stream may never end: held until then, nothing of it would ever be seen.
        if is_read && !headers::is_stream(response.headers()) {
            return Step::wait(self.read(response));
        }
        Step::wait(self.pass(response, exchange.late_reason()))
    }
}

/// Bytes of a body that are looked at before its head goes out.
const AT_HAND: u64 = 64 << 10;

impl ResponseSizeLimiting {
    /// Lets a response pass up to the limit. What is too much already is replaced while there is time for that.
    async fn pass(&self, response: &mut Response<Body>, late: LateReason) -> Verdict {
        match response.body_mut().at_hand(self.max.min(AT_HAND)).await {
            Ok(length) if length > self.max => return Verdict::reply(too_large()),
            Ok(_) => {}
            Err(error) => return broken(error),
        }
        let (mut left, body) = (self.max, std::mem::take(response.body_mut()));
        *response.body_mut() = body.map(move |data| {
            left = left.checked_sub(data.len() as u64).ok_or_else(|| {
                late.set(TOO_LARGE);
                BodyError::Refused(Box::new(too_large()))
            })?;
            Ok(data)
        });
        Verdict::Next
    }

    async fn read(&self, response: &mut Response<Body>) -> Verdict {
        match response.body_mut().collect(self.max).await {
            Ok((bytes, trailers)) => {
                let length = bytes.len();
                *response.body_mut() = match trailers {
                    Some(trailers) => Body::full_with_trailers(bytes, trailers),
                    None => {
                        response.headers_mut().insert(CONTENT_LENGTH, length.into());
                        Body::full(bytes)
                    }
                };
                Verdict::Next
            }
            Err(BodyError::TooLarge { .. }) => Verdict::reply(too_large()),
            Err(error) => broken(error),
        }
    }
}

/// The answer in the place of a response whose body failed.
fn broken(error: BodyError) -> Verdict {
    match error {
        BodyError::Refused(reply) => Verdict::Reply(reply),
        BodyError::NoRoom => Verdict::reply(Reply::new(Cause::Overloaded)),
        BodyError::Idle => Verdict::reply(Reply::new(Cause::UpstreamTimeout)),
        BodyError::Framing(_) => Verdict::reply(Reply::new(Cause::UpstreamGarbage)),
        _ => Verdict::reply(Reply::new(Cause::UpstreamClosed)),
    }
}

#[cfg(test)]
mod tests;
