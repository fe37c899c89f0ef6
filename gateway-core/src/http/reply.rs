//! What the gateway answers itself. Nothing else may answer without an upstream.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::body::Body;
use super::dialect::{Dialect, GrpcWeb};
use super::grpc_web;
use crate::trace::TraceId;

/// Why the gateway answers itself; the one table from cause to HTTP status, gRPC status and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A plugin answered the request.
    Plugin,
    /// A plugin did not decide before the timeout.
    PluginTimeout,
    /// The request is malformed.
    BadRequest,
    /// The request has no valid `Host`, or more than one.
    BadHost,
    /// The header fields are too large or too many.
    HeadersTooLarge,
    /// The request uses a transfer coding other than `chunked`.
    CodingUnsupported,
    /// The listener does not speak this HTTP version.
    HttpVersionUnsupported,
    /// The request target is longer than the limit.
    UriTooLong,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The request or its body did not arrive before the timeout.
    RequestTimeout,
    /// No proxy matches this request.
    NoRoute,
    /// The TLS connection was opened for another host, so this host's proxy does not match.
    Misdirected,
    /// The proxy does not allow this method.
    MethodNotAllowed,
    /// The gateway never forwards this method.
    MethodUnknown,
    /// The request expects something other than `100-continue`.
    ExpectationFailed,
    /// The client asked for the methods of the gateway; no failure.
    Options,
    /// Credentials are missing or wrong.
    Unauthenticated,
    /// The caller is known, but not allowed.
    Forbidden,
    /// The caller exceeds a limit.
    TooManyRequests,
    /// The request came in TLS early data and is not safe to replay.
    TooEarly,
    /// The proxy's configuration is incomplete, so the proxy is closed.
    Quarantined,
    /// The request returned to the proxy that forwarded it.
    Loop,
    /// No target can take the request now.
    NoTarget,
    /// The circuit breaker is open.
    CircuitOpen,
    /// The gateway is at a limit.
    Overloaded,
    /// The target's name does not resolve.
    DnsFailed,
    /// The connection to the target failed.
    ConnectFailed,
    /// The connection to the target was not established before the timeout.
    ConnectTimeout,
    /// The TLS handshake with the target failed.
    TlsFailed,
    /// The target's certificate is not accepted.
    TlsCertificate,
    /// The target closed the connection before it answered.
    UpstreamClosed,
    /// The target's answer is not valid HTTP.
    UpstreamGarbage,
    /// The target did not answer before the timeout.
    UpstreamTimeout,
    /// The exchange exceeded its total timeout.
    TotalTimeout,
    /// The target does not speak the HTTP version that the request needs.
    VersionUnsupported,
    /// The gateway does not support this upgrade.
    UpgradeRefused,
    /// The client closed the connection; recorded, never sent.
    ClientGone,
    /// The client did not read its response before the timeout; recorded, never sent.
    ClientTimeout,
    /// The gateway stopped before the exchange ended; recorded, never sent.
    Drained,
    /// The caller's authorization ended during the response; sent to gRPC clients only, in trailers.
    Revoked,
    /// An operator ended the exchange through the admin API; sent to gRPC clients only, in trailers.
    Ended,
    /// A defect of the gateway.
    Internal,
}

/// One row of the table.
struct Row {
    status: u16,
    grpc: u8,
    /// RFC 9209 §2.3 error type where one fits; empty adds no `Proxy-Status`.
    proxy_error: &'static str,
    /// Stable reason for logs, metrics and the problem's `code`.
    reason: &'static str,
    title: &'static str,
}

const fn row(
    status: u16,
    grpc: u8,
    proxy_error: &'static str,
    reason: &'static str,
    title: &'static str,
) -> Row {
    Row { status, grpc, proxy_error, reason, title }
}

