//! The index against a plain map, and what its clones share.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Change {
    Insert(u16, u32),
    Remove(u16),
    Bump(u16),
    Freeze,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0u16..900, any::<u32>()).prop_map(|(k, v)| Change::Insert(k, v)),
        4 => (0u16..900).prop_map(Change::Remove),
        1 => (0u16..900).prop_map(Change::Bump),
        1 => Just(Change::Freeze),
    ]
}

fn same(index: &Index<u16, u32>, map: &HashMap<u16, u32>) {
    assert_eq!(index.len(), map.len());
    let all: HashMap<u16, u32> = index.iter().map(|(k, v)| (*k, *v)).collect();
    assert_eq!(&all, map);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changes_as_a_map_does_and_leaves_clones_alone(
        changes in proptest::collection::vec(change(), 1..1500),
    ) {
        let mut index = Index::new();
        let mut map = HashMap::new();
        let mut frozen = Vec::new();
        for change in changes {
            match change {
                Change::Insert(k, v) => prop_assert_eq!(index.insert(k, v), map.insert(k, v)),
                Change::Remove(k) => prop_assert_eq!(index.remove(&k), map.remove(&k)),
                Change::Bump(k) => {
                    if let Some(v) = index.get_mut(&k) {
                        *v ^= 1;
                    }
                    map.entry(k).and_modify(|v| *v ^= 1);
                }
                Change::Freeze => frozen.push((index.clone(), map.clone())),
            }
        }
        for k in 0..900 {
            prop_assert_eq!(index.get(&k), map.get(&k));
        }
        same(&index, &map);
        for (index, map) in &frozen {
            same(index, map);
        }
    }
}

#[test]
fn keys_of_one_hash_stay_apart() {
    let mut index = Index::new();
    for key in 0..500u32 {
        index.insert_hashed(7, key, key * 2);
    }
    assert_eq!(index.len(), 500);
    for key in 0..500u32 {
        assert_eq!(index.get_hashed(7, |k| *k == key), Some(&(key * 2)));
    }
    for key in 0..500u32 {
        assert_eq!(index.remove_hashed(7, |k| *k == key), Some(key * 2));
    }
    assert!(index.is_empty());
}

#[test]
fn one_change_among_many_copies_little() {
    // Counting clones of values says what a change costs without looking at a clock.
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CLONES: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Clone for Counted {
        fn clone(&self) -> Self {
            CLONES.fetch_add(1, Ordering::Relaxed);
            Self
        }
    }
    let mut index: Index<u32, Counted> = (0..100_000).map(|k| (k, Counted)).collect();
    let published = index.clone();
    CLONES.store(0, Ordering::Relaxed);
    index.insert(200_000, Counted);
    index.remove(&17);
    let copied = CLONES.load(Ordering::Relaxed);
    assert!(copied <= 2 * (SHARD + 1), "{copied} values were copied for two changes");
    assert_eq!(published.len(), 100_000);
    assert!(published.contains_key(&17));
}
