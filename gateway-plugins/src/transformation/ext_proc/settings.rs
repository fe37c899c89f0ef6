//! What users write.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::units::{self, Millis};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::protocol::ProcessingMode;

/// Settings of `ext_proc`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The processor: an `http` or `https` URL without a path, which the gateway calls over HTTP/2. Required.
    pub(super) url: String,
    /// PEM file with the only trusted roots for this URL. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    pub(super) ca_path: Option<PathBuf>,
    /// Whether the processor receives request heads. Default `send`.
    pub(super) request_headers: Send,
    /// Whether the processor receives response heads. Default `send`.
    pub(super) response_headers: Send,
    /// How the processor receives request bodies: `none`, `buffered` (whole, at most `max_body`; a larger one gets
    /// 413), `buffered_partial` (whole, or up to `max_body`), or `streamed` (in pieces, each of which waits for its
    /// response). Default `none`.
    pub(super) request_body: BodyMode,
    /// How the processor receives response bodies; with `buffered`, a larger one gets 502. Default `none`.
    pub(super) response_body: BodyMode,
    /// Whether the processor receives request trailers. Default `skip`.
    pub(super) request_trailers: Skip,
    /// Whether the processor receives response trailers. Default `skip`.
    pub(super) response_trailers: Skip,
    /// Size of a buffered body. Default 1 MiB.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub(super) max_body: units::Bytes,
    /// Time limit for each response of the processor. Default 200 ms.
    #[schemars(range(min = 0.001, max = 60))]
    pub(super) message_timeout: Millis,
    /// How much more time the processor may request, once for each response. Default 0: a processor that requests more
    /// fails.
    #[schemars(range(max = 600))]
    pub(super) max_message_timeout: Millis,
    /// Continues without the processor if it fails or exceeds `timeout`. Default false: such exchanges are rejected.
    pub(super) failure_mode_allow: bool,
    /// Allows the processor to change its processing mode for an exchange. Default false: mode overrides are ignored.
    pub(super) allow_mode_override: bool,
    /// Rejects immediate responses; a processor that sends one fails. Default false.
    pub(super) disable_immediate_response: bool,
    /// Concurrent exchanges; further ones count as failures. Default 10,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_concurrent_streams: usize,
    /// Size of one response of the processor. Default 4 MiB.
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub(super) max_message: units::Bytes,
    /// Status if the processor fails, 400 to 599; 504 if it exceeds `timeout`. Default 500.
    #[schemars(range(min = 400, max = 599))]
    pub(super) status_on_error: u16,
}

/// Whether a part is sent; by default it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Send {
    /// It is sent.
    #[default]
    Send,
    /// It is not sent.
    Skip,
}

/// Whether a part is sent; by default it is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Skip {
    /// It is sent.
    Send,
    /// It is not sent.
    #[default]
    Skip,
}

/// How a body is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BodyMode {
    /// It is not sent.
    #[default]
    None,
    /// As a whole.
    Buffered,
    /// Up to the limit.
    BufferedPartial,
    /// In pieces.
    Streamed,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: String::new(),
            ca_path: None,
            request_headers: Send::Send,
            response_headers: Send::Send,
            request_body: BodyMode::None,
            response_body: BodyMode::None,
            request_trailers: Skip::Skip,
            response_trailers: Skip::Skip,
            max_body: units::Bytes(1 << 20),
            message_timeout: Millis(200),
            max_message_timeout: Millis(0),
            failure_mode_allow: false,
            allow_mode_override: false,
            disable_immediate_response: false,
            max_concurrent_streams: 10_000,
            max_message: units::Bytes(4 << 20),
            status_on_error: 500,
        }
    }
}

/// What of an exchange the processor gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) request_headers: bool,
    pub(super) request: BodyModes,
    pub(super) response_headers: bool,
    pub(super) response: BodyModes,
}

/// What it gets of a message besides its head.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyModes {
    pub(super) body: BodyMode,
    pub(super) trailers: bool,
}

impl BodyModes {
    pub(super) fn is_nothing(self) -> bool {
        self.body == BodyMode::None && !self.trailers
    }
}

/// Settings, checked.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) mode: Mode,
    pub(super) max_body: u64,
    pub(super) timeout: Duration,
    pub(super) max_timeout: Duration,
    pub(super) passes_failures: bool,
    pub(super) overrides: bool,
    pub(super) replies: bool,
    pub(super) max_message: usize,
    pub(super) status: StatusCode,
}

impl Rules {
    pub(super) fn of(config: &Config) -> Self {
        let rest = |body, trailers| BodyModes { body, trailers: trailers == Skip::Send };
        Self {
            mode: Mode {
                request_headers: config.request_headers == Send::Send,
                request: rest(config.request_body, config.request_trailers),
                response_headers: config.response_headers == Send::Send,
                response: rest(config.response_body, config.response_trailers),
            },
            max_body: config.max_body.0,
            timeout: config.message_timeout.duration(),
            max_timeout: config.max_message_timeout.duration(),
            passes_failures: config.failure_mode_allow,
            overrides: config.allow_mode_override,
            replies: !config.disable_immediate_response,
            max_message: usize::try_from(config.max_message.0).unwrap_or(usize::MAX),
            status: StatusCode::from_u16(config.status_on_error).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Mode {
    /// The mode with what a processor has said about it.
    ///
    /// # Errors
    /// A mode that is not offered.
    pub(super) fn changed(self, by: &ProcessingMode) -> Result<Self, &'static str> {
        let sent = |now: bool, said: i32| match said {
            0 => Ok(now),
            1 => Ok(true),
            2 => Ok(false),
            _ => Err("an unknown mode"),
        };
        let body = |said: i32| match said {
            0 => Ok(BodyMode::None),
            1 => Ok(BodyMode::Streamed),
            2 => Ok(BodyMode::Buffered),
            3 => Ok(BodyMode::BufferedPartial),
            _ => Err("the mode FULL_DUPLEX_STREAMED is not offered"),
        };
        Ok(Self {
            request_headers: self.request_headers,
            request: BodyModes {
                body: body(by.request_body_mode)?,
                trailers: sent(self.request.trailers, by.request_trailer_mode)?,
            },
            response_headers: sent(self.response_headers, by.response_header_mode)?,
            response: BodyModes {
                body: body(by.response_body_mode)?,
                trailers: sent(self.response.trailers, by.response_trailer_mode)?,
            },
        })
    }
}
