//! The link between two gateways: a pair of Unix sockets. Each message consists of its length (four bytes), its kind (one byte)
//! and its content.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quinn_udp::EcnCodepoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::{Forwarded, Opening, SessionAddress};

/// Maximum length of a message: a datagram, or several that the kernel joined, with the addresses.
const MAX_MESSAGE: usize = 66 << 10;
/// Bytes per read, and about as many per write.
const BATCH: usize = 256 << 10;
/// Maximum number of packets in the link's queue. A full queue drops packets.
pub(super) const QUEUE: usize = 4096;
/// Entries per message of a table.
pub(super) const ENTRIES: usize = 512;

/// A message between the two gateways.
#[derive(Debug)]
pub(super) enum Message {
    /// The successor has taken the sockets of these listeners.
    Took(Vec<SocketAddr>),
    /// Unfinished handshakes of the predecessor.
    Openings(Vec<Opening>),
    /// Sessions of the predecessor.
    Sessions(Vec<SessionAddress>),
    /// The tables are complete, and the predecessor no longer reads.
    Go,
    /// A packet that belongs to the predecessor.
    Packet(Forwarded),
    /// A packet whose session the predecessor has ended.
    Bounced(Forwarded),
}

/// Sends a message. Blocks this thread.
///
/// # Errors
/// The link is closed, or the peer does not read in time.
pub(super) fn send_now(mut stream: &UnixStream, message: &Message, timeout: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(&message.encode())
}

/// Receives the next message. Blocks this thread.
///
/// # Errors
/// The link is closed, or the peer sends nothing in time.
pub(super) fn next_now(mut stream: &UnixStream, deadline: Instant) -> io::Result<Message> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A timeout of zero would mean no timeout.
    stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; checked(length)?];
    stream.read_exact(&mut message)?;
    Message::decode(&message).ok_or_else(garbage)
}

/// Sends packets from the queue and passes received messages to `take`, until the link is closed.
pub(super) async fn exchange(
    stream: tokio::net::UnixStream,
    is_bounced: bool,
    mut packets: mpsc::Receiver<Forwarded>,
    mut take: impl FnMut(Message),
) {
    let (reader, mut writer) = stream.into_split();
    let reading = async {
        let mut reader = BufReader::with_capacity(BATCH, reader);
        let mut room = Vec::new();
        while let Ok(message) = next(&mut reader, &mut room).await {
            if let Some(message) = message {
                take(message);
            }
        }
    };
    let writing = async {
        let mut bytes = Vec::new();
        while let Some(packet) = packets.recv().await {
            bytes.clear();
            put_packet(&mut bytes, is_bounced, &packet);
            while bytes.len() < BATCH
                && let Ok(packet) = packets.try_recv()
            {
                put_packet(&mut bytes, is_bounced, &packet);
            }
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        () = writing => reading.await,
    }
}

/// Receives the next message; `None` if its kind is unknown.
///
/// # Errors
/// The link is closed.
pub(super) async fn next(
    reader: &mut (impl AsyncReadExt + Unpin),
    room: &mut Vec<u8>,
) -> io::Result<Option<Message>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).await?;
    room.resize(checked(length)?, 0);
    reader.read_exact(room).await?;
    Ok(Message::decode(room))
}

/// Sends a message.
///
/// # Errors
/// The link is closed.
pub(super) async fn send(stream: &mut tokio::net::UnixStream, message: &Message) -> io::Result<()> {
    stream.write_all(&message.encode()).await
}

