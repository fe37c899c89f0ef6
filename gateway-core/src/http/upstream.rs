//! The way out: what the pipelines ask of whoever owns the sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response};
use tokio::time::Instant;

use crate::balance::Target;
use crate::config::model::{Backend, Timeouts};
use crate::http::body::Body;
use crate::http::cgi_request::CgiRequest;
use crate::http::dialect::Dialect;
use crate::http::downstream::Downstream;
use crate::http::forwarding::Forwarding;
use crate::http::reply::{Cause, Reply};
use crate::http::tunnel::Tunnel;

/// Sends requests to targets. Implemented by the worker (pool, then dial) and by fakes in tests; called once an attempt.
pub trait Upstream: Send + Sync + 'static {
    /// Sends one request, whose body is taken from `body`, and waits for the head of its final response; informational
    /// ones go to `downstream`. The answer's body goes on reading from the target, and drives what is left of the
    /// request's.
    fn send<D: Downstream>(
        &self,
        call: &Call<'_>,
        body: &mut Body,
        downstream: &mut D,
    ) -> impl Future<Output = Result<TargetResponse, Failure>> + Send;
}

/// One attempt to have a request answered by a target.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// How the target is spoken to: scheme, TLS and pool rules.
    pub backend: &'a Backend,
    /// How long each step may take.
    pub timeouts: &'a Timeouts,
    /// Where to.
    pub target: &'a Target,
    /// The upstream that a plugin chose, whose target it is; `None` where it is the backend's.
    pub chosen: Option<&'a Arc<str>>,
    /// The trust domain that connections to it belong to.
    pub pool_key: u64,
    /// The method as the client sent it.
    pub method: &'a Method,
    /// Path and query as the target gets them.
    pub path: &'a str,
    /// The host as the target gets it.
    pub host: &'a HeaderValue,
    /// Every header field to send but `host` and the framing (`content-length`, `transfer-encoding`), which the
    /// adapter derives from the body.
    pub headers: &'a HeaderMap,
    /// What is sent behind them: the way here.
    pub forwarding: &'a Forwarding,
    /// When this attempt began.
    pub begun: Instant,
    /// What the request needs of the target.
    pub dialect: Dialect,
    /// Whether the target is to be told that trailers are taken: the client said so, or it is gRPC, whose servers take
    /// its absence for a proxy that drops them.
    pub trailers: bool,
    /// The protocol asked for when the dialect is an upgrade.
    pub upgrade: Option<&'a HeaderValue>,
    /// The version the client speaks.
    pub client_version: http::Version,
    /// What a target is told that speaks FastCGI; present exactly then.
    pub cgi: Option<&'a CgiRequest>,
}

/// How long the steps to a new connection took. Beside the answer in its extensions, where its exchange waited for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Until the target's name was resolved; `None` where it is an address.
    pub dns: Option<Duration>,
    /// Until the target took the connection; over QUIC with the handshake.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
}

/// A target's answer.
pub struct TargetResponse {
    /// The final response; hop-by-hop fields still in it.
    pub response: Response<Body>,
    /// From the start of the attempt to the head of the response.
    pub first_byte: Duration,
    /// Whether a kept connection served it.
    pub reused: bool,
    /// The connection itself, when the response switches protocols.
    pub tunnel: Option<Tunnel>,
}

/// Why an attempt failed.
#[derive(Debug)]
pub struct Failure {
    /// The row of the reply table this failure is answered with.
    pub cause: Cause,
    /// Whether any byte of the request may have reached the target.
    pub reached_wire: bool,
    /// Whether a kept connection turned out to be dead, which says nothing about the target.
    pub stale: bool,
    /// The body, when nothing of it was taken.
    pub body: Option<Body>,
    /// A plugin's answer, where it refused the request's body.
    pub reply: Option<Box<Reply>>,
    /// For the log; never for the client.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The source of a failure, with the setting that prevents it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct PreventableError {
    /// As [`Reason::setting`](crate::reason::Reason).
    pub(crate) setting: &'static str,
    error: Box<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// A failure before any byte was sent.
    pub fn unsent(cause: Cause, body: Body) -> Self {
        Self { cause, reached_wire: false, stale: false, body: Some(body), reply: None, source: None }
    }

    /// A failure after bytes were sent.
    pub fn sent(cause: Cause) -> Self {
        Self { cause, reached_wire: true, stale: false, body: None, reply: None, source: None }
    }

    /// A plugin refused the request's body, after bytes were sent.
    pub fn refused(reply: Box<Reply>) -> Self {
        let cause = reply.cause;
        Self { reply: Some(reply), ..Self::sent(cause) }
    }

    /// What the client is answered: a plugin's own reply where it gave one. The rest of a body that is too large is not
    /// read, so its connection can't carry another request.
    pub fn into_reply(self) -> Box<Reply> {
        let Self { reply, cause, .. } = self;
        let close = cause == Cause::BodyTooLarge;
        reply.unwrap_or_else(|| Box::new(Reply { close, ..Reply::new(cause) }))
    }

    /// Adds what the log should know.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the setting of a proxy that prevents this failure, or none by an empty name, where the cause alone does not tell.
    #[must_use]
    pub fn prevented_by(mut self, setting: &'static str) -> Self {
        self.source = self.source.map(|error| PreventableError { setting, error }.into());
        self
    }

    /// Whether the failure is about making a connection.
    pub fn is_connect(&self) -> bool {
        matches!(
            self.cause,
            Cause::DnsFailed
                | Cause::ConnectFailed
                | Cause::ConnectTimeout
                | Cause::TlsFailed
                | Cause::TlsCertificate
        )
    }
}