impl Cause {
    #[rustfmt::skip]
    fn row(self) -> Row {
        match self {
            Self::Plugin => row(200, 2, "", "plugin", "Answered by a plugin"),
            Self::PluginTimeout => row(504, 4, "proxy_internal_response", "plugin_timeout", "A plugin did not decide in time"),
            Self::BadRequest => row(400, 3, "http_request_error", "bad_request", "The request is malformed"),
            Self::BadHost => row(400, 3, "http_request_error", "bad_host", "The request needs exactly one valid Host"),
            Self::HeadersTooLarge => row(431, 8, "http_request_error", "headers_too_large", "The request's header fields are too large"),
            Self::CodingUnsupported => row(501, 12, "http_request_error", "coding_unsupported", "The transfer coding is not supported"),
            Self::HttpVersionUnsupported => row(505, 12, "http_request_error", "http_version_unsupported", "The HTTP version is not supported"),
            Self::UriTooLong => row(414, 8, "http_request_error", "uri_too_long", "The request target is too long"),
            Self::BodyTooLarge => row(413, 8, "http_request_error", "body_too_large", "The request body is too large"),
            Self::RequestTimeout => row(408, 4, "http_request_error", "request_timeout", "The request did not arrive in time"),
            Self::NoRoute => row(404, 12, "destination_not_found", "no_route", "No proxy takes this host and path"),
            Self::Misdirected => row(421, 14, "http_request_denied", "misdirected", "This connection is for another host"),
            Self::MethodNotAllowed => row(405, 12, "http_request_denied", "method_not_allowed", "The method is not allowed here"),
            Self::MethodUnknown => row(405, 12, "http_request_denied", "method_unsupported", "The gateway does not take this method"),
            Self::ExpectationFailed => row(417, 12, "http_request_error", "expectation_failed", "The expectation is not supported"),
            Self::Options => row(200, 12, "", "options", "The gateway's methods"),
            Self::Unauthenticated => row(401, 16, "http_request_denied", "unauthenticated", "Authentication required"),
            Self::Forbidden => row(403, 7, "http_request_denied", "forbidden", "Not allowed"),
            Self::TooManyRequests => row(429, 8, "http_request_denied", "too_many_requests", "Too many requests"),
            Self::TooEarly => row(425, 14, "http_request_denied", "too_early", "Send this again after the handshake"),
            Self::Loop => row(508, 13, "proxy_loop_detected", "loop", "The request came back to the proxy that forwarded it"),
            Self::Quarantined => row(503, 14, "proxy_configuration_error", "quarantined", "This proxy is not ready"),
            Self::NoTarget => row(503, 14, "destination_unavailable", "no_target", "No upstream is available"),
            Self::CircuitOpen => row(503, 14, "destination_unavailable", "circuit_open", "Circuit breaker open"),
            Self::Overloaded => row(503, 14, "proxy_internal_response", "overloaded", "The gateway is at its limits"),
            Self::DnsFailed => row(502, 14, "dns_error", "dns_failed", "The upstream could not be found"),
            Self::ConnectFailed => row(502, 14, "connection_refused", "connect_failed", "The upstream could not be reached"),
            Self::ConnectTimeout => row(504, 14, "connection_timeout", "connect_timeout", "The upstream could not be reached in time"),
            Self::TlsFailed => row(502, 14, "tls_protocol_error", "tls_failed", "The upstream could not be reached securely"),
            Self::TlsCertificate => row(502, 14, "tls_certificate_error", "tls_certificate_error", "The upstream could not be reached securely"),
            Self::UpstreamClosed => row(502, 14, "connection_terminated", "upstream_closed", "The upstream closed without an answer"),
            Self::UpstreamGarbage => row(502, 14, "http_protocol_error", "upstream_garbage", "The upstream's answer is malformed"),
            Self::UpstreamTimeout => row(504, 4, "http_response_timeout", "upstream_timeout", "The upstream did not answer in time"),
            Self::TotalTimeout => row(504, 4, "http_response_timeout", "total_timeout", "The exchange took too long"),
            Self::VersionUnsupported => row(502, 12, "http_upgrade_failed", "version_unsupported", "The upstream does not speak what this request needs"),
            Self::UpgradeRefused => row(501, 12, "http_upgrade_failed", "upgrade_refused", "This upgrade is not supported here"),
            Self::ClientGone => row(499, 1, "", "client_gone", "The client went away"),
            Self::ClientTimeout => row(499, 1, "", "client_timeout", "The client took too long to read"),
            Self::Drained => row(503, 14, "", "drained", "The gateway stopped"),
            Self::Revoked => row(503, 14, "", "revoked", "What the caller was admitted by does not hold any more"),
            Self::Ended => row(503, 14, "", "ended", "Ended by an operator"),
            Self::Internal => row(500, 13, "proxy_internal_error", "internal", "The gateway failed"),
        }
    }

