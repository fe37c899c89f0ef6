//! WebSocket over HTTP/2: extended CONNECT (RFC 8441), read as the HTTP/1.1 upgrade it stands for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::h2::ext::Protocol;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::{Buf, Bytes};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{HeaderValue, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a request on a stream asks for.
pub(super) enum Asked {
    /// An exchange like any other.
    Plain(Request<Option<RecvStream>>),
    /// A WebSocket; the request now looks like the HTTP/1.1 one.
    WebSocket(Request<Option<RecvStream>>, RecvStream),
}

/// Turns an extended CONNECT for a WebSocket into a GET that asks for an upgrade.
pub(super) fn asked(request: Request<RecvStream>) -> Asked {
    let is_websocket = *request.method() == Method::CONNECT
        && request.extensions().get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket");
    if !is_websocket {
        return Asked::Plain(request.map(Some));
    }
    let (mut parts, recv) = request.into_parts();
    parts.method = Method::GET;
    // HTTP/2 needs no key; the target behind HTTP/1.1 does.
    parts.headers.insert(SEC_WEBSOCKET_KEY, key());
    parts.headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    Asked::WebSocket(Request::from_parts(parts, None), recv)
}

/// Sixteen random bytes in Base64 (RFC 6455 §4.1); they prove nothing, so any randomness will do.
fn key() -> HeaderValue {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = fastrand::u128(..);
    let mut text = [b'='; 24];
    for (n, slot) in text.iter_mut().take(22).enumerate() {
        // 128 bits are 21 digits of six bits and one of two, which stands in its high bits.
        let digit = if n < 21 { random & 63 } else { (random & 3) << 4 };
        *slot = ALPHABET[usize::try_from(digit).unwrap_or(0)];
        random >>= 6;
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="))
}

/// A stream as bytes in both directions.
pub(super) struct StreamTunnel {
    recv: RecvStream,
    send: SendStream<Bytes>,
    ahead: Bytes,
    closed: bool,
}

impl StreamTunnel {
    pub(super) fn new(recv: RecvStream, send: SendStream<Bytes>) -> Self {
        Self { recv, send, ahead: Bytes::new(), closed: false }
    }
}

impl AsyncRead for StreamTunnel {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            match ready!(this.recv.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(data)) => this.ahead = data,
            }
        }
        let take = this.ahead.len().min(buf.remaining());
        buf.put_slice(&this.ahead[..take]);
        this.ahead.advance(take);
        // The window opens as bytes are taken, so a slow target holds the client back.
        this.recv.flow_control().release_capacity(take).map_err(io::Error::other)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamTunnel {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.send.reserve_capacity(buf.len());
        let mut room = this.send.capacity();
        if room == 0 {
            room = match ready!(this.send.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let data = Bytes::copy_from_slice(&buf[..room.min(buf.len())]);
        let written = data.len();
        this.send.send_data(data, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            this.closed = true;
            this.send.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
