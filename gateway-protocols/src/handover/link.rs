//! The link between two gateways: a pair of Unix sockets that keep messages apart (`SOCK_SEQPACKET`).

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quinn_udp::EcnCodepoint;
use socket2::{Domain, Socket, Type};
use tokio::net::UnixDatagram;

use super::{Forwarded, Opening, SessionAddress};

/// Bytes of a message: a datagram, or what the kernel joins, with its addresses.
const MAX_MESSAGE: usize = 66 << 10;
/// Bytes that wait in the link; beyond that packets are lost, as packets may be.
const BUFFER: usize = 4 << 20;
/// Entries of one message of a table.
pub(super) const ENTRIES: usize = 512;

/// What one gateway says to the other.
#[derive(Debug)]
pub(super) enum Message {
    /// The successor has these listeners' sockets.
    Took(Vec<SocketAddr>),
    /// Handshakes that are under way here.
    Openings(Vec<Opening>),
    /// Sessions that are here.
    Sessions(Vec<SessionAddress>),
    /// That was all, and nothing is read here any more.
    Go,
    /// A packet that belongs there.
    Packet(Forwarded),
    /// One whose session is not here any more.
    Bounced(Forwarded),
}

/// Room for a message.
pub(super) struct Room(Box<[u8]>);

impl Default for Room {
    fn default() -> Self {
        Self(vec![0; MAX_MESSAGE].into())
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    /// The same, watched by the runtime that first waits for it.
    watched: OnceLock<UnixDatagram>,
}

impl Link {
    /// Both ends.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        Ok((Self::new(ours.into())?, theirs.into()))
    }

    /// An end that came from another process.
    ///
    /// # Errors
    /// When it is no such socket.
    pub(super) fn new(end: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(end);
        if socket.r#type()? != Type::SEQPACKET {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a socket of messages"));
        }
        socket.set_nonblocking(true)?;
        // As much as the system allows.
        let _grown = socket.set_send_buffer_size(BUFFER);
        Ok(Self { socket, watched: OnceLock::new() })
    }

    /// Sends, or loses it where the other end takes no more.
    pub(super) fn send(&self, message: &Message) -> bool {
        match message {
            Message::Bounced(packet) => self.send_as(BOUNCED, packet),
            Message::Packet(packet) => self.send_packet(packet),
            message => self.socket.send(&message.encode()).is_ok(),
        }
    }

    /// The same for a packet, which is not copied. False where the other end is gone.
    pub(super) fn send_packet(&self, packet: &Forwarded) -> bool {
        self.send_as(PACKET, packet)
    }

    fn send_as(&self, kind: u8, packet: &Forwarded) -> bool {
        let mut head = vec![kind, packet.place, packet.ecn.map_or(0, |ecn| ecn as u8)];
        put(&mut head, packet.listener);
        put(&mut head, packet.client);
        put_ip(&mut head, packet.local);
        head.extend_from_slice(&u32::try_from(packet.stride).unwrap_or(u32::MAX).to_be_bytes());
        let sent = self.socket.send_vectored(&[IoSlice::new(&head), IoSlice::new(&packet.bytes)]);
        sent.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |_| true)
    }

    /// Sends, and waits for so long until there is room.
    ///
    /// # Errors
    /// The other end is gone, or takes nothing.
    pub(super) fn send_now(&self, message: &Message, timeout: Duration) -> io::Result<()> {
        let bytes = message.encode();
        let deadline = Instant::now() + timeout;
        loop {
            match self.socket.send(&bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(rustix::event::PollFlags::OUT, deadline)?;
                }
                sent => return sent.map(drop),
            }
        }
    }

    /// The next message, for which this thread waits.
    ///
    /// # Errors
    /// The other end is gone, or says nothing in time.
    pub(super) fn next_until(&self, deadline: Instant) -> io::Result<Message> {
        let mut bytes = vec![0; MAX_MESSAGE];
        loop {
            match rustix::io::read(&self.socket, &mut bytes) {
                Err(rustix::io::Errno::WOULDBLOCK) => self.wait(rustix::event::PollFlags::IN, deadline)?,
                Err(error) => return Err(error.into()),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => return Message::decode(&bytes[..length]).ok_or_else(garbage),
            }
        }
    }

    fn wait(&self, flags: rustix::event::PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        let mut polled = [rustix::event::PollFd::new(&self.socket, flags)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next message, for a task. What is not one is passed over.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) async fn next(&self, room: &mut Room) -> io::Result<Message> {
        let watched = match self.watched.get() {
            Some(watched) => watched,
            None => {
                let copy = OwnedFd::from(self.socket.try_clone()?);
                // Reading is the same for both kinds of sockets that keep messages apart.
                let watched = UnixDatagram::from_std(copy.into())?;
                self.watched.get_or_init(|| watched)
            }
        };
        loop {
            match watched.recv(&mut room.0).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => {
                    if let Some(message) = Message::decode(&room.0[..length]) {
                        return Ok(message);
                    }
                }
            }
        }
    }
}

fn garbage() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the gateway before this one speaks of something else")
}

