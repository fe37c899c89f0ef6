//! Where the admin API is listened for: an address, in the clear or by TLS, or a Unix socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_core::certificate::CertificateNames;
use rustls::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::peer::Peer;
use crate::engine::unix_socket::SocketFile;

/// A listener of the admin API.
pub(crate) enum Listener {
    /// An address; with TLS where there is a configuration.
    Tcp(TcpListener, Option<Arc<ArcSwap<ServerConfig>>>),
    /// A Unix socket, removed when the listener ends.
    Unix {
        listener: UnixListener,
        /// Goes with the listener.
        _file: SocketFile,
    },
}

/// A connection before its TLS handshake.
pub(super) enum Accepted {
    Tcp(TcpStream, Option<Arc<ServerConfig>>),
    Unix(UnixStream),
}

/// A connection that is ready for HTTP.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    /// Has to be called within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn unix(listener: std::os::unix::net::UnixListener, file: SocketFile) -> io::Result<Self> {
        Ok(Self::Unix { listener: UnixListener::from_std(listener)?, _file: file })
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, tls) => {
                let (tcp, _) = listener.accept().await?;
                Ok(Accepted::Tcp(tcp, tls.as_ref().map(|tls| tls.load_full())))
            }
            Self::Unix { listener, .. } => listener.accept().await.map(|(unix, _)| Accepted::Unix(unix)),
        }
    }

    /// A connection that was accepted otherwise.
    pub(super) fn adopt(&self, socket: OwnedFd) -> io::Result<Accepted> {
        Ok(match self {
            Self::Tcp(_, tls) => {
                let tcp = TcpStream::from_std(socket.into())?;
                Accepted::Tcp(tcp, tls.as_ref().map(|tls| tls.load_full()))
            }
            Self::Unix { .. } => Accepted::Unix(UnixStream::from_std(socket.into())?),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener, _) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Accepted {
    /// Whether it begins with a TLS handshake.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tcp(_, Some(_)))
    }

    /// Does the TLS handshake where there is one to do.
    ///
    /// # Errors
    /// When it fails.
    pub(super) async fn ready(self) -> io::Result<(Box<dyn Stream>, Peer)> {
        let address = self.address();
        Ok(match self {
            Self::Tcp(tcp, None) => (Box::new(tcp), Peer { address, ..Peer::default() }),
            Self::Tcp(mut tcp, Some(config)) => {
                if sends_plain_http(&tcp).await {
                    refuse_plain(&mut tcp).await?;
                    return Err(io::Error::other(PLAIN));
                }
                let tls = TlsAcceptor::from(config).accept(tcp).await?;
                let shown = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let certificate =
                    shown.and_then(|leaf| CertificateNames::read(leaf)).map(|names| names.subject);
                (Box::new(tls), Peer { address, certificate, owner: None })
            }
            Self::Unix(unix) => {
                let owner = owner(&unix);
                (Box::new(unix), Peer { address, certificate: None, owner })
            }
        })
    }

    /// Who is at the other end, for the audit.
    fn address(&self) -> Option<String> {
        match self {
            Self::Tcp(tcp, _) => tcp.peer_addr().ok().map(|address| address.to_string()),
            Self::Unix(unix) => unix.peer_cred().ok().map(|process| match process.pid() {
                Some(pid) => format!("unix uid={} pid={pid}", process.uid()),
                None => format!("unix uid={}", process.uid()),
            }),
        }
    }
}

/// What a client reads that speaks plain HTTP to a port for TLS.
const PLAIN: &str = "plain HTTP request was sent to HTTPS port; write https:// in front of the address";
/// Bytes of its request that are read before the connection closes, so that no reset destroys the answer.
const MAX_PLAIN: u64 = 64 << 10;

/// Whether the client sends the first letter of a method, where a TLS record has its type. The byte stays to be read.
async fn sends_plain_http(tcp: &TcpStream) -> bool {
    let mut first = [0];
    matches!(tcp.peek(&mut first).await, Ok(1)) && first[0].is_ascii_alphabetic()
}

/// Answers such a client; the caller limits the time.
async fn refuse_plain(tcp: &mut TcpStream) -> io::Result<()> {
    let problem = json!({ "type": "about:blank", "title": "Bad Request", "status": 400, "code": "bad_request", "detail": PLAIN });
    let body = problem.to_string();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    tcp.write_all(answer.as_bytes()).await?;
    tcp.shutdown().await?;
    tokio::io::copy(&mut tcp.take(MAX_PLAIN), &mut tokio::io::sink()).await.map(drop)
}

/// The user behind a connection, if the gateway's own or root. A proxy whose target is this socket is not: its clients
/// would be.
fn owner(unix: &UnixStream) -> Option<u32> {
    let process = unix.peer_cred().ok()?;
    let is_this = process.pid().and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id());
    let is_owner = process.uid() == 0 || process.uid() == rustix::process::geteuid().as_raw();
    Some(process.uid()).filter(|_| is_owner && !is_this)
}
