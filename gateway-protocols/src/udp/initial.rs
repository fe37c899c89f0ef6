//! QUIC as far as it can be read without taking part: connection ids (RFC 8999), and the server name in a client's first
//! packets, whose keys anybody can compute (RFC 9001 §5.2).

use gateway_core::stream::sniff::{self, Hello, MAX_HELLO};
use rustls::Side;
use rustls::quic::{Keys, Version};

/// The longest connection id of the versions there are.
const MAX_ID: usize = 20;
/// A client's first datagrams are at least so long (RFC 9000 §14.1).
const MIN_INITIAL: usize = 1200;

/// A connection id.
pub(crate) type Id = smallvec::SmallVec<[u8; MAX_ID]>;

/// A packet with a long header.
#[derive(Debug)]
pub(crate) struct Long<'d> {
    pub(crate) version: u32,
    pub(crate) destination: &'d [u8],
    pub(crate) source: &'d [u8],
    /// Bytes up to the end of the ids.
    size: usize,
}

impl<'d> Long<'d> {
    /// Reads what all versions have in common; `None` for a short header, or something else altogether.
    pub(crate) fn read(datagram: &'d [u8]) -> Option<Self> {
        let mut reader = QuicReader { bytes: datagram, at: 0 };
        if reader.take(1)?.first()? & 0x80 == 0 {
            return None;
        }
        let version = u32::from_be_bytes(*reader.take(4)?.first_chunk()?);
        let destination = reader.id()?;
        let source = reader.id()?;
        Some(Self { version, destination, source, size: reader.at })
    }
}

/// Whether a datagram may be QUIC with a short header. The fixed bit is not looked at: it may be greased (RFC 9287).
pub(crate) fn is_short(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x80 == 0)
}

struct QuicReader<'d> {
    bytes: &'d [u8],
    at: usize,
}

impl<'d> QuicReader<'d> {
    fn take(&mut self, length: usize) -> Option<&'d [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn id(&mut self) -> Option<&'d [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        if length > MAX_ID { None } else { self.take(length) }
    }

    /// RFC 9000 §16.
    fn varint(&mut self) -> Option<usize> {
        let first = *self.bytes.get(self.at)?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        // The two highest bits said how long it is.
        let mask = u64::MAX >> (66 - 8 * bytes.len());
        usize::try_from(value & mask).ok()
    }
}

/// What a client's first datagrams tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedName {
    /// The name it asks for, if it asks for one.
    Name(Option<String>),
    /// More datagrams are needed.
    More,
    /// It is no beginning of a connection that could be read.
    Unknown,
}

/// The handshake of a client, put together from its first packets.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    crypto: Vec<u8>,
    /// Which bytes of it are there: sorted, never touching each other.
    known: Vec<(usize, usize)>,
    /// The id the keys come from.
    destination: Id,
}

/// Pieces a handshake may be in; a client in earnest needs a few.
const MAX_PIECES: usize = 32;

impl Opening {
    /// Takes a datagram of the client.
    pub(crate) fn take(&mut self, datagram: &[u8]) -> RequestedName {
        if datagram.len() < MIN_INITIAL {
            return RequestedName::Unknown;
        }
        let mut rest = datagram;
        let mut read = false;
        // Several packets may share a datagram (RFC 9000 §12.2).
        while let Some((length, frames)) = self.open(rest) {
            read = true;
            if self.frames(&frames).is_none() {
                return RequestedName::Unknown;
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        if !read {
            return RequestedName::Unknown;
        }
        let whole = match self.known.first() {
            Some((0, end)) => self.crypto.get(..*end).unwrap_or_default(),
            _ => &[],
        };
        match sniff::client_hello_message(whole) {
            Hello::Name(name) => RequestedName::Name(name),
            Hello::More => RequestedName::More,
            Hello::NotTls => RequestedName::Unknown,
        }
    }

    /// The ALPN protocols that the client offers, in its order; none before its hello is whole.
    pub(crate) fn alpn_protocols(&self) -> Vec<Vec<u8>> {
        match self.known.first() {
            Some((0, end)) => sniff::alpn_of_message(self.crypto.get(..*end).unwrap_or_default()),
            _ => Vec::new(),
        }
    }

    /// What must hold between two datagrams.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check(&self) {
        assert!(self.crypto.len() <= MAX_HELLO + 4, "a handshake has a limit");
        assert!(self.known.windows(2).all(|pair| pair[0].1 < pair[1].0), "its pieces are sorted and apart");
    }

    /// Opens the Initial packet at the front: how long it is, and the frames in it.
    fn open(&mut self, datagram: &[u8]) -> Option<(usize, Vec<u8>)> {
        let long = Long::read(datagram)?;
        let kind = datagram.first()? >> 4 & 3;
        let version = match (long.version, kind) {
            (1, 0) => Version::V1,
            (0x6B33_43CF, 1) => Version::V2,
            _ => return None,
        };
        if self.destination.is_empty() {
            self.destination = Id::from_slice(long.destination);
        }
        let mut reader = QuicReader { bytes: datagram, at: long.size };
        let token = reader.varint()?;
        reader.take(token)?;
        let length = reader.varint()?;
        let number_at = reader.at;
        let end = number_at.checked_add(length)?;
        let mut packet = datagram.get(..end)?.to_vec();
        let keys = keys(version, &self.destination)?;
        let sample_at = number_at + 4;
        let (header, sealed) = packet.split_at_mut_checked(sample_at)?;
        let sample = sealed.get(..keys.remote.header.sample_len())?;
        let (first, number) = header.split_at_mut_checked(number_at)?;
        keys.remote.header.decrypt_in_place(sample, first.first_mut()?, number).ok()?;
        let bytes = usize::from(*first.first()? & 3) + 1;
        let number = number.get(..bytes)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let (header, payload) = packet.split_at_mut_checked(number_at + bytes)?;
        let frames = keys.remote.packet.decrypt_in_place(number, header, payload).ok()?;
        Some((end, frames.to_vec()))
    }

    /// Gathers the handshake from the frames of a packet; `None` when they are not such as an Initial may have.
    fn frames(&mut self, frames: &[u8]) -> Option<()> {
        let mut reader = QuicReader { bytes: frames, at: 0 };
        while reader.at < frames.len() {
            match reader.varint()? {
                // PADDING, PING
                0 | 1 => {}
                // ACK
                kind @ (2 | 3) => {
                    reader.varint()?;
                    reader.varint()?;
                    let ranges = reader.varint()?;
                    reader.varint()?;
                    for _ in 0..ranges {
                        reader.varint()?;
                        reader.varint()?;
                    }
                    for _ in 0..if kind == 3 { 3 } else { 0 } {
                        reader.varint()?;
                    }
                }
                // CRYPTO
                6 => {
                    let offset = reader.varint()?;
                    let length = reader.varint()?;
                    self.piece(offset, reader.take(length)?)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn piece(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= MAX_HELLO + 4)?;
        if bytes.is_empty() {
            return Some(());
        }
        if self.crypto.len() < end {
            self.crypto.resize(end, 0);
        }
        self.crypto.get_mut(offset..end)?.copy_from_slice(bytes);
        self.known.push((offset, end));
        self.known.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::with_capacity(self.known.len());
        for (start, end) in self.known.drain(..) {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        self.known = joined;
        (self.known.len() <= MAX_PIECES).then_some(())
    }
}

/// The keys for a client's Initial packets; they protect nothing from anybody who looks.
fn keys(version: Version, destination: &[u8]) -> Option<Keys> {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(Keys::initial(version, suite, suite.quic?, destination, Side::Server))
}

#[cfg(test)]
mod tests;