    /// The HTTP status this cause is answered with.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The gRPC status code this cause is answered with.
    pub fn grpc_status(self) -> u8 {
        self.row().grpc
    }

    /// Every cause.
    #[rustfmt::skip]
    pub const ALL: &[Self] = &[
        Self::Plugin, Self::PluginTimeout, Self::BadRequest, Self::BadHost, Self::HeadersTooLarge,
        Self::CodingUnsupported, Self::HttpVersionUnsupported, Self::UriTooLong, Self::BodyTooLarge, Self::RequestTimeout,
        Self::NoRoute, Self::Misdirected, Self::MethodNotAllowed, Self::MethodUnknown, Self::ExpectationFailed,
        Self::Options, Self::Unauthenticated, Self::Forbidden, Self::TooManyRequests, Self::TooEarly,
        Self::Loop, Self::Quarantined, Self::NoTarget, Self::CircuitOpen, Self::Overloaded,
        Self::DnsFailed, Self::ConnectFailed, Self::ConnectTimeout, Self::TlsFailed, Self::TlsCertificate,
        Self::UpstreamClosed, Self::UpstreamGarbage, Self::UpstreamTimeout, Self::TotalTimeout, Self::VersionUnsupported,
        Self::UpgradeRefused, Self::ClientGone, Self::ClientTimeout, Self::Drained, Self::Revoked,
        Self::Ended, Self::Internal,
    ];

    /// The setting to look at, as [`Reason::setting`](crate::reason::Reason); empty where none is.
    pub fn setting(self) -> &'static str {
        match self {
            Self::RequestTimeout => "gateway.client_timeouts",
            Self::ClientTimeout => "gateway.client_timeouts.body",
            Self::Drained => "gateway.drain_timeout",
            Self::HeadersTooLarge => "gateway.limits.max_header_size",
            Self::BodyTooLarge => "gateway.limits.max_request_body",
            Self::UriTooLong => "gateway.limits.max_uri",
            Self::Overloaded => "gateway.overload",
            Self::Revoked => "gateway.session_check",
            Self::Plugin
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::TooManyRequests
            | Self::Quarantined => "plugin_configs",
            Self::NoRoute => "proxies",
            Self::MethodNotAllowed => "proxies.allowed_methods",
            Self::ConnectTimeout => "proxies.backend_connect_timeout",
            Self::UpstreamTimeout => "proxies.backend_first_byte_timeout",
            Self::Loop | Self::DnsFailed => "proxies.backend_host",
            Self::VersionUnsupported => "proxies.backend_http_version",
            Self::ConnectFailed => "proxies.backend_port",
            Self::TlsFailed | Self::UpstreamGarbage => "proxies.backend_scheme",
            Self::TlsCertificate => "proxies.backend_tls_ca_path",
            Self::CircuitOpen => "proxies.circuit_breaker",
            Self::TooEarly => "proxies.early_data",
            Self::PluginTimeout | Self::TotalTimeout => "proxies.total_timeout",
            Self::NoTarget => "upstreams.health_checks",
            _ => "",
        }
    }

    /// A stable word for logs and metrics.
    pub fn reason(self) -> &'static str {
        self.row().reason
    }
}

