//! Sending a response, for as long as it may take.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use http::Response;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;

use super::call_end::CallEnd;
use super::ending::ExchangeEnding;
use crate::consumer::Identity;
use crate::http::body::Body;
use crate::http::downstream::Delivery;
use crate::http::reply::Cause;
use crate::stream::revocation::{Beside, Current, revoked};
use crate::stream::sessions::About;

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
    /// A stream of events goes on for as long as its proxy and whoever asked for it are there.
    /// Rare and large, so on the heap.
    Revoked(Box<(About, Option<Arc<Identity>>)>),
}

impl Sending {
    pub(super) fn of(end: &ExchangeEnding<'_>, response: &mut Response<Body>) -> Self {
        Self { until: Until::of(end, response), ended: CallEnd::watch(end, response) }
    }
}

impl Until {
    fn of(end: &ExchangeEnding<'_>, response: &Response<Body>) -> Self {
        if let Some(deadline) = end.deadline() {
            return Self::Deadline(deadline);
        }
        let Some(route) = end.route.filter(|_| is_event_stream(response)) else { return Self::Done };
        let identity = end.exchange.identity.clone();
        let about = About {
            protocol: "event_stream",
            proxy: route.proxy.id.clone(),
            consumer: identity.as_ref().map(|identity| identity.name.clone()),
            client: end.exchange.client_address,
        };
        Self::Revoked(Box::new((about, identity)))
    }
}

fn is_event_stream(response: &Response<Body>) -> bool {
    // A stream of events has no length; most responses have one, and need no look at their headers.
    if response.body().exact_length().is_some() {
        return false;
    }
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Sends a response until it is done, or has to end.
pub(super) async fn respond(
    Sending { until, ended }: Sending,
    current: Option<&Arc<dyn Current>>,
    sending: Pin<&mut impl Future<Output = Delivery>>,
) -> Delivery {
    let delivery = respond_until(until, current, sending).await;
    let cut = delivery.cut.or_else(|| ended?.cause());
    Delivery { cut, ..delivery }
}

async fn respond_until(
    until: Until,
    current: Option<&Arc<dyn Current>>,
    mut sending: Pin<&mut impl Future<Output = Delivery>>,
) -> Delivery {
    match until {
        Until::Done => sending.await,
        Until::Deadline(deadline) => {
            let sent = tokio::time::timeout_at(deadline, sending).await;
            sent.unwrap_or_else(|_| Delivery { cut: Some(Cause::TotalTimeout), ..Delivery::default() })
        }
        Until::Revoked(session) => {
            let (about, identity) = *session;
            let revoked = revoked(current.cloned(), about, identity);
            Box::pin(send_while_allowed(revoked, sending.as_mut())).await
        }
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
