//! Where connections come in: what is spoken there first, and the socket that listens.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gateway_core::limit::concurrency::Permit;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::load::Load;

/// What a listener's connections speak first.
#[derive(Debug, Clone)]
pub enum Entrance {
    /// HTTP as it is.
    Plain,
    /// HTTP over TLS.
    Tls(Arc<arc_swap::ArcSwap<ServerConfig>>),
    /// A byte stream for the proxies of this port.
    Stream {
        /// The port, which chooses the proxies.
        port: u16,
        /// For proxies that terminate TLS; the names in `server_names` choose among them.
        tls: Arc<arc_swap::ArcSwap<ServerConfig>>,
    },
}

impl Entrance {
    /// The port of a stream entrance.
    pub(crate) fn stream_port(&self) -> Option<u16> {
        match self {
            Self::Stream { port, .. } => Some(*port),
            Self::Plain | Self::Tls(_) => None,
        }
    }
}

/// An accepted connection on its way to the worker that serves it.
pub(crate) struct Accepted {
    pub(crate) tcp: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) entrance: Entrance,
    pub(crate) permit: Permit,
    /// Counts it with the worker that gets it.
    pub(crate) load: Load,
}

/// A listening socket.
pub(crate) enum Listening {
    Tcp(TcpListener),
    /// Its connections are carried as if they were TCP, as those to targets on Unix sockets are.
    Unix(UnixListener),
}

/// The address of clients on Unix sockets, and of the gateway there.
pub(crate) const UNIX_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

impl Listening {
    /// A Unix socket that another worker listens on, too.
    pub(crate) fn unix(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        UnixListener::from_std(socket).map(Self::Unix)
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await,
            Self::Unix(listener) => {
                let (unix, _) = listener.accept().await?;
                let tcp = std::net::TcpStream::from(OwnedFd::from(unix.into_std()?));
                Ok((TcpStream::from_std(tcp)?, UNIX_ADDRESS))
            }
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}
