//! The control plane's end of the connections: TLS, gRPC, and a message queue for each edge.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use crate::authority::{CertifiedEdge, read_edge};
use crate::hub::Hub;
use crate::message::{Abilities, Encoded, NewIdentity, ToControl, ToEdge, Transfer, Welcome};
use crate::wire::proto::fleet_server::{Fleet, FleetServer};
use crate::wire::proto::{ControlMessage, EdgeMessage, EnrolRequest, Identity, RenewRequest};
use crate::wire::{from_control, to_control};

/// Handshakes under way at a time; more wait.
const MAX_HANDSHAKES: usize = 256;
/// Connections at a time; more are closed.
const MAX_CONNECTIONS: usize = 20_000;
/// For a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For an edge's first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection is checked so often, and is closed when there is no answer for as long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes of an edge's message.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Before accepting again after an accept failed, as it does when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why an edge is turned away, in words for its operator.
#[derive(Debug)]
pub enum Refusal {
    /// The code is wrong, used or expired; the certificate is revoked.
    Denied(String),
    /// Too many ask at once.
    Busy,
    /// The control plane itself can't.
    Failed(String),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(reason) => Self::permission_denied(reason),
            Refusal::Busy => Self::resource_exhausted("too many edges enrol at once; try again"),
            Refusal::Failed(reason) => Self::unavailable(reason),
        }
    }
}

/// A future of a [`Registrar`].
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// Who belongs to the fleet.
pub trait Registrar: Send + Sync + 'static {
    /// Takes in an edge by a one-time code.
    fn enrol<'a>(&'a self, code: &'a str, request: &'a str) -> Answering<'a, NewIdentity>;

    /// Another certificate for an edge.
    fn renew<'a>(&'a self, edge: &'a CertifiedEdge, request: &'a str) -> Answering<'a, NewIdentity>;

    /// What an edge is told at the beginning of a connection, and its group.
    ///
    /// # Errors
    /// When it is accepted no more.
    fn welcome(&self, edge: &CertifiedEdge) -> Result<(Welcome, Arc<str>), Refusal>;

    /// The view that an edge of this group gets, which may lack what its version does not know.
    fn view(&self, group: &Arc<str>, abilities: &Abilities) -> Arc<str> {
        let _ = abilities;
        group.clone()
    }
}

/// Serves edges on a listener until `stopped` ends.
///
/// # Errors
/// When the server ends by itself.
pub async fn serve<R: Registrar>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    hub: Arc<Hub>,
    registrar: Arc<R>,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<(), tonic::transport::Error> {
    let (accepted, connections) = mpsc::channel(MAX_HANDSHAKES);
    let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(tls), accepted));
    let incoming = stream::unfold(connections, |mut connections| async move {
        let connection: Result<EdgeConnection, io::Error> = Ok(connections.recv().await?);
        Some((connection, connections))
    });
    let service = FleetServer::new(Service { hub, registrar }).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .max_concurrent_streams(8)
        .http2_max_header_list_size(16 << 10)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stopped);
    let served = serving.await;
    accepting.abort();
    served
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, accepted: mpsc::Sender<EdgeConnection>) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(handshake) = handshakes.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "the fleet's listener could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = open.clone().try_acquire_owned() else {
            tracing::warn!(%peer, limit = MAX_CONNECTIONS, "too many edges are connected");
            continue;
        };
        let (tls, accepted) = (tls.clone(), accepted.clone());
        tokio::spawn(async move {
            drop(stream.set_nodelay(true));
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    let edge = certificates.and_then(|chain| read_edge(chain.first()?).ok());
                    let peer = Peer { edge: edge.map(Arc::new), address: peer };
                    drop(accepted.send(EdgeConnection { stream, peer, _place: place }).await);
                }
                Ok(Err(error)) => tracing::warn!(%peer, %error, "an edge's handshake failed"),
                Err(_) => tracing::debug!(%peer, "an edge's handshake took too long"),
            }
            drop(handshake);
        });
    }
}

/// The client of a connection: an edge with its certificate, or one that enrols.
#[derive(Debug, Clone)]
struct Peer {
    /// `None` for one that enrols.
    edge: Option<Arc<CertifiedEdge>>,
    address: SocketAddr,
}

struct EdgeConnection {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    _place: tokio::sync::OwnedSemaphorePermit,
}

impl Connected for EdgeConnection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for EdgeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for EdgeConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Service<R> {
    hub: Arc<Hub>,
    registrar: Arc<R>,
}