/// Whose a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The gateway's own.
    Gateway,
    /// What a target said to another request, given out again by the gateway.
    Replay,
    /// A target's.
    Target,
}

/// An answer of the gateway's own.
#[derive(Debug)]
pub struct Reply {
    /// Why.
    pub cause: Cause,
    /// The status, where it differs from the cause's.
    pub status: Option<StatusCode>,
    /// What gRPC clients get, where it differs from what stands for the status.
    pub grpc_status: Option<u8>,
    /// One sentence for the client; never an internal detail.
    pub detail: Option<Cow<'static, str>>,
    /// Header fields to add.
    pub headers: HeaderMap,
    /// A body in place of the problem document; may stream and carry trailers. gRPC clients get it with [`Reply::as_is`].
    pub body: Option<Body>,
    /// A word of the plugin's own for logs and metrics instead of the cause's: snake case, one of few.
    pub reason: Option<&'static str>,
    /// Whether it counts as an error; `None` goes by the status: 400 and above do.
    pub is_error: Option<bool>,
    /// Sent as it is, also to gRPC clients, without turning it into a status of gRPC's.
    pub as_is: bool,
    /// The connection must not carry another exchange.
    pub close: bool,
    /// The client is told the cause's reason, and only records show the reply's own.
    pub hides_reason: bool,
    /// It gives out again what a target said to another request.
    pub is_replay: bool,
    /// The trace that a problem document names.
    pub trace: Option<TraceId>,
}

impl Reply {
    /// The plain answer for a cause.
    pub fn new(cause: Cause) -> Self {
        Self {
            cause,
            status: None,
            grpc_status: None,
            detail: None,
            headers: HeaderMap::new(),
            body: None,
            reason: None,
            is_error: None,
            as_is: false,
            close: false,
            is_replay: false,
            hides_reason: false,
            trace: None,
        }
    }

    /// A plugin's answer with a status and body of its own.
    pub fn fixed(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status: Some(status), body: Some(Body::full(body)), ..Self::new(Cause::Plugin) }
    }

    /// A plugin's whole answer, sent as it is: its body may stream and carry trailers.
    pub fn response(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: Some(head.status),
            headers: head.headers,
            body: Some(body),
            as_is: true,
            ..Self::new(Cause::Plugin)
        }
    }

    /// Names the reason that logs and metrics show.
    #[must_use]
    pub fn reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// The same, while the client is told only the cause's: for refusals from which an attacker would learn.
    #[must_use]
    pub fn hidden_reason(self, reason: &'static str) -> Self {
        Self { hides_reason: true, ..self.reason(reason) }
    }

    /// Answers with another status than the cause's.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Whether it counts as an error in logs and metrics.
    pub fn is_error(&self) -> bool {
        self.is_error.unwrap_or_else(|| self.cause != Cause::Plugin || self.http_status().as_u16() >= 400)
    }

    /// Adds a sentence for the client.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Ends the connection after this answer.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The status the client sees in plain HTTP.
    pub fn http_status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| self.cause.status())
    }

    /// The response, in a dialect.
    pub fn into_response(self, dialect: Dialect) -> Response<Body> {
        match dialect {
            Dialect::Grpc if !self.as_is => self.into_grpc(),
            Dialect::Plain | Dialect::Upgrade | Dialect::Grpc => self.into_problem(),
        }
    }

    /// The response to a call of gRPC-Web, which has this content type: the status in the head as for gRPC, and in the last frame of the
    /// body as well, since pages of other origins see no fields that are not exposed to them.
    pub(crate) fn into_grpc_web(self, kind: GrpcWeb, content_type: HeaderValue) -> Response<Body> {
        if self.as_is {
            return self.into_problem();
        }
        let mut response = self.into_grpc();
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        *response.body_mut() = Body::full(grpc_web::status_frame(kind, response.headers()));
        response
    }

    /// RFC 9457, or the reply's own body.
    fn into_problem(self) -> Response<Body> {
        let status = self.http_status();
        let Row { title, reason, proxy_error, .. } = self.cause.row();
        let own = self.body.is_some();
        let reason = self.reason.filter(|_| !self.hides_reason).unwrap_or(reason);
        let title = own_title(reason).unwrap_or(title);
        let body = self.body.unwrap_or_else(|| {
            Body::full(problem(status, title, reason, self.detail.as_deref(), self.trace))
        });
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        if !own {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        }
        add_proxy_status(headers, proxy_error);
        response
    }

    /// A gRPC trailers-only answer: the status travels in the head.
    fn into_grpc(self) -> Response<Body> {
        let Row { title, proxy_error, .. } = self.cause.row();
        let code = self.grpc_status.unwrap_or_else(|| match self.status {
            Some(status) => grpc_status_of(status),
            None => self.cause.grpc_status(),
        });
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
        let title = self.reason.and_then(own_title).unwrap_or(title);
        let message = self.detail.as_deref().unwrap_or(title);
        let encoded: String = percent_encoding::utf8_percent_encode(message, GRPC_MESSAGE).collect();
        if let Ok(value) = HeaderValue::from_str(&encoded) {
            headers.insert("grpc-message", value);
        }
        add_proxy_status(headers, proxy_error);
        response
    }
}

