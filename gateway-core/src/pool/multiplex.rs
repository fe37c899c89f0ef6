//! Connections that carry many exchanges at a time (HTTP/2, HTTP/3), shared by all exchanges of a worker.
//!
//! A stream is counted by a [`Lease`] and a dial by a [`Dial`]; both give their count back when dropped, so that an
//! exchange that is cancelled at any point leaves nothing behind. Exchanges that wait are queued by the caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::idle::Rejected;
use crate::config::model::PoolRules;

/// Shared connections one worker keeps over all targets, unless told otherwise.
pub const DEFAULT_MAX_SHARED_TOTAL: usize = 16_384;

/// With so many streams on the least busy connection another one is worth dialling. Fewer share one connection,
/// since frames of several exchanges then travel in one segment.
pub const SPREAD_AT: usize = 16;

/// One worker's shared connections, by the number of their key.
#[derive(Debug)]
pub struct Multiplex<C> {
    groups: HashMap<u64, Group<C>, foldhash::fast::RandomState>,
    next_serial: u64,
    max_total: usize,
    total: usize,
}

/// One connection among those of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    key: u64,
    serial: u64,
}

impl ConnectionId {
    /// The number of the key it belongs to.
    pub fn key(self) -> u64 {
        self.key
    }
}

/// One stream on a connection, until dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the stream's count"]
pub struct Lease {
    id: ConnectionId,
    streams: Arc<AtomicUsize>,
}

/// Leave to dial one connection. Dropping it says that none came of it.
#[derive(Debug)]
#[must_use = "dropping it gives the leave back"]
pub struct Dial {
    key: u64,
    dialling: Arc<AtomicUsize>,
}

/// What an exchange is to do.
#[derive(Debug)]
pub enum Choice<'m, C> {
    /// Open a stream on this connection.
    Use {
        /// The least busy one.
        connection: &'m mut C,
        /// Hold it until the stream ends.
        lease: Lease,
        /// Also dial another one, without waiting for it: this one is getting busy.
        dial: Option<Dial>,
    },
    /// Dial, then [`Multiplex::dialled`].
    Dial(Dial),
    /// Others dial already, and no more connections are wanted: wait for the outcome, then choose again.
    Wait,
    /// Every connection carries all it may, and there may be no more: wait for a stream to end, or refuse.
    Full,
}

#[derive(Debug)]
struct Group<C> {
    connections: SmallVec<[SharedConnection<C>; 2]>,
    dialling: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct SharedConnection<C> {
    serial: u64,
    connection: C,
    streams: Arc<AtomicUsize>,
    max_streams: usize,
    retired: bool,
    idle_timeout: Duration,
    /// Since which sweep no stream was seen.
    idle_since: Option<Instant>,
}

impl<C> Default for Multiplex<C> {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_SHARED_TOTAL)
    }
}

impl<C> Default for Group<C> {
    fn default() -> Self {
        Self { connections: SmallVec::new(), dialling: Arc::default() }
    }
}

impl<C> Multiplex<C> {
    /// Asks for no more dials once `max_total` connections are kept over all keys.
    pub fn new(max_total: usize) -> Self {
        Self { groups: HashMap::default(), next_serial: 0, max_total, total: 0 }
    }

