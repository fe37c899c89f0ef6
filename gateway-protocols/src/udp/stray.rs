//! Datagrams that reach another worker than their session's, and where they belong.

use std::net::{IpAddr, SocketAddr};

use dashmap::DashMap;
use tokio::sync::mpsc;

use super::initial::Id;

/// Where a client is, and which of our addresses it spoke to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AddressPair {
    pub(crate) client: SocketAddr,
    pub(crate) local: Option<IpAddr>,
}

/// A datagram that reached the wrong worker.
pub(crate) struct Stray {
    pub(crate) pair: AddressPair,
    pub(crate) datagram: Box<[u8]>,
}

/// Whose session an id belongs to, by port and id.
#[derive(Default)]
pub(crate) struct SessionOwners(pub(crate) DashMap<(u16, Id), (u64, mpsc::Sender<Stray>)>);
