//! The drivers: one file a protocol, each knowing how to open a connection and make one verified round trip.

use std::future::Future;

mod choice;
pub mod dtls;
pub mod fault;
pub mod grpc;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod link;
pub mod pattern;
pub mod stamp;
pub mod tcp;
pub mod udp;
pub mod ws;

pub use fault::{Fault, FaultKind};
pub use pattern::Pattern;
pub use stamp::Stamp;

/// Implemented once a protocol. The engine calls `connect` for each connection of its thread, and again when one
/// was lost. A constructor from a plan prepares what all connections of a thread share.
pub trait Driver: Sized + 'static {
    type Lane: Lane;

    /// Opens one connection and returns its lanes, as many as the plan has streams a connection.
    fn connect(&self) -> impl Future<Output = Result<NewConnection<Self::Lane>, Fault>>;
}

/// Implemented by one place for a request in flight. The engine calls `round_trip` again and again, never twice at
/// once.
pub trait Lane: 'static {
    /// Sends one request that carries the stamp and verifies the whole answer.
    fn round_trip(&mut self, stamp: Stamp) -> impl Future<Output = Result<VerifiedAnswer, Fault>>;
}

/// A freshly opened connection.
#[derive(Debug)]
pub struct NewConnection<L> {
    pub lanes: Vec<L>,
    /// What the handshake agreed on, such as `TLSv1_3 TLS13_AES_256_GCM_SHA384`.
    pub negotiated: Option<String>,
}

/// A verified answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedAnswer {
    /// The HTTP status; 0 where the protocol has none.
    pub status: u16,
    /// Bytes of the answer's body or message.
    pub body: usize,
    /// Whether the answer proved which request it belongs to.
    pub stamped: bool,
    /// The server announced that it closes the connection after this answer.
    pub last: bool,
}

impl VerifiedAnswer {
    /// An answer of a protocol without statuses.
    #[must_use]
    pub fn message(body: usize) -> Self {
        Self { status: 0, body, stamped: true, last: false }
    }
}
