//! What is known of values from earlier requests: header names, argument names and agents come again and again.

use hashbrown::HashTable;

/// Values of one generation.
const MAX_VALUES: usize = 2048;
/// Longer values are not kept.
const MAX_BYTES: usize = 256;

/// Where what is known of a value lies in its generation.
struct CachedVerdict {
    hash: u64,
    start: u32,
    length: u32,
    facts: u32,
}

/// Values and facts that came at about the same time; they share two pieces of memory, which are used again.
#[derive(Default)]
struct Generation {
    known: HashTable<CachedVerdict>,
    bytes: Vec<u8>,
    facts: Vec<u64>,
}

impl Generation {
    /// Where the facts about a value are.
    fn find(&self, hash: u64, value: &[u8]) -> Option<usize> {
        let known = self.known.find(hash, |it| {
            let start = it.start as usize;
            it.hash == hash && self.bytes.get(start..start + it.length as usize) == Some(value)
        });
        known.map(|it| it.facts as usize)
    }

    fn insert(&mut self, hash: u64, value: &[u8], facts: &[u64]) -> usize {
        let at = self.facts.len();
        // A generation has some hundred kilobytes at most.
        let known = CachedVerdict {
            hash,
            start: self.bytes.len() as u32,
            length: value.len() as u32,
            facts: at as u32,
        };
        self.bytes.extend_from_slice(value);
        self.facts.extend_from_slice(facts);
        self.known.insert_unique(hash, known, |it| it.hash);
        at
    }

    fn clear(&mut self) {
        self.known.clear();
        self.bytes.clear();
        self.facts.clear();
    }
}

/// Facts about values, for the rules of one set. Two generations: what is not asked for again while the younger one fills
/// is forgotten.
#[derive(Default)]
pub(crate) struct Cache {
    /// Which rules the facts are about.
    serial: u64,
    young: Generation,
    old: Generation,
    off: bool,
}

impl Cache {
    /// Forgets everything when the rules are others.
    pub(crate) fn belong_to(&mut self, serial: u64) {
        if self.serial != serial {
            *self = Self { serial, off: self.off, ..Self::default() };
        }
    }

    /// Keeps nothing from now on.
    pub(crate) fn turn_off(&mut self) {
        *self = Self { off: true, ..Self::default() };
    }

    /// The facts about a value, of which there are so many.
    pub(crate) fn get(&mut self, hash: u64, value: &[u8], count: usize) -> Option<&[u64]> {
        if value.len() > MAX_BYTES || self.off {
            return None;
        }
        if let Some(at) = self.young.find(hash, value) {
            return self.young.facts.get(at..at + count);
        }
        let at = self.old.find(hash, value)?;
        let facts = self.old.facts.get(at..at + count)?;
        if self.young.known.len() < MAX_VALUES {
            self.young.insert(hash, value, facts);
        }
        Some(facts)
    }

    pub(crate) fn put(&mut self, hash: u64, value: &[u8], facts: &[u64]) {
        if value.len() > MAX_BYTES || self.off {
            return;
        }
        if let Some(at) = self.young.find(hash, value) {
            if let Some(known) = self.young.facts.get_mut(at..at + facts.len()) {
                known.copy_from_slice(facts);
            }
            return;
        }
        if self.young.known.len() >= MAX_VALUES {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(hash, value, facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_is_bounded() {
        let mut cache = Cache::default();
        cache.belong_to(1);
        cache.put(7, b"agent", &[1]);
        for n in 0..3 * MAX_VALUES as u64 {
            cache.put(n + 100, &n.to_le_bytes(), &[n]);
            assert_eq!(cache.get(7, b"agent", 1), Some(&[1][..]));
        }
        assert!(cache.young.known.len() <= MAX_VALUES && cache.old.known.len() <= MAX_VALUES);
        assert!(cache.old.bytes.len() <= MAX_VALUES * MAX_BYTES);
        assert_eq!(cache.get(7, b"other", 1), None);
        cache.put(8, &[0; MAX_BYTES + 1], &[1]);
        assert_eq!(cache.get(8, &[0; MAX_BYTES + 1], 1), None);
        cache.belong_to(2);
        assert_eq!(cache.get(7, b"agent", 1), None);
    }
}
