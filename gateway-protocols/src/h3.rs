//! Bodies over HTTP/3, the same in both directions. The h3 crate's types stay in here and in the two adapters.

pub(crate) mod recv;
pub(crate) mod send;

use ::h3::error::StreamError;
use gateway_core::http::body::BodyError;

/// A body error from the h3 crate's.
pub(crate) fn body_error(error: StreamError) -> BodyError {
    match error {
        StreamError::StreamError { .. } => BodyError::Framing("HTTP/3 stream error"),
        _ => BodyError::Incomplete,
    }
}
