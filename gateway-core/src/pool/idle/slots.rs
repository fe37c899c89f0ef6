//! The connections themselves, in one vector with two lists through it: all of them by age, and each key's stack.

use tokio::time::Instant;

use super::Stack;

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slot<C> {
    pub(super) connection: C,
    pub(super) key: u64,
    expires: Option<Instant>,
    older: u32,
    pub(super) newer: u32,
    below: u32,
    above: u32,
}

impl<C> Slot<C> {
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// An index is reused only after its slot was removed.
#[derive(Debug)]
pub(super) struct Slots<C> {
    entries: Vec<Option<Slot<C>>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl<C> Default for Slots<C> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), oldest: NONE, newest: NONE }
    }
}

impl<C> Slots<C> {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    pub(super) fn get(&self, index: u32) -> Option<&Slot<C>> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Slot<C>> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Puts a connection on top of `below`, the stack of its key.
    pub(super) fn push(&mut self, connection: C, key: u64, below: u32, expires: Option<Instant>) -> u32 {
        let slot = Slot { connection, key, expires, older: self.newest, newer: NONE, below, above: NONE };
        let index = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(index as usize) {
            Some(entry) => *entry = Some(slot),
            None => self.entries.push(Some(slot)),
        }
        match self.get_mut(self.newest) {
            Some(newest) => newest.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
        if let Some(below) = self.get_mut(below) {
            below.above = index;
        }
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Slot<C>> {
        let slot = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        match self.get_mut(slot.older) {
            Some(older) => older.newer = slot.newer,
            None => self.oldest = slot.newer,
        }
        match self.get_mut(slot.newer) {
            Some(newer) => newer.older = slot.older,
            None => self.newest = slot.older,
        }
        if let Some(below) = self.get_mut(slot.below) {
            below.above = slot.above;
        }
        if let Some(above) = self.get_mut(slot.above) {
            above.below = slot.below;
        }
        Some(slot)
    }

    /// Gives memory back when nothing is kept, which is when no index is in use.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            *self = Self::default();
        }
    }
}

impl Stack {
    pub(super) const EMPTY: Self = Self { top: NONE, bottom: NONE, len: 0 };

    pub(super) fn pushed(&mut self, slot: u32) {
        self.top = slot;
        if self.len == 0 {
            self.bottom = slot;
        }
        self.len += 1;
    }

    pub(super) fn removed<C>(&mut self, slot: &Slot<C>) {
        if slot.above == NONE {
            self.top = slot.below;
        }
        if slot.below == NONE {
            self.bottom = slot.above;
        }
        self.len = self.len.saturating_sub(1);
    }
}
