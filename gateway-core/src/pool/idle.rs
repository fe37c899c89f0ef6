//! Connections that wait for their next exchange, last in, first out.
//!
//! The connection used last is the one most likely still open, and taking it first lets the others grow old and go.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::config::model::PoolRules;

mod slots;

use slots::Slots;

/// Idle connections one worker keeps over all targets, unless told otherwise.
pub const DEFAULT_MAX_IDLE_TOTAL: usize = 16_384;

/// One worker's idle connections, by the number of their key.
#[derive(Debug)]
pub struct Idle<C> {
    stacks: HashMap<u64, Stack, foldhash::fast::RandomState>,
    slots: Slots<C>,
    max_total: usize,
}

/// The connections of one key: the ends of a list through the slots.
#[derive(Debug, Clone, Copy)]
struct Stack {
    top: u32,
    bottom: u32,
    len: u32,
}

/// A connection that was not kept, or had to make room. Dropping it closes it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it must be closed, which dropping it does"]
pub struct Rejected<C>(pub C);

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_IDLE_TOTAL)
    }
}

impl<C> Idle<C> {
    /// Keeps at most `max_total` connections over all keys; beyond that the oldest makes room.
    pub fn new(max_total: usize) -> Self {
        let max_total = max_total.min(u32::MAX as usize - 1);
        Self { stacks: HashMap::default(), slots: Slots::default(), max_total }
    }

    /// The connection of this key that was put last among those that have not waited too long.
    ///
    /// Whether the peer has closed it meanwhile is for the caller to see; then take the next.
    pub fn take(&mut self, key: u64, now: Instant) -> Option<C> {
        loop {
            let top = self.stacks.get(&key)?.top;
            let expired = self.slots.get(top)?.is_expired(now);
            let connection = self.remove(top)?;
            if !expired {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next exchange. Whatever has no room, be it this or an older one, comes back.
    ///
    /// An idle timeout of zero never ends the wait.
    pub fn put(&mut self, key: u64, connection: C, rules: &PoolRules, now: Instant) -> Option<Rejected<C>> {
        if !rules.keep_alive || rules.max_idle == 0 || self.max_total == 0 {
            return Some(Rejected(connection));
        }
        let stack = self.stacks.get(&key).copied().unwrap_or(Stack::EMPTY);
        let evicted = if stack.len as usize >= rules.max_idle {
            self.remove(stack.bottom)
        } else if self.slots.len() >= self.max_total {
            self.remove(self.slots.oldest())
        } else {
            None
        };
        let expires = (!rules.idle_timeout.is_zero()).then(|| now.checked_add(rules.idle_timeout)).flatten();
        self.make_room_for(key);
        let stack = self.stacks.entry(key).or_insert(Stack::EMPTY);
        let slot = self.slots.push(connection, key, stack.top, expires);
        stack.pushed(slot);
        evicted.map(Rejected)
    }

    /// Takes out the connection of this key that has waited longest.
    pub fn take_oldest(&mut self, key: u64) -> Option<C> {
        let bottom = self.stacks.get(&key).filter(|stack| stack.len > 0)?.bottom;
        self.remove(bottom)
    }

    /// Connections kept for this key.
    pub fn count(&self, key: u64) -> usize {
        self.stacks.get(&key).map_or(0, |stack| stack.len as usize)
    }

    /// Connections kept over all keys.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what has waited too long or is no longer `alive`, forgets keys without connections, and says how many
    /// connections went. Walks over all of them; call it every few seconds.
    pub fn sweep(&mut self, now: Instant, mut alive: impl FnMut(&mut C) -> bool) -> usize {
        let before = self.len();
        let mut next = self.slots.oldest();
        while let Some(slot) = self.slots.get_mut(next) {
            let (current, gone) = (next, slot.is_expired(now) || !alive(&mut slot.connection));
            next = slot.newer;
            if gone {
                drop(self.remove(current));
            }
        }
        self.stacks.retain(|_, stack| stack.len > 0);
        if self.stacks.capacity() > 64.max(4 * self.stacks.len()) {
            self.stacks.shrink_to_fit();
        }
        self.slots.shrink();
        before - self.len()
    }

    /// Drops the connections of a key that is not configured any more and says how many there were.
    pub fn forget(&mut self, key: u64) -> usize {
        let count = self.count(key);
        while let Some(stack) = self.stacks.get(&key).filter(|stack| stack.len > 0) {
            drop(self.remove(stack.top));
        }
        self.stacks.remove(&key);
        count
    }

    /// Empty stacks are forgotten early when there are more of them than connections could be.
    fn make_room_for(&mut self, key: u64) {
        if self.stacks.len() > 2 * self.max_total && !self.stacks.contains_key(&key) {
            self.stacks.retain(|_, stack| stack.len > 0);
        }
    }

    /// Takes a connection out of both lists it is in. An empty stack stays until the next sweep, since the
    /// connection is most likely to come back.
    fn remove(&mut self, index: u32) -> Option<C> {
        let slot = self.slots.remove(index)?;
        if let Some(stack) = self.stacks.get_mut(&slot.key) {
            stack.removed(&slot);
        }
        Some(slot.connection)
    }
}

#[cfg(test)]
mod tests;
