//! Exchanges with FastCGI targets such as PHP-FPM. As with HTTP/1.1, they run inline, without tasks and channels.
//!
//! A connection carries one request at a time, because common servers do not multiplex (`FCGI_MPXS_CONNS`). Until the response's
//! head arrives, this module sends the request's body and waits for the head at the same time. Then reading the response's body
//! also drives the rest of the upload.

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod head;
mod lookup;
mod params;
mod ping;
mod record;
mod stderr;
mod upload;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::balance::ConnectionPlace;
use gateway_core::config::model::FastCgi;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::http::upstream::{Call, Failure, Phases, TargetResponse};
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::dial::Destination;
use super::h1::{H1Connection, Home};
use super::{Inner, key, occupied};
use crate::buffer;
use answer::AnswerBody;
use head::{Head, HeadError};
pub(crate) use ping::ping;
use record::{Event, RecordError, RecordReader, RequestEnd};
use stderr::ErrorOutput;
use upload::{Stopped, Upload};

/// Why an exchange failed before the response's head.
enum ExchangeFailure {
    Body(BodyError),
    Io(io::Error),
    Record(RecordError),
    Head(HeadError),
    Closed,
    /// The target ended the request before a complete head.
    Headless,
    /// The target rejected the request without running it.
    NotBegun(RequestEnd),
    /// The target sent nothing for this time.
    Stalled(Duration),
}

/// An exchange in progress.
struct Exchange {
    connection: Box<H1Connection>,
    upload: Upload,
    reader: RecordReader,
    errors: ErrorOutput,
    /// Output that has arrived and is not yet parsed or delivered: the head, then the beginning of the body.
    head: BytesMut,
    /// The target no longer reads the request; its response may still arrive.
    deaf: bool,
    /// The response ends with an error after the output in `head`.
    ended_badly: bool,
}

/// Sends a request over an idle connection or a new one, and waits for the response's head.
pub(super) async fn send(
    home: &Arc<Inner>,
    call: &Call<'_>,
    body: &mut Body,
) -> Result<TargetResponse, Failure> {
    let (Some(rules), Some(cgi)) = (call.backend.fastcgi(), call.cgi) else {
        return Err(Failure::unsent(Cause::Internal, std::mem::take(body)));
    };
    match call.dialect {
        Dialect::Plain => {}
        Dialect::Upgrade => return Err(Failure::unsent(Cause::UpgradeRefused, std::mem::take(body))),
        Dialect::Grpc => return Err(Failure::unsent(Cause::VersionUnsupported, std::mem::take(body))),
    }
    let length = known_length(rules, body).await?;
    let script = match &rules.scripts {
        None => None,
        Some(places) => Some(lookup::script(places, cgi, call.begun).await.map_err(Failure::refused)?),
    };
    let (connection, phases) = connect(home, call, body).await?;
    let (started, reused) = (connection.since, connection.used);
    let mut head = buffer::outgoing();
    record::begin(&mut head, keeps(rules, call));
    record::params(&mut head, &params::encode(call, rules, cgi, script, length));
    let upload = Upload::new(head, std::mem::take(body), length);
    let mut exchange = Exchange {
        connection,
        upload,
        reader: RecordReader::default(),
        errors: ErrorOutput::of(call.target.authority()),
        head: BytesMut::new(),
        deaf: false,
        ended_badly: false,
    };
    exchange.connection.used = true;
    match poll_fn(|cx| exchange.poll_head(cx, call)).await {
        Err(broken) => Err(failure(broken, reused, &exchange)),
        Ok(Head { mut response, length }) => {
            exchange.connection.since = Instant::now();
            let first_byte = exchange.connection.since.duration_since(started);
            if let Some(phases) = phases {
                response.extensions_mut().insert(phases);
            }
            let (parts, ()) = response.into_parts();
            let body = exchange.into_body(parts.status, length, home, call, keeps(rules, call));
            Ok(TargetResponse {
                response: Response::from_parts(parts, body),
                first_byte,
                reused,
                tunnel: None,
            })
        }
    }
}

/// Whether the connection may carry further requests.
fn keeps(rules: &FastCgi, call: &Call<'_>) -> bool {
    rules.keep_alive && call.backend.pool.keep_alive
}

/// The length of the request's body, which the target needs before the body. A body of unknown length is read completely first.
async fn known_length(rules: &FastCgi, body: &mut Body) -> Result<u64, Failure> {
    if body.exact_length().is_none() {
        body.settle(rules.unsized_body).await.map_err(of_body)?;
    }
    body.exact_length().ok_or_else(|| {
        let reply = Reply::new(Cause::BodyTooLarge).status(StatusCode::LENGTH_REQUIRED).closing();
        Failure::refused(Box::new(reply.reason("length_required").detail("the body needs a length")))
    })
}

/// A connection for this exchange alone. For a new one, also the durations of its phases.
async fn connect(
    home: &Arc<Inner>,
    call: &Call<'_>,
    body: &mut Body,
) -> Result<(Box<H1Connection>, Option<Phases>), Failure> {
    if let Some(kept) = home.take(key(call), call.begun) {
        return occupied(kept, call, body).map(|kept| (kept, None));
    }
    let dialled = match home.dialler.dial(&Destination::of(call).alone()).await {
        Ok(dialled) => dialled,
        Err(error) => return Err(error.into_failure(std::mem::take(body))),
    };
    home.note_counted(key(call), dialled.place.as_ref().map(ConnectionPlace::kept));
    let made = H1Connection::new(dialled.link, dialled.resolved, dialled.place);
    occupied(Box::new(made), call, body).map(|made| (made, Some(dialled.phases)))
}