const TOOK: u8 = b't';
const OPENINGS: u8 = b'o';
const SESSIONS: u8 = b's';
const GO: u8 = b'g';
const PACKET: u8 = b'p';
const BOUNCED: u8 = b'b';

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Took(listeners) => {
                bytes.push(TOOK);
                listeners.iter().for_each(|listener| put(&mut bytes, *listener));
            }
            Self::Openings(openings) => {
                bytes.push(OPENINGS);
                openings.iter().for_each(|Opening(opening)| bytes.extend_from_slice(&opening.to_be_bytes()));
            }
            Self::Sessions(sessions) => {
                bytes.push(SESSIONS);
                for session in sessions {
                    put(&mut bytes, session.listener);
                    put(&mut bytes, session.client);
                    put_ip(&mut bytes, session.local);
                }
            }
            // Packets are sent without being copied.
            Self::Go | Self::Packet(_) | Self::Bounced(_) => bytes.push(GO),
        }
        bytes
    }

    fn decode(message: &[u8]) -> Option<Self> {
        let (kind, mut rest) = message.split_first()?;
        Some(match *kind {
            TOOK => Self::Took(all(rest, address)?),
            OPENINGS => Self::Openings(all(rest, |from| Some(Opening(u64::from_be_bytes(taken(from)?))))?),
            SESSIONS => Self::Sessions(all(rest, |from| {
                let (listener, client, local) = (address(from)?, address(from)?, ip(from)?);
                Some(SessionAddress { listener, client, local })
            })?),
            GO => Self::Go,
            PACKET => Self::Packet(packet(&mut rest)?),
            BOUNCED => Self::Bounced(packet(&mut rest)?),
            _ => return None,
        })
    }
}

fn packet(from: &mut &[u8]) -> Option<Forwarded> {
    let [place, ecn] = taken(from)?;
    let (listener, client, local) = (address(from)?, address(from)?, ip(from)?);
    let stride = usize::try_from(u32::from_be_bytes(taken(from)?)).ok()?;
    let ecn = EcnCodepoint::from_bits(ecn);
    Some(Forwarded { listener, place, client, local, ecn, stride, bytes: (*from).into() })
}

fn all<T>(mut from: &[u8], mut next: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    while !from.is_empty() {
        all.push(next(&mut from)?);
    }
    Some(all)
}

fn taken<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

fn put(bytes: &mut Vec<u8>, address: SocketAddr) {
    put_ip(bytes, Some(address.ip()));
    bytes.extend_from_slice(&address.port().to_be_bytes());
    let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
    bytes.extend_from_slice(&scope.to_be_bytes());
}

fn put_ip(bytes: &mut Vec<u8>, ip: Option<IpAddr>) {
    let (kind, octets) = match ip {
        None => (0, [0; 16]),
        Some(IpAddr::V4(ip)) => (4, ip.to_ipv6_mapped().octets()),
        Some(IpAddr::V6(ip)) => (6, ip.octets()),
    };
    bytes.push(kind);
    bytes.extend_from_slice(&octets);
}

fn address(from: &mut &[u8]) -> Option<SocketAddr> {
    let ip = ip(from)??;
    let (port, scope) = (u16::from_be_bytes(taken(from)?), u32::from_be_bytes(taken(from)?));
    Some(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}

#[expect(clippy::option_option, reason = "an address may be absent, or the message cut")]
fn ip(from: &mut &[u8]) -> Option<Option<IpAddr>> {
    let [kind] = taken(from)?;
    let ip = Ipv6Addr::from(taken::<16>(from)?);
    match kind {
        0 => Some(None),
        4 => Some(Some(ip.to_ipv4_mapped()?.into())),
        6 => Some(Some(ip.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(bytes: usize) -> Forwarded {
        Forwarded {
            listener: "[::]:443".parse().unwrap(),
            place: 3,
            client: "192.0.2.1:5000".parse().unwrap(),
            local: Some("2001:db8::1".parse().unwrap()),
            ecn: EcnCodepoint::from_bits(2),
            stride: 1200,
            bytes: vec![7; bytes].into(),
        }
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link::new(theirs).unwrap();
        let session = SessionAddress {
            listener: "127.0.0.1:1".parse().unwrap(),
            client: "[fe80::1%3]:9".parse().unwrap(),
            local: None,
        };
        for message in [
            Message::Took(vec!["0.0.0.0:443".parse().unwrap(), "[::1]:8443".parse().unwrap()]),
            Message::Openings((0..ENTRIES as u64).map(Opening).collect()),
            Message::Sessions(vec![session; ENTRIES]),
            Message::Go,
            Message::Packet(forwarded(65_507)),
            Message::Bounced(forwarded(0)),
        ] {
            assert!(ours.send(&message));
            let got = theirs.next_until(Instant::now() + Duration::from_secs(5)).unwrap();
            assert_eq!(format!("{got:?}"), format!("{message:?}"));
        }
        drop(ours);
        assert!(theirs.next_until(Instant::now() + Duration::from_secs(5)).is_err());
        assert!(!theirs.send_packet(&forwarded(1)), "nobody is there");
    }

    #[test]
    fn what_is_cut_is_no_message() {
        let whole = Message::Sessions(vec![SessionAddress {
            listener: "127.0.0.1:1".parse().unwrap(),
            client: "127.0.0.1:2".parse().unwrap(),
            local: None,
        }])
        .encode();
        for cut in 2..whole.len() {
            assert!(Message::decode(&whole[..cut]).is_none(), "{cut}");
        }
        assert!(Message::decode(b"").is_none() && Message::decode(b"x").is_none());
        assert!(Message::decode(b"p").is_none());
    }
}
