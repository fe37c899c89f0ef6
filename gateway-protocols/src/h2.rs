//! Bodies over HTTP/2, the same in both directions.

pub(crate) mod recv;
pub(crate) mod send;

use std::io;

use gateway_core::http::body::BodyError;

/// A body error from the h2 crate's.
pub(crate) fn body_error(error: ::h2::Error) -> BodyError {
    if error.is_io() {
        return error.into_io().map_or(BodyError::Incomplete, BodyError::Io);
    }
    match error.reason() {
        Some(::h2::Reason::PROTOCOL_ERROR) => BodyError::Framing("HTTP/2 protocol error"),
        Some(_) => BodyError::Incomplete,
        None => BodyError::Io(io::Error::other(error)),
    }
}