fn of_body(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge { .. } => Failure::sent(Cause::BodyTooLarge),
        BodyError::Refused(reply) => Failure::refused(reply),
        BodyError::NoRoom => Failure::sent(Cause::Overloaded),
        BodyError::Idle => Failure::sent(Cause::RequestTimeout),
        BodyError::Framing(what) => Failure::sent(Cause::BadRequest).source(what),
        error => Failure::sent(Cause::ClientGone).source(error.to_string()),
    }
}

fn failure(broken: ExchangeFailure, reused: bool, exchange: &Exchange) -> Failure {
    // If an idle connection ends without a byte of response, the target closed it while it was idle. That is not a failure of the
    // target.
    let stale = |failure: Failure| Failure {
        stale: reused && exchange.connection.buffer.is_empty() && exchange.head.is_empty(),
        ..failure
    };
    match broken {
        ExchangeFailure::Body(error) => of_body(error),
        ExchangeFailure::Stalled(silent) => Failure::sent(Cause::UpstreamTimeout).source(format!(
            "the target sent nothing for {silent:?}, which is what `backend_first_byte_timeout` or `backend_idle_timeout` allows"
        )),
        ExchangeFailure::Record(error) => Failure::sent(Cause::UpstreamGarbage).source(error),
        ExchangeFailure::Head(error) => Failure::sent(Cause::UpstreamGarbage).source(error),
        ExchangeFailure::Headless => {
            Failure::sent(Cause::UpstreamClosed).source("the target ended the request before its answer had a head")
        }
        ExchangeFailure::NotBegun(ending) => Failure {
            // A retry at another target is safe.
            reached_wire: false,
            ..Failure::sent(Cause::UpstreamClosed).source(format!("the target did not begin with the request: {ending:?}"))
        },
        ExchangeFailure::Io(error) => stale(Failure::sent(Cause::UpstreamClosed).source(error)),
        ExchangeFailure::Closed => stale(Failure::sent(Cause::UpstreamClosed)),
    }
}

impl Exchange {
    /// Sends as much as possible and reads until the head is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>, call: &Call<'_>) -> Poll<Result<Head, ExchangeFailure>> {
        if let Poll::Ready(Err(error)) = self.poll_upload(cx) {
            return Poll::Ready(Err(ExchangeFailure::Body(error)));
        }
        loop {
            match self.reader.next(&mut self.connection.buffer).map_err(ExchangeFailure::Record)? {
                Event::Output(data) => {
                    self.head.extend_from_slice(&data);
                    if let Some(head) = head::response(&mut self.head).map_err(ExchangeFailure::Head)? {
                        return Poll::Ready(Ok(head));
                    }
                    continue;
                }
                Event::Error(data) => {
                    self.errors.add(&data);
                    continue;
                }
                Event::End(RequestEnd::Complete) => return Poll::Ready(Err(ExchangeFailure::Headless)),
                Event::End(ending) => return Poll::Ready(Err(ExchangeFailure::NotBegun(ending))),
                Event::More => {}
            }
            let H1Connection { link, buffer, room, .. } = &mut *self.connection;
            match link.poll_fill(cx, buffer, *room) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ExchangeFailure::Closed)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ExchangeFailure::Io(error))),
                Poll::Pending => break,
            }
        }
        // Data on standard error does not reset the timeout: it does not show that a response is near.
        let waits_for = if self.upload.is_done() { call.timeouts.first_byte } else { call.timeouts.idle };
        let timer = &mut self.connection.timer;
        if !timer.is_set() {
            timer.set(waits_for);
        }
        timer.poll_elapsed(cx).map(|()| Err(ExchangeFailure::Stalled(waits_for)))
    }

    /// Sends as much of the request as possible.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.deaf || self.upload.is_done() {
            return Poll::Ready(Ok(()));
        }
        let progress = self.upload.poll_send(cx, &mut self.connection.link);
        if self.upload.moved() {
            self.connection.timer.clear();
        }
        match progress {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                self.connection.timer.clear();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(Stopped::Body(error))) => Poll::Ready(Err(error)),
            // A target may respond before it has read the request, and then close. Read on to get the response.
            Poll::Ready(Err(Stopped::Peer(error))) => {
                tracing::debug!(%error, "the target stopped taking the request");
                self.deaf = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// The response's body. When the request is complete, the connection returns to its pool if possible.
    fn into_body(
        mut self,
        status: StatusCode,
        length: Option<u64>,
        home: &Arc<Inner>,
        call: &Call<'_>,
        keeps: bool,
    ) -> Body {
        self.connection.timer.clear();
        self.connection.room = buffer::room_after(length.unwrap_or(u64::MAX));
        let home = Home::of(call, home, keeps);
        let mut body = AnswerBody::new(self, length, home);
        if head::has_body(call.method, status) {
            return body.at_hand().unwrap_or_else(|| Body::stream(body));
        }
        // A script may end early if the connection closes, as with other servers.
        body.discard();
        Body::empty()
    }
}
