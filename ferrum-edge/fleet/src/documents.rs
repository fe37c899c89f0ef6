//! A configuration as a set of documents by kind and id, with a hash whose update cost depends only on what changes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256, digest};

use crate::canonical::canonical;

/// SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        Self::from_digest(context.finish().as_ref())
    }

    fn from_digest(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(bytes);
        Self(hash)
    }
}

impl TryFrom<&[u8]> for Hash {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self(bytes.try_into()?))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// Which document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    /// Such as `proxies`.
    pub kind: Arc<str>,
    /// Unique within its kind.
    pub id: Arc<str>,
}

impl DocumentKey {
    /// The document of this kind and id.
    pub fn new(kind: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

#[derive(Clone)]
struct Document {
    text: Arc<str>,
    leaf: Hash,
}

#[derive(Clone)]
struct Bucket {
    documents: BTreeMap<DocumentKey, Document>,
    hash: Hash,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { documents: BTreeMap::new(), hash: Hash::of(&[]) }
    }
}

/// Documents by key. A clone shares everything, and a change copies 1/256 of the keys.
#[derive(Clone)]
pub struct DocumentSet {
    buckets: Vec<Arc<Bucket>>,
    count: usize,
    bytes: usize,
}

/// How many parts the hash of a set has: as many as a byte has values.
const BUCKETS: usize = 256;

impl Default for DocumentSet {
    fn default() -> Self {
        Self { buckets: vec![Arc::default(); BUCKETS], count: 0, bytes: 0 }
    }
}

impl fmt::Debug for DocumentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Documents contain secrets.
        write!(f, "DocumentSet({} documents, {} bytes, {:?})", self.count, self.bytes, self.hash())
    }
}

fn bucket_of(key: &DocumentKey) -> usize {
    let text = [key.kind.as_bytes(), b"\0", key.id.as_bytes()].concat();
    digest(&SHA256, &text).as_ref().first().map_or(0, |byte| usize::from(*byte))
}

fn leaf(key: &DocumentKey, text: &str) -> Hash {
    let document = match canonical(text) {
        Some(canonical) => Hash::of(&[&[0], canonical.as_bytes()]),
        None => Hash::of(&[&[1], text.as_bytes()]),
    };
    Hash::of(&[key.kind.as_bytes(), b"\0", key.id.as_bytes(), b"\0", document.as_bytes()])
}

impl DocumentSet {
    /// Puts (`Some`) and removes (`None`) documents. Costs by what changes.
    pub fn apply<T: Into<Arc<str>>>(&mut self, changes: impl IntoIterator<Item = (DocumentKey, Option<T>)>) {
        let mut touched = [false; BUCKETS];
        for (key, text) in changes {
            let at = bucket_of(&key);
            touched[at] = true;
            let documents = &mut Arc::make_mut(&mut self.buckets[at]).documents;
            let removed = match text.map(Into::into) {
                Some(text) => {
                    self.bytes += text.len();
                    self.count += 1;
                    let document = Document { leaf: leaf(&key, &text), text };
                    match documents.entry(key) {
                        Slot::Occupied(mut slot) => Some(slot.insert(document)),
                        Slot::Vacant(slot) => {
                            slot.insert(document);
                            None
                        }
                    }
                }
                None => documents.remove(&key),
            };
            if let Some(removed) = removed {
                self.bytes -= removed.text.len();
                self.count -= 1;
            }
        }
        for (bucket, _) in self.buckets.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            let bucket = Arc::make_mut(bucket);
            let mut context = Context::new(&SHA256);
            bucket.documents.values().for_each(|document| context.update(document.leaf.as_bytes()));
            bucket.hash = Hash::from_digest(context.finish().as_ref());
        }
    }

    /// Its hash, as `specs/fleet.proto` defines it.
    pub fn hash(&self) -> Hash {
        let mut context = Context::new(&SHA256);
        self.buckets.iter().for_each(|bucket| context.update(bucket.hash.as_bytes()));
        Hash::from_digest(context.finish().as_ref())
    }

    /// One document.
    pub fn get(&self, key: &DocumentKey) -> Option<&Arc<str>> {
        Some(&self.buckets.get(bucket_of(key))?.documents.get(key)?.text)
    }

    /// All of them, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (&DocumentKey, &Arc<str>)> {
        let documents = self.buckets.iter().flat_map(|bucket| &bucket.documents);
        documents.map(|(key, document)| (key, &document.text))
    }

    /// The keys whose documents differ between two sets; what both share is not looked at.
    pub fn difference(&self, other: &Self) -> Vec<DocumentKey> {
        let mut differing = Vec::new();
        for (one, two) in self.buckets.iter().zip(&other.buckets) {
            if Arc::ptr_eq(one, two) || one.hash == two.hash {
                continue;
            }
            let (one, two) = (&one.documents, &two.documents);
            let is_same = |key, document: &Document| two.get(key).is_some_and(|it| it.leaf == document.leaf);
            let changed = one.iter().filter(|(key, document)| !is_same(*key, document));
            differing.extend(changed.map(|(key, _)| key.clone()));
            differing.extend(two.keys().filter(|key| !one.contains_key(key)).cloned());
        }
        differing
    }

    /// Documents in it.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all texts.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A state of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// Revisions are comparable only within an epoch; a restored backup begins another one.
    pub epoch: Arc<str>,
    /// Of the store.
    pub revision: u64,
    /// Of the documents. Two positions with one hash are the same configuration.
    pub hash: Hash,
}

