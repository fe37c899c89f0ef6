//! Values by path prefix: the longest stored prefix of a path, found by hashing the path once.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::{FixedState, FoldHasher};
use smallvec::SmallVec;

use crate::config::index::Index;
use crate::config::pattern::MAX_SEGMENTS;

/// Values by path prefix on whole segments.
#[derive(Clone)]
pub(super) struct PathMap<V> {
    entries: Index<Arc<str>, V>,
    /// How many entries have a prefix of 0, 1, 2… segments, so that other lengths aren't looked for.
    depths: SmallVec<[u32; 4]>,
}

impl<V> Default for PathMap<V> {
    fn default() -> Self {
        Self { entries: Index::new(), depths: SmallVec::new() }
    }
}

/// One prefix of a path: its length in bytes and its hash.
type Boundary = (usize, u64);

/// The prefixes of a path, the shortest first.
type Boundaries = SmallVec<[Boundary; MAX_SEGMENTS]>;

/// Hashes paths; one for a whole table, kept by its clones.
#[derive(Clone, Copy)]
pub(super) struct PathHash(u64);

impl Default for PathHash {
    fn default() -> Self {
        Self(fastrand::u64(..))
    }
}

impl PathHash {
    fn hasher(self) -> FoldHasher<'static> {
        FixedState::with_seed(self.0).build_hasher()
    }

    /// Adds the prefixes of `path` with 1, 2… `most` segments, each one's hash made from the hash of the one before. They are
    /// added, not returned, as so large a table costs more to move than to fill.
    fn boundaries(self, path: &str, most: usize, found: &mut Boundaries) {
        let mut hash = ROOT;
        let mut start = 0;
        while start < path.len() && found.len() < most {
            let segment = path.as_bytes().get(start + 1..).unwrap_or_default();
            let len = memchr::memchr(b'/', segment).unwrap_or(segment.len());
            let mut hasher = self.hasher();
            hasher.write_u64(hash);
            hasher.write(segment.get(..len).unwrap_or_default());
            hash = hasher.finish();
            start += 1 + len;
            found.push((start, hash));
        }
    }

    /// The number of segments of a prefix, and its hash.
    fn prefix(self, prefix: &str) -> (usize, u64) {
        let mut boundaries = Boundaries::new();
        self.boundaries(prefix.trim_end_matches('/'), MAX_SEGMENTS + 1, &mut boundaries);
        match boundaries.as_slice() {
            [] => (0, ROOT),
            all => (all.len(), all[all.len() - 1].1),
        }
    }

    /// The hash of a host's name.
    pub(super) fn host(self, name: &[u8]) -> u64 {
        let mut hasher = self.hasher();
        hasher.write(name);
        hasher.finish()
    }

    /// Whether a prefix is short enough to be stored.
    pub(super) fn fits(self, prefix: &str) -> bool {
        self.prefix(prefix).0 <= MAX_SEGMENTS
    }
}

/// The hash of the empty prefix, `/`.
const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;

impl<V> PathMap<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<V: Clone> PathMap<V> {
    /// The value of the longest prefix of `path` that `choose` takes; it also gets the prefix's length in bytes,
    /// 0 for `/`.
    pub(super) fn longest<'s, T>(
        &'s self,
        hash: PathHash,
        path: &str,
        mut choose: impl FnMut(&'s V, usize) -> Option<T>,
    ) -> Option<T> {
        if !path.starts_with('/') {
            return None;
        }
        let deepest = self.depths.len().saturating_sub(1);
        if deepest > 0 {
            let mut boundaries = Boundaries::new();
            hash.boundaries(path, deepest, &mut boundaries);
            for (n, &(len, hash)) in boundaries.iter().enumerate().rev() {
                if self.depths[n + 1] == 0 {
                    continue;
                }
                let prefix = &path.as_bytes()[..len];
                let found = self.entries.get_hashed(hash, |key| key.as_bytes() == prefix);
                if let Some(chosen) = found.and_then(|value| choose(value, len)) {
                    return Some(chosen);
                }
            }
        }
        if self.depths.first().is_none_or(|entries| *entries == 0) {
            return None;
        }
        self.entries.get_hashed(ROOT, |key| key.len() == 1).and_then(|value| choose(value, 0))
    }

    pub(super) fn get(&self, hash: PathHash, prefix: &str) -> Option<&V> {
        self.entries.get_hashed(hash.prefix(prefix).1, |key| **key == *prefix)
    }

    /// Sets the value of a prefix that [`PathHash::fits`].
    pub(super) fn insert(&mut self, hash: PathHash, prefix: &Arc<str>, value: V) -> Option<V> {
        let (depth, hash) = hash.prefix(prefix);
        let old = self.entries.insert_hashed(hash, prefix.clone(), value);
        if old.is_none() {
            if self.depths.len() <= depth {
                self.depths.resize(depth + 1, 0);
            }
            self.depths[depth] += 1;
        }
        old
    }

    pub(super) fn remove(&mut self, hash: PathHash, prefix: &str) -> Option<V> {
        let (depth, hash) = hash.prefix(prefix);
        let old = self.entries.remove_hashed(hash, |key| **key == *prefix)?;
        self.depths[depth] -= 1;
        while self.depths.last() == Some(&0) {
            self.depths.pop();
        }
        Some(old)
    }
}
