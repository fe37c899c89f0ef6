//! Sessions by the connection ids of QUIC, as far as they can be seen: servers' first ids, and those that clients use.
//!
//! The kernel spreads clients over the workers by their address, so one whose address has changed may reach a worker
//! that knows nothing of it. The ids are therefore known to all workers, and each has a way to the others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::initial::{Id, Long, is_short};
use super::stray::{SessionOwners, Stray};

/// Ids kept of a session.
const MAX_IDS: usize = 8;
/// Datagrams on their way from one worker to another; beyond that they are lost, as datagrams may be.
const QUEUE: usize = 1024;
/// The lengths an id may have.
const LENGTHS: std::ops::RangeInclusive<usize> = 1..=20;

/// One worker's view of the sessions on a port.
pub(crate) struct Connections {
    port: u16,
    here: HashMap<Id, u64>,
    /// How many ids there are of each length, since a short header doesn't say where its id ends.
    lengths: [usize; 21],
    known: Arc<SessionOwners>,
    way: mpsc::Sender<Stray>,
}

/// The ids of one session.
#[derive(Default)]
pub(crate) struct Ids(Vec<Id>);

/// Where a session is.
pub(crate) enum SessionLookup {
    Here(u64),
    There(mpsc::Sender<Stray>),
}

impl Connections {
    /// No sessions yet, and where those of others' datagrams arrive that belong here.
    pub(crate) fn new(port: u16, known: Arc<SessionOwners>) -> (Self, mpsc::Receiver<Stray>) {
        let (way, strays) = mpsc::channel(QUEUE);
        (Self { port, here: HashMap::new(), lengths: [0; 21], known, way }, strays)
    }

    /// The session of a datagram with a short header.
    pub(crate) fn find(&self, datagram: &[u8]) -> Option<SessionLookup> {
        let id = |length: usize| datagram.get(1..=length);
        let here = LENGTHS.rev().filter(|length| self.lengths[*length] > 0);
        if let Some(key) = here.filter_map(|length| self.here.get(id(length)?)).next() {
            return Some(SessionLookup::Here(*key));
        }
        if self.known.0.is_empty() {
            return None;
        }
        LENGTHS.rev().find_map(|length| {
            let found = self.known.0.get(&(self.port, Id::from_slice(id(length)?)))?;
            Some(SessionLookup::There(found.1.clone()))
        })
    }

    /// Whether a connection that this port passes through is known to any worker.
    pub(crate) fn any(&self) -> bool {
        !self.known.0.is_empty()
    }

    fn learn(&mut self, ids: &mut Ids, id: &[u8], key: u64) {
        if id.is_empty() || ids.0.last().is_some_and(|last| last[..] == *id) {
            return;
        }
        if let Some(at) = ids.0.iter().position(|known| known[..] == *id) {
            ids.0[at..].rotate_left(1);
            return;
        }
        let id = Id::from_slice(id);
        // Two servers may have chosen the same; the first one keeps it.
        if self.here.contains_key(&id) || self.known.0.contains_key(&(self.port, id.clone())) {
            return;
        }
        if ids.0.len() >= MAX_IDS {
            let oldest = ids.0.remove(0);
            self.forget_one(&oldest);
        }
        if let Some(count) = self.lengths.get_mut(id.len()) {
            *count += 1;
        }
        self.here.insert(id.clone(), key);
        self.known.0.insert((self.port, id.clone()), (key, self.way.clone()));
        ids.0.push(id);
    }

    fn forget_one(&mut self, id: &Id) {
        if self.here.remove(id).is_some()
            && let Some(count) = self.lengths.get_mut(id.len())
        {
            *count -= 1;
        }
        self.known.0.remove(&(self.port, id.clone()));
    }

    /// The session has ended.
    pub(crate) fn forget(&mut self, ids: &Ids) {
        ids.0.iter().for_each(|id| self.forget_one(id));
    }

    /// A target's datagram: a long header names the id its server goes by.
    pub(crate) fn reply(&mut self, ids: &mut Ids, datagram: &[u8], key: u64) {
        if let Some(long) = Long::read(datagram) {
            self.learn(ids, long.source, key);
        }
    }

    /// A client's datagram: a short header names the id it now uses, as long as those before.
    pub(crate) fn request(&mut self, ids: &mut Ids, datagram: &[u8], key: u64) {
        if is_short(datagram)
            && let Some(length) = ids.0.last().map(Id::len)
            && let Some(id) = datagram.get(1..=length)
        {
            self.learn(ids, id, key);
        }
    }
}

impl Drop for Connections {
    /// The port is closed; nobody is to be sent here any more.
    fn drop(&mut self) {
        for id in self.here.keys() {
            self.known.0.remove(&(self.port, id.clone()));
        }
    }
}