    /// Chooses the least busy connection of this key, and says when another should be dialled.
    ///
    /// Up to `http2_connections` are dialled, the first at once and each further one when the others carry
    /// [`SPREAD_AT`] streams or half of what they may.
    pub fn choose(&mut self, key: u64, rules: &PoolRules) -> Choice<'_, C> {
        let group = self.groups.entry(key).or_default();
        self.total -= group.drop_where(SharedConnection::is_finished);
        let best = group.least_busy();
        let dialling = group.dialling.load(Relaxed);
        let wanted = group.in_service() + dialling < rules.http2_connections.max(1);
        let may_dial = wanted && self.total < self.max_total;
        let dial = || Dial::begin(key, &group.dialling);
        match best.and_then(|index| group.connections.get_mut(index)) {
            Some(shared) => {
                let dial = (may_dial && shared.is_busy()).then(dial);
                shared.idle_since = None;
                shared.idle_timeout = rules.idle_timeout;
                let lease = Lease::begin(ConnectionId { key, serial: shared.serial }, &shared.streams);
                Choice::Use { connection: &mut shared.connection, lease, dial }
            }
            None if may_dial => Choice::Dial(dial()),
            None if dialling > 0 => Choice::Wait,
            None => Choice::Full,
        }
    }

    /// Takes a dialled connection in. `max_streams` is what the peer allows at a time.
    pub fn dialled(
        &mut self,
        dial: Dial,
        connection: C,
        max_streams: usize,
        rules: &PoolRules,
    ) -> ConnectionId {
        self.insert(dial.key, connection, max_streams, rules)
    }

    /// Takes in a connection made without leave, because only its handshake showed that it can be shared.
    ///
    /// # Errors
    /// Gives it back when enough connections are there already, not counting dials under way.
    pub fn adopt(
        &mut self,
        key: u64,
        connection: C,
        max_streams: usize,
        rules: &PoolRules,
    ) -> Result<ConnectionId, Rejected<C>> {
        let in_service = self.groups.get(&key).map_or(0, Group::in_service);
        if in_service >= rules.http2_connections.max(1) || self.total >= self.max_total {
            return Err(Rejected(connection));
        }
        Ok(self.insert(key, connection, max_streams, rules))
    }

    fn insert(&mut self, key: u64, connection: C, max_streams: usize, rules: &PoolRules) -> ConnectionId {
        let id = ConnectionId { key, serial: self.next_serial };
        self.next_serial += 1;
        self.total += 1;
        self.groups.entry(key).or_default().connections.push(SharedConnection {
            serial: id.serial,
            connection,
            streams: Arc::default(),
            max_streams,
            retired: false,
            idle_timeout: rules.idle_timeout,
            idle_since: None,
        });
        id
    }

    /// The peer allows another number of streams now; those open stay.
    pub fn limit(&mut self, id: ConnectionId, max_streams: usize) {
        if let Some(shared) = self.find(id) {
            shared.max_streams = max_streams;
        }
    }

    /// Opens no more streams on a connection (the peer sent GOAWAY); it goes with its last one.
    pub fn retire(&mut self, id: ConnectionId) {
        if let Some(shared) = self.find(id) {
            shared.retired = true;
        }
    }

    /// Takes out a connection that is closed, or to be closed.
    pub fn remove(&mut self, id: ConnectionId) -> Option<C> {
        let group = self.groups.get_mut(&id.key)?;
        let index = group.connections.iter().position(|shared| shared.serial == id.serial)?;
        self.total -= 1;
        Some(group.connections.swap_remove(index).connection)
    }

    /// Takes out the connection of this key with the fewest streams.
    pub fn take_least_busy(&mut self, key: u64) -> Option<C> {
        let group = self.groups.get_mut(&key)?;
        let streams = group.connections.iter().enumerate().map(|(at, shared)| (shared.streams(), at));
        let (_, at) = streams.min()?;
        self.total -= 1;
        Some(group.connections.swap_remove(at).connection)
    }

    /// Retires the connections of a key that is not configured any more.
    pub fn forget(&mut self, key: u64) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.connections.iter_mut().for_each(|shared| shared.retired = true);
            self.total -= group.drop_where(SharedConnection::is_finished);
        }
    }

    /// Drops connections that are no longer `alive`, or without a stream for their idle timeout (zero is for ever),
    /// forgets keys without connections, and says how many went. Call it every few seconds.
    pub fn sweep(&mut self, now: Instant, mut alive: impl FnMut(&mut C) -> bool) -> usize {
        let before = self.total;
        for group in self.groups.values_mut() {
            self.total -= group.drop_where(|shared| !alive(&mut shared.connection) || shared.has_idled(now));
        }
        // A dial under way holds the group's counter too; forgetting it would let another be dialled.
        self.groups
            .retain(|_, group| !group.connections.is_empty() || Arc::strong_count(&group.dialling) > 1);
        if self.groups.capacity() > 64.max(4 * self.groups.len()) {
            self.groups.shrink_to_fit();
        }
        before - self.total
    }

    /// Whether a connection of this key is being made.
    pub fn is_dialling(&self, key: u64) -> bool {
        self.groups.get(&key).is_some_and(|group| group.dialling.load(Relaxed) > 0)
    }

    /// Connections kept for this key.
    pub fn count(&self, key: u64) -> usize {
        self.groups.get(&key).map_or(0, |group| group.connections.len())
    }

    /// Streams open on the connections of this key.
    pub fn streams(&self, key: u64) -> usize {
        let group = self.groups.get(&key).into_iter();
        group.flat_map(|group| &group.connections).map(SharedConnection::streams).sum()
    }

    /// Connections kept over all keys.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut SharedConnection<C>> {
        self.groups.get_mut(&id.key)?.connections.iter_mut().find(|shared| shared.serial == id.serial)
    }
}

impl<C> Group<C> {
    fn least_busy(&self) -> Option<usize> {
        let usable = self.connections.iter().enumerate().filter(|(_, shared)| shared.has_room());
        usable.min_by_key(|(_, shared)| shared.streams()).map(|(index, _)| index)
    }

    fn in_service(&self) -> usize {
        self.connections.iter().filter(|shared| !shared.retired).count()
    }

    fn drop_where(&mut self, mut gone: impl FnMut(&mut SharedConnection<C>) -> bool) -> usize {
        let before = self.connections.len();
        self.connections.retain(|shared| !gone(shared));
        before - self.connections.len()
    }
}

impl<C> SharedConnection<C> {
    fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }

    fn has_room(&self) -> bool {
        !self.retired && self.streams() < self.max_streams
    }

    fn is_busy(&self) -> bool {
        self.streams() >= SPREAD_AT.min(self.max_streams / 2).max(1)
    }

    fn is_finished(&mut self) -> bool {
        self.retired && self.streams() == 0
    }

    fn has_idled(&mut self, now: Instant) -> bool {
        if self.streams() > 0 {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        self.retired || !self.idle_timeout.is_zero() && waited >= self.idle_timeout
    }
}

impl Lease {
    fn begin(id: ConnectionId, streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Relaxed);
        Self { id, streams: streams.clone() }
    }

    /// The connection the stream is on.
    pub fn connection(&self) -> ConnectionId {
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Relaxed);
    }
}

impl Dial {
    fn begin(key: u64, dialling: &Arc<AtomicUsize>) -> Self {
        dialling.fetch_add(1, Relaxed);
        Self { key, dialling: dialling.clone() }
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.dialling.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