/// The title of a reason that the title of its cause does not fit.
fn own_title(reason: &str) -> Option<&'static str> {
    match reason {
        "script_not_found" => Some("No script belongs to this path"),
        "length_required" => Some("The request has to declare its length"),
        _ => None,
    }
}

fn add_proxy_status(headers: &mut HeaderMap, error: &'static str) {
    if error.is_empty() {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(&format!("ferrum-edge; error={error}")) {
        headers.insert("proxy-status", value);
    }
}

/// The status that somebody else chose for a final response, where it is one: 200 to 599 (RFC 9110 §15).
pub fn final_status(code: impl TryInto<u16>) -> Option<StatusCode> {
    let code = code.try_into().ok().filter(|code| (200..=599).contains(code))?;
    StatusCode::from_u16(code).ok()
}

/// The gRPC status for an HTTP status (the mapping of gRPC's HTTP/2 document, completed for what a gateway answers).
pub fn grpc_status_of(status: StatusCode) -> u8 {
    match status.as_u16() {
        200..=299 => 2,
        400 | 422 => 3,
        401 => 16,
        403 => 7,
        404 | 405 | 415 | 501 => 12,
        408 | 504 => 4,
        409 => 10,
        412 => 9,
        413 | 414 | 429 | 431 => 8,
        502 | 503 => 14,
        _ => 13,
    }
}

fn problem(
    status: StatusCode,
    title: &str,
    code: &str,
    detail: Option<&str>,
    trace: Option<TraceId>,
) -> Bytes {
    let mut document = serde_json::Map::new();
    document.insert("type".into(), format!("{REASON_URN}{code}").into());
    document.insert("title".into(), title.into());
    document.insert("status".into(), status.as_u16().into());
    document.insert("code".into(), code.into());
    if let Some(detail) = detail {
        document.insert("detail".into(), detail.into());
    }
    if let Some(trace) = trace {
        document.insert("trace_id".into(), trace.to_string().into());
    }
    let mut text = serde_json::Value::Object(document).to_string();
    text.push('\n');
    Bytes::from(text)
}

/// What the `type` of a problem document begins with; the reason follows.
const REASON_URN: &str = "urn:ferrum-edge:reason:";

/// What `grpc-message` must percent-encode: everything outside printable ASCII, and the percent sign.
const GRPC_MESSAGE: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'%');

#[cfg(test)]
mod tests;
