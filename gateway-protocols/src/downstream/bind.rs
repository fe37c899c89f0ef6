//! Listening sockets: one a worker on the same port, so that the kernel spreads connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use gateway_core::config::model::Congestion;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel queues while a worker is busy.
const BACKLOG: i32 = 4096;

/// How the kernel sends on the connections of a listener.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sending {
    /// Bytes that it takes before it has sent them; 0 is as many as it likes.
    pub unsent: u32,
    /// Its congestion control; `None` is the system's.
    pub congestion: Option<Congestion>,
}

/// Whether the kernel has a congestion control.
///
/// # Errors
/// What it says when it has not.
pub fn has_congestion(congestion: &Congestion) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(congestion.name().as_bytes())
}

/// A TCP listener that shares its port with the other workers' listeners. Of its connections the kernel takes `unsent` bytes
/// before it has sent them, so that a client that reads slowly does not cost megabytes; 0 is as much as it allows. They are
/// sent by this congestion control.
///
/// # Errors
/// When the address is not ours, the port is taken by another process that does not share it, or it needs privileges.
pub fn tcp(address: SocketAddr, sending: Sending) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` takes IPv4 too, as an operator expects who writes it.
        socket.set_only_v6(false)?;
    }
    set_sending(&socket, sending)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepted connections have what their listener has.
fn set_sending(listener: &Socket, Sending { unsent, congestion }: Sending) -> io::Result<()> {
    if unsent > 0 {
        listener.set_tcp_notsent_lowat(unsent)?;
    }
    if let Some(congestion) = congestion {
        listener.set_tcp_congestion(congestion.name().as_bytes())?;
    }
    Ok(())
}

/// Listening TCP sockets of another process, which the gateway listens on where its configuration asks for their addresses. A
/// connection that waits to be accepted waits in the socket: it is not lost when the other process closes its copy.
#[derive(Debug, Default)]
pub struct Inherited(Vec<Socket>);

impl Inherited {
    /// Takes a socket over.
    ///
    /// # Errors
    /// When it does not listen for TCP connections.
    pub fn add(&mut self, socket: OwnedFd) -> io::Result<()> {
        let socket = Socket::from(socket);
        if socket.r#type()? != Type::STREAM
            || socket.local_addr()?.as_socket().is_none()
            || !socket.is_listener()?
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening TCP socket"));
        }
        socket.set_nonblocking(true)?;
        self.0.push(socket);
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that listen on an address.
    fn take(&mut self, address: SocketAddr) -> Vec<Socket> {
        let is_meant =
            |socket: &mut Socket| socket.local_addr().is_ok_and(|local| local.as_socket() == Some(address));
        self.0.extract_if(.., is_meant).collect()
    }
}

/// Whether a port may be had on which another process of the same user listens, which has to allow that as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// It is refused.
    Refused,
    /// New connections go to either.
    Allowed,
}

impl From<bool> for Sharing {
    fn from(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Refused }
    }
}

/// One listener for each worker, and more where more are inherited; the first one settles an ephemeral port for all.
///
/// # Errors
/// When the port can't be had.
pub fn tcp_for_workers(
    address: SocketAddr,
    (workers, sharing): (usize, Sharing),
    (sending, inherited): (Sending, &mut Inherited),
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners = Vec::with_capacity(workers);
    for socket in inherited.take(address) {
        set_sending(&socket, sending)?;
        listeners.push(std::net::TcpListener::from(socket));
    }
    if listeners.is_empty() {
        if sharing == Sharing::Refused {
            probe(address)?;
        }
        listeners.push(tcp(address, sending)?);
    }
    let settled = listeners[0].local_addr()?;
    for _ in listeners.len()..workers {
        listeners.push(tcp(settled, sending)?);
    }
    Ok(listeners)
}

/// The listener of something that has only one.
///
/// # Errors
/// As for [`tcp_for_workers`].
pub fn tcp_alone(address: SocketAddr, sharing: Sharing) -> io::Result<std::net::TcpListener> {
    if sharing == Sharing::Allowed {
        return tcp(address, Sending::default());
    }
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
/// When the port can't be had.
pub fn udp_for_workers(
    address: SocketAddr,
    workers: usize,
    sharing: Sharing,
) -> io::Result<Vec<std::net::UdpSocket>> {
    if sharing == Sharing::Refused {
        drop(std::net::UdpSocket::bind(address)?);
    }
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    /// Bytes the kernel takes for a client that reads nothing.
    fn taken(unsent: u32) -> usize {
        let listener =
            tcp(SocketAddr::from(([127, 0, 0, 1], 0)), Sending { unsent, congestion: None }).unwrap();
        listener.set_nonblocking(false).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(socket2::SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), unsent);
        accepted.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut taken = 0;
        while let Ok(written) = accepted.write(&[0; 16 << 10]) {
            taken += written;
        }
        drop(client);
        taken
    }

    #[test]
    fn a_client_that_does_not_read_costs_little() {
        let (little, much) = (taken(32 << 10), taken(0));
        assert!(little < much / 2, "{little} of {much}");
    }

    #[test]
    fn accepted_connections_have_the_congestion_control() {
        let congestion = Congestion::new("reno").unwrap();
        let sending = Sending { unsent: 0, congestion: Some(congestion) };
        let listener = tcp(SocketAddr::from(([127, 0, 0, 1], 0)), sending).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let name = socket2::SockRef::from(&accepted).tcp_congestion().unwrap();
        assert_eq!(String::from_utf8_lossy(&name).trim_end_matches('\0'), "reno");
        assert!(has_congestion(&congestion).is_ok());
        assert!(has_congestion(&Congestion::new("no_such_thing").unwrap()).is_err());
    }
}
