//! Messages between control plane and edge, independent of their encoding.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use thiserror::Error;
use tokio::sync::OnceCell;

use crate::documents::{DocumentKey, Hash, Position};

/// Broken objects that a verdict names; it counts all of them.
pub const MAX_BROKEN: usize = 100;
/// Bytes of a configuration, compressed and not; larger ones are refused by both sides.
pub const MAX_CONFIGURATION_BYTES: usize = 1 << 30;

/// What an edge has and is, at the beginning of each connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Its version.
    pub version: String,
    /// Version of the configuration's schema that it reads.
    pub schema: u32,
    /// What it can do, such as `plugin:cors`.
    pub capabilities: Vec<String>,
    /// The configuration that it can apply a delta to.
    pub held: Option<Position>,
    /// The configuration that every worker serves.
    pub served: Option<Position>,
    /// The newest one that it refused, and why.
    pub refused: Option<(Position, String)>,
    /// Milliseconds since 1970, by its clock.
    pub clock: u64,
    /// What it can't use of what it serves.
    pub findings: Findings,
}

impl Hello {
    /// Its version and what it can do.
    pub fn abilities(&self) -> Abilities {
        let (version, capabilities) = (self.version.clone(), self.capabilities.clone());
        Abilities { version, schema: self.schema, capabilities }
    }
}

/// What an edge of a version can do, as its hello says. Edges that are alike share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Abilities {
    /// As [`Hello::version`].
    pub version: String,
    /// As [`Hello::schema`].
    pub schema: u32,
    /// As [`Hello::capabilities`].
    pub capabilities: Vec<String>,
}

/// From an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToControl {
    /// The first message of a connection.
    Hello(Hello),
    /// What became of a configuration.
    Verdict(Position, Verdict),
    /// A delta can't be used: the next transfer has to be a snapshot.
    Resync(String),
}

/// What became of a configuration at an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It came whole, and its hash is right.
    Received,
    /// It is compiled; the swap comes next.
    Compiled(Findings),
    /// Every worker serves it.
    Served(Findings),
    /// It is not used: the one before stays active.
    Refused(String),
}

/// The objects of a configuration that an edge can't use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// The first [`MAX_BROKEN`].
    pub broken: Vec<BrokenObject>,
    /// All of them.
    pub count: u64,
}

/// An object that an edge can't use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenObject {
    /// Which one.
    pub key: DocumentKey,
    /// Why.
    pub reason: String,
}

/// From a control plane.
#[derive(Debug, Clone)]
pub enum ToEdge {
    /// The first message of a connection. In a box, since the queue of each edge has room for 32 messages.
    Welcome(Box<Welcome>),
    /// Another configuration.
    Transfer(Arc<Transfer>),
    /// The edge has the newest configuration, at this position.
    Unchanged(Position),
    /// The edge's certificate is not accepted any more.
    Revoked(String),
    /// The control plane stops; the edge reconnects after a random part of this time.
    Drain(Duration),
}

/// Who an edge is, as the control plane sees it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The control plane's version.
    pub version: String,
    /// The edge's id.
    pub edge: String,
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// The keys for secrets in documents of this group.
    pub keys: String,
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome")
            .field("edge", &self.edge)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// What an edge is given to prove itself by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIdentity {
    /// The edge's id.
    pub edge: String,
    /// Its group.
    pub group: String,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub roots: String,
}

/// A configuration, or the difference to another one.
pub struct Transfer {
    /// The hash of the configuration that it is the difference to; `None` in a snapshot.
    pub from: Option<Hash>,
    /// What it leads to.
    pub to: Position,
    /// Documents that come or change.
    pub changed: Vec<(DocumentKey, Arc<str>)>,
    /// Documents that go.
    pub deleted: Vec<DocumentKey>,
    /// As it is sent: encoded once for all edges.
    pub(crate) encoded: OnceCell<Result<Encoded, WireError>>,
}

/// Why a message can't be read.
#[derive(Debug, Clone, Error)]
pub enum WireError {
    /// It is not what the protocol has here.
    #[error("the message has no {0}")]
    Missing(&'static str),
    /// A hash does not have 32 bytes.
    #[error("a hash has {0} bytes, not 32")]
    Hash(usize),
    /// A transfer is larger than the limit.
    #[error("a configuration of {0} bytes is larger than the limit of {MAX_CONFIGURATION_BYTES}")]
    TooLarge(u64),
    /// A transfer is cut off, or is not what its header says.
    #[error("the transfer can't be read: {0}")]
    Transfer(String),
    /// A transfer can't be compressed.
    #[error("the transfer can't be compressed: {0}")]
    Compression(String),
}

/// A transfer's compressed chunks.
#[derive(Clone)]
pub(crate) struct Encoded {
    pub(crate) chunks: Arc<[Bytes]>,
    /// Before compression.
    pub(crate) bytes: u64,
}

impl Transfer {
    /// A transfer that leads to `to`.
    pub fn new(
        from: Option<Hash>,
        to: Position,
        changed: Vec<(DocumentKey, Arc<str>)>,
        deleted: Vec<DocumentKey>,
    ) -> Self {
        Self { from, to, changed, deleted, encoded: OnceCell::new() }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (changed, deleted) = (self.changed.len(), self.deleted.len());
        write!(f, "Transfer({:?} -> {:?}, {changed} changed, {deleted} deleted)", self.from, self.to)
    }
}
