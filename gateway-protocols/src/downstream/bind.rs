//! Listening sockets: one a worker on the same port, so that the kernel spreads connections.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel queues while a worker is busy.
const BACKLOG: i32 = 4096;

/// A TCP listener that shares its port with the other workers' listeners.
///
/// # Errors
/// When the address is not ours, the port is taken by another process, or it needs privileges.
pub fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` takes IPv4 too, as an operator expects who writes it.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// One listener for each worker; the first one settles an ephemeral port for all.
///
/// # Errors
/// When the port can't be had. A port another process listens on is refused, also when that one shares it.
pub fn tcp_for_workers(address: SocketAddr, workers: usize) -> io::Result<Vec<std::net::TcpListener>> {
    probe(address)?;
    let first = tcp(address)?;
    let settled = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..workers {
        listeners.push(tcp(settled)?);
    }
    Ok(listeners)
}

/// A UDP socket that shares its port with the other workers' sockets; the kernel keeps a client with one of them.
///
/// # Errors
/// As for [`tcp`].
pub fn udp(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // As much as the system allows; bursts of datagrams wait nowhere else.
    let _grown = socket.set_recv_buffer_size(UDP_BUFFER);
    let _grown = socket.set_send_buffer_size(UDP_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// One UDP socket for each worker.
///
/// # Errors
/// When the port can't be had; one another process listens on is refused, also when that one shares it.
pub fn udp_for_workers(address: SocketAddr, workers: usize) -> io::Result<Vec<std::net::UdpSocket>> {
    drop(std::net::UdpSocket::bind(address)?);
    let first = udp(address)?;
    let settled = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(udp(settled)?);
    }
    Ok(sockets)
}

/// Bytes of datagrams the kernel queues for a socket.
const UDP_BUFFER: usize = 4 << 20;

/// SO_REUSEPORT would let two gateways of one user share a port in silence; binding once without it tells.
fn probe(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(1)
}