impl<R> fmt::Debug for Service<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    request.extensions().get().cloned().ok_or_else(|| Status::internal("the connection is unknown"))
}

fn enrolled<T>(request: &Request<T>) -> Result<Arc<CertifiedEdge>, Status> {
    peer(request)?.edge.ok_or_else(|| Status::unauthenticated("this call needs an edge's certificate"))
}

#[tonic::async_trait]
impl<R: Registrar> Fleet for Service<R> {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<Identity>, Status> {
        let address = peer(&request)?.address;
        let EnrolRequest { code, signing_request, .. } = request.into_inner();
        let identity = self.registrar.enrol(&code, &signing_request).await;
        let identity = identity.inspect_err(|refusal| {
            tracing::warn!(%address, ?refusal, "an edge was not enrolled");
        })?;
        Ok(Response::new(identity_message(identity)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<Identity>, Status> {
        let edge = enrolled(&request)?;
        let signing_request = request.into_inner().signing_request;
        Ok(Response::new(identity_message(self.registrar.renew(&edge, &signing_request).await?)))
    }

    type SyncStream = Pin<Box<dyn Stream<Item = Result<ControlMessage, Status>> + Send>>;

    async fn sync(
        &self,
        request: Request<Streaming<EdgeMessage>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let edge = enrolled(&request)?;
        let (welcome, group) = self.registrar.welcome(&edge)?;
        let mut messages = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, messages.next()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no hello"))?;
        let Some(Ok(ToControl::Hello(hello))) = first.transpose()?.map(to_control) else {
            return Err(Status::invalid_argument("the first message has to be a hello"));
        };
        let id: Arc<str> = edge.edge.as_str().into();
        let abilities = hello.abilities();
        let view = self.registrar.view(&group, &abilities);
        let (session, queue) = self.hub.connect(&id, &view, ToEdge::Welcome(Box::new(welcome)), hello);
        let open = OpenSession { hub: self.hub.clone(), session };
        // It may have been revoked or moved since it was looked up, when the hub did not know it yet, and its view may have been freed:
        // no edge had it. Asking for it again makes it anew.
        let (_, newest_group) = self.registrar.welcome(&edge)?;
        let newest = self.registrar.view(&newest_group, &abilities);
        if newest != view {
            self.hub.act(|core, now| core.move_edge(&id, &newest, now));
        }
        tokio::spawn(read(messages, open));
        Ok(Response::new(Box::pin(sending(queue))))
    }
}

fn identity_message(identity: NewIdentity) -> Identity {
    let NewIdentity { edge, group, certificate, roots } = identity;
    Identity { edge, group, certificate, roots }
}

/// A session of the hub; ends with this.
struct OpenSession {
    hub: Arc<Hub>,
    session: u64,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.hub.disconnect(self.session);
    }
}

/// Takes an edge's messages until its connection ends.
async fn read(mut messages: Streaming<EdgeMessage>, open: OpenSession) {
    while let Some(Ok(message)) = messages.next().await {
        match to_control(message) {
            Ok(message) => open.hub.receive(open.session, message),
            Err(error) => return tracing::warn!(%error, "an edge sent what can't be read"),
        }
    }
}

/// Where the sending of a queue is.
struct Sending {
    queue: mpsc::Receiver<ToEdge>,
    /// The transfer under way, as it is sent, and its next chunk.
    transfer: Option<(Arc<Transfer>, Encoded, usize)>,
}

/// What is sent to an edge: transfers in chunks, each read when the one before has been taken.
fn sending(queue: mpsc::Receiver<ToEdge>) -> impl Stream<Item = Result<ControlMessage, Status>> + Send {
    stream::unfold(Sending { queue, transfer: None }, |mut sending| async move {
        let message = sending.next().await?;
        Some((message, sending))
    })
}

impl Sending {
    async fn next(&mut self) -> Option<Result<ControlMessage, Status>> {
        loop {
            if let Some((transfer, encoded, number)) = &mut self.transfer {
                *number += 1;
                if let Some(message) = transfer.chunk(encoded, *number - 1) {
                    return Some(Ok(message));
                }
                self.transfer = None;
            }
            match self.queue.recv().await? {
                ToEdge::Transfer(transfer) => match transfer.encoded().await {
                    Ok(encoded) => self.transfer = Some((transfer, encoded, 0)),
                    Err(error) => return Some(Err(Status::internal(error.to_string()))),
                },
                other => {
                    if let Some(message) = from_control(&other) {
                        return Some(Ok(message));
                    }
                }
            }
        }
    }
}
