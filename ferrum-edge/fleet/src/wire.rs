//! The encoding of messages: Protocol Buffers of `specs/fleet.proto`, and transfers in compressed chunks.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use prost::bytes::Bytes;

use crate::documents::{DocumentKey, Hash, Position};
use crate::message::{
    BrokenObject, Encoded, Findings, Hello, MAX_BROKEN, MAX_CONFIGURATION_BYTES, ToControl, ToEdge, Transfer,
    Verdict, Welcome, WireError,
};

/// What `specs/fleet.proto` compiles to.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::or_fun_call,
    clippy::too_many_lines,
    clippy::excessive_nesting,
    clippy::use_self,
    elided_lifetimes_in_paths,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
pub(crate) mod proto {
    tonic::include_proto!("ferrum.fleet.v1");
}

use proto::control_message::Message as FromControl;
use proto::edge_message::Message as FromEdge;
use proto::verdict::Verdict as Sent;

/// Bytes of compressed data in a chunk, at most.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Bytes in a chunk that is sent: the connection of each edge keeps a buffer of this size.
const SENT_BYTES: usize = 4 << 10;
/// Bytes of documents, and deleted ones, that are encoded where they are sent: it takes less time than another thread would.
const ENCODED_AT_ONCE: usize = 64 << 10;
const DELETED_AT_ONCE: usize = 1 << 10;
/// zstd's level: higher ones take longer than the network does.
const LEVEL: i32 = 3;
/// Bytes of a reason that is sent.
const MAX_REASON: usize = 2048;

impl From<&Position> for proto::Position {
    fn from(position: &Position) -> Self {
        let hash = Bytes::copy_from_slice(position.hash.as_bytes());
        Self { epoch: position.epoch.to_string(), revision: position.revision, hash }
    }
}

impl TryFrom<proto::Position> for Position {
    type Error = WireError;

    fn try_from(sent: proto::Position) -> Result<Self, WireError> {
        Ok(Self { epoch: sent.epoch.into(), revision: sent.revision, hash: hash(&sent.hash)? })
    }
}

fn hash(bytes: &[u8]) -> Result<Hash, WireError> {
    Hash::try_from(bytes).map_err(|_| WireError::Hash(bytes.len()))
}

fn position(sent: Option<proto::Position>) -> Result<Position, WireError> {
    sent.ok_or(WireError::Missing("position"))?.try_into()
}