impl Position {
    /// Whether an edge at `self` may go on to `next`: a revision never goes back within an epoch.
    pub fn may_be_followed_by(&self, next: &Self) -> bool {
        self.epoch != next.epoch || self.revision <= next.revision
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.revision, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> DocumentKey {
        DocumentKey::new("proxies", id)
    }

    fn put(id: &str, text: &str) -> (DocumentKey, Option<String>) {
        (key(id), Some(text.to_owned()))
    }

    #[test]
    fn the_hash_depends_on_the_documents_alone() {
        let mut one = DocumentSet::default();
        let empty = one.hash();
        one.apply((0..1000).map(|n| put(&n.to_string(), &format!("{{\"n\":{n}}}"))));
        let mut two = DocumentSet::default();
        two.apply((0..2000).rev().map(|n| put(&n.to_string(), "{}")));
        two.apply((1000..2000).map(|n| (key(&n.to_string()), None::<String>)));
        assert_ne!(one.hash(), two.hash());
        let before = two.clone();
        two.apply((0..1000).map(|n| put(&n.to_string(), &format!("{{ \"n\": {n} }}"))));
        assert_eq!((one.hash(), one.len()), (two.hash(), two.len()));
        assert_ne!(before.hash(), two.hash(), "a clone stays what it was");
        two.apply([put("7", "{\"n\":8}")]);
        assert_eq!(one.difference(&two), [key("7")]);
        one.apply((0..1000).map(|n| (key(&n.to_string()), None::<String>)));
        assert_eq!((one.hash(), one.len(), one.bytes()), (empty, 0, 0));
        assert_eq!(Hash::from_hex(&empty.to_string()), Some(empty));
    }

    #[test]
    fn every_part_of_an_object_is_hashed() {
        let hash = |kind: &str, id: &str, text: &str| {
            let mut set = DocumentSet::default();
            set.apply([(DocumentKey::new(kind, id), Some(text))]);
            set.hash()
        };
        let hashes = [
            hash("proxies", "a", "{}"),
            hash("upstreams", "a", "{}"),
            hash("proxies", "b", "{}"),
            hash("proxies", "a", r#"{"a":1}"#),
            hash("proxies", "a", r#"{"a":1,"a":1}"#),
            hash("proxies", "a", "no JSON"),
        ];
        for (number, one) in hashes.iter().enumerate() {
            assert!(!hashes[number + 1..].contains(one), "{number}");
        }
    }
}
