//! A copy-on-write hash map in small shared shards: cheap to clone, cheap to change, read without a lock.
//!
//! A published snapshot is frozen, and the next one differs from it in a few entries. So the map is a shallow tree
//! over the hash: leaves of at most [`SHARD`] entries, branches of [`FANOUT`]. A clone copies one pointer. A change
//! copies the one leaf it touches and the branches above it, a few hundred pointers among a million entries,
//! and leaves the rest shared with the older snapshots. The tree grows by splitting one leaf at a time: no change
//! ever pays for a rebuild of all.
//!
//! A leaf is an array with hardly a free place in it, ordered by hash: there may be millions of entries. Hashes are spread
//! evenly, so where one must stand is guessed from its value, a few places off at most.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Entries in a leaf before it splits.
const SHARD: usize = 64;
/// Entries below which a branch of leaves becomes one leaf again; well under [`SHARD`], so that it doesn't flap.
const MERGE: usize = 16;
/// Places that a leaf grows by, beside an eighth of what it has: few are wasted, and not every entry moves all others.
const GROWTH: usize = 2;
/// Bits of the hash a branch consumes.
const BITS: u32 = 5;
/// Children of a branch.
const FANOUT: usize = 1 << BITS;
/// Bits 8 to 57 choose branches: the order within a leaf goes by the top bits first, which so stay independent.
const FIRST_BIT: u32 = 8;
/// Beyond it, keys whose hashes agree share a leaf however many they are.
const LAST_BIT: u32 = 53;

/// A map from `K` to `V` whose clones share what they have in common.
pub struct Index<K, V> {
    root: Node<K, V>,
    len: usize,
    hasher: RandomState,
}

impl<K, V> Index<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { root: Node::leaf(), len: 0, hasher: RandomState::default() }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { leaf: None, pending: Vec::new() };
        iter.descend(&self.root);
        iter
    }

    /// The value whose key hashes to `hash` and pleases `is_key`.
    pub fn get_hashed(&self, hash: u64, is_key: impl FnMut(&K) -> bool) -> Option<&V> {
        self.entry_hashed(hash, is_key).map(|(_, value)| value)
    }

    /// The key that hashes to `hash` and pleases `is_key`, with its value.
    pub fn entry_hashed(&self, hash: u64, mut is_key: impl FnMut(&K) -> bool) -> Option<(&K, &V)> {
        let mut node = &self.root;
        let mut bit = FIRST_BIT;
        loop {
            match node {
                Node::Branch(children) => node = &children[slot(hash, bit)],
                Node::Leaf(entries) => {
                    let entry = &entries[find(entries, hash, &mut is_key)?];
                    return Some((&entry.key, &entry.value));
                }
            }
            bit += BITS;
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Index<K, V> {
    /// The value of `key`.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get_hashed(self.hasher.hash_one(key), |k| k.borrow() == key)
    }

    /// The key itself that is equal to `key`.
    pub fn get_key<Q>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.entry_hashed(self.hasher.hash_one(key), |k| k.borrow() == key).map(|(key, _)| key)
    }

    /// True when `key` has a value.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key).is_some()
    }

    /// The value of `key`, to be changed; copies what older clones still share.
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        self.get_mut_hashed(hash, |k| k.borrow() == key)
    }

    /// Sets the value of `key` and hands back the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hasher.hash_one(&key);
        self.insert_hashed(hash, key, value)
    }

    /// Removes `key` and hands back its value.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        self.remove_hashed(hash, |k| k.borrow() == key)
    }
}

/// For keys hashed by the caller: the same key must always come with the same hash, in all 64 bits a good one.
impl<K: Eq + Clone, V: Clone> Index<K, V> {
    /// As [`Self::get_mut`], with the hash given. Nothing is copied when the key is absent.
    pub fn get_mut_hashed(&mut self, hash: u64, mut is_key: impl FnMut(&K) -> bool) -> Option<&mut V> {
        self.get_hashed(hash, &mut is_key)?;
        let mut node = &mut self.root;
        let mut bit = FIRST_BIT;
        loop {
            match node {
                Node::Branch(children) => node = &mut Arc::make_mut(children)[slot(hash, bit)],
                Node::Leaf(entries) => {
                    let at = find(entries, hash, &mut is_key)?;
                    return Some(&mut Arc::make_mut(entries)[at].value);
                }
            }
            bit += BITS;
        }
    }

    /// As [`Self::insert`], with the hash given.
    pub fn insert_hashed(&mut self, hash: u64, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut_hashed(hash, |k| *k == key) {
            return Some(std::mem::replace(old, value));
        }
        self.root.insert(IndexEntry { hash, key, value }, FIRST_BIT);
        self.len += 1;
        None
    }

    /// As [`Self::remove`], with the hash given. Nothing is copied when the key is absent.
    pub fn remove_hashed(&mut self, hash: u64, mut is_key: impl FnMut(&K) -> bool) -> Option<V> {
        self.get_hashed(hash, &mut is_key)?;
        let removed = self.root.remove(hash, &mut is_key, FIRST_BIT);
        self.len -= usize::from(removed.is_some());
        removed
    }
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len, hasher: self.hasher.clone() }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Hash + Eq + Clone, V: Clone> FromIterator<(K, V)> for Index<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut index = Self::new();
        for (key, value) in entries {
            index.insert(key, value);
        }
        index
    }
}