/// The beginning of a text, as far as it is sent.
fn cut(text: &str) -> String {
    let end = (0..=MAX_REASON.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

fn broken_to_wire(findings: &Findings) -> Vec<proto::BrokenObject> {
    let objects = findings.broken.iter().take(MAX_BROKEN).map(|object| proto::BrokenObject {
        kind: object.key.kind.to_string(),
        id: object.key.id.to_string(),
        reason: cut(&object.reason),
    });
    objects.collect()
}

fn findings(broken: Vec<proto::BrokenObject>, count: u64) -> Findings {
    let broken = broken.into_iter().take(MAX_BROKEN);
    let broken = broken
        .map(|object| BrokenObject { key: DocumentKey::new(object.kind, object.id), reason: object.reason });
    Findings { broken: broken.collect(), count }
}

/// An edge's message, to be sent.
pub(crate) fn from_edge(message: &ToControl) -> proto::EdgeMessage {
    let message = match message {
        ToControl::Hello(hello) => FromEdge::Hello(proto::Hello {
            version: hello.version.clone(),
            schema: hello.schema,
            capabilities: hello.capabilities.clone(),
            held: hello.held.as_ref().map(Into::into),
            served: hello.served.as_ref().map(Into::into),
            refused: hello.refused.as_ref().map(|(position, _)| position.into()),
            reason: hello.refused.as_ref().map(|(_, reason)| cut(reason)).unwrap_or_default(),
            clock: hello.clock,
            broken: broken_to_wire(&hello.findings),
            broken_count: hello.findings.count,
        }),
        ToControl::Resync(reason) => FromEdge::Resync(proto::Resync { reason: cut(reason) }),
        ToControl::Verdict(position, verdict) => {
            let verdict = match verdict {
                Verdict::Received => Sent::Received(proto::Received {}),
                Verdict::Compiled(findings) => Sent::Compiled(proto::Compiled {
                    broken: broken_to_wire(findings),
                    broken_count: findings.count,
                }),
                Verdict::Served(findings) => Sent::Served(proto::Served {
                    broken: broken_to_wire(findings),
                    broken_count: findings.count,
                }),
                Verdict::Refused(reason) => Sent::Refused(proto::Refused { reason: cut(reason) }),
            };
            FromEdge::Verdict(proto::Verdict { position: Some(position.into()), verdict: Some(verdict) })
        }
    };
    proto::EdgeMessage { message: Some(message) }
}

/// A message that came from an edge.
pub(crate) fn to_control(message: proto::EdgeMessage) -> Result<ToControl, WireError> {
    match message.message.ok_or(WireError::Missing("message"))? {
        FromEdge::Hello(hello) => {
            let optional = |sent: Option<proto::Position>| sent.map(Position::try_from).transpose();
            let refused = optional(hello.refused)?.map(|position| (position, hello.reason));
            Ok(ToControl::Hello(Hello {
                version: hello.version,
                schema: hello.schema,
                capabilities: hello.capabilities,
                held: optional(hello.held)?,
                served: optional(hello.served)?,
                refused,
                clock: hello.clock,
                findings: findings(hello.broken, hello.broken_count),
            }))
        }
        FromEdge::Resync(resync) => Ok(ToControl::Resync(resync.reason)),
        FromEdge::Verdict(sent) => {
            let verdict = match sent.verdict.ok_or(WireError::Missing("verdict"))? {
                Sent::Received(_) => Verdict::Received,
                Sent::Compiled(compiled) => {
                    Verdict::Compiled(findings(compiled.broken, compiled.broken_count))
                }
                Sent::Served(served) => Verdict::Served(findings(served.broken, served.broken_count)),
                Sent::Refused(refused) => Verdict::Refused(refused.reason),
            };
            Ok(ToControl::Verdict(position(sent.position)?, verdict))
        }
    }
}

/// A message of the control plane that is no transfer, to be sent.
pub(crate) fn from_control(message: &ToEdge) -> Option<proto::ControlMessage> {
    let message = match message {
        ToEdge::Transfer(_) => return None,
        ToEdge::Welcome(welcome) => FromControl::Welcome(proto::Welcome {
            version: welcome.version.clone(),
            edge: welcome.edge.clone(),
            name: welcome.name.clone(),
            group: welcome.group.clone(),
            keys: welcome.keys.clone(),
        }),
        ToEdge::Unchanged(position) => {
            FromControl::Unchanged(proto::Unchanged { position: Some(position.into()) })
        }
        ToEdge::Revoked(reason) => FromControl::Revoked(proto::Revoked { reason: cut(reason) }),
        ToEdge::Drain(delay) => {
            FromControl::Drain(proto::Drain { delay: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX) })
        }
    };
    Some(proto::ControlMessage { message: Some(message) })
}

impl Transfer {
    /// Its chunks, encoded and compressed once for all edges that get it. A large one is encoded on a thread of its own, for which
    /// all of them wait without a thread.
    pub(crate) async fn encoded(self: &Arc<Self>) -> Result<Encoded, WireError> {
        let texts = self.changed.iter().map(|(_, text)| text.len());
        let is_small = texts.sum::<usize>() <= ENCODED_AT_ONCE && self.deleted.len() <= DELETED_AT_ONCE;
        let encode = || async {
            if is_small {
                return self.encode();
            }
            let transfer = self.clone();
            let encoded = tokio::task::spawn_blocking(move || transfer.encode()).await;
            encoded.unwrap_or_else(|panicked| Err(WireError::Compression(panicked.to_string())))
        };
        self.encoded.get_or_init(encode).await.clone()
    }

    pub(crate) fn encode(&self) -> Result<Encoded, WireError> {
        let object = |(key, text): &(DocumentKey, Arc<str>)| proto::Object {
            kind: key.kind.to_string(),
            id: key.id.to_string(),
            document: text.to_string(),
        };
        let key = |key: &DocumentKey| proto::ObjectKey { kind: key.kind.to_string(), id: key.id.to_string() };
        let changes = proto::Changes {
            changed: self.changed.iter().map(object).collect(),
            deleted: self.deleted.iter().map(key).collect(),
        };
        let plain = changes.encode_to_vec();
        if plain.len() > MAX_CONFIGURATION_BYTES {
            return Err(WireError::TooLarge(plain.len() as u64));
        }
        let compressed = zstd::stream::encode_all(plain.as_slice(), LEVEL);
        let compressed = Bytes::from(compressed.map_err(|error| WireError::Compression(error.to_string()))?);
        let starts = (0..compressed.len().max(1)).step_by(SENT_BYTES);
        let chunks = starts.map(|at| compressed.slice(at..(at + SENT_BYTES).min(compressed.len())));
        Ok(Encoded { chunks: chunks.collect(), bytes: plain.len() as u64 })
    }

    /// One of its chunks, to be sent; `None` behind the last.
    pub(crate) fn chunk(&self, encoded: &Encoded, number: usize) -> Option<proto::ControlMessage> {
        let data = encoded.chunks.get(number)?.clone();
        let header = (number == 0).then(|| proto::TransferHeader {
            from: self.from.map(|hash| Bytes::copy_from_slice(hash.as_bytes())).unwrap_or_default(),
            to: Some((&self.to).into()),
            bytes: encoded.bytes,
        });
        let chunk = proto::Chunk { header, data, last: number + 1 == encoded.chunks.len() };
        Some(proto::ControlMessage { message: Some(FromControl::Chunk(chunk)) })
    }
}

/// Puts transfers together from their chunks.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    header: Option<proto::TransferHeader>,
    data: Vec<u8>,
}

