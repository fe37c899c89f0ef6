//! The messages of `specs/fleet.proto`, encoded and decoded by hand: the bench is a second implementation of the protocol, so it finds
//! what a shared one would hide.

use bytes::Bytes;

use super::error::FleetError;

/// SHA-256.
pub(super) type Hash = [u8; 32];

/// A state of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Position {
    pub(super) epoch: String,
    pub(super) revision: u64,
    pub(super) hash: Hash,
}

/// A message of the control plane on the stream.
#[derive(Debug)]
pub(super) enum FromControl {
    /// Who the edge is; nothing here depends on it.
    Welcome,
    Chunk(Chunk),
    Unchanged(Position),
    Revoked,
    Drain,
}

/// A piece of a transfer.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) header: Option<Header>,
    pub(super) data: Vec<u8>,
    pub(super) is_last: bool,
}

/// What a transfer leads to.
#[derive(Debug, Clone, Default)]
pub(super) struct Header {
    /// `None`: a snapshot.
    pub(super) from: Option<Hash>,
    pub(super) to: Position,
    /// Bytes before compression.
    pub(super) bytes: usize,
}

/// A document of a transfer: kind, id, text. `None`: it is deleted.
pub(super) type Change = (String, String, Option<String>);

const VERSION: &str = concat!("proto_bench ", env!("CARGO_PKG_VERSION"));
/// The newest version of the configuration's schema: a bench compiles nothing, so it accepts all.
const SCHEMA: u64 = 1;

/// The first message of an edge.
pub(super) fn hello(held: Option<&Position>, clock: u64) -> Vec<u8> {
    let mut hello = Writer::default();
    hello.bytes(1, VERSION.as_bytes());
    hello.number(2, SCHEMA);
    if let Some(held) = held {
        let held = position(held);
        hello.bytes(4, &held);
        hello.bytes(5, &held);
    }
    hello.number(8, clock);
    within(1, &hello.0)
}

/// The edge has a whole configuration whose hash is right.
pub(super) fn received(at: &Position) -> Vec<u8> {
    verdict(at, 2)
}

/// The edge serves it.
pub(super) fn served(at: &Position) -> Vec<u8> {
    verdict(at, 3)
}

/// The edge needs a snapshot.
pub(super) fn resync(reason: &str) -> Vec<u8> {
    within(3, &within(1, reason.as_bytes()))
}

/// Exchanges a code for a certificate.
pub(super) fn enrol(code: &str, request: &str) -> Vec<u8> {
    let mut message = Writer::default();
    message.bytes(1, code.as_bytes());
    message.bytes(2, request.as_bytes());
    message.bytes(3, VERSION.as_bytes());
    message.0
}

/// The certificate chain of an answer to [`enrol`], in PEM.
pub(super) fn certificate(identity: &[u8]) -> Result<String, FleetError> {
    for field in Fields(identity) {
        if let (3, Value::Bytes(pem)) = field? {
            return text(pem);
        }
    }
    Err(FleetError::Protocol("an identity without a certificate".to_owned()))
}

fn verdict(at: &Position, kind: u32) -> Vec<u8> {
    let mut verdict = Writer::default();
    verdict.bytes(1, &position(at));
    verdict.bytes(kind, &[]);
    within(2, &verdict.0)
}

fn position(position: &Position) -> Vec<u8> {
    let mut message = Writer::default();
    message.bytes(1, position.epoch.as_bytes());
    message.number(2, position.revision);
    message.bytes(3, &position.hash);
    message.0
}

fn within(field: u32, message: &[u8]) -> Vec<u8> {
    let mut outer = Writer::default();
    outer.bytes(field, message);
    outer.0
}

impl FromControl {
    pub(super) fn decode(message: &Bytes) -> Result<Self, FleetError> {
        match Fields(message).next() {
            Some(Ok((1, Value::Bytes(_)))) => Ok(Self::Welcome),
            Some(Ok((2, Value::Bytes(chunk)))) => Chunk::decode(chunk).map(Self::Chunk),
            Some(Ok((3, Value::Bytes(unchanged)))) => match Fields(unchanged).next() {
                Some(Ok((1, Value::Bytes(at)))) => Position::decode(at).map(Self::Unchanged),
                _ => Err(FleetError::Protocol("no position".to_owned())),
            },
            Some(Ok((4, Value::Bytes(_)))) => Ok(Self::Revoked),
            Some(Ok((5, Value::Bytes(_)))) => Ok(Self::Drain),
            Some(Err(error)) => Err(error),
            _ => Err(FleetError::Protocol("an unknown message".to_owned())),
        }
    }
}

