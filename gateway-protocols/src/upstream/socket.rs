//! Targets that are Unix sockets.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::{TcpStream, UnixStream};

/// Connects to the Unix socket at this path.
///
/// The connection is carried as if it were TCP: bytes, ends and readiness are the same system calls for both, and so
/// nothing else has to know of a second kind of connection. What only TCP has (its options, its addresses) fails on it
/// and is not asked for.
///
/// # Errors
/// When nobody listens there, or it may not be connected to.
pub(crate) async fn connect(path: &str) -> io::Result<TcpStream> {
    let unix = UnixStream::connect(path).await?.into_std()?;
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(unix)))
}
