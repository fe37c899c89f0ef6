//! One stream on its way through the gateway, as the plugins see it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::consumer::Identity;
use crate::http::exchange::{Client, State, canonical};

/// One stream: a TCP connection, a UDP session, or a WebSocket after its handshake.
#[derive(Debug)]
pub struct Session {
    /// Who is at the other end.
    pub client: Arc<Client>,
    /// The address that counts as the client's.
    pub client_address: IpAddr,
    /// The server name of the client's TLS hello, terminated or only read.
    pub server_name: Option<Arc<str>>,
    /// Who the caller was recognised as.
    pub identity: Option<Arc<Identity>>,
    /// When it was accepted.
    pub started: Instant,
    /// What plugins remember between their hooks.
    pub state: State,
}

impl Session {
    /// A session as an adapter hands it over.
    pub fn new(client: Arc<Client>) -> Self {
        let client_address = canonical(client.peer.ip());
        let server_name = client.tls.as_ref().and_then(|tls| tls.server_name.clone());
        Self {
            client,
            client_address,
            server_name,
            identity: None,
            started: Instant::now(),
            state: State::default(),
        }
    }
}

/// Whether a new session may go on.
pub enum Gate<'a> {
    /// It may.
    Open,
    /// It may not; the word goes into the record.
    Refuse(&'static str),
    /// The decision takes a while.
    Wait(Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send + 'a>>),
}

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target.
    Up,
    /// From the target to the client.
    Down,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A WebSocket message that is UTF-8, and must be when it goes on.
    Text,
    /// A WebSocket message that is bytes.
    Binary,
    /// A datagram, decrypted where it came by DTLS.
    Datagram,
}

/// A message on its way, whole.
#[derive(Debug)]
pub struct Message<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// What it is.
    pub kind: Kind,
    /// What it says; may be changed.
    pub payload: &'a mut Bytes,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It goes on, as it now is.
    Forward,
    /// It is dropped.
    Drop,
    /// The session ends; a WebSocket with this close code (RFC 6455 §7.4), such as 1008.
    Close(u16),
}
