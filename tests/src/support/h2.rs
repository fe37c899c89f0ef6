//! HTTP/2 by the h2 crate, one connection with a task of its own.

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use std::io;
use tokio::sync::mpsc;

use super::soon;
use super::wire::{Io, Port};

/// A client's connection.
pub(crate) async fn client(io: Box<dyn Io>) -> SendRequest<Bytes> {
    let (requests, connection) = soon(h2::client::handshake(io)).await.expect("an HTTP/2 connection");
    tokio::spawn(async move { drop(connection.await) });
    requests
}

/// A stream an origin was sent.
pub(crate) type Stream = (Request<RecvStream>, SendResponse<Bytes>);

/// All streams of all connections of an origin.
pub(crate) fn origin(port: Port) -> mpsc::UnboundedReceiver<Stream> {
    let (sender, streams) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let io = port.accept_ever().await;
            let sender = sender.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(io).await else { return };
                while let Some(Ok(stream)) = connection.accept().await {
                    if sender.send(stream).is_err() {
                        return;
                    }
                }
            });
        }
    });
    streams
}

/// The next piece of a body; `None` at its end.
pub(crate) async fn data(recv: &mut RecvStream) -> io::Result<Option<Bytes>> {
    loop {
        match soon(recv.data()).await {
            None => return Ok(None),
            Some(Err(error)) => return Err(io::Error::other(error)),
            // An empty frame only says that it was the last.
            Some(Ok(data)) if data.is_empty() => {}
            Some(Ok(data)) => {
                // The stream may have been reset since; then nobody counts.
                drop(recv.flow_control().release_capacity(data.len()));
                return Ok(Some(data));
            }
        }
    }
}

/// Sends all of `data`, waiting for the window.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, data: &[u8], end: bool) -> io::Result<()> {
    let mut rest = Bytes::copy_from_slice(data);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = soon(std::future::poll_fn(|cx| stream.poll_capacity(cx))).await;
        let room =
            room.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?.map_err(io::Error::other)?;
        let piece = rest.split_to(room.min(rest.len()));
        stream.send_data(piece, end && rest.is_empty()).map_err(io::Error::other)?;
    }
    if end && data.is_empty() {
        stream.send_data(Bytes::new(), true).map_err(io::Error::other)?;
    }
    Ok(())
}

pub(crate) fn map(fields: &[(&str, &str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| {
            (HeaderName::try_from(*name).expect("a name"), HeaderValue::try_from(*value).expect("a value"))
        })
        .collect()
}