/// What an edge reads of a message.
#[derive(Debug)]
pub(crate) enum Piece {
    /// All of it.
    Message(ToEdge),
    /// A transfer, to be read by [`Whole::transfer`].
    Whole(Whole),
    /// The rest comes later.
    Part,
}

/// A transfer that came whole.
#[derive(Debug)]
pub(crate) struct Whole {
    header: proto::TransferHeader,
    data: Vec<u8>,
}

impl Assembler {
    /// Takes a message of the control plane.
    pub(crate) fn take(&mut self, message: proto::ControlMessage) -> Result<Piece, WireError> {
        Ok(Piece::Message(match message.message.ok_or(WireError::Missing("message"))? {
            FromControl::Chunk(chunk) => return self.chunk(chunk),
            FromControl::Welcome(welcome) => ToEdge::Welcome(Box::new(Welcome {
                version: welcome.version,
                edge: welcome.edge,
                name: welcome.name,
                group: welcome.group,
                keys: welcome.keys,
            })),
            FromControl::Unchanged(unchanged) => ToEdge::Unchanged(position(unchanged.position)?),
            FromControl::Revoked(revoked) => ToEdge::Revoked(revoked.reason),
            FromControl::Drain(drain) => ToEdge::Drain(Duration::from_millis(drain.delay)),
        }))
    }

    fn chunk(&mut self, chunk: proto::Chunk) -> Result<Piece, WireError> {
        if let Some(header) = chunk.header {
            if header.bytes > MAX_CONFIGURATION_BYTES as u64 {
                return Err(WireError::TooLarge(header.bytes));
            }
            self.header = Some(header);
            self.data.clear();
        }
        let length = self.data.len() + chunk.data.len();
        if length > MAX_CONFIGURATION_BYTES {
            return Err(WireError::TooLarge(length as u64));
        }
        self.data.extend_from_slice(&chunk.data);
        if !chunk.last {
            return Ok(Piece::Part);
        }
        let header = self.header.take().ok_or(WireError::Missing("header"))?;
        Ok(Piece::Whole(Whole { header, data: std::mem::take(&mut self.data) }))
    }
}

