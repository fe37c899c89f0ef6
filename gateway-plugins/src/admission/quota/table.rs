//! What callers have used, in a fixed amount of memory, and as the bytes of a file.
//!
//! An entry is a key's hash, the end of the period it counts for, and how much was used. A key belongs to one set of eight
//! entries. A key that needs a place in a full set takes that of an entry whose period is over, else that of the least used
//! one, which is counted as evicted: a caller that has used much is not forgotten for many that have used little.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_core::plugin::world::meters::Counter;
use gateway_plugin_common::set_associative::{LockedSet, SetTable, WAYS, entries_for_keys};

use super::unix_now;
use crate::admission::usage_file::Kept;

/// Bytes of an entry in a file.
const ROW: usize = 24;
/// What a file begins with.
const MAGIC: &[u8; 16] = b"ferrum quota 1\n\0";

/// A key under one period; all zeros is a free one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct QuotaSlot {
    id: u64,
    /// Seconds since 1970.
    end: u64,
    used: u64,
}

/// What is asked of one key under one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) id: u64,
    /// When its period ends, in seconds since 1970.
    pub(super) end: u64,
    pub(super) limit: u64,
}

/// What all callers have used.
pub(super) struct Table {
    sets: SetTable<LockedSet<QuotaSlot>>,
    changed: AtomicBool,
    evicted: Counter,
}

/// Why a file can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFile {
    #[error("it is not a file of quotas")]
    Magic,
    #[error("it is damaged")]
    Damaged,
}

impl Table {
    /// A table for so many entries.
    pub(super) fn new(entries: usize, evicted: Counter) -> Self {
        Self { sets: SetTable::for_keys(entries), changed: AtomicBool::new(false), evicted }
    }

    /// The most bytes that a file for so many entries has.
    pub(super) fn most_bytes(entries: usize) -> u64 {
        let entries = entries_for_keys(entries);
        (MAGIC.len() + SHA256.output_len()) as u64 + (entries as u64).saturating_mul(ROW as u64)
    }

    /// How much was used of it.
    pub(super) fn used(&self, ask: Ask) -> u64 {
        let set = self.sets.lock(ask.id);
        set.iter().find(|entry| entry.id == ask.id && entry.end == ask.end).map_or(0, |entry| entry.used)
    }

    /// Takes so many where they fit. Says how much is used then, and whether they fitted.
    pub(super) fn take(&self, ask: Ask, many: u64, now: u64) -> (u64, bool) {
        let mut set = self.sets.lock(ask.id);
        let known = set.iter().position(|entry| entry.id == ask.id);
        let used = known.map_or(0, |n| if set[n].end == ask.end { set[n].used } else { 0 });
        let after = used.saturating_add(many);
        if after > ask.limit {
            return (used, false);
        }
        let place = known.unwrap_or_else(|| {
            let (place, victim) = least(&set, now);
            if victim.id != 0 && victim.end > now {
                self.evicted.add(1);
            }
            place
        });
        set[place] = QuotaSlot { id: ask.id, end: ask.end, used: after };
        self.changed.store(true, Relaxed);
        (after, true)
    }

    /// Gives so many back that were taken and not used.
    pub(super) fn refund(&self, ask: Ask, many: u64) {
        let mut set = self.sets.lock(ask.id);
        if let Some(entry) = set.iter_mut().find(|entry| entry.id == ask.id && entry.end == ask.end) {
            entry.used = entry.used.saturating_sub(many);
            self.changed.store(true, Relaxed);
        }
    }

    /// Takes over what another table knows.
    pub(super) fn take_over(&self, other: &Self, now: u64) {
        for set in other.sets.iter() {
            let entries = *set.lock().unwrap_or_else(PoisonError::into_inner);
            entries.into_iter().for_each(|entry| self.put(entry, now));
        }
    }

    fn put(&self, entry: QuotaSlot, now: u64) {
        if entry.id == 0 || entry.end <= now {
            return;
        }
        let mut set = self.sets.lock(entry.id);
        let known = set.iter().position(|known| known.id == entry.id);
        let place = known.unwrap_or_else(|| least(&set, now).0);
        let there = set[place];
        if known.is_some() || there.end <= now || there.used < entry.used {
            set[place] = entry;
        }
    }

    /// The bytes of a file, where something changed since they were last asked for.
    pub(super) fn changes(&self, now: u64) -> Option<Vec<u8>> {
        if !self.changed.swap(false, Relaxed) {
            return None;
        }
        let mut bytes = MAGIC.to_vec();
        for set in self.sets.iter() {
            let entries = *set.lock().unwrap_or_else(PoisonError::into_inner);
            for QuotaSlot { id, end, used } in
                entries.into_iter().filter(|entry| entry.id != 0 && entry.end > now)
            {
                [id, end, used].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            }
        }
        let sum = digest(&SHA256, &bytes);
        bytes.extend_from_slice(sum.as_ref());
        Some(bytes)
    }

