//! gRPC over HTTP/2 and TLS to a control plane.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::error::FleetError;

/// The name in a control plane's certificate, whatever its address.
const SERVER_NAME: &str = "control-plane.ferrum-fleet.internal";
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;
/// RESOURCE_EXHAUSTED: the control plane checks other codes.
const BUSY: &str = "8";
/// Bytes of a message: a chunk and its header.
const MAX_MESSAGE: usize = 2 << 20;

/// A connection; closed without a word when dropped, as by a partition.
pub(super) struct Link {
    sender: SendRequest<Bytes>,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn failed(error: impl std::fmt::Display) -> FleetError {
    FleetError::Link(error.to_string())
}

impl Link {
    pub(super) async fn open(address: &str, tls: Arc<ClientConfig>) -> Result<Self, FleetError> {
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(failed)?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(failed)?;
        let (sender, connection) = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(failed)?;
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    async fn call(&self, method: &str) -> Result<(client::ResponseFuture, SendStream<Bytes>), FleetError> {
        let request = Request::post(format!("https://{SERVER_NAME}/ferrum.fleet.v1.Fleet/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(failed)?;
        let mut sender = self.sender.clone().ready().await.map_err(failed)?;
        sender.send_request(request, false).map_err(failed)
    }

    /// A call with one message each way.
    pub(super) async fn ask(&self, method: &str, message: &[u8]) -> Result<Bytes, FleetError> {
        let (answer, mut sending) = self.call(method).await?;
        sending.send_data(framed(message), true).map_err(failed)?;
        let answer = answer.await.map_err(failed)?;
        check(answer.headers())?;
        let mut incoming = Incoming { body: answer.into_body(), buffer: BytesMut::new() };
        let message = incoming.next().await?;
        if let Some(trailers) = incoming.body.trailers().await.map_err(failed)? {
            check(&trailers)?;
        }
        message.ok_or_else(|| failed("no answer"))
    }

    /// The stream of configurations and verdicts; `hello` is the first message.
    pub(super) async fn sync(&self, hello: &[u8]) -> Result<(Outgoing, Incoming), FleetError> {
        let (answer, mut sending) = self.call("Sync").await?;
        sending.send_data(framed(hello), false).map_err(failed)?;
        let answer = answer.await.map_err(failed)?;
        check(answer.headers())?;
        Ok((Outgoing(sending), Incoming { body: answer.into_body(), buffer: BytesMut::new() }))
    }
}

/// The edge's direction of the stream.
pub(super) struct Outgoing(SendStream<Bytes>);

impl Outgoing {
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), FleetError> {
        self.0.send_data(framed(message), false).map_err(failed)
    }
}

/// The control plane's direction of a stream.
pub(super) struct Incoming {
    body: RecvStream,
    buffer: BytesMut,
}

impl Incoming {
    /// The next message; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FleetError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            let Some(data) = self.body.data().await else { return Ok(None) };
            let data = data.map_err(failed)?;
            self.body.flow_control().release_capacity(data.len()).map_err(failed)?;
            self.buffer.extend_from_slice(&data);
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>, FleetError> {
        let Some((head, rest)) = self.buffer.split_at_checked(5) else { return Ok(None) };
        let length = head.iter().skip(1).fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        if head[0] != 0 || length > MAX_MESSAGE {
            return Err(FleetError::Protocol(format!("a gRPC message of {length} bytes, flag {}", head[0])));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(5);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // An idle edge keeps no buffer: there are thousands.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

fn check(fields: &HeaderMap) -> Result<(), FleetError> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "" | "0" => Ok(()),
        BUSY => Err(FleetError::Busy),
        status => Err(failed(format!("gRPC status {status}: {}", text("grpc-message")))),
    }
}