impl Whole {
    /// Decompresses and reads it. Takes long for a large one.
    pub(crate) fn transfer(self) -> Result<Transfer, WireError> {
        let failed = |error: &dyn std::fmt::Display| WireError::Transfer(error.to_string());
        let limit = self.header.bytes;
        let mut plain = Vec::new();
        let reader =
            zstd::stream::read::Decoder::new(self.data.as_slice()).map_err(|error| failed(&error))?;
        reader.take(limit + 1).read_to_end(&mut plain).map_err(|error| failed(&error))?;
        if plain.len() as u64 != limit {
            return Err(failed(&format_args!("it is not {limit} bytes long")));
        }
        let changes = proto::Changes::decode(Bytes::from(plain)).map_err(|error| failed(&error))?;
        let from = Some(&self.header.from).filter(|from| !from.is_empty());
        let from = from.map(|from| hash(from)).transpose()?;
        let changed = changes.changed.into_iter();
        let changed = changed
            .map(|object| (DocumentKey::new(object.kind, object.id), Arc::from(object.document.as_str())));
        let deleted = changes.deleted.into_iter().map(|key| DocumentKey::new(key.kind, key.id));
        Ok(Transfer::new(from, position(self.header.to)?, changed.collect(), deleted.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(transfer: &Transfer) -> Result<Transfer, WireError> {
        let encoded = transfer.encode().unwrap();
        let mut assembler = Assembler::default();
        let mut number = 0;
        loop {
            let message = transfer.chunk(&encoded, number).expect("a last chunk comes before");
            assert!(message.encoded_len() < SENT_BYTES + 256);
            match assembler.take(message)? {
                Piece::Part => number += 1,
                Piece::Whole(whole) => return whole.transfer(),
                Piece::Message(message) => panic!("{message:?}"),
            }
        }
    }

    fn sample(bytes: usize) -> Transfer {
        let mut random = fastrand::Rng::with_seed(1);
        let text: String = (0..bytes).map(|_| random.alphanumeric()).collect();
        let to = Position { epoch: "e".into(), revision: 7, hash: Hash::default() };
        let changed = vec![(DocumentKey::new("proxies", "a"), Arc::from(text))];
        Transfer::new(Some(Hash::default()), to, changed, vec![DocumentKey::new("consumers", "b")])
    }

    #[test]
    fn transfers_of_any_size_come_back() {
        for bytes in [0, 1, CHUNK_BYTES, 5 * CHUNK_BYTES] {
            let transfer = sample(bytes);
            let back = received(&transfer).unwrap();
            assert_eq!((back.from, &back.to), (transfer.from, &transfer.to));
            assert_eq!((&back.changed, &back.deleted), (&transfer.changed, &transfer.deleted));
        }
        let empty = Transfer::new(None, Position::default(), Vec::new(), Vec::new());
        assert!(received(&empty).unwrap().changed.is_empty());
    }

    #[tokio::test]
    async fn a_transfer_is_encoded_once_for_all_edges() {
        for bytes in [100, 2 * ENCODED_AT_ONCE] {
            let transfer = Arc::new(sample(bytes));
            let all = futures_util::future::join_all((0..50).map(|_| transfer.encoded())).await;
            let all: Vec<Encoded> = all.into_iter().map(Result::unwrap).collect();
            assert!(all.iter().all(|encoded| Arc::ptr_eq(&encoded.chunks, &all[0].chunks)), "{bytes} bytes");
        }
    }

    #[test]
    fn what_is_cut_off_or_larger_than_announced_is_refused() {
        let transfer = sample(100);
        let encoded = transfer.encode().unwrap();
        let chunk = |change: fn(&mut proto::Chunk)| {
            let message = transfer.chunk(&encoded, 0).unwrap();
            let Some(FromControl::Chunk(mut chunk)) = message.message else { panic!("a chunk") };
            change(&mut chunk);
            let message = proto::ControlMessage { message: Some(FromControl::Chunk(chunk)) };
            match Assembler::default().take(message)? {
                Piece::Whole(whole) => whole.transfer().map(drop),
                other => panic!("{other:?}"),
            }
        };
        assert!(chunk(|_| {}).is_ok());
        let shorter = chunk(|chunk| chunk.header.as_mut().unwrap().bytes -= 1);
        assert!(matches!(shorter, Err(WireError::Transfer(_))), "{shorter:?}");
        assert!(chunk(|chunk| chunk.header.as_mut().unwrap().bytes += 1).is_err());
        assert!(chunk(|chunk| chunk.data.truncate(20)).is_err());
        assert!(matches!(chunk(|chunk| chunk.header = None), Err(WireError::Missing("header"))));
        let huge = chunk(|chunk| chunk.header.as_mut().unwrap().bytes = u64::MAX);
        assert!(matches!(huge, Err(WireError::TooLarge(_))), "{huge:?}");
    }

    #[test]
    fn every_message_of_an_edge_comes_back() {
        let at = Position { epoch: "e".into(), revision: 3, hash: Hash::default() };
        let broken = BrokenObject { key: DocumentKey::new("proxies", "x"), reason: "no port".to_owned() };
        let findings = Findings { broken: vec![broken], count: 120 };
        let hello = Hello {
            version: "0.1.0".to_owned(),
            schema: 1,
            capabilities: vec!["plugin:cors".to_owned()],
            held: Some(at.clone()),
            served: None,
            refused: Some((at.clone(), "port in use".to_owned())),
            clock: 9,
            findings: findings.clone(),
        };
        let verdict = |verdict| ToControl::Verdict(at.clone(), verdict);
        for message in [
            ToControl::Hello(hello),
            ToControl::Resync("why".to_owned()),
            verdict(Verdict::Received),
            verdict(Verdict::Compiled(findings.clone())),
            verdict(Verdict::Served(findings)),
            verdict(Verdict::Refused("why".to_owned())),
        ] {
            assert_eq!(to_control(from_edge(&message)).unwrap(), message);
        }
        let long = ToControl::Resync("é".repeat(5000));
        let ToControl::Resync(cut) = to_control(from_edge(&long)).unwrap() else { panic!("a resync") };
        assert!(cut.len() <= MAX_REASON && cut.ends_with('é'));
    }
}