    /// Takes over what a file says.
    pub(super) fn read(&self, bytes: &[u8], now: u64) -> Result<(), BadFile> {
        if !bytes.starts_with(MAGIC) {
            return Err(BadFile::Magic);
        }
        let length = bytes.len().checked_sub(SHA256.output_len()).ok_or(BadFile::Damaged)?;
        let (rest, sum) = bytes.split_at_checked(length).ok_or(BadFile::Damaged)?;
        if digest(&SHA256, rest).as_ref() != sum {
            return Err(BadFile::Damaged);
        }
        let rows = rest.get(MAGIC.len()..).unwrap_or_default();
        if rows.len() % ROW != 0 {
            return Err(BadFile::Damaged);
        }
        for row in rows.chunks_exact(ROW) {
            let number = |from: usize| {
                let bytes = row.get(from..from + 8).and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            self.put(QuotaSlot { id: number(0), end: number(8), used: number(16) }, now);
        }
        Ok(())
    }
}

/// The entry that is given away first: a free one, one whose period is over, or the least used one.
fn least(set: &[QuotaSlot; WAYS], now: u64) -> (usize, QuotaSlot) {
    let worth = |entry: &QuotaSlot| if entry.id == 0 || entry.end <= now { 0 } else { entry.used };
    let least = set.iter().enumerate().min_by_key(|(_, entry)| worth(entry));
    least.map_or((0, set[0]), |(place, entry)| (place, *entry))
}

impl Kept for Table {
    type Unusable = BadFile;

    fn restore(&self, bytes: &[u8]) -> Result<(), BadFile> {
        self.read(bytes, unix_now())
    }

    fn contents(&self, _is_last: bool) -> Option<io::Result<Vec<u8>>> {
        self.changes(unix_now()).map(Ok)
    }

    fn write_again(&self) {
        self.changed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(id: u64) -> Ask {
        Ask { id, end: 100, limit: 10 }
    }

    #[test]
    fn what_is_used_is_counted_until_the_period_ends() {
        let table = Table::new(10, Counter::default());
        assert_eq!(table.take(ask(1), 10, 0), (10, true));
        assert_eq!(table.take(ask(1), 1, 0), (10, false));
        table.refund(ask(1), 3);
        assert_eq!(table.used(ask(1)), 7);
        assert_eq!(table.take(Ask { end: 200, ..ask(1) }, 4, 100), (4, true), "the next period");
        assert_eq!(table.used(ask(2)), 0);
    }

    #[test]
    fn who_used_least_is_forgotten_first() {
        let evicted = Counter::default();
        let table = Table::new(1, evicted.clone());
        for id in 1..=8 {
            assert!(table.take(ask(id), if id == 5 { 1 } else { 9 }, 0).1);
        }
        assert!(table.take(ask(9), 5, 0).1);
        assert_eq!((table.used(ask(5)), table.used(ask(1)), evicted.get()), (0, 9, 1));
        assert!(table.take(Ask { end: 300, ..ask(10) }, 5, 200).1);
        assert_eq!(evicted.get(), 1, "those whose period is over are no loss");
    }

    #[test]
    fn a_file_is_read_again_whole_or_not_at_all() {
        let table = Table::new(100, Counter::default());
        assert_eq!(table.changes(0), None, "nothing has changed");
        (1..=50).for_each(|id| _ = table.take(ask((id * 5) << 56), 5, 0));
        let bytes = table.changes(0).unwrap();
        assert_eq!(table.changes(0), None);
        assert!(bytes.len() as u64 <= Table::most_bytes(100));
        let again = Table::new(100, Counter::default());
        assert_eq!(again.read(&bytes, 0), Ok(()));
        assert!((1..=50).all(|id| again.used(ask((id * 5) << 56)) == 5));
        let later = Table::new(100, Counter::default());
        assert_eq!(later.read(&bytes, 100), Ok(()));
        assert!((1..=50).all(|id| later.used(ask((id * 5) << 56)) == 0), "what is over is not read");
        let copied = Table::new(200, Counter::default());
        copied.take_over(&table, 0);
        assert!((1..=50).all(|id| copied.used(ask((id * 5) << 56)) == 5));
        let mut damaged = bytes.clone();
        damaged[30] ^= 1;
        assert_eq!(again.read(&damaged, 0), Err(BadFile::Damaged));
        assert_eq!(again.read(&bytes[..bytes.len() - 1], 0), Err(BadFile::Damaged));
        assert_eq!(again.read(b"", 0), Err(BadFile::Magic));
        assert_eq!(again.read(MAGIC, 0), Err(BadFile::Damaged));
        assert_eq!(again.read(b"something else that is long enough to hold it all", 0), Err(BadFile::Magic));
    }
}
