//! Datagrams that reach another worker than their session's, and where they belong.

use std::net::{IpAddr, SocketAddr};

use dashmap::DashMap;
use tokio::sync::mpsc;

use super::initial::Id;

/// Where a client is, and which of our addresses it spoke to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AddressPair {
    pub(super) client: SocketAddr,
    pub(super) local: Option<IpAddr>,
}

/// A datagram that reached the wrong worker.
pub(super) struct Stray {
    pub(super) pair: AddressPair,
    pub(super) datagram: Box<[u8]>,
}

/// Whose session an id belongs to, by port and id.
#[derive(Default)]
pub(crate) struct SessionOwners(pub(super) DashMap<(u16, Id), (u64, mpsc::Sender<Stray>)>);
