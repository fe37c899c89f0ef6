//! One exchange's stream to a processor: it is told something, and what it says is waited for, one after the other.

use std::pin::Pin;
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use gateway_core::plugin::world::calls::{CallError, Client};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body as HttpBody, Frame};
use prost::Message as _;
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

use super::protocol::{PATH, ProcessingRequest, ProcessingResponse, ProcessorInput};
use super::settings::{Mode, Rules};

/// The stream.
pub(super) struct Session {
    rules: Arc<Rules>,
    link: Mutex<ProcessorStream>,
    state: Cell<SessionState>,
    _turn: OwnedSemaphorePermit,
}

struct SessionState {
    mode: Mode,
    is_over: bool,
}

/// Its two directions.
struct ProcessorStream {
    out: mpsc::Sender<Bytes>,
    opening: Option<BoxFuture<'static, Result<Response<Body>, CallError>>>,
    answers: Body,
    read: BytesMut,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("the processor did not answer in time")]
    Timeout,
    #[error("{0}")]
    Broken(String),
}

impl Session {
    /// A stream that opens when something is told.
    pub(super) fn new(client: &Client, rules: &Arc<Rules>, turn: OwnedSemaphorePermit) -> Self {
        let (out, waiting) = mpsc::channel(1);
        let mut request = Request::new(Body::stream(Outgoing(waiting)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static(PATH);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        let client = client.clone();
        let opening: BoxFuture<'static, _> = Box::pin(async move { client.send(request).await });
        let link =
            ProcessorStream { out, opening: Some(opening), answers: Body::empty(), read: BytesMut::new() };
        Self {
            rules: rules.clone(),
            link: Mutex::new(link),
            state: Cell::new(SessionState { mode: rules.mode, is_over: false }),
            _turn: turn,
        }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of the exchange the processor gets now.
    pub(super) fn mode(&self) -> Mode {
        self.state().mode
    }

    /// Nothing more is told.
    pub(super) fn close(&self) {
        self.state().is_over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Tells the processor something and waits for what it says; `None` when it has ended the stream in good order, or
    /// nothing more is told.
    ///
    /// # Errors
    /// Why there is no answer. Nothing more is told then.
    pub(super) async fn ask(&self, told: ProcessorInput) -> Result<Option<ProcessingResponse>, Failure> {
        if self.is_over() {
            return Ok(None);
        }
        let asked = self.exchange(told).await;
        if !matches!(asked, Ok(Some(_))) {
            self.close();
        }
        let Ok(Some(said)) = &asked else { return asked };
        if let Some(mode) = said.mode_override.as_ref().filter(|_| self.rules.overrides) {
            let changed = self.mode().changed(mode).map_err(|why| Failure::Broken(why.to_owned()));
            self.state().mode = changed.inspect_err(|_| self.close())?;
        }
        asked
    }

    async fn exchange(&self, told: ProcessorInput) -> Result<Option<ProcessingResponse>, Failure> {
        let mut deadline = Instant::now() + self.rules.timeout;
        let late = |_| Failure::Timeout;
        // One question at a time: bodies of both directions may want to ask.
        let mut link = timeout_at(deadline, self.link.lock()).await.map_err(late)?;
        let message = framed(&ProcessingRequest { told: Some(told) });
        let sent = timeout_at(deadline, link.out.send(message)).await.map_err(late)?;
        if sent.is_err() && link.opening.is_none() {
            // The other end reads no more: what it has said last says why.
            tracing::debug!("the processor reads no more");
        }
        let mut has_more_time = false;
        loop {
            let said = timeout_at(deadline, link.next(self.rules.max_message)).await.map_err(late)??;
            let Some(said) = said else { return Ok(None) };
            let Some(asked) = &said.override_message_timeout else { return Ok(Some(said)) };
            let more = asked.read().filter(|more| *more <= self.rules.max_timeout);
            match more {
                Some(more) if !has_more_time => deadline = Instant::now() + more,
                _ => return Err(Failure::Broken("the processor asks for more time than it may".to_owned())),
            }
            has_more_time = true;
        }
    }
}

impl ProcessorStream {
    /// The next message; `None` at a good end.
    async fn next(&mut self, max: usize) -> Result<Option<ProcessingResponse>, Failure> {
        if let Some(opening) = &mut self.opening {
            let opened = opening.await;
            self.opening = None;
            let (head, body) = opened.map_err(|error| Failure::Broken(error.to_string()))?.into_parts();
            if !head.status.is_success() {
                return Err(Failure::Broken(format!("the processor answers {}", head.status)));
            }
            if head.headers.contains_key("grpc-status") {
                return end(&head.headers);
            }
            self.answers = body;
        }
        loop {
            if let Some(message) = self.take(max)? {
                return Ok(Some(message));
            }
            match self.answers.frame().await {
                None => {
                    return Err(Failure::Broken("the processor's stream ends without a status".to_owned()));
                }
                Some(Err(error)) => return Err(Failure::Broken(error.to_string())),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => return end(&frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    }

    /// A message that has come whole.
    fn take(&mut self, max: usize) -> Result<Option<ProcessingResponse>, Failure> {
        let prefix = GrpcPrefix::read(&self.read, max as u64);
        let prefix = prefix
            .map_err(|error| Failure::Broken(format!("the processor's answer can't be read: {error}")))?;
        let Some(prefix) = prefix else { return Ok(None) };
        if prefix.compressed {
            return Err(Failure::Broken("the processor's answer is compressed".to_owned()));
        }
        if self.read.len() - GrpcPrefix::BYTES < prefix.length {
            return Ok(None);
        }
        self.read.advance(GrpcPrefix::BYTES);
        let message = self.read.split_to(prefix.length).freeze();
        let read = ProcessingResponse::decode(message);
        read.map(Some)
            .map_err(|error| Failure::Broken(format!("the processor's answer can't be read: {error}")))
    }
}

/// How a stream has ended.
fn end(trailers: &HeaderMap) -> Result<Option<ProcessingResponse>, Failure> {
    let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok());
    match status {
        Some("0") => Ok(None),
        status => {
            let message = trailers.get("grpc-message").map(|text| String::from_utf8_lossy(text.as_bytes()));
            let (status, message) = (status.unwrap_or("none"), message.unwrap_or_default());
            Err(Failure::Broken(format!("the processor ends with the gRPC status {status}: {message}")))
        }
    }
}

/// A message as it goes out.
fn framed(message: &ProcessingRequest) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(GrpcPrefix::BYTES + length);
    GrpcPrefix { compressed: false, length }.write(&mut out);
    // There is room for it.
    let _encoded = message.encode(&mut out);
    out.freeze()
}

/// What is told, as a body; it ends with the session.
struct Outgoing(mpsc::Receiver<Bytes>);

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_recv(cx).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}
