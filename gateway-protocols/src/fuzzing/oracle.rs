//! hyper, asked what it reads from the same octets: no socket, no runtime, everything is there at once.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::h1::chunked::may_trail;

/// A message as far as two readers must agree on it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Method and target, or status.
    line: String,
    version: Version,
    fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

/// Whether our reader leaves the field out: it frames the body, or says of the connection only whether it stays.
fn is_left_out(name: &HeaderName, value: &[u8]) -> bool {
    let stays =
        |token: &[u8]| token.eq_ignore_ascii_case(b"close") || token.eq_ignore_ascii_case(b"keep-alive");
    let mut tokens = value.split(|c| *c == b',').map(<[u8]>::trim_ascii);
    *name == TRANSFER_ENCODING || (*name == CONNECTION && tokens.all(stays))
}

fn sorted(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let seen = fields.iter().filter(|(name, value)| !is_left_out(name, value.as_bytes()));
    let mut fields: Vec<_> =
        seen.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    // Only the order of values of one name means something.
    fields.sort_by(|(first, _), (second, _)| first.cmp(second));
    fields
}

impl Message {
    fn new(line: String, version: Version, fields: &HeaderMap) -> Self {
        Self { line, version, fields: sorted(fields), body: Vec::new(), trailers: Vec::new() }
    }

    pub(super) fn request<B>(request: &Request<B>) -> Self {
        let line = format!("{} {}", request.method(), request.uri());
        Self::new(line, request.version(), request.headers())
    }

    pub(super) fn response<B>(response: &Response<B>) -> Self {
        Self::new(response.status().as_str().to_owned(), response.version(), response.headers())
    }

    pub(super) fn trailers(&mut self, trailers: &HeaderMap) {
        self.trailers = sorted(trailers);
        self.trailers.retain(|(name, _)| name.parse().is_ok_and(|name| may_trail(&name)));
    }

    /// False when the body is broken or cut off.
    async fn pull(&mut self, mut body: Incoming) -> bool {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => self.body.extend_from_slice(&data),
                Ok(Err(frame)) => self.trailers(&frame.into_trailers().unwrap_or_default()),
                Err(_) => return false,
            }
        }
        true
    }
}

/// An end whose peer takes anything and says everything at once: a target only after it was asked.
struct Peer<'d> {
    says: &'d [u8],
    waits: bool,
}

impl Read for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits {
            // It is polled again anyhow.
            return Poll::Pending;
        }
        let (now, later) = self.says.split_at(room.remaining().min(self.says.len()));
        room.put_slice(now);
        self.says = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Peer<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.waits = false;
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// No body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

/// Polls so often that whatever needs nothing from outside is done.
const TURNS: usize = 10_000;

/// The requests hyper reads to their ends, and whether it refused what comes after them; else it closed, or there is
/// nothing.
pub(super) fn requests(data: &[u8]) -> (Vec<Message>, bool) {
    let read = Rc::new(RefCell::new(Vec::new()));
    let refused = Rc::new(Cell::new(false));
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (read, refused) = (read.clone(), refused.clone());
        async move {
            let mut message = Message::request(&request);
            match message.pull(request.into_body()).await {
                true => read.borrow_mut().push(message),
                false => refused.set(true),
            }
            let mut response = Response::new(Nothing);
            // Not OK, which would switch after CONNECT.
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(response)
        }
    });
    {
        let mut connection = pin!(
            hyper::server::conn::http1::Builder::new()
                .half_close(true)
                .serve_connection(Peer { says: data, waits: false }, service)
        );
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..TURNS {
            if let Poll::Ready(ended) = connection.as_mut().poll(&mut cx) {
                refused.set(refused.get() || ended.is_err());
                break;
            }
        }
    }
    (read.take(), refused.get())
}

/// The answer hyper reads to its end.
pub(super) fn answer(data: &[u8], method: &Method) -> Option<Message> {
    let mut cx = Context::from_waker(Waker::noop());
    let peer = Peer { says: data, waits: true };
    let mut shaking = pin!(hyper::client::conn::http1::handshake::<_, Nothing>(peer));
    let Poll::Ready(Ok((mut sender, connection))) = shaking.as_mut().poll(&mut cx) else { return None };
    let mut request = Request::new(Nothing);
    *request.method_mut() = method.clone();
    let mut exchange = pin!(async {
        let response = sender.send_request(request).await.ok()?;
        let mut message = Message::response(&response);
        message.pull(response.into_body()).await.then_some(message)
    });
    let mut connection = pin!(connection);
    let mut over = false;
    for _ in 0..TURNS {
        if let Poll::Ready(read) = exchange.as_mut().poll(&mut cx) {
            return read;
        }
        over = over || connection.as_mut().poll(&mut cx).is_ready();
    }
    None
}
