//! WebSocket over HTTP/3 (RFC 9220): a stream as bytes in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::h3::reader::MessageReader;
use crate::h3::writer::Writer;
use crate::h3::{Code, StreamError};

/// Whoever relays a tunnel watches over its silences; the stream has no deadline of its own.
const FOREVER: Duration = Duration::ZERO;
/// Octets of one DATA frame.
const MAX_FRAME: usize = 64 << 10;

/// Such a stream.
pub(super) struct StreamTunnel {
    reader: MessageReader,
    writer: Writer,
    ahead: Bytes,
}

impl StreamTunnel {
    pub(super) fn new(reader: MessageReader, mut writer: Writer) -> Self {
        // RFC 9220 §3: a TCP connection that broke is a stream that was cancelled.
        writer.blame(Code::REQUEST_CANCELLED);
        Self { reader, writer, ahead: Bytes::new() }
    }
}

impl AsyncRead for StreamTunnel {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            match ready!(this.reader.poll_data(cx, FOREVER)) {
                None | Some(Err(StreamError::Reset(Code::NO_ERROR))) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(data)) => this.ahead = data,
            }
        }
        let take = this.ahead.len().min(buf.remaining());
        buf.put_slice(&this.ahead[..take]);
        this.ahead.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamTunnel {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // What was taken before goes first, so that a client that reads nothing holds the target back.
        ready!(this.writer.poll_flush(cx, FOREVER)).map_err(io::Error::other)?;
        let data = Bytes::copy_from_slice(&buf[..buf.len().min(MAX_FRAME)]);
        let written = data.len();
        this.writer.data(data);
        match this.writer.poll_flush(cx, FOREVER) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
            _ => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer.poll_flush(cx, FOREVER).map_err(io::Error::other)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.writer.end();
        this.writer.poll_flush(cx, FOREVER).map_err(io::Error::other)
    }
}
