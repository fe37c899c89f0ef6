//! Targets that are Unix sockets.

use std::io;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::TcpStream;

/// Connects to the Unix socket at this path.
///
/// The connection is carried as if it were TCP: bytes, ends and readiness are the same system calls for both, and so
/// nothing else has to know of a second kind of connection. What only TCP has (its options, its addresses) fails on it
/// and is not asked for. Nothing is waited for: on this machine, a connection is made or refused at once.
///
/// # Errors
/// When nobody listens there, it may not be connected to, or as many connections wait there as may (`WouldBlock`).
pub(crate) fn connect(path: &str) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    TcpStream::from_std(std::net::TcpStream::from(socket))
}
