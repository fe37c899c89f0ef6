//! Values that all requests of one plugin config share: bounded, with an end, and lost when the gateway ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a key.
pub(crate) const MAX_KEY: usize = 256;
/// The parts that the table is split into, so that workers seldom wait for each other.
const PARTS: usize = 16;

/// Values by key; `V` is what one holds.
#[derive(Debug)]
pub(crate) struct SharedTable<V> {
    parts: [Mutex<TableSlots<V>>; PARTS],
    hasher: foldhash::fast::RandomState,
    /// Entries of one part.
    max: usize,
}

#[derive(Debug)]
struct TableSlot<V> {
    value: V,
    ends: Option<Instant>,
}

impl<V> TableSlot<V> {
    fn is_over(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }
}

type TableSlots<V> = HashMap<Box<[u8]>, TableSlot<V>, foldhash::fast::RandomState>;

impl<V> SharedTable<V> {
    /// An empty table that takes about `max` entries. A full one forgets entries that are over, else any.
    pub(crate) fn new(max: usize) -> Self {
        let parts = std::array::from_fn(|_| Mutex::default());
        Self { parts, hasher: foldhash::fast::RandomState::default(), max: max.div_ceil(PARTS).max(1) }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, TableSlots<V>> {
        use std::hash::BuildHasher as _;
        let n = usize::try_from(self.hasher.hash_one(key) >> 60).unwrap_or(0);
        self.parts[n % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `see` makes of the value of this key, where there is one.
    pub(crate) fn get<T>(&self, key: &[u8], see: impl FnOnce(&V) -> T) -> Option<T> {
        let part = self.part(key);
        let slot = part.get(key)?;
        (!slot.is_over(Instant::now())).then(|| see(&slot.value))
    }

    /// Changes the value of this key, one change at a time. `change` gets the value that is there, and says which is to be
    /// there (`None` leaves all as it is) and what came of it. A new value ends after `ttl`; one that was there keeps its
    /// end, unless `renews`.
    pub(crate) fn change<T>(
        &self,
        key: &[u8],
        ttl: Option<Duration>,
        renews: bool,
        change: impl FnOnce(Option<&V>) -> (Option<V>, T),
    ) -> T {
        let now = Instant::now();
        let mut part = self.part(key);
        let known = part.get_mut(key).filter(|slot| !slot.is_over(now));
        let (value, result) = change(known.as_ref().map(|slot| &slot.value));
        let Some(value) = value else { return result };
        let ends = ttl.and_then(|ttl| now.checked_add(ttl));
        if let Some(slot) = known {
            slot.value = value;
            if renews {
                slot.ends = ends;
            }
            return result;
        }
        if part.len() >= self.max && !part.contains_key(key) {
            part.retain(|_, slot| !slot.is_over(now));
            if part.len() >= self.max
                && let Some(any) = part.keys().next().cloned()
            {
                part.remove(&any);
            }
        }
        part.insert(key.into(), TableSlot { value, ends });
        result
    }

    /// Forgets a key.
    #[cfg(any(feature = "script", test))]
    pub(crate) fn remove(&self, key: &[u8]) {
        self.part(key).remove(key);
    }

    /// Entries, those that are over among them.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_and_never_grows() {
        let table = SharedTable::new(160);
        for n in 0..10_000_u32 {
            table.change(&n.to_be_bytes(), None, false, |_| (Some(n), ()));
        }
        assert!(table.len() <= 160, "{}", table.len());
    }

    #[test]
    fn a_value_that_is_over_is_gone_and_a_change_keeps_the_end() {
        let table = SharedTable::new(10);
        let add = |ttl| {
            table.change(b"k", ttl, false, |known| {
                let sum = known.copied().unwrap_or(0) + 1;
                (Some(sum), sum)
            })
        };
        assert_eq!(add(Some(Duration::ZERO)), 1);
        assert_eq!(add(Some(Duration::from_secs(60))), 1, "the first is over");
        assert_eq!(add(Some(Duration::ZERO)), 2, "the end stays");
        assert_eq!(table.get(b"k", |sum| *sum), Some(2));
        table.remove(b"k");
        assert_eq!(table.get(b"k", |sum| *sum), None);
    }
}
