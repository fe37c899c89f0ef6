//! An exchange with a target over HTTP/3.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::h3::client::{RequestStream, SendRequest};
use ::h3::error::Code;
use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::upstream::{Answer, Call, Failure};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::h3::recv::RecvBody;
use crate::h3::send::{SendError, Whole, send_body};
use crate::quic;

/// A connection to a target, shared by many exchanges; a task of its own drives it.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<::h3_quinn::OpenStreams, Bytes>,
    quic: quinn::Connection,
}

type Sending = RequestStream<::h3_quinn::SendStream<Bytes>, Bytes>;
type Receiving = RequestStream<::h3_quinn::RecvStream, Bytes>;
type Upload = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

/// Informational responses passed on before a target counts as broken.
const MAX_INTERIM: u32 = 16;
/// Heads of targets may be this large.
const MAX_FIELDS: u64 = 64 << 10;

/// Why no QUIC connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuicError {
    #[error("QUIC: {0}")]
    Config(String),
    #[error("QUIC: {0}")]
    Socket(#[from] std::io::Error),
    #[error("QUIC: {0}")]
    Connect(#[from] quinn::ConnectError),
    #[error("QUIC: {0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("HTTP/3: {0}")]
    Http3(#[from] ::h3::error::ConnectionError),
}

impl Connection {
    /// Connects to the first address that answers.
    pub(crate) async fn open(
        addresses: &[std::net::SocketAddr],
        name: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Self, QuicError> {
        let config = quic::client_config(tls).map_err(QuicError::Config)?;
        let mut last = QuicError::Config("the name has no address".into());
        for address in addresses {
            let endpoint = quic::outgoing(*address)?;
            match endpoint.connect_with(config.clone(), *address, name)?.await {
                Ok(quic) => return Self::begin(quic).await,
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    async fn begin(quic: quinn::Connection) -> Result<Self, QuicError> {
        let mut builder = ::h3::client::builder();
        builder.max_field_section_size(MAX_FIELDS);
        let (mut wire, requests) = builder.build(::h3_quinn::Connection::new(quic.clone())).await?;
        tokio::spawn(async move {
            let ended = poll_fn(|cx| wire.poll_close(cx)).await;
            tracing::debug!(reason = %ended, "an HTTP/3 connection to a target ended");
        });
        Ok(Self { requests, quic })
    }

    /// Whether streams can still be opened on it.
    pub(crate) fn is_open(&self) -> bool {
        self.quic.close_reason().is_none()
    }
}

/// Sends a request on a stream of `connection` and waits for the response's head.
pub(crate) async fn send<D: Downstream>(
    mut connection: Connection,
    call: Call<'_>,
    body: Body,
    downstream: &mut D,
) -> Result<Answer, Failure> {
    let started = Instant::now();
    let timeouts = *call.route.proxy.timeouts;
    let Some(request) = super::h2::request(&call, &body) else {
        return Err(Failure::unsent(Cause::BadRequest, body));
    };
    let stream = match connection.requests.send_request(request).await {
        Ok(stream) => stream,
        Err(error) => {
            return Err(Failure { stale: true, ..Failure::unsent(Cause::UpstreamClosed, body) }.source(error));
        }
    };
    let (sending, receiving) = stream.split();
    let mut exchange = Exchange { upload: Some(upload(sending, body, timeouts.idle)), receiving };
    for _ in 0..MAX_INTERIM {
        let head = match timeouts.first_byte.is_zero() {
            true => exchange.head().await,
            false => tokio::time::timeout(timeouts.first_byte, exchange.head())
                .await
                .unwrap_or_else(|_| Err(Failure::sent(Cause::UpstreamTimeout))),
        }?;
        if head.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            // RFC 9114 §4.5: there is nothing to switch to.
            return Err(Failure::sent(Cause::UpstreamGarbage).source("a switch nobody asked for"));
        }
        if head.status().is_informational() {
            downstream.interim(head.status(), head.headers()).await;
            continue;
        }
        let (parts, ()) = head.into_parts();
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let bodiless = *call.method == http::Method::HEAD || parts.status == http::StatusCode::NOT_MODIFIED;
        let length = if bodiless { None } else { length };
        let recv = RecvBody::new(exchange.receiving, length, timeouts.idle);
        let body = Body::stream(AnswerBody { recv, upload: exchange.upload, _connection: connection });
        let response = Response::from_parts(parts, body);
        return Ok(Answer { response, first_byte: started.elapsed(), reused: true, tunnel: None });
    }
    Err(Failure::sent(Cause::UpstreamGarbage).source("too many informational responses"))
}

fn upload(sending: Sending, body: Body, idle: std::time::Duration) -> Upload {
    let mut whole = Whole::new(sending, Code::H3_REQUEST_CANCELLED);
    Box::pin(async move {
        let mut sent = 0;
        send_body(&mut whole, body, idle, &mut sent).await
    })
}

struct Exchange {
    upload: Option<Upload>,
    receiving: Receiving,
}

impl Exchange {
    /// The next head, while the request's body goes out beside it.
    async fn head(&mut self) -> Result<Response<()>, Failure> {
        let (upload, receiving) = (&mut self.upload, &mut self.receiving);
        let mut reading = pin!(receiving.recv_response());
        poll_fn(|cx| {
            if let Poll::Ready(Err(SendError::Body(error))) = poll_upload(upload, cx) {
                return Poll::Ready(Err(super::h2::body_failure(error)));
            }
            reading.as_mut().poll(cx).map_err(|error| Failure::sent(Cause::UpstreamClosed).source(error))
        })
        .await
    }
}

fn poll_upload(upload: &mut Option<Upload>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
    let Some(sending) = upload else { return Poll::Ready(Ok(())) };
    let polled = sending.as_mut().poll(cx);
    if polled.is_ready() {
        *upload = None;
    }
    polled
}

/// The body of a target's answer; pulling it also drives what is left of the request's.
struct AnswerBody {
    recv: RecvBody<Receiving>,
    upload: Option<Upload>,
    _connection: Connection,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(Err(SendError::Body(error))) = poll_upload(&mut this.upload, cx) {
            return Poll::Ready(Some(Err(BodyError::Request(Box::new(error)))));
        }
        Pin::new(&mut this.recv).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.recv.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.recv.size_hint()
    }
}
