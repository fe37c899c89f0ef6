//! What is known of values from earlier requests: header names, argument names and agents come again and again.

use hashbrown::HashTable;

/// Values of one generation.
const MAX_VALUES: usize = 2048;
/// Longer values are not kept.
const MAX_BYTES: usize = 256;

struct CachedVerdict {
    hash: u64,
    value: Box<[u8]>,
    facts: Box<[u64]>,
}

/// Facts about values, for the rules of one set. Two generations: what is not asked for again while the younger one fills
/// is forgotten.
#[derive(Default)]
pub(crate) struct Cache {
    /// Which rules the facts are about.
    serial: u64,
    young: HashTable<CachedVerdict>,
    old: HashTable<CachedVerdict>,
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

    pub(crate) fn get(&mut self, hash: u64, value: &[u8]) -> Option<&[u64]> {
        if value.len() > MAX_BYTES || self.off {
            return None;
        }
        if self.young.find(hash, |it| it.hash == hash && *it.value == *value).is_none() {
            let known = self.old.find_entry(hash, |it| it.hash == hash && *it.value == *value).ok()?;
            let (known, _) = known.remove();
            self.young.insert_unique(hash, known, |it| it.hash);
        }
        self.young.find(hash, |it| it.hash == hash && *it.value == *value).map(|it| &*it.facts)
    }

    pub(crate) fn put(&mut self, hash: u64, value: &[u8], facts: &[u64]) {
        if value.len() > MAX_BYTES || self.off {
            return;
        }
        if let Some(known) = self.young.find_mut(hash, |it| it.hash == hash && *it.value == *value) {
            known.facts.copy_from_slice(facts);
            return;
        }
        if self.young.len() >= MAX_VALUES {
            self.old = std::mem::take(&mut self.young);
        }
        let known = CachedVerdict { hash, value: value.into(), facts: facts.into() };
        self.young.insert_unique(hash, known, |it| it.hash);
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
            assert_eq!(cache.get(7, b"agent"), Some(&[1][..]));
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * MAX_VALUES + 1);
        assert_eq!(cache.get(7, b"other"), None);
        cache.put(8, &[0; MAX_BYTES + 1], &[1]);
        assert_eq!(cache.get(8, &[0; MAX_BYTES + 1]), None);
        cache.belong_to(2);
        assert_eq!(cache.get(7, b"agent"), None);
    }
}
