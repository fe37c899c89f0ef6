//! Responses on a stream.

use std::future::{Future, pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use http::header::{CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT};
use http::{HeaderMap, Response, StatusCode};

use super::tunnel::StreamTunnel;
use crate::downstream::cut_by;
use crate::h2::connection::Extra;
use crate::h3::Code;
use crate::h3::body::{SendBody, SendError};
use crate::h3::reader::MessageReader;
use crate::h3::writer::Writer;
use crate::registry::{ConnectionControl, StreamMark};

/// Takes an exchange's answer to its stream.
pub(super) struct Responder<'w> {
    /// Until the stream is a tunnel.
    pub(super) writer: Option<Writer>,
    /// The receiving half, of an exchange that asks for a WebSocket.
    pub(super) tunnel: Option<MessageReader>,
    /// The connection.
    pub(super) entry: &'w ConnectionControl,
    /// From an upgrade on.
    pub(super) mark: Option<StreamMark<'w>>,
    /// Whether the request was HEAD.
    pub(super) head: bool,
    pub(super) idle: Duration,
    /// Whether the final head has gone out.
    pub(super) answered: bool,
}

impl Responder<'_> {
    /// Nobody waits for the answer any more.
    pub(super) fn give_up(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.blame(Code::REQUEST_CANCELLED);
        }
    }
}

impl Downstream for Responder<'_> {
    async fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        let Some(writer) = &mut self.writer else { return };
        writer.response(status, headers, &Extra::default());
        // A client that can't take it is gone, which the final response will find out.
        if let Err(error) = poll_fn(|cx| writer.poll_flush(cx, self.idle)).await {
            tracing::debug!(%error, "an informational response was not sent");
        }
    }

    async fn upgrade(&mut self, mut response: Response<()>) -> Option<Tunnel> {
        let reader = self.tunnel.take()?;
        let mut writer = self.writer.take()?;
        self.answered = true;
        // RFC 9220: as in HTTP/2, success is 200, and there is no key to answer.
        response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        writer.response(StatusCode::OK, response.headers(), &Extra::default());
        poll_fn(|cx| writer.poll_flush(cx, self.idle)).await.ok()?;
        self.mark = Some(self.entry.stream());
        Some(Box::new(StreamTunnel::new(reader, writer)))
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let Some(writer) = &mut self.writer else {
            return Delivery { bytes: 0, cut: Some(Cause::ClientGone), ..Delivery::default() };
        };
        // A refused WebSocket's stream is none any more; what else comes on it is not read.
        self.tunnel = None;
        let (mut parts, body) = response.into_parts();
        let bodiless =
            self.head || parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
        let length = if bodiless { None } else { body.exact_length() };
        if !bodiless && length.is_none() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        let date = crate::date::now();
        let extra = Extra {
            length,
            date: (!parts.headers.contains_key(DATE)).then_some(&date[..]),
            ..Extra::default()
        };
        self.answered = true;
        writer.response(parts.status, &parts.headers, &extra);
        let mut sending = SendBody::new(if bodiless { Body::empty() } else { body }, self.idle);
        let mut stopped = None;
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = sending.poll_send(cx, writer) {
                return Poll::Ready(sent);
            }
            // A client that wants no more of it no longer waits, also while there is nothing to send.
            let stopped = stopped.get_or_insert_with(|| {
                let stopped = writer.stopped();
                Box::pin(async {
                    if stopped.await.is_none() {
                        pending::<()>().await;
                    }
                })
            });
            stopped.as_mut().poll(cx).map(|()| Err(SendError::Stream))
        });
        let cut = match sent.await {
            Ok(()) => None,
            // What was sent is not the whole, and must not look like it: the stream is reset when it is dropped.
            Err(SendError::Body(error)) => Some(cut_by(&error)),
            Err(error @ (SendError::Stream | SendError::Late)) => {
                writer.blame(Code::REQUEST_CANCELLED);
                Some(if matches!(error, SendError::Late) { Cause::ClientTimeout } else { Cause::ClientGone })
            }
        };
        Delivery { bytes: sending.sent, cut, grpc_status: sending.grpc_status, ..Delivery::default() }
    }
}
