//! Bodies of a processor's own, and the fields that describe bytes.

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_plugin_common::headers;
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderMap, HeaderValue};

use super::protocol::{CommonResponse, NewBody};

/// Puts the processor's body in the place of the message's own.
pub(super) fn replace(headers: &mut HeaderMap, body: &mut Body, said: CommonResponse) {
    match said.body_mutation.and_then(|mutation| mutation.mutation) {
        Some(NewBody::Body(new)) => {
            describe(headers, &new);
            *body = Body::full(new);
        }
        Some(NewBody::Clear(true)) => {
            describe(headers, &Bytes::new());
            *body = Body::empty();
        }
        _ => {}
    }
}

/// Writes what describes the exact bytes of a body that has changed.
pub(super) fn describe(headers: &mut HeaderMap, body: &Bytes) {
    headers::forget_bytes(headers);
    forget_tag(headers);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
}

/// Takes a strong tag away, which names other bytes than these.
pub(super) fn forget_tag(headers: &mut HeaderMap) {
    if headers.get(ETAG).is_some_and(|tag| !tag.as_bytes().starts_with(b"W/")) {
        headers.remove(ETAG);
    }
}
