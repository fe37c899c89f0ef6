//! Tables in a fixed amount of memory: a key belongs to one set of eight entries, and nothing is ever swept.
//!
//! What an entry is, how it is shared between threads and which one makes room in a full set is the table's own.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries of one set.
pub const WAYS: usize = 8;
/// Entries made for each key asked for by [`SetTable::for_keys`], so that sets rarely fill up before the table does.
pub const SPARE: usize = 2;

/// The sets of a table.
#[derive(Debug)]
pub struct SetTable<S>(Box<[S]>);

impl<S: Default> SetTable<S> {
    /// SetTable for so many keys, with entries to spare.
    pub fn for_keys(keys: usize) -> Self {
        Self::of_entries(keys.saturating_mul(SPARE))
    }

    /// SetTable of so many entries altogether, or a few more.
    pub fn of_entries(entries: usize) -> Self {
        Self((0..entries.div_ceil(WAYS).max(1)).map(|_| S::default()).collect())
    }
}

impl<S> SetTable<S> {
    /// The set of a key with this hash, all of whose bits have to be random.
    #[inline]
    pub fn of(&self, hash: u64) -> &S {
        let place = (u128::from(hash) * self.0.len() as u128) >> 64;
        &self.0[usize::try_from(place).unwrap_or(0)]
    }

    /// Every set.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.0.iter()
    }
}

/// The entries that [`SetTable::for_keys`] makes.
pub const fn entries_for_keys(keys: usize) -> usize {
    let sets = keys.saturating_mul(SPARE).div_ceil(WAYS);
    if sets == 0 { WAYS } else { sets.saturating_mul(WAYS) }
}

/// Eight entries behind one lock, which is held for a few comparisons.
pub type LockedSet<T> = Mutex<[T; WAYS]>;

impl<T> SetTable<LockedSet<T>> {
    /// The set of a key, as [`Self::of`].
    pub fn lock(&self, hash: u64) -> MutexGuard<'_, [T; WAYS]> {
        self.of(hash).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_every_key_and_at_least_one_set() {
        for (keys, sets) in [(0, 1), (1, 1), (4, 1), (5, 2), (100, 25)] {
            let table: SetTable<LockedSet<u64>> = SetTable::for_keys(keys);
            assert_eq!((table.iter().count(), entries_for_keys(keys)), (sets, sets * WAYS), "{keys}");
        }
        let exact: SetTable<LockedSet<u64>> = SetTable::of_entries(17);
        assert_eq!(exact.iter().count(), 3);
    }

    #[test]
    fn hashes_are_spread_over_all_sets_and_a_key_keeps_its_own() {
        let table: SetTable<LockedSet<u64>> = SetTable::of_entries(64);
        for n in 0..8_u64 {
            table.lock(n << 61)[0] = n + 1;
        }
        for n in 0..8_u64 {
            assert_eq!(table.lock((n << 61) | 5)[0], n + 1);
        }
        table.lock(u64::MAX)[1] = 9;
        assert_eq!(
            table.iter().map(|set| set.lock().unwrap()[1]).collect::<Vec<_>>(),
            [0, 0, 0, 0, 0, 0, 0, 9]
        );
    }
}
