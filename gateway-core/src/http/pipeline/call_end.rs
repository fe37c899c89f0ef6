//! The end of gRPC calls whose head has gone out: what the gateway ends then ends with a status in trailers, not with a stream
//! that breaks off. Only over HTTP/2 and HTTP/3, whose clients take trailers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ending::ExchangeEnding;
use crate::http::body::{Body, BodyError};
use crate::http::dialect::{Dialect, is_grpc};
use crate::http::reply::{Cause, Reply};
use crate::stream::revocation::{Beside, Revocation};

/// Why a call was ended behind its head; nothing where it ended by itself.
pub(super) struct CallEnd(Arc<OnceLock<Cause>>);

impl CallEnd {
    /// Whether an answer is one to a call whose client takes a status behind its body.
    pub(super) fn can_be_said(end: &ExchangeEnding<'_>, response: &Response<Body>) -> bool {
        let exchange = &end.exchange;
        let takes_trailers = exchange.dialect == Dialect::Grpc && exchange.version() >= Version::HTTP_2;
        takes_trailers && !response.body().is_at_hand() && is_grpc(response.headers())
    }

    /// Watches over the body of an answer to a call, which may be `revoked`.
    pub(super) fn watch(
        end: &ExchangeEnding<'_>,
        response: &mut Response<Body>,
        revoked: Option<Revocation>,
    ) -> Self {
        let cause = Arc::new(OnceLock::new());
        let body = Call {
            body: std::mem::take(response.body_mut()),
            deadline: end.deadline(),
            timer: None,
            revoked: revoked.map(Beside::new),
            cause: cause.clone(),
            is_over: false,
        };
        *response.body_mut() = Body::stream(body);
        Self(cause)
    }

    /// What ended the call.
    pub(super) fn cause(self) -> Option<Cause> {
        self.0.get().copied()
    }
}

/// The body of an answer to a call.
struct Call {
    body: Body,
    deadline: Option<Instant>,
    /// Made when the call has to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
    /// Asked when the call has to be waited for.
    revoked: Option<Beside<Revocation>>,
    cause: Arc<OnceLock<Cause>>,
    is_over: bool,
}

impl Call {
    /// The trailers that end the call.
    fn end(&mut self, reply: Reply) -> Frame<Bytes> {
        self.is_over = true;
        // What the target still sends is of no use.
        self.body = Body::empty();
        let cause = reply.cause;
        self.cause.get_or_init(|| cause);
        let said = reply.into_response(Dialect::Grpc);
        let mut trailers = HeaderMap::new();
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
            if let Some(value) = said.headers().get(name) {
                trailers.insert(name, value.clone());
            }
        }
        trailers.entry("grpc-status").or_insert_with(|| u16::from(cause.grpc_status()).into());
        Frame::trailers(trailers)
    }

    /// Why the call has to end while nothing comes of it.
    fn has_to_end(&mut self, cx: &mut Context<'_>) -> Option<Cause> {
        if let Some(deadline) = self.deadline {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            return timer.as_mut().poll(cx).is_ready().then_some(Cause::TotalTimeout);
        }
        match self.revoked.as_mut()?.poll(cx) {
            Poll::Ready(cause) => Some(cause),
            Poll::Pending => None,
        }
    }
}

/// What the gateway says of an error by which it ends a call; a target or client that breaks off is passed on as it is.
fn said_of(error: BodyError) -> Result<Reply, BodyError> {
    match error {
        BodyError::Idle => Ok(Reply::new(Cause::UpstreamTimeout)),
        BodyError::Request(error) => match *error {
            BodyError::Incomplete | BodyError::Io(_) | BodyError::Request(_) => {
                Err(BodyError::Request(error))
            }
            error => Ok(*error.into_reply()),
        },
        BodyError::Refused(_) | BodyError::TooLarge { .. } | BodyError::NoRoom => Ok(*error.into_reply()),
        BodyError::Incomplete | BodyError::Framing(_) | BodyError::Io(_) => Err(error),
    }
}

impl HttpBody for Call {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        match this.body.poll_next(cx) {
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(said_of(error).map(|reply| this.end(reply)))),
            Poll::Pending => match this.has_to_end(cx) {
                Some(cause) => Poll::Ready(Some(Ok(this.end(Reply::new(cause))))),
                None => Poll::Pending,
            },
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        // It may end before.
        SizeHint::default()
    }
}
