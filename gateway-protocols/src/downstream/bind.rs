//! Listening sockets: one a worker on the same port, so that the kernel spreads connections.

use std::collections::HashSet;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;

use gateway_core::config::model::{Congestion, Transport};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use crate::handover::DatagramHandover;

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

/// A TCP socket that shares its port with the other workers' sockets. It does not listen yet: [`listen`].
///
/// # Errors
/// When the address is not ours, the port is taken by another process that does not share it, or it needs privileges.
pub fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` takes IPv4 too, as an operator expects who writes it.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Listens. From here on the kernel gives it connections, which wait until somebody accepts them: to be called when nothing
/// can fail any more. Of a connection the kernel takes `unsent` bytes before it has sent them, so that a client that reads
/// slowly does not cost megabytes. What is not set is the system's, also on an inherited socket.
///
/// # Errors
/// What the kernel says.
pub fn listen(listener: &std::net::TcpListener, Sending { unsent, congestion }: Sending) -> io::Result<()> {
    let socket = SockRef::from(listener);
    // Accepted connections have what their listener has. Zero is what the system is set to.
    socket.set_tcp_notsent_lowat(unsent)?;
    match congestion {
        Some(congestion) => socket.set_tcp_congestion(congestion.name().as_bytes())?,
        None if socket.is_listener()? => reset_congestion(&socket)?,
        None => {}
    }
    socket.listen(BACKLOG)
}

/// Gives a socket of another process the congestion control that new sockets have.
fn reset_congestion(socket: &SockRef<'_>) -> io::Result<()> {
    let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(&fresh.tcp_congestion()?)
}

/// Sockets of another process, which the gateway uses where its configuration asks for their addresses. A connection that waits to
/// be accepted, or a datagram that waits to be read, waits in the socket: it is not lost when the other process closes its copy.
#[derive(Debug, Default)]
pub struct Inherited {
    tcp: Vec<Socket>,
    udp: Vec<Socket>,
    /// The addresses of those UDP sockets that were taken.
    taken: HashSet<SocketAddr>,
    /// The other process's end is [`crate::handover::Successor`].
    link: Option<OwnedFd>,
}

impl Inherited {
    /// Takes a socket over.
    ///
    /// # Errors
    /// When it neither listens for TCP connections nor takes anybody's datagrams.
    pub fn add(&mut self, socket: OwnedFd) -> io::Result<()> {
        let socket = Socket::from(socket);
        let is_internet = socket.local_addr()?.as_socket().is_some_and(|local| local.port() > 0);
        let is_free = || socket.peer_addr().is_err();
        let of = match socket.r#type()? {
            Type::STREAM if is_internet && socket.is_listener()? => &mut self.tcp,
            Type::DGRAM if is_internet && is_free() => &mut self.udp,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening socket")),
        };
        socket.set_nonblocking(true)?;
        of.push(socket);
        Ok(())
    }

    /// Takes the link to the other process.
    pub fn link(&mut self, link: OwnedFd) {
        self.link = Some(link);
    }

    /// Closes the sockets that were not taken. What is shared of the others with the other process, if it has a link.
    ///
    /// # Errors
    /// When the link can't be used.
    pub fn into_handover(self) -> io::Result<DatagramHandover> {
        match self.link {
            Some(link) => DatagramHandover::after(link, self.taken),
            None => Ok(DatagramHandover::default()),
        }
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that listen on an address.
    fn take(&mut self, address: SocketAddr) -> Vec<std::net::TcpListener> {
        self.tcp.extract_if(.., |socket| is_at(socket, address)).map(Into::into).collect()
    }

    /// Those that take datagrams at an address.
    fn take_udp(&mut self, address: SocketAddr) -> Vec<std::net::UdpSocket> {
        let sockets: Vec<_> =
            self.udp.extract_if(.., |socket| is_at(socket, address)).map(Into::into).collect();
        if !sockets.is_empty() {
            self.taken.insert(address);
        }
        sockets
    }
}

fn is_at(socket: &Socket, address: SocketAddr) -> bool {
    socket.local_addr().is_ok_and(|local| local.as_socket() == Some(address))
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

/// One socket for each worker, and more where more are inherited; the first one settles an ephemeral port for all. They are
/// to [`listen`].
///
/// # Errors
/// When the port can't be had.
pub fn tcp_for_workers(
    address: SocketAddr,
    workers: usize,
    sharing: Sharing,
    inherited: &mut Inherited,
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners = inherited.take(address);
    if listeners.is_empty() {
        if sharing == Sharing::Refused {
            probe(address)?;
        }
        listeners.push(tcp(address)?);
    }
    let settled = listeners[0].local_addr()?;
    for _ in listeners.len()..workers {
        listeners.push(tcp(settled)?);
    }
    Ok(listeners)
}

/// The listener of something that has only one: an inherited one, or one of its own.
///
/// # Errors
/// As for [`tcp_for_workers`].
pub fn tcp_alone(
    address: SocketAddr,
    sharing: Sharing,
    inherited: &mut Inherited,
) -> io::Result<std::net::TcpListener> {
    if let Some(listener) = inherited.take(address).pop() {
        return Ok(listener);
    }
    if sharing == Sharing::Allowed {
        let listener = tcp(address)?;
        listen(&listener, Sending::default())?;
        return Ok(listener);
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
    let socket = udp_socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// As [`udp`], on a port that nobody has: it is shared only with sockets that come later.
fn udp_alone_first(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = udp_socket(address)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

fn udp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // As much as the system allows; bursts of datagrams wait nowhere else.
    let _grown = socket.set_recv_buffer_size(UDP_BUFFER);
    let _grown = socket.set_send_buffer_size(UDP_BUFFER);
    Ok(socket)
}

/// One UDP socket for each worker, or as many as are inherited: another one would change which clients the kernel gives to each, and
/// would lose what waits in it if this gateway does not start.
///
/// # Errors
/// When the port can't be had.
pub fn udp_for_workers(
    address: SocketAddr,
    workers: usize,
    sharing: Sharing,
    inherited: &mut Inherited,
) -> io::Result<Vec<std::net::UdpSocket>> {
    let sockets = inherited.take_udp(address);
    if !sockets.is_empty() {
        return Ok(sockets);
    }
    let first = match sharing {
        Sharing::Refused => udp_alone_first(address)?,
        Sharing::Allowed => udp(address)?,
    };
    let settled = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(udp(settled)?);
    }
    Ok(sockets)
}

/// Bytes of datagrams the kernel queues for a socket.
const UDP_BUFFER: usize = 4 << 20;

/// Whether a process may listen on an address alone. Port 0 is always free.
///
/// # Errors
/// The kernel's: a socket has the port, the port needs privileges, or this machine does not have the address.
pub fn check_unused(address: SocketAddr, transport: Transport) -> io::Result<()> {
    match transport {
        Transport::Tcp => probe(address),
        Transport::Udp => std::net::UdpSocket::bind(address).map(drop),
    }
}

/// SO_REUSEPORT would let two gateways of one user share a port in silence; binding once without it tells.
fn probe(address: SocketAddr) -> io::Result<()> {
    if address.port() != 0 {
        stop_listening(&deaf(address)?);
    }
    Ok(())
}

/// Ends the listening of every copy of a socket. A process that is being started has copies of all sockets until its program runs, and one
/// that listened would keep the port from the gateway.
fn stop_listening(socket: &Socket) {
    // It fails only for a socket that does not listen.
    let _stopped = socket.shutdown(Shutdown::Both);
}

/// A socket that listens alone and hears nobody: a client that comes meanwhile gets no answer and asks again a second later,
/// when it is the gateway that listens. Taken by this socket, its connection would be reset.
fn deaf(address: SocketAddr) -> io::Result<Socket> {
    /// `BPF_RET | BPF_K` of classic BPF: lets so many bytes of a packet through, none here.
    const RETURN: u16 = 0x06;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    // Where the system has no filters, that nobody listens has to do.
    if socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)]).is_ok() {
        socket.listen(1)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    fn listening(sending: Sending) -> std::net::TcpListener {
        let listener = tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, sending).unwrap();
        listener
    }

    /// Bytes the kernel takes for a client that reads nothing.
    fn taken(unsent: u32) -> usize {
        let listener = listening(Sending { unsent, congestion: None });
        listener.set_nonblocking(false).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), unsent);
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
        let listener = listening(sending);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let name = SockRef::from(&accepted).tcp_congestion().unwrap();
        assert_eq!(String::from_utf8_lossy(&name).trim_end_matches('\0'), "reno");
        assert!(has_congestion(&congestion).is_ok());
        assert!(has_congestion(&Congestion::new("no_such_thing").unwrap()).is_err());
    }
    #[test]
    fn an_inherited_socket_is_set_as_this_gateway_says() {
        let reno = Congestion::new("reno").unwrap();
        let theirs = listening(Sending { unsent: 4096, congestion: Some(reno) });
        let address = theirs.local_addr().unwrap();
        let mut inherited = Inherited::default();
        inherited.add(theirs.try_clone().unwrap().into()).unwrap();
        let ours = tcp_for_workers(address, 2, Sharing::Allowed, &mut inherited).unwrap();
        assert_eq!((ours.len(), inherited.len()), (2, 0), "one is inherited, one is new");
        let congestion = |socket: &std::net::TcpListener| SockRef::from(socket).tcp_congestion().unwrap();
        assert!(congestion(&ours[0]).starts_with(b"reno"), "nothing is changed while the start may fail");
        listen(&ours[0], Sending::default()).unwrap();
        assert_eq!(SockRef::from(&ours[0]).tcp_notsent_lowat().unwrap(), 0);
        assert_eq!(congestion(&ours[0]), congestion(&ours[1]), "both are as the system says");
    }

    #[test]
    fn clients_that_come_while_a_port_is_tried_are_not_lost() {
        let listener = listening(Sending::default());
        let address = listener.local_addr().unwrap();
        assert!(deaf(address).is_err(), "somebody listens there");
        drop(listener);
        let tried = deaf(address).unwrap();
        assert!(deaf(address).is_err(), "somebody else tries it");
        let client = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP)).unwrap();
        assert!(
            client.connect(&address.into()).is_err_and(|error| error.raw_os_error() == Some(115)),
            "under way"
        );
        drop(tried);
        let listener = tcp(address).unwrap();
        listen(&listener, Sending::default()).unwrap();
        listener.set_nonblocking(false).unwrap();
        listener.accept().unwrap();
    }

    /// A process that is being started has copies of all sockets for a moment.
    #[test]
    fn a_copy_of_the_socket_that_tried_a_port_keeps_nobody_from_it() {
        let address = listening(Sending::default()).local_addr().unwrap();
        let tried = deaf(address).unwrap();
        let _copy = tried.try_clone().unwrap();
        assert!(tcp(address).is_err(), "it listens");
        stop_listening(&tried);
        drop(tried);
        let listener = tcp_for_workers(address, 2, Sharing::Refused, &mut Inherited::default()).unwrap();
        listener.iter().for_each(|listener| listen(listener, Sending::default()).unwrap());
    }

    #[test]
    fn a_port_for_datagrams_is_shared_with_own_sockets_alone() {
        let of = |sharing, port| {
            udp_for_workers(([127, 0, 0, 1], port).into(), 2, sharing, &mut Inherited::default())
        };
        let sockets = of(Sharing::Refused, 0).unwrap();
        let port = sockets[0].local_addr().unwrap().port();
        assert_eq!(sockets[1].local_addr().unwrap().port(), port);
        assert!(of(Sharing::Refused, port).is_err(), "somebody has it");
        of(Sharing::Allowed, port).unwrap();
        drop(sockets);
        of(Sharing::Refused, port).unwrap();
    }

    #[test]
    fn a_socket_that_does_not_listen_yet_takes_no_connection() {
        let bound = tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert!(TcpStream::connect(bound.local_addr().unwrap()).is_err());
    }
}
