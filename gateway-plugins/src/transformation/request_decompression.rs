//! Decodes compressed request bodies, so that the target and the plugins behind see plain bytes.
//!
//! gzip, deflate, Brotli and Zstandard are decoded as they come, up to a limit on the plain bytes, so that a small body
//! can't become a huge one. Other codings, and several at once, are answered 415. `Content-Encoding` alone decides: what
//! the media type says changes nothing. gRPC compresses its messages otherwise (`grpc-encoding`), which is left alone.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::request_values;
use gateway_plugin_common::coding::Decoder;
use gateway_plugin_common::headers;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `request_decompression`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Size of the decoded body; a larger one gets 413. Default 10 MiB.
    #[schemars(range(min = 1))]
    max_size: Bytes,
    /// Passes bodies with an unknown content coding unchanged, instead of answering 415. Default false.
    pass_unknown: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_size: Bytes(10 << 20), pass_unknown: false }
    }
}

/// The plugin.
pub(crate) struct RequestDecompression {
    limit: u64,
    passes: bool,
}

impl Plugin for RequestDecompression {
    const NAME: &'static str = "request_decompression";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Decodes compressed request bodies, up to a size limit.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self { limit: config.max_size.0, passes: config.pass_unknown })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for RequestDecompression {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if exchange.body.is_empty() {
            return Step::Next;
        }
        let Some(value) = request_values::header(&exchange.request.headers, &CONTENT_ENCODING) else {
            return Step::Next;
        };
        let name = String::from_utf8_lossy(&value).trim().to_owned();
        if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            return Step::Next;
        }
        let Some(decoder) = Decoder::named(&name, self.limit) else {
            if self.passes {
                return Step::Next;
            }
            // RFC 9110 §15.5.16: says which codings would be taken.
            let reply = Reply::new(Cause::BadRequest).status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            let reply = reply.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br, zstd"));
            return Step::reply(reply.detail("this content coding is not taken").reason("coding_unknown"));
        };
        let headers = &mut exchange.request.headers;
        headers.remove(CONTENT_ENCODING);
        headers::forget_bytes(headers);
        let body = std::mem::take(&mut exchange.body);
        exchange.body = body.transform(decoder);
        Step::Next
    }
}

#[cfg(test)]
mod tests;
