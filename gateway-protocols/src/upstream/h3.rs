//! An exchange with a target over HTTP/3.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use bytes::Bytes;
use gateway_core::balance::ConnectionPlace;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::http::upstream::{Call, Failure, TargetResponse};
use http::{Method, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::dial_error::{DialError, QuicError};
use super::h2::body_failure;
use super::interim::{MAX_INTERIM, pass_on};
use crate::dns::ResolvedAddress;
use crate::h2::Role;
use crate::h2::connection::{Extra, RequestLine};
use crate::h3::body::{MessageRest, SendBody, SendError, rest};
use crate::h3::link::H3Link;
use crate::h3::reader::{MessageReader, ResponseHead};
use crate::h3::settings::Settings;
use crate::h3::writer::{Writer, request_size};
use crate::h3::{Code, StreamError, peer};
use crate::quic;

/// A connection to a target, shared by many exchanges. It is closed when nobody has it any more.
#[derive(Clone)]
pub(crate) struct H3Connection(Arc<Owned>);

struct Owned {
    link: Arc<H3Link>,
    /// Said with each request.
    alt_used: Option<String>,
    /// Where it leads, if the target was found by its name.
    resolved: Option<Arc<ResolvedAddress>>,
    /// Its place among the target's connections, where they are counted.
    place: Option<ConnectionPlace>,
    /// A stream opened to see whether there is leave for one; nothing of it has been sent.
    spare: AtomicRefCell<Option<(quinn::SendStream, quinn::RecvStream)>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.link.close(Code::NO_ERROR, "");
    }
}

/// Heads of targets may be this large.
const MAX_FIELDS: usize = 64 << 10;

/// A connection that was just made.
pub(crate) struct NewConnection {
    link: Arc<H3Link>,
    alt_used: Option<String>,
}

impl NewConnection {
    /// The address it was made to.
    pub(crate) fn peer(&self) -> std::net::SocketAddr {
        self.link.quic.remote_address()
    }

    /// The connection, which leads there and has this place.
    pub(crate) fn at(
        self,
        resolved: Option<Arc<ResolvedAddress>>,
        place: Option<ConnectionPlace>,
    ) -> H3Connection {
        let Self { link, alt_used } = self;
        H3Connection(Arc::new(Owned { link, alt_used, resolved, place, spare: AtomicRefCell::default() }))
    }
}

