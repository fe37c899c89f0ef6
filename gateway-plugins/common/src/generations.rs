//! A bounded map without a sweep: entries go into the newer of two generations, and the older one is dropped as a whole.

use std::collections::HashMap;
use std::hash::Hash;

/// Entries by key, in two generations.
#[derive(Debug)]
pub struct Generations<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// What is known of a key, in either generation.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// What is known of a key in the newer generation.
    pub fn newer(&self, key: &K) -> Option<&V> {
        self.newer.get(key)
    }

    /// Takes an entry out of the older generation.
    pub fn remove_older(&mut self, key: &K) -> Option<V> {
        self.older.remove(key)
    }

    /// Puts an entry into the newer generation.
    pub fn insert(&mut self, key: K, value: V) {
        self.newer.insert(key, value);
    }

    /// As [`Self::insert`], and begins a generation before where the newer one has `room` entries already.
    pub fn insert_within(&mut self, room: usize, key: K, value: V) {
        if self.newer.len() >= room {
            self.rotate();
        }
        self.insert(key, value);
    }

    /// Begins a generation: the newer one becomes the older one, which is dropped.
    pub fn rotate(&mut self) {
        self.older = std::mem::take(&mut self.newer);
    }

    /// Entries of both generations.
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.newer.is_empty() && self.older.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_outlives_one_turn() {
        let mut all = Generations::default();
        all.insert("a", 1);
        all.rotate();
        assert_eq!((all.get(&"a"), all.newer(&"a"), all.len()), (Some(&1), None, 1));
        all.insert("b", 2);
        assert_eq!((all.newer(&"b"), all.len()), (Some(&2), 2));
        all.rotate();
        assert_eq!((all.get(&"a"), all.get(&"b")), (None, Some(&2)));
        assert_eq!(all.remove_older(&"b"), Some(2));
        assert!(all.is_empty());
    }

    #[test]
    fn there_are_never_more_than_two_generations_hold() {
        let mut all = Generations::default();
        for n in 0..100 {
            all.insert_within(5, n, ());
            assert!(all.len() <= 10, "{n}");
        }
        assert!(all.get(&99).is_some() && all.get(&95).is_some() && all.get(&0).is_none());
    }
}