impl<'a, K, V> IntoIterator for &'a Index<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The entries of an [`Index`], in no order.
pub struct Iter<'a, K, V> {
    leaf: Option<std::slice::Iter<'a, IndexEntry<K, V>>>,
    pending: Vec<&'a Node<K, V>>,
}

impl<'a, K, V> Iter<'a, K, V> {
    fn descend(&mut self, node: &'a Node<K, V>) {
        match node {
            Node::Leaf(entries) => self.leaf = Some(entries.iter()),
            Node::Branch(children) => self.pending.extend(children.iter()),
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.leaf.as_mut().and_then(Iterator::next) {
                return Some((&entry.key, &entry.value));
            }
            self.leaf = None;
            let node = self.pending.pop()?;
            self.descend(node);
        }
    }
}

#[derive(Clone)]
struct IndexEntry<K, V> {
    hash: u64,
    key: K,
    value: V,
}

enum Node<K, V> {
    Leaf(Arc<Vec<IndexEntry<K, V>>>),
    Branch(Arc<[Self; FANOUT]>),
}

impl<K, V> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(entries) => Self::Leaf(entries.clone()),
            Self::Branch(children) => Self::Branch(children.clone()),
        }
    }
}

impl<K, V> Node<K, V> {
    fn leaf() -> Self {
        Self::Leaf(Arc::default())
    }
}

impl<K: Clone, V: Clone> Node<K, V> {
    /// Adds an entry whose key is known to be absent.
    fn insert(&mut self, entry: IndexEntry<K, V>, bit: u32) {
        match self {
            Self::Branch(children) => {
                Arc::make_mut(children)[slot(entry.hash, bit)].insert(entry, bit + BITS);
            }
            Self::Leaf(entries) if entries.len() < SHARD || bit > LAST_BIT => {
                let at = first(entries, entry.hash);
                if let Some(entries) = Arc::get_mut(entries) {
                    if entries.len() == entries.capacity() {
                        entries.reserve_exact(GROWTH + entries.len() / 8);
                    }
                    entries.insert(at, entry);
                    return;
                }
                let (before, after) = entries.split_at(at);
                let mut grown = Vec::with_capacity(entries.len() + 1);
                grown.extend_from_slice(before);
                grown.push(entry);
                grown.extend_from_slice(after);
                *entries = Arc::new(grown);
            }
            Self::Leaf(entries) => {
                let mut children: [Vec<IndexEntry<K, V>>; FANOUT] = std::array::from_fn(|_| Vec::new());
                for e in entries.iter() {
                    children[slot(e.hash, bit)].push(e.clone());
                }
                let mut children = children.map(|mut entries| {
                    entries.shrink_to_fit();
                    Self::Leaf(Arc::new(entries))
                });
                children[slot(entry.hash, bit)].insert(entry, bit + BITS);
                *self = Self::Branch(Arc::new(children));
            }
        }
    }

    fn remove(&mut self, hash: u64, is_key: &mut impl FnMut(&K) -> bool, bit: u32) -> Option<V> {
        match self {
            Self::Leaf(entries) => {
                let at = find(entries, hash, is_key)?;
                if let Some(entries) = Arc::get_mut(entries) {
                    let removed = entries.remove(at);
                    entries.shrink_to_fit();
                    return Some(removed.value);
                }
                let removed = entries[at].value.clone();
                let others = entries.iter().enumerate().filter(|(n, _)| *n != at);
                *entries = Arc::new(others.map(|(_, entry)| entry.clone()).collect());
                Some(removed)
            }
            Self::Branch(children) => {
                let removed = Arc::make_mut(children)[slot(hash, bit)].remove(hash, is_key, bit + BITS);
                if let Some(entries) = merged(children) {
                    *self = Self::Leaf(Arc::new(entries));
                }
                removed
            }
        }
    }
}

/// The children's entries in one leaf, when all are leaves and hold [`MERGE`] entries or fewer.
fn merged<K: Clone, V: Clone>(children: &[Node<K, V>; FANOUT]) -> Option<Vec<IndexEntry<K, V>>> {
    let mut total = 0;
    for child in children {
        match child {
            Node::Leaf(entries) => total += entries.len(),
            Node::Branch(_) => return None,
        }
        if total > MERGE {
            return None;
        }
    }
    let mut all = Vec::with_capacity(total);
    for child in children {
        if let Node::Leaf(entries) = child {
            all.extend_from_slice(entries);
        }
    }
    all.sort_by_key(|entry| entry.hash);
    Some(all)
}

/// Where the first entry stands whose hash is not smaller.
#[inline]
fn first<K, V>(entries: &[IndexEntry<K, V>], hash: u64) -> usize {
    // The upper half of the hash as a share of all there are.
    let mut at = (((hash >> 32) * entries.len() as u64) >> 32) as usize;
    while at < entries.len() && entries[at].hash < hash {
        at += 1;
    }
    while at > 0 && entries[at - 1].hash >= hash {
        at -= 1;
    }
    at
}

/// Where the entry stands whose key hashes to `hash` and pleases `is_key`.
#[inline]
fn find<K, V>(entries: &[IndexEntry<K, V>], hash: u64, is_key: &mut impl FnMut(&K) -> bool) -> Option<usize> {
    let from = first(entries, hash);
    let same = entries[from..].iter().take_while(|entry| entry.hash == hash);
    same.zip(from..).find(|(entry, _)| is_key(&entry.key)).map(|(_, at)| at)
}

fn slot(hash: u64, bit: u32) -> usize {
    (hash >> bit) as usize & (FANOUT - 1)
}

#[cfg(test)]
mod tests;