impl H3Connection {
    /// Connects to the first address that answers.
    pub(crate) async fn open(
        addresses: &[std::net::SocketAddr],
        name: &str,
        tls: Arc<rustls::ClientConfig>,
        alt_used: Option<String>,
    ) -> Result<NewConnection, QuicError> {
        let config = quic::client_config(tls)?;
        let mut last = QuicError::NoAddress;
        for address in addresses {
            let endpoint = quic::outgoing(*address)?;
            match endpoint.connect_with(config.clone(), *address, name)?.await {
                Ok(quic) => return Ok(Self::begin(quic, alt_used)),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn begin(quic: quinn::Connection, alt_used: Option<String>) -> NewConnection {
        let link = H3Link::new(quic, Role::Client, MAX_FIELDS);
        let told = Settings { max_field_section: Some(MAX_FIELDS as u64), connect_protocol: false };
        let attending = peer::attend(link.clone(), told);
        tokio::spawn(async move {
            attending.await;
            tracing::debug!("an HTTP/3 connection to a target ended");
        });
        NewConnection { link, alt_used }
    }

    /// Its place among the target's connections, where they are counted.
    pub(crate) fn place(&self) -> Option<&ConnectionPlace> {
        self.0.place.as_ref()
    }

    /// Whether its target's name still leads where it leads.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        self.0.resolved.as_ref().is_none_or(|resolved| resolved.is_current(now))
    }

    /// Whether streams can still be opened on it.
    pub(crate) fn is_open(&self) -> bool {
        let link = &self.0.link;
        link.quic.close_reason().is_none() && link.peer_leaves().is_none()
    }

    /// Whether it ended without the target's doing: packets do not get through any more, or are not understood.
    pub(crate) fn is_broken(&self) -> bool {
        use quinn::ConnectionError as Error;
        !matches!(
            self.0.link.quic.close_reason(),
            None | Some(Error::ApplicationClosed(_) | Error::LocallyClosed | Error::Reset)
        )
    }

    /// Whether the target allows one more stream now; the next exchange gets it without waiting.
    pub(crate) fn has_room(&self) -> bool {
        let Ok(mut spare) = self.0.spare.try_borrow_mut() else { return true };
        if spare.is_none() {
            let mut cx = Context::from_waker(Waker::noop());
            match pin!(self.0.link.quic.open_bi()).poll(&mut cx) {
                Poll::Ready(Ok(opened)) => *spare = Some(opened),
                // A connection that is gone has all the room there is: its end is for the exchange to find out.
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Exchanges on it, or one more.
    pub(crate) fn load(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Opens a stream; waits for the target's leave no longer than `timeouts`, where that is not zero.
    async fn stream(&self, timeouts: Duration) -> Result<(MessageReader, Writer), NoStream> {
        let link = &self.0.link;
        if self.0.alt_used.is_some() && !self.has_room() {
            // There is another way to the target, which needs no waiting.
            return Err(NoStream::Full);
        }
        let spare = self.0.spare.try_borrow_mut().ok().and_then(|mut spare| spare.take());
        let opened = match (spare, link.quic.open_bi()) {
            (Some(spare), _) => Ok(spare),
            (None, opening) if timeouts.is_zero() => opening.await,
            (None, opening) => tokio::time::timeout(timeouts, opening).await.map_err(|_| NoStream::Full)?,
        };
        let (send, recv) = opened.map_err(NoStream::Lost)?;
        let writer = Writer::new(send, link.clone(), Code::REQUEST_CANCELLED);
        if link.peer_leaves().is_some() {
            // The target went away while its leave was awaited; nothing has been sent.
            return Err(NoStream::Lost(quinn::ConnectionError::LocallyClosed));
        }
        Ok((MessageReader::new(recv, link.clone()), writer))
    }
}

/// Why there is no stream.
enum NoStream {
    Full,
    Lost(quinn::ConnectionError),
}

/// Sends a request on a stream of `connection` and waits for the response's head.
pub(crate) async fn send<D: Downstream>(
    connection: H3Connection,
    call: &Call<'_>,
    body: Body,
    downstream: &mut D,
) -> Result<TargetResponse, Failure> {
    // Not when the attempt began: finding a connection has a timeout of its own, and takes nothing of the answer's.
    let started = Instant::now();
    let timeouts = &call.timeouts;
    let (mut reader, mut writer) = match connection.stream(timeouts.connect).await {
        Ok(stream) => stream,
        Err(NoStream::Full) => return Err(DialError::Full.into_failure(body)),
        Err(NoStream::Lost(error)) => {
            let failure = Failure::unsent(Cause::UpstreamClosed, body);
            return Err(Failure { stale: true, ..failure }.source(error));
        }
    };
    let extra = Extra {
        length: body.exact_length().filter(|length| *length > 0),
        trailers: call.trailers,
        alt_used: connection.0.alt_used.as_deref(),
        forwarding: Some(call.forwarding),
        ..Extra::default()
    };
    let line = RequestLine {
        method: call.method,
        scheme: if call.backend.scheme.is_encrypted() { "https" } else { "http" },
        authority: call.host.as_bytes(),
        path: call.path,
    };
    if let Some(most) = connection.0.link.peer_max_fields()
        && request_size(&line, call.headers, &extra) > most
    {
        // RFC 9114 §4.2.2: it would only be refused there, and may cost the connection.
        let failure = Failure::unsent(Cause::HeadersTooLarge, body);
        return Err(failure.source("the target takes no head as large as this"));
    }
    writer.request(&line, call.headers, &extra);
    if !body.is_empty() {
        reader.lasts_with(&mut writer);
    }
    let upload = Some(Upload { body: SendBody::new(body, timeouts.idle), writer });
    let link = connection.0.link.clone();
    let mut exchange = Exchange { reader, upload, connection };
    let mut leaving = pin!(link.leaving.notified());
    for _ in 0..MAX_INTERIM {
        let said = poll_fn(|cx| {
            let said = exchange.poll_said(cx, call);
            while said.is_pending() && leaving.as_mut().poll(cx).is_ready() {
                // A target that goes without looking at the request may never say another word about it.
                if exchange.is_unprocessed() {
                    return Poll::Ready(Err(exchange.failure(StreamError::Reset(Code::REQUEST_REJECTED))));
                }
                leaving.set(link.leaving.notified());
            }
            said
        })
        .await;
        if said.as_ref().is_err_and(|failure| failure.stale) {
            // A GOAWAY that came with the refusal is for the connection's own task to read: it has its turn first, or the
            // request would be sent again to where it was just refused.
            tokio::task::yield_now().await;
        }
        match said? {
            // RFC 9114 §4.5: there is nothing to switch to.
            ResponseHead::Interim(head) if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Err(Failure::sent(Cause::UpstreamGarbage).source("a switch nobody asked for"));
            }
            ResponseHead::Interim(head) => Box::pin(pass_on(head, downstream)).await,
            ResponseHead::Final(head, length) => {
                let first_byte = started.elapsed();
                let response = exchange.into_response(head, length, timeouts.idle).await;
                return Ok(TargetResponse { response, first_byte, reused: true, tunnel: None });
            }
        }
    }
    Err(Failure::sent(Cause::UpstreamGarbage).source("too many informational responses"))
}

/// A request on its way.
struct Upload {
    body: SendBody,
    writer: Writer,
}

impl Upload {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.body.poll_send(cx, &mut self.writer)
    }
}

struct Exchange {
    reader: MessageReader,
    /// Until all of it is sent.
    upload: Option<Upload>,
    connection: H3Connection,
}

impl Exchange {
    /// The next head, while the request goes out beside it.
    fn poll_said(&mut self, cx: &mut Context<'_>, call: &Call<'_>) -> Poll<Result<ResponseHead, Failure>> {
        match self.upload.as_mut().map_or(Poll::Pending, |upload| upload.poll(cx)) {
            Poll::Ready(Err(SendError::Body(error))) => return Poll::Ready(Err(body_failure(error))),
            // A target may answer before it has read everything; read on to learn whether it did.
            Poll::Ready(Ok(()) | Err(SendError::Stream | SendError::Late)) => self.upload = None,
            Poll::Pending => {}
        }
        // While the request is under way its own idle timeout watches over it; the time to the first byte runs from its
        // end.
        let limit = match self.upload {
            Some(_) => Duration::ZERO,
            None => call.timeouts.first_byte,
        };
        let bodiless = *call.method == Method::HEAD;
        self.reader.poll_said(cx, limit, bodiless).map_err(|error| self.failure(error))
    }

    /// Whether the target has said that it does not look at the request.
    fn is_unprocessed(&self) -> bool {
        self.connection.0.link.peer_leaves().is_some_and(|from| self.reader.id() >= from)
    }

    fn failure(&self, error: StreamError) -> Failure {
        // Streams refused or beyond a GOAWAY's last one were not processed (RFC 9114 §5.2): safe to send again.
        let unprocessed =
            self.is_unprocessed() || matches!(error, StreamError::Reset(Code::REQUEST_REJECTED));
        let cause = match error {
            StreamError::Late => Cause::UpstreamTimeout,
            StreamError::Refused(_) => Cause::UpstreamGarbage,
            StreamError::Lost(code) | StreamError::Reset(code) if is_garbage(code) => Cause::UpstreamGarbage,
            _ => Cause::UpstreamClosed,
        };
        Failure { reached_wire: !unprocessed, stale: unprocessed, ..Failure::sent(cause) }.source(error)
    }

    async fn into_response(self, head: Response<()>, length: Option<u64>, idle: Duration) -> Response<Body> {
        let Self { reader, upload, connection } = self;
        let mut reader = Some(reader);
        let rest =
            poll_fn(|cx| Poll::Ready(reader.take().map(|reader| rest(reader, length, idle, cx)))).await;
        let body = match rest {
            Some(MessageRest::Whole(body)) if upload.is_none() => body,
            Some(rest) => Body::stream(AnswerBody { recv: rest.into(), upload, _connection: connection }),
            None => Body::empty(),
        };
        head.map(|()| body)
    }
}

/// Whether one side could not understand the other.
fn is_garbage(code: Code) -> bool {
    !matches!(
        code,
        Code::NO_ERROR
            | Code::INTERNAL_ERROR
            | Code::REQUEST_REJECTED
            | Code::REQUEST_CANCELLED
            | Code::EXCESSIVE_LOAD
    ) && (Code::NO_ERROR.0..=Code::QPACK_DECODER_STREAM.0).contains(&code.0)
}

/// The body of a target's answer; pulling it also drives what is left of the request's.
struct AnswerBody {
    recv: Body,
    upload: Option<Upload>,
    _connection: H3Connection,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this.upload.as_mut().map_or(Poll::Pending, |upload| upload.poll(cx)) {
            Poll::Ready(Err(SendError::Body(error))) => {
                return Poll::Ready(Some(Err(BodyError::Request(Box::new(error)))));
            }
            Poll::Ready(_) => this.upload = None,
            Poll::Pending => {}
        }
        this.recv.poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.recv.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.recv.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
