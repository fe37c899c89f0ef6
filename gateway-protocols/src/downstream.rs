//! The clients' side: listeners, connections, and the HTTP versions that end in the pipeline.

pub mod accept;
pub mod bind;
mod client_tls;
mod connection;
mod h1;
mod h2;
pub(crate) mod h3;
mod opening;
mod proxied;
mod tcp;

use gateway_core::http::body::BodyError;
use gateway_core::http::reply::Cause;

/// Why a response broke off while its body came from a target.
fn cut_by(error: &BodyError) -> Cause {
    match error {
        BodyError::Idle => Cause::UpstreamTimeout,
        BodyError::Framing(_) => Cause::UpstreamGarbage,
        BodyError::TooLarge { .. } => Cause::BodyTooLarge,
        BodyError::Refused(reply) => reply.cause,
        BodyError::NoRoom => Cause::Overloaded,
        BodyError::Incomplete | BodyError::Io(_) => Cause::UpstreamClosed,
        BodyError::Request(error) => match &**error {
            BodyError::Idle => Cause::RequestTimeout,
            BodyError::Framing(_) => Cause::BadRequest,
            BodyError::TooLarge { .. } => Cause::BodyTooLarge,
            BodyError::Refused(reply) => reply.cause,
            BodyError::NoRoom => Cause::Overloaded,
            BodyError::Incomplete | BodyError::Io(_) | BodyError::Request(_) => Cause::ClientGone,
        },
    }
}