impl Position {
    fn decode(message: &[u8]) -> Result<Self, FleetError> {
        let mut position = Self::default();
        for field in Fields(message) {
            match field? {
                (1, Value::Bytes(epoch)) => position.epoch = text(epoch)?,
                (2, Value::Number(revision)) => position.revision = revision,
                (3, Value::Bytes(hash)) => position.hash = sized(hash)?,
                _ => {}
            }
        }
        Ok(position)
    }
}

impl Chunk {
    fn decode(message: &[u8]) -> Result<Self, FleetError> {
        let mut chunk = Self::default();
        for field in Fields(message) {
            match field? {
                (1, Value::Bytes(header)) => chunk.header = Some(Header::decode(header)?),
                (2, Value::Bytes(data)) => chunk.data = data.to_vec(),
                (3, Value::Number(is_last)) => chunk.is_last = is_last != 0,
                _ => {}
            }
        }
        Ok(chunk)
    }
}

impl Header {
    fn decode(message: &[u8]) -> Result<Self, FleetError> {
        let mut header = Self::default();
        for field in Fields(message) {
            match field? {
                (1, Value::Bytes(from)) if !from.is_empty() => header.from = Some(sized(from)?),
                (2, Value::Bytes(to)) => header.to = Position::decode(to)?,
                (3, Value::Number(bytes)) => header.bytes = usize::try_from(bytes).unwrap_or(usize::MAX),
                _ => {}
            }
        }
        Ok(header)
    }
}

/// The documents of a transfer, decompressed.
pub(super) fn changes(message: &[u8]) -> Result<Vec<Change>, FleetError> {
    let mut changes = Vec::new();
    for field in Fields(message) {
        let (number, Value::Bytes(object)) = field? else { continue };
        let (mut kind, mut id, mut document) = (String::new(), String::new(), String::new());
        for field in Fields(object) {
            match field? {
                (1, Value::Bytes(bytes)) => kind = text(bytes)?,
                (2, Value::Bytes(bytes)) => id = text(bytes)?,
                (3, Value::Bytes(bytes)) => document = text(bytes)?,
                _ => {}
            }
        }
        changes.push((kind, id, (number == 1).then_some(document)));
    }
    Ok(changes)
}

fn text(bytes: &[u8]) -> Result<String, FleetError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| FleetError::Protocol("a text that is not UTF-8".to_owned()))
}

fn sized(bytes: &[u8]) -> Result<Hash, FleetError> {
    bytes.try_into().map_err(|_| FleetError::Protocol("a hash that does not have 32 bytes".to_owned()))
}

/// Encodes Protocol Buffers.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push((value & 0x7f) as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

#[derive(Debug)]
enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// The fields of a message, in order.
struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Value<'m>)> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u32, Value<'m>), FleetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| FleetError::Protocol("a message that ends too early".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_read_and_what_is_cut_off_is_refused() {
        let mut to = Writer::default();
        to.bytes(1, b"epoch");
        to.number(2, 300);
        to.bytes(3, &[7; 32]);
        let mut header = Writer::default();
        header.bytes(2, &to.0);
        header.number(3, 70_000);
        let mut chunk = Writer::default();
        chunk.bytes(1, &header.0);
        chunk.bytes(2, b"data");
        chunk.number(3, 1);
        let message = within(2, &chunk.0);
        let Ok(FromControl::Chunk(read)) = FromControl::decode(&message.clone().into()) else {
            panic!("a chunk is read")
        };
        let header = read.header.expect("a header");
        assert_eq!((header.to.revision, header.to.hash, header.bytes), (300, [7; 32], 70_000));
        assert_eq!((header.from, &*read.data, read.is_last), (None, &b"data"[..], true));
        for end in 0..message.len() {
            assert!(FromControl::decode(&message.slice_to(end)).is_err(), "{end}");
        }
    }

    trait SliceTo {
        fn slice_to(&self, end: usize) -> Bytes;
    }

    impl SliceTo for Vec<u8> {
        fn slice_to(&self, end: usize) -> Bytes {
            self[..end].to_vec().into()
        }
    }
}
