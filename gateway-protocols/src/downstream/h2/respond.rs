//! Responses on a stream.

use std::future::poll_fn;
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use http::header::{CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::super::cut_by;
use super::tunnel::StreamTunnel;
use crate::h2::Reason;
use crate::h2::connection::Extra;
use crate::h2::handle::Handle;
use crate::h2::send::{SendBody, SendError};
use crate::registry::{ConnectionControl, StreamMark};

/// Takes an exchange's answer to its stream.
pub(super) struct Responder<'w> {
    pub(super) stream: &'w Handle,
    /// Whether the request was HEAD.
    pub(super) head: bool,
    pub(super) idle: Duration,
    /// The connection, if it asks for a WebSocket.
    pub(super) upgrade: Option<&'w ConnectionControl>,
    /// From an upgrade on.
    pub(super) mark: Option<StreamMark<'w>>,
    /// Where HTTP/3 is, for clients that could use it.
    pub(super) alt_svc: Option<&'w HeaderValue>,
}

impl Downstream for Responder<'_> {
    async fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        // A client that can't take it is gone, which the final response will find out.
        if let Err(error) = self.stream.respond(status, headers, &Extra::default(), false) {
            tracing::debug!(%error, "an informational response was not sent");
        }
    }

    async fn upgrade(&mut self, mut response: Response<()>) -> Option<Tunnel> {
        let entry = self.upgrade?;
        // RFC 8441 §5: success is 200, and there is no key to answer.
        response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        self.stream.respond(StatusCode::OK, response.headers(), &Extra::default(), false).ok()?;
        self.mark = Some(entry.stream());
        Some(Box::new(StreamTunnel::new(self.stream.clone())))
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let (mut parts, body) = response.into_parts();
        let bodiless =
            self.head || parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
        let length = if bodiless { None } else { body.exact_length() };
        if !bodiless && length.is_none() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        let ends = bodiless || body.is_empty();
        let date = crate::date::now();
        let extra = Extra {
            length,
            date: (!parts.headers.contains_key(DATE)).then_some(&date[..]),
            alt_svc: self.alt_svc,
            ..Extra::default()
        };
        if self.stream.respond(parts.status, &parts.headers, &extra, ends).is_err() {
            return Delivery { bytes: 0, cut: Some(Cause::ClientGone), ..Delivery::default() };
        }
        if ends {
            return Delivery { bytes: 0, cut: None, ..Delivery::default() };
        }
        let mut sending = SendBody::new(body, self.idle);
        let cut = match poll_fn(|cx| sending.poll_send(cx, self.stream)).await {
            Ok(()) => None,
            Err(SendError::Body(error)) => {
                // What was sent is not the whole, and must not look like it.
                self.stream.reset(Reason::INTERNAL_ERROR);
                Some(cut_by(&error))
            }
            Err(error @ (SendError::Stream | SendError::Late)) => {
                self.stream.reset(Reason::CANCEL);
                Some(if matches!(error, SendError::Late) { Cause::ClientTimeout } else { Cause::ClientGone })
            }
        };
        Delivery { bytes: sending.sent, cut, grpc_status: sending.grpc_status, ..Delivery::default() }
    }
}
