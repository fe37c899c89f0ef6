//! What an exchange speaks on top of HTTP, which changes how a refusal is said and what the target must speak.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};

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

/// The longest time a client may ask for; the header allows years.
const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// How long the client waits, by `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Timeout").
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(count.checked_mul(3600)?),
        "M" => Duration::from_secs(count.checked_mul(60)?),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    };
    Some(timeout.min(MAX_DEADLINE))
}

/// What follows `application/grpc` in a request's content type, which is compared without regard to case (RFC 9110 §8.3.1),
/// as servers do; `None` for other types.
fn after_grpc(headers: &HeaderMap) -> Option<&[u8]> {
    const GRPC: &[u8] = b"application/grpc";
    let (start, rest) = headers.get(CONTENT_TYPE)?.as_bytes().split_at_checked(GRPC.len())?;
    start.eq_ignore_ascii_case(GRPC).then_some(rest)
}

/// Whether a media type's subtype ends here: at a suffix, a parameter, or the end.
fn ends(rest: &[u8]) -> bool {
    rest.first().is_none_or(|c| matches!(c, b'+' | b';' | b' ' | b'\t'))
}

/// Whether a message is gRPC itself, and no longer or not yet what it is translated to.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    after_grpc(headers).is_some_and(ends)
}

/// How a request speaks gRPC-Web.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcWeb {
    /// `application/grpc-web`, also with a suffix.
    Binary,
    /// `application/grpc-web-text`: the same in Base64.
    Text,
}

impl GrpcWeb {
    /// By the content type; `None` for other requests.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        const WEB: &[u8] = b"-web";
        const TEXT: &[u8] = b"-text";
        let (start, rest) = after_grpc(headers)?.split_at_checked(WEB.len())?;
        if !start.eq_ignore_ascii_case(WEB) {
            return None;
        }
        match rest.split_at_checked(TEXT.len()) {
            Some((text, rest)) if text.eq_ignore_ascii_case(TEXT) => ends(rest).then_some(Self::Text),
            _ => ends(rest).then_some(Self::Binary),
        }
    }
}

/// The gRPC status that a head or trailers say.
pub fn grpc_status(fields: &HeaderMap) -> Option<u16> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The HTTP status that stands for a gRPC status (as google.rpc.Code has them, where that tells the caller's
/// mistakes from the target's).
fn http_status_of(grpc: u16) -> StatusCode {
    match grpc {
        0 => StatusCode::OK,
        1 | 3 | 9 | 11 => StatusCode::BAD_REQUEST,
        16 => StatusCode::UNAUTHORIZED,
        7 => StatusCode::FORBIDDEN,
        5 => StatusCode::NOT_FOUND,
        6 | 10 => StatusCode::CONFLICT,
        8 => StatusCode::TOO_MANY_REQUESTS,
        // There is no such method: the caller's mistake, and none of the target's.
        12 => StatusCode::NOT_FOUND,
        14 => StatusCode::SERVICE_UNAVAILABLE,
        4 => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Dialect {
    /// The status by which an answer counts for retries, health checks and circuit breakers. A gRPC call that the target ends
    /// without a message has its status in the head, and counts by the HTTP status that stands for it.
    pub(crate) fn outcome(self, status: StatusCode, headers: &HeaderMap) -> StatusCode {
        let grpc = if self == Self::Grpc { grpc_status(headers) } else { None };
        match grpc {
            Some(grpc) if status == StatusCode::OK => http_status_of(grpc),
            _ => status,
        }
    }

    /// Whether targets have to be told that trailers are taken: gRPC's take its absence for a proxy that drops them.
    pub(crate) fn needs_trailers(self) -> bool {
        self == Self::Grpc
    }

    /// How long the client waits, where it says so. The header goes on to the target, which keeps time as well.
    pub fn timeout(self, method: &Method, headers: &HeaderMap) -> Option<Duration> {
        match self {
            Self::Grpc => grpc_timeout(headers),
            // gRPC-Web is translated further on, and its clients keep time as well.
            Self::Plain if *method == Method::POST && GrpcWeb::of(headers).is_some() => grpc_timeout(headers),
            Self::Plain | Self::Upgrade => None,
        }
    }

    /// Reads the dialect off a request's head.
    pub fn of(method: &Method, headers: &HeaderMap, upgrade: bool) -> Self {
        if upgrade {
            return Self::Upgrade;
        }
        // `application/grpc`, `application/grpc+proto`, `application/grpc; …`, but not `application/grpc-web`.
        if *method == Method::POST && is_grpc(headers) {
            return Self::Grpc;
        }
        Self::Plain
    }
}

#[cfg(test)]
mod tests;
