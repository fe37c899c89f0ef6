//! The edge's end of the connection: TLS, gRPC, enrolment and certificate renewal.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tower_service::Service;

use crate::authority::SERVER_NAME;
use crate::message::{NewIdentity, ToControl, ToEdge};
use crate::wire::proto::fleet_client::FleetClient;
use crate::wire::proto::{ControlMessage, EdgeMessage, EnrolRequest, Identity, RenewRequest};
use crate::wire::{Assembler, CHUNK_BYTES, Piece, WireError, from_edge};

/// For a connection with its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a call that is answered once.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The connection is checked so often, and is closed when there is no answer for as long.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Messages that wait to be sent; the control plane sends one transfer at a time, so there are few.
const MAX_QUEUED: usize = 64;
/// Bytes of a message: a chunk and its header.
const MAX_MESSAGE_BYTES: usize = CHUNK_BYTES + (64 << 10);

/// Why there is no connection, or no longer.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No control plane there.
    #[error("{address} can't be reached: {cause}")]
    Unreachable {
        /// `HOST:PORT`.
        address: String,
        /// Why.
        cause: String,
    },
    /// The control plane does not accept this edge or its code.
    #[error("the control plane refuses: {0}")]
    Denied(String),
    /// The call failed.
    #[error("the control plane answers: {0}")]
    Failed(String),
    /// A message can't be read.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => Self::Denied(status.message().to_owned()),
            _ => Self::Failed(status.to_string()),
        }
    }
}

/// Makes TLS connections to one address.
#[derive(Clone)]
struct Connector {
    address: Arc<str>,
    tls: TlsConnector,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let Self { address, tls } = self.clone();
        Box::pin(async move {
            let connecting = async {
                let stream = TcpStream::connect(&*address).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
                tls.connect(name, stream).await
            };
            let limited = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            Ok(TokioIo::new(limited.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?))
        })
    }
}

/// A connection to a control plane.
#[derive(Debug, Clone)]
pub struct Link {
    client: FleetClient<Channel>,
}

impl Link {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// When nobody answers there, or the handshake fails.
    pub async fn connect(address: &str, tls: Arc<ClientConfig>) -> Result<Self, LinkError> {
        let failed = |cause: String| LinkError::Unreachable { address: address.to_owned(), cause };
        let endpoint = Endpoint::from_shared(format!("http://{SERVER_NAME}"))
            .map_err(|error| failed(error.to_string()))?
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        let connector = Connector { address: address.into(), tls: tls.into() };
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| failed(innermost(&error)))?;
        let client = FleetClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { client })
    }

    /// Exchanges a one-time code for a certificate.
    ///
    /// # Errors
    /// When the code is not accepted.
    pub async fn enrol(&self, code: &str, request: &str, version: &str) -> Result<NewIdentity, LinkError> {
        let message = EnrolRequest {
            code: code.to_owned(),
            signing_request: request.to_owned(),
            version: version.to_owned(),
        };
        let mut client = self.client.clone();
        limited(client.enrol(message)).await.map(given)
    }

    /// Gets another certificate.
    ///
    /// # Errors
    /// When the edge is accepted no more.
    pub async fn renew(&self, request: &str) -> Result<NewIdentity, LinkError> {
        let mut client = self.client.clone();
        limited(client.renew(RenewRequest { signing_request: request.to_owned() })).await.map(given)
    }

    /// Begins to exchange configurations and verdicts; `hello` is the first message.
    ///
    /// # Errors
    /// When the edge is not accepted.
    pub async fn sync(&self, hello: &ToControl) -> Result<(LinkSender, LinkReceiver), LinkError> {
        let (queue, queued) = mpsc::channel(MAX_QUEUED);
        let outgoing =
            futures_util::stream::unfold(queued, |mut queued: mpsc::Receiver<EdgeMessage>| async move {
                let message = queued.recv().await?;
                Some((message, queued))
            });
        drop(queue.try_send(from_edge(hello)));
        let mut client = self.client.clone();
        let messages = limited(client.sync(outgoing)).await?;
        Ok((LinkSender(queue), LinkReceiver { messages, assembler: Assembler::default() }))
    }
}

async fn limited<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, LinkError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(LinkError::Failed("no answer in time".to_owned())),
    }
}

fn given(identity: Identity) -> NewIdentity {
    let Identity { edge, group, certificate, roots } = identity;
    NewIdentity { edge, group, certificate, roots }
}

/// The cause at the bottom: the layers above it say only that there is one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Sends to the control plane.
#[derive(Debug, Clone)]
pub struct LinkSender(mpsc::Sender<EdgeMessage>);

impl LinkSender {
    /// Sends a message; `false` when the connection has ended, or takes nothing.
    pub fn send(&self, message: &ToControl) -> bool {
        self.0.try_send(from_edge(message)).is_ok()
    }
}

/// Receives from the control plane.
#[derive(Debug)]
pub struct LinkReceiver {
    messages: Streaming<ControlMessage>,
    assembler: Assembler,
}

impl LinkReceiver {
    /// The next message; `None` when the control plane has ended the connection.
    ///
    /// # Errors
    /// When the connection is lost, or a message can't be read.
    pub async fn next(&mut self) -> Result<Option<ToEdge>, LinkError> {
        while let Some(message) = self.messages.message().await? {
            match self.assembler.take(message)? {
                Piece::Part => {}
                Piece::Message(message) => return Ok(Some(message)),
                Piece::Whole(whole) => {
                    let read = tokio::task::spawn_blocking(move || whole.transfer()).await;
                    let read = read.map_err(|error| LinkError::Failed(error.to_string()))?;
                    return Ok(Some(ToEdge::Transfer(Arc::new(read?))));
                }
            }
        }
        Ok(None)
    }
}
