//! Sending a response, for as long as it may take.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Response;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;

use super::call_end::{CallEnd, CallForm};
use super::ending::ExchangeEnding;
use crate::http::body::Body;
use crate::http::downstream::Delivery;
use crate::http::reply::Cause;
use crate::pipeline::revocation::{Beside, Current, Revocation, revoked};
use crate::stream::sessions::About;

/// How long an answer that is no stream of events may take before it is listed as a session.
const UNLISTED: Duration = Duration::from_secs(1);

/// How a response goes out.
pub(super) struct Sending {
    until: Until,
    /// Why the call was ended, where it can be said behind the body.
    ended: Option<CallEnd>,
}

/// Until when a response may go out.
enum Until {
    /// As long as the client reads.
    Done,
    /// The whole exchange's deadline.
    Deadline(Instant),
    /// A stream goes on for as long as its proxy is there and whoever asked for it may stay.
    Revoked(Revocation),
}

impl Sending {
    pub(super) fn of(
        end: &ExchangeEnding<'_>,
        response: &mut Response<Body>,
        current: Option<&Arc<dyn Current>>,
    ) -> Self {
        let until = Until::of(end, response, current);
        let Some(form) = CallEnd::form(end, response) else { return Self { until, ended: None } };
        let (until, revoked) = match until {
            // A body of gRPC-Web may be within a frame then, and breaks off.
            Until::Revoked(revoked) if form == CallForm::Grpc => (Until::Done, Some(revoked)),
            until => (until, None),
        };
        Self { until, ended: Some(CallEnd::watch(end, form, response, revoked)) }
    }
}

impl Until {
    fn of(end: &ExchangeEnding<'_>, response: &Response<Body>, current: Option<&Arc<dyn Current>>) -> Self {
        if let Some(deadline) = end.deadline() {
            return Self::Deadline(deadline);
        }
        let identity = end.exchange.identity.clone();
        let kind = stream_kind(response, identity.is_some());
        let (Some(route), Some(current), Some(protocol)) = (end.route, current, kind) else {
            return Self::Done;
        };
        let about = About {
            protocol,
            proxy: route.proxy.id.clone(),
            owner: route.proxy.owner().cloned(),
            consumer: identity.as_ref().map(|identity| identity.name.clone()),
            client: end.exchange.client_address,
            port: end.exchange.client.port,
        };
        let current = current.clone();
        Self::Revoked(Box::pin(async move {
            if protocol != EVENTS {
                tokio::time::sleep(UNLISTED).await;
            }
            revoked(Some(current), about, identity, None).await
        }))
    }
}

const EVENTS: &str = "event_stream";

/// As what a response is listed that may go on for ever. Who nobody recognised loses nothing that others may not have, so of their
/// responses only streams of events are.
fn stream_kind(response: &Response<Body>, is_recognised: bool) -> Option<&'static str> {
    // A stream has no length; most responses have one, and need no look at their headers.
    if response.body().exact_length().is_some() {
        return None;
    }
    let kind = response.headers().get(CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
    if kind.starts_with(b"text/event-stream") {
        return Some(EVENTS);
    }
    is_recognised.then(|| if kind.starts_with(b"application/grpc") { "grpc" } else { "http" })
}

/// Sends a response until it is done, or has to end.
pub(super) async fn respond(
    Sending { until, ended }: Sending,
    sending: Pin<&mut impl Future<Output = Delivery>>,
) -> Delivery {
    let delivery = respond_until(until, sending).await;
    let cut = delivery.cut.or_else(|| ended?.cause());
    Delivery { cut, ..delivery }
}

async fn respond_until(until: Until, mut sending: Pin<&mut impl Future<Output = Delivery>>) -> Delivery {
    match until {
        Until::Done => sending.await,
        Until::Deadline(deadline) => {
            let sent = tokio::time::timeout_at(deadline, sending).await;
            sent.unwrap_or_else(|_| Delivery { cut: Some(Cause::TotalTimeout), ..Delivery::default() })
        }
        Until::Revoked(revoked) => Box::pin(send_while_allowed(revoked, sending.as_mut())).await,
    }
}

async fn send_while_allowed(
    revoked: impl Future<Output = Cause>,
    mut sending: Pin<&mut impl Future<Output = Delivery>>,
) -> Delivery {
    let mut revoked = Beside::new(revoked);
    poll_fn(|cx| match sending.as_mut().poll(cx) {
        Poll::Ready(delivery) => Poll::Ready(delivery),
        Poll::Pending => {
            revoked.poll(cx).map(|cause| Delivery { bytes: 0, cut: Some(cause), ..Delivery::default() })
        }
    })
    .await
}
