//! The end of gRPC calls whose head has gone out: what the gateway ends then ends with a status in trailers, not with a stream
//! that breaks off. Over HTTP/2 and HTTP/3, whose clients take trailers; gRPC-Web has them in the body.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ending::ExchangeEnding;
use crate::http::body::{Body, BodyError};
use crate::http::dialect::{Dialect, GrpcWeb, is_grpc};
use crate::http::grpc_web::{FramePosition, status_frame};
use crate::http::reply::{Cause, Reply};
use crate::pipeline::revocation::{Beside, Revocation};

/// Why a call was ended behind its head; nothing where it ended by itself.
pub(super) struct CallEnd(Arc<OnceLock<Cause>>);

impl CallEnd {
    /// In which form the client of a call takes a status behind the body of this answer; `None` where it takes none.
    pub(super) fn form(end: &ExchangeEnding<'_>, response: &Response<Body>) -> Option<CallForm> {
        let exchange = &end.exchange;
        if response.body().is_at_hand() {
            return None;
        }
        match exchange.dialect {
            Dialect::Grpc => {
                let takes_trailers = exchange.version() >= Version::HTTP_2 && is_grpc(response.headers());
                takes_trailers.then_some(CallForm::Grpc)
            }
            Dialect::Plain
                if *exchange.method() == Method::POST && response.body().exact_length().is_none() =>
            {
                GrpcWeb::of(response.headers()).map(CallForm::Web)
            }
            Dialect::Plain | Dialect::Upgrade => None,
        }
    }

    /// Watches over the body of an answer to a call, which may be `revoked`.
    pub(super) fn watch(
        end: &ExchangeEnding<'_>,
        form: CallForm,
        response: &mut Response<Body>,
        revoked: Option<Revocation>,
    ) -> Self {
        let cause = Arc::new(OnceLock::new());
        let body = Call {
            body: std::mem::take(response.body_mut()),
            web: match form {
                CallForm::Grpc => None,
                CallForm::Web(kind) => Some((kind, FramePosition::new(kind))),
            },
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

/// How the status of a call is written behind its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    /// In trailers.
    Grpc,
    /// In a frame of the body.
    Web(GrpcWeb),
}

/// The body of an answer to a call.
struct Call {
    body: Body,
    /// Where in its frames a body of gRPC-Web is.
    web: Option<(GrpcWeb, FramePosition)>,
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
        match &self.web {
            Some((kind, _)) => Frame::data(status_frame(*kind, &trailers)),
            None => Frame::trailers(trailers),
        }
    }

    /// Whether a status can stand here: within a frame it would be read as a part of that.
    fn takes_status(&self) -> bool {
        self.web.as_ref().is_none_or(|(_, position)| position.is_between_frames())
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
            Poll::Ready(Some(Err(error))) if this.takes_status() => {
                Poll::Ready(Some(said_of(error).map(|reply| this.end(reply))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some((_, position)), Some(data)) = (&mut this.web, frame.data_ref()) {
                    position.pass(data);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Pending if !this.takes_status() => Poll::Pending,
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