fn checked(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(length);
    usize::try_from(length).ok().filter(|length| *length <= MAX_MESSAGE).ok_or_else(garbage)
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

/// Writes a message with its length and kind.
fn framed(bytes: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let from = bytes.len();
    bytes.extend_from_slice(&[0, 0, 0, 0, kind]);
    write(bytes);
    let length = u32::try_from(bytes.len() - from - 4).unwrap_or(u32::MAX);
    bytes[from..from + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_packet(bytes: &mut Vec<u8>, is_bounced: bool, packet: &Forwarded) {
    framed(bytes, if is_bounced { BOUNCED } else { PACKET }, |bytes| {
        bytes.extend_from_slice(&[packet.place, packet.ecn.map_or(0, |ecn| ecn as u8)]);
        put(bytes, packet.listener);
        put(bytes, packet.client);
        put_ip(bytes, packet.local);
        bytes.extend_from_slice(&u32::try_from(packet.stride).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(&packet.bytes);
    });
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Took(listeners) => framed(&mut bytes, TOOK, |bytes| {
                listeners.iter().for_each(|listener| put(bytes, *listener));
            }),
            Self::Openings(openings) => framed(&mut bytes, OPENINGS, |bytes| {
                openings.iter().for_each(|Opening(opening)| bytes.extend_from_slice(&opening.to_be_bytes()));
            }),
            Self::Sessions(sessions) => framed(&mut bytes, SESSIONS, |bytes| {
                for session in sessions {
                    put(bytes, session.listener);
                    put(bytes, session.client);
                    put_ip(bytes, session.local);
                }
            }),
            Self::Go => framed(&mut bytes, GO, |_| {}),
            Self::Packet(packet) => put_packet(&mut bytes, false, packet),
            Self::Bounced(packet) => put_packet(&mut bytes, true, packet),
        }
        bytes
    }

    fn decode(message: &[u8]) -> Option<Self> {
        let (kind, mut rest) = message.split_first()?;
        Some(match *kind {
            TOOK => Self::Took(all(rest, address)?),
            OPENINGS => {
                Self::Openings(all(rest, |from| Some(Opening(u64::from_be_bytes(take_array(from)?))))?)
            }
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
    let [place, ecn] = take_array(from)?;
    let (listener, client, local) = (address(from)?, address(from)?, ip(from)?);
    let stride = usize::try_from(u32::from_be_bytes(take_array(from)?)).ok()?;
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

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
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
    let (port, scope) = (u16::from_be_bytes(take_array(from)?), u32::from_be_bytes(take_array(from)?));
    Some(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}

#[expect(clippy::option_option, reason = "an address may be absent, or the message cut")]
fn ip(from: &mut &[u8]) -> Option<Option<IpAddr>> {
    let [kind] = take_array(from)?;
    let ip = Ipv6Addr::from(take_array::<16>(from)?);
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
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = SessionAddress {
            listener: "127.0.0.1:1".parse().unwrap(),
            client: "[fe80::1%3]:9".parse().unwrap(),
            local: None,
        };
        let timeout = Duration::from_secs(5);
        for message in [
            Message::Took(vec!["0.0.0.0:443".parse().unwrap(), "[::1]:8443".parse().unwrap()]),
            Message::Openings((0..ENTRIES as u64).map(Opening).collect()),
            Message::Sessions(vec![session; ENTRIES]),
            Message::Go,
            Message::Packet(forwarded(65_507)),
            Message::Bounced(forwarded(0)),
        ] {
            send_now(&ours, &message, timeout).unwrap();
            let got = next_now(&theirs, Instant::now() + timeout).unwrap();
            assert_eq!(format!("{got:?}"), format!("{message:?}"));
        }
        (&ours).write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(next_now(&theirs, Instant::now() + timeout).is_err(), "too long");
        drop(ours);
        assert!(next_now(&theirs, Instant::now() + timeout).is_err());
    }

    #[test]
    fn truncated_messages_are_rejected() {
        let whole = Message::Sessions(vec![SessionAddress {
            listener: "127.0.0.1:1".parse().unwrap(),
            client: "127.0.0.1:2".parse().unwrap(),
            local: None,
        }])
        .encode();
        for cut in 6..whole.len() {
            assert!(Message::decode(&whole[4..cut]).is_none(), "{cut}");
        }
        assert!(Message::decode(b"").is_none() && Message::decode(b"x").is_none());
        assert!(Message::decode(b"p").is_none());
    }
}
