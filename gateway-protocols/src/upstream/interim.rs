//! Informational responses on their way to the client.

use gateway_core::http::downstream::Downstream;
use gateway_core::http::headers::{self, MessageSource};
use http::Response;
use http::header::CONTENT_LENGTH;

/// Informational responses to one request that are passed on; with more, the target counts as broken.
pub(super) const MAX_INTERIM: u32 = 100;

/// Passes an informational response on, without what frames a message: it has no body (RFC 9110 §15.2), and HTTP/2 and HTTP/3 clients
/// would take a length for the final response's.
pub(super) async fn pass_on<D: Downstream>(mut interim: Response<()>, downstream: &mut D) {
    headers::strip(interim.headers_mut(), MessageSource::Response);
    interim.headers_mut().remove(CONTENT_LENGTH);
    downstream.interim(interim.status(), interim.headers()).await;
}
