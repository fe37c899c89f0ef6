//! Counts exchanges by caller and status class, for a limited number of callers. Each worker has its own table and writes it
//! without a lock. Readers add the tables up by name.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use super::histogram::Count;
use super::labels::CLASSES;

/// Maximum number of callers with separate counts. All further callers share one count.
pub(crate) const MAX_CONSUMERS: usize = 1_000;
/// Size of the hash table: a power of two, and about twice the number of callers, so that lookups are short.
const PLACES: usize = 2_048;

/// The counts of one caller.
#[derive(Default)]
struct ConsumerCounts {
    name: OnceLock<Arc<str>>,
    classes: [Count; CLASSES],
}

/// The counts of one worker. The first recognised caller allocates the table.
#[derive(Default)]
pub(super) struct ConsumerTable(OnceLock<Box<Places>>);

struct Places {
    hasher: RandomState,
    used: Count,
    list: Box<[ConsumerCounts]>,
    other: [Count; CLASSES],
}

impl Default for Places {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            used: Count::default(),
            list: (0..PLACES).map(|_| ConsumerCounts::default()).collect(),
            other: Default::default(),
        }
    }
}

impl ConsumerTable {
    /// Counts an exchange of a caller. Only the worker's own thread may call it.
    pub(super) fn count(&self, name: &Arc<str>, class: usize) {
        let places = self.0.get_or_init(Box::default);
        let first = places.hasher.hash_one(&**name) as usize;
        for step in 0..PLACES {
            let Some(place) = places.list.get(first.wrapping_add(step) % PLACES) else { break };
            match place.name.get() {
                Some(known) if **known == **name => return place.classes[class].add(1),
                Some(_) => {}
                None if places.used.value() >= MAX_CONSUMERS as u64 => break,
                None => {
                    places.used.add(1);
                    place.name.get_or_init(|| name.clone());
                    return place.classes[class].add(1);
                }
            }
        }
        places.other[class].add(1);
    }

    /// Adds the counts to `sums` by name, and the counts of callers without an entry to `other`.
    pub(super) fn add_to(&self, sums: &mut BTreeMap<Arc<str>, [u64; CLASSES]>, other: &mut [u64; CLASSES]) {
        let Some(places) = self.0.get() else { return };
        let add = |sum: &mut [u64; CLASSES], counts: &[Count; CLASSES]| {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.value());
        };
        for place in &places.list {
            let Some(name) = place.name.get() else { continue };
            // Workers may have counted different callers. The sum must not have more series than one table.
            match sums.len() < MAX_CONSUMERS || sums.contains_key(name) {
                true => add(sums.entry(name.clone()).or_default(), &place.classes),
                false => add(other, &place.classes),
            }
        }
        add(other, &places.other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_beyond_the_limit_share_a_count() {
        let (one, two) = (ConsumerTable::default(), ConsumerTable::default());
        for n in 0..MAX_CONSUMERS + 50 {
            one.count(&format!("c{n}").into(), 1);
        }
        one.count(&"c7".into(), 4);
        two.count(&"c7".into(), 1);
        two.count(&"late".into(), 3);
        let (mut sums, mut other) = (BTreeMap::new(), [0; CLASSES]);
        [&one, &two, &ConsumerTable::default()].iter().for_each(|table| table.add_to(&mut sums, &mut other));
        assert_eq!(sums.len(), MAX_CONSUMERS);
        assert_eq!(sums["c7"], [0, 2, 0, 0, 1]);
        assert_eq!(other, [0, 50, 0, 1, 0]);
    }
}
