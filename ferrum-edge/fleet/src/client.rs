//! The edge's end of the connection: TLS, gRPC, enrolment and certificate renewal.

mod stream;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tower_service::Service;

use stream::ObservedStream;

use crate::authority::SERVER_NAME;
use crate::message::{NewIdentity, ToControl, ToEdge, WireError};
use crate::wire::proto::fleet_client::FleetClient;
use crate::wire::proto::{ControlMessage, EdgeMessage, EnrolRequest, Identity, RenewRequest};
use crate::wire::{Assembler, CHUNK_BYTES, Piece, from_edge};

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
    /// The control plane has revoked the certificate of this edge.
    #[error("this edge is revoked; make a new invitation for it and start it with that")]
    Revoked,
    /// The control plane shows a certificate of another authority than the invitation names.
    #[error(
        "{address} is not the control plane of this invitation: its authority is another one than `pin` names. Check the address, \
         and make a new invitation if you have set up the control plane anew; otherwise, another party may intercept the connection"
    )]
    OtherAuthority {
        /// `HOST:PORT`.
        address: String,
    },
    /// Too many enrol at the same time; an invitation is still valid.
    #[error("the control plane answers: {0}")]
    Busy(String),
    /// The call failed.
    #[error("the control plane answers: {0}")]
    Failed(String),
    /// The connection ended before there was an answer.
    #[error("the connection to the control plane broke: {0}")]
    Lost(String),
    /// A message can't be read.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        if is_revoked(&status) {
            return Self::Revoked;
        }
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => Self::Denied(status.message().to_owned()),
            Code::ResourceExhausted => Self::Busy(status.message().to_owned()),
            // Below a status that this side made is what became of the connection.
            _ => match std::error::Error::source(&status) {
                Some(source) => Self::Lost(innermost(source)),
                None => Self::Failed(status.message().to_owned()),
            },
        }
    }
}

/// Makes TLS connections to one address.
#[derive(Clone)]
struct Connector {
    address: Arc<str>,
    tls: TlsConnector,
    is_revoked: Arc<AtomicBool>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ObservedStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let Self { address, tls, is_revoked } = self.clone();
        Box::pin(async move {
            let connecting = async {
                let stream = TcpStream::connect(&*address).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
                tls.connect(name, stream).await
            };
            let limited = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            let inner = limited.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            Ok(TokioIo::new(ObservedStream { inner, is_revoked }))
        })
    }
}

/// A connection to a control plane.
#[derive(Debug, Clone)]
pub struct Link {
    client: FleetClient<Channel>,
    /// The control plane has refused the certificate of this connection.
    is_revoked: Arc<AtomicBool>,
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
        let is_revoked = Arc::<AtomicBool>::default();
        let connector =
            Connector { address: address.into(), tls: tls.into(), is_revoked: is_revoked.clone() };
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| match cause_in_tls(&error) {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                LinkError::OtherAuthority { address: address.to_owned() }
            }
            Some(cause) if *cause == stream::REVOKED => LinkError::Revoked,
            Some(rustls::Error::InvalidCertificate(cause)) if is_about_time(cause) => {
                failed(format!("{cause}; correct the clock of this machine, or that of the control plane"))
            }
            _ => failed(innermost(&error)),
        })?;
        let client = FleetClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { client, is_revoked })
    }

    /// Exchanges a one-time code for a certificate.
    ///
    /// # Errors
    /// When the code is not accepted. After [`LinkError::Busy`] it may be sent again.
    pub async fn enrol(&self, code: &str, request: &str, version: &str) -> Result<NewIdentity, LinkError> {
        let message = EnrolRequest {
            code: code.to_owned(),
            signing_request: request.to_owned(),
            version: version.to_owned(),
        };
        let mut client = self.client.clone();
        self.limited(client.enrol(message)).await.map(given)
    }

    /// Gets another certificate.
    ///
    /// # Errors
    /// When the edge is accepted no more.
    pub async fn renew(&self, request: &str) -> Result<NewIdentity, LinkError> {
        let mut client = self.client.clone();
        self.limited(client.renew(RenewRequest { signing_request: request.to_owned() })).await.map(given)
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
        let messages = self.limited(client.sync(outgoing)).await?;
        let is_revoked = self.is_revoked.clone();
        Ok((LinkSender(queue), LinkReceiver { messages, assembler: Assembler::default(), is_revoked }))
    }

    async fn limited<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, LinkError> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(_)) if self.is_revoked.load(Ordering::Relaxed) => Err(LinkError::Revoked),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(LinkError::Lost("no answer in time".to_owned())),
        }
    }
}

fn given(identity: Identity) -> NewIdentity {
    let Identity { edge, group, certificate, roots } = identity;
    NewIdentity { edge, group, certificate, roots }
}

/// Whether the control plane ended the connection because the edge's certificate is revoked.
fn is_revoked(error: &(dyn std::error::Error + 'static)) -> bool {
    cause_in_tls(error).is_some_and(|cause| *cause == stream::REVOKED)
}

/// Whether a certificate is not valid yet, or not any more, by the clock of this machine.
const fn is_about_time(cause: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(cause, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

/// What TLS says, in whichever layer.
fn cause_in_tls<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        // An error of I/O shows its contents' source, not its contents.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
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
    is_revoked: Arc<AtomicBool>,
}

impl LinkReceiver {
    /// The next message; `None` when the control plane has ended the connection.
    ///
    /// # Errors
    /// When the connection is lost, or a message can't be read.
    pub async fn next(&mut self) -> Result<Option<ToEdge>, LinkError> {
        loop {
            let message = match self.messages.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(None),
                Err(_) if self.is_revoked.load(Ordering::Relaxed) => return Err(LinkError::Revoked),
                Err(status) => return Err(status.into()),
            };
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_as_what_it_is_about() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        let below = io::Error::new(io::ErrorKind::InvalidData, alert);
        for (status, told) in [
            (
                Status::from_error(Box::new(below)),
                "the connection to the control plane broke: received fatal alert: CertificateExpired",
            ),
            (Status::internal("out of order"), "the control plane answers: out of order"),
            (Status::permission_denied("no"), "the control plane refuses: no"),
        ] {
            assert_eq!(LinkError::from(status).to_string(), told);
        }
    }
}
