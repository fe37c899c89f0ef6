//! What an exchange speaks on top of HTTP, which changes how a refusal is said and what the target must speak.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

/// The dialect of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Plain HTTP: refusals are RFC 9457 documents.
    #[default]
    Plain,
    /// gRPC: refusals are `grpc-status` in a 200 without a body; trailers must reach the client.
    Grpc,
    /// Asks for another protocol on this connection or stream (RFC 9110 §7.8, RFC 8441, RFC 9220).
    Upgrade,
}

impl Dialect {
    /// Reads the dialect off a request's head.
    pub fn of(method: &Method, headers: &HeaderMap, upgrade: bool) -> Self {
        if upgrade {
            return Self::Upgrade;
        }
        if *method == Method::POST
            && headers.get(CONTENT_TYPE).is_some_and(|value| {
                // `application/grpc`, `application/grpc+proto`, `application/grpc; …`, but not `application/grpc-web`.
                value
                    .as_bytes()
                    .strip_prefix(b"application/grpc")
                    .is_some_and(|rest| rest.first().is_none_or(|c| matches!(c, b'+' | b';' | b' ')))
            })
        {
            return Self::Grpc;
        }
        Self::Plain
    }
}
