//! WebSocket over HTTP/2: extended CONNECT (RFC 8441), read as the HTTP/1.1 upgrade it stands for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{HeaderValue, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::h2::Reason;
use crate::h2::handle::Handle;
use crate::h2::head::Protocol;
use crate::h2::stream::StreamError;

/// Turns an extended CONNECT for a WebSocket into a GET that asks for an upgrade, and says whether it was one.
pub(crate) fn asked(request: &mut Request<()>) -> bool {
    let is_websocket = *request.method() == Method::CONNECT
        && request
            .extensions()
            .get::<Protocol>()
            .is_some_and(|Protocol(protocol)| &protocol[..] == b"websocket");
    if is_websocket {
        *request.method_mut() = Method::GET;
        // HTTP/2 needs no key; the target behind HTTP/1.1 does.
        let headers = request.headers_mut();
        headers.insert(SEC_WEBSOCKET_KEY, key());
        headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    }
    is_websocket
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
    stream: Handle,
    ahead: Bytes,
    closed: bool,
}

/// Whoever relays a tunnel watches over its silences; the stream has no deadline of its own.
const FOREVER: Duration = Duration::ZERO;

impl StreamTunnel {
    pub(super) fn new(stream: Handle) -> Self {
        Self { stream, ahead: Bytes::new(), closed: false }
    }
}

impl AsyncRead for StreamTunnel {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            match ready!(this.stream.poll_data(cx, FOREVER)) {
                None | Some(Err(StreamError::Reset(Reason::NO_ERROR))) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(data)) => this.ahead = data,
            }
        }
        // The window opens as pieces are taken, so a slow target holds the client back.
        let take = this.ahead.len().min(buf.remaining());
        buf.put_slice(&this.ahead[..take]);
        this.ahead.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamTunnel {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let room = ready!(this.stream.poll_room(cx, FOREVER)).map_err(io::Error::other)?;
        let data = Bytes::copy_from_slice(&buf[..room.min(buf.len())]);
        let written = data.len();
        this.stream.send_data(data, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            this.closed = true;
            this.stream.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
