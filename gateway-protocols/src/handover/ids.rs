//! QUIC connection IDs that identify the process and the socket of a packet.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use super::secrets;

/// Bytes of a connection ID: the number of the socket, the generation of the process with six random bits, four random bytes, and
/// a check value of two bytes. The check value distinguishes our IDs from IDs that clients chose. It is not a protection: a
/// forged ID only causes a useless forward.
const ID_BYTES: usize = 8;
/// Maximum number of handshakes that are remembered per socket.
const MAX_RECENT: usize = 4096;
/// How long a handshake is remembered.
const RECENT: Duration = Duration::from_secs(10);

/// Generates IDs that lead to a socket of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    place: u8,
    generation: u8,
    key: u64,
}

/// The owner of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A socket of this process.
    Place(u8),
    /// The predecessor of this process.
    Before,
    /// The first packets of a connection contain an ID that the client chose.
    Opening(Opening),
    /// The packet does not identify its owner.
    Unknown,
}

/// An unfinished handshake: a hash of the client's address and of the ID that the client chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Opening(pub(super) u64);

impl Ids {
    pub(crate) fn new(place: u8) -> Self {
        let secrets = secrets();
        Self { place, generation: secrets.generation(), key: secrets.ids() }
    }

    fn check(&self, head: [u8; 6]) -> [u8; 2] {
        let [a, b, c, d, e, f] = head;
        let [.., y, z] = mixed(self.key ^ u64::from_be_bytes([0, 0, a, b, c, d, e, f])).to_be_bytes();
        [y, z]
    }

    /// The socket and the generation in one of our IDs.
    fn read(&self, id: &[u8]) -> Option<(u8, u8)> {
        let (head, check) = id.split_first_chunk::<6>()?;
        (check == self.check(*head)).then_some((head[0], head[1] & 0b11))
    }

    /// The owner of a packet.
    pub(crate) fn owner(&self, client: SocketAddr, packet: &[u8]) -> Owner {
        let of = |read: Option<(u8, u8)>| match read {
            Some((place, generation)) if generation == self.generation => Owner::Place(place),
            Some(_) => Owner::Before,
            None => Owner::Unknown,
        };
        // RFC 9000 §17.3: in a short header, the ID follows the first byte.
        if packet.first().is_none_or(|first| first & 0x80 == 0) {
            return of(packet.get(1..=ID_BYTES).and_then(|id| self.read(id)));
        }
        // §17.2: in a long header, the version and the ID's length precede the ID.
        let id = packet.get(5).and_then(|length| packet.get(6..6 + usize::from(*length)));
        match id {
            None => Owner::Unknown,
            Some(id) => match of(Some(id).filter(|id| id.len() == ID_BYTES).and_then(|id| self.read(id))) {
                Owner::Unknown => Owner::Opening(self.opening(client, id)),
                owner => owner,
            },
        }
    }

    /// Every process of a chain of successors computes the same hash.
    fn opening(&self, client: SocketAddr, id: &[u8]) -> Opening {
        let ip = match client.ip() {
            std::net::IpAddr::V4(ip) => u128::from(u32::from(ip)),
            std::net::IpAddr::V6(ip) => u128::from(ip),
        };
        let mut hash = mixed(self.key ^ u64::from(client.port()));
        for piece in ip.to_be_bytes().chunks(8).chain(id.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            hash = mixed(hash ^ u64::from_be_bytes(bytes));
        }
        Opening(hash)
    }
}

/// The finaliser of SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let [_, chance, a, b, c, d, ..] = fastrand::u64(..).to_be_bytes();
        let head = [self.place, (chance & !0b11) | self.generation, a, b, c, d];
        let [y, z] = self.check(head);
        ConnectionId::new(&[head[0], head[1], a, b, c, d, y, z])
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.read(id).map(|_| ()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Recent handshakes on one socket.
#[derive(Debug, Default)]
pub(crate) struct Recent(HashMap<Opening, Instant>);

impl Recent {
    pub(crate) fn note(&mut self, opening: Opening, now: Instant) {
        if self.0.len() >= MAX_RECENT && !self.0.contains_key(&opening) {
            self.0.retain(|_, since| now < *since + RECENT);
            if self.0.len() >= MAX_RECENT {
                return;
            }
        }
        self.0.entry(opening).or_insert(now);
    }

    pub(super) fn under_way(&self, now: Instant) -> impl Iterator<Item = Opening> {
        self.0.iter().filter(move |(_, since)| now < **since + RECENT).map(|(opening, _)| *opening)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 4000))
    }

    fn long(id: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xc0, 0, 0, 0, 1, id.len() as u8];
        packet.extend_from_slice(id);
        packet
    }

    #[test]
    fn ids_lead_back_to_their_socket_and_generation() {
        let mut ids = Ids { place: 7, generation: 2, key: 99 };
        let next = Ids { place: 0, generation: 3, key: 99 };
        for _ in 0..1000 {
            let id = ids.generate_cid();
            let short = [&[0x40][..], &id].concat();
            for packet in [short, long(&id)] {
                assert_eq!(ids.owner(client(), &packet), Owner::Place(7));
                assert_eq!(next.owner(client(), &packet), Owner::Before);
            }
            assert!(ids.validate(&id).is_ok());
        }
        assert_eq!(ids.owner(client(), &[0x40]), Owner::Unknown);
        assert_eq!(ids.owner(client(), &[]), Owner::Unknown);
        assert_eq!(ids.owner(client(), &[0xc0, 0, 0, 0, 1, 20, 1]), Owner::Unknown);
    }

    #[test]
    fn ids_of_clients_are_hardly_ever_taken_for_ours() {
        let ids = Ids { place: 1, generation: 0, key: 5 };
        let taken = (0..10_000).filter(|_| {
            let id = fastrand::u64(..).to_be_bytes();
            !matches!(ids.owner(client(), &long(&id)), Owner::Opening(_))
        });
        assert!(taken.count() < 10);
        let [one, other] = [[1; 20], [2; 20]].map(|id| ids.owner(client(), &long(&id)));
        assert_ne!(one, other);
        assert_eq!(one, Ids { place: 4, generation: 1, key: 5 }.owner(client(), &long(&[1; 20])));
    }

    #[test]
    fn handshakes_are_remembered_for_a_while_and_in_bounds() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for n in 0..2 * MAX_RECENT as u64 {
            recent.note(Opening(n), now);
        }
        assert_eq!(recent.under_way(now).count(), MAX_RECENT);
        recent.note(Opening(u64::MAX), now + RECENT);
        assert_eq!(recent.under_way(now + RECENT).count(), 1);
    }
}
