//! Writing header blocks.
//!
//! A field is put into the table when it is seen for the second time: values that never come again, such as request
//! identifiers, would only push out those that do. What names a caller is never put there (RFC 7541 §7.1.3).

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::name::{STATIC, static_index};
use super::{ENTRY_OVERHEAD, TABLE_BYTES, huffman, integer};

/// Fields remembered as seen once; a power of two.
const SEEN: usize = 64;
/// Places by which entries are found; a power of two, above the number of entries a table usually holds.
const PLACES: usize = 128;
/// Larger fields are not worth their place in the table.
const MAX_INDEXED: usize = TABLE_BYTES / 4;

/// The writing end of one direction.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// Newest first, as the indexes count.
    entries: VecDeque<DynamicEntry>,
    /// Entries put in so far, also those that are gone again: an entry's number is how many there were with it.
    inserted: u32,
    /// By hash: the number of the entry put in last. One that was overwritten is not found, and put in again.
    places: [u32; PLACES],
    size: usize,
    max: usize,
    /// The smallest size since the last block, when the size was changed (RFC 7541 §4.2).
    shrunk: Option<usize>,
    seen: [u32; SEEN],
    hasher: RandomState,
}

#[derive(Debug)]
struct DynamicEntry {
    /// Name and value, one after the other.
    text: Box<[u8]>,
    name: usize,
}

impl DynamicEntry {
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.name == name.len() && &self.text[..self.name] == name && &self.text[self.name..] == value
    }

    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            inserted: 0,
            places: [0; PLACES],
            size: 0,
            max: TABLE_BYTES,
            shrunk: None,
            seen: [0; SEEN],
            hasher: RandomState::default(),
        }
    }
}

impl Encoder {
    /// The peer allows a table of so many octets.
    pub(crate) fn limit(&mut self, allowed: usize) {
        let max = allowed.min(TABLE_BYTES);
        if max == self.max && self.shrunk.is_none() {
            return;
        }
        self.shrunk = Some(self.shrunk.unwrap_or(max).min(max));
        self.max = max;
        self.evict(0);
    }

    /// To be called before a block's first field.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.shrunk.take() {
            if smallest < self.max {
                integer::encode(out, 0x20, 5, smallest);
            }
            integer::encode(out, 0x20, 5, self.max);
        }
    }

    /// Adds a field; what is `sensitive` is written out each time, and marked as never to be kept.
    pub(crate) fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], sensitive: bool) {
        if sensitive {
            self.name(out, 0x10, 4, name);
            return plain(out, value);
        }
        let hash = self.hash(name, value);
        let place = hash as usize % PLACES;
        let age = self.inserted.wrapping_sub(self.places[place]) as usize;
        if self.entries.get(age).is_some_and(|entry| entry.is(name, value)) {
            return integer::encode(out, 0x80, 7, age + STATIC.len() + 1);
        }
        let seen = &mut self.seen[(hash >> 8) as usize % SEEN];
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        if std::mem::replace(seen, hash) != hash || size > MAX_INDEXED.min(self.max) {
            self.name(out, 0x00, 4, name);
            return plain(out, value);
        }
        self.name(out, 0x40, 6, name);
        shortest(out, value);
        self.evict(size);
        self.size += size;
        self.inserted = self.inserted.wrapping_add(1);
        self.places[place] = self.inserted;
        self.entries.push_front(DynamicEntry { text: [name, value].concat().into(), name: name.len() });
    }

    /// Adds a field that stands in the static table under this index.
    pub(crate) fn known(out: &mut Vec<u8>, index: u8) {
        out.push(0x80 | index);
    }

    fn hash(&self, name: &[u8], value: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(value) ^ self.hasher.hash_one(name).rotate_left(17);
        (hash ^ hash >> 32) as u32
    }

    /// A literal's first octets and its name, by index where there is one.
    fn name(&self, out: &mut Vec<u8>, first: u8, prefix: u8, name: &[u8]) {
        let index = static_index(name).or_else(|| {
            let at = self.entries.iter().position(|entry| &entry.text[..entry.name] == name)?;
            Some(at + STATIC.len() + 1)
        });
        match index {
            Some(index) => integer::encode(out, first, prefix, index),
            None => {
                out.push(first);
                shortest(out, name);
            }
        }
    }

    fn evict(&mut self, room: usize) {
        while self.size + room > self.max {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size();
        }
    }
}

/// A string as it is: what is written once is not worth coding.
fn plain(out: &mut Vec<u8>, text: &[u8]) {
    integer::encode(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// A string coded, where that makes it shorter.
fn shortest(out: &mut Vec<u8>, text: &[u8]) {
    let coded = huffman::encoded_len(text);
    if coded >= text.len() {
        return plain(out, text);
    }
    integer::encode(out, 0x80, 7, coded);
    huffman::encode(text, out);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{Decoder, Name, Value};
    use super::*;

    fn block(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Bytes {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.field(&mut out, name.as_bytes(), value.as_bytes(), *name == "authorization");
        }
        out.into()
    }

    fn fields(decoder: &mut Decoder, block: &Bytes) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        decoder
            .decode(block, usize::MAX, |field| {
                let name = match field.name {
                    Name::Header(name) => name.to_string(),
                    other => format!("{other:?}"),
                };
                let Value::Header(value) = field.value else { panic!("{:?}", field.value) };
                fields.push((name, value.to_str().unwrap().to_owned()));
            })
            .unwrap();
        fields
    }

    #[test]
    fn a_field_seen_twice_costs_one_octet_from_then_on() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        // Fields that hash to one place push each other out, which is not what this is about.
        let places = |name: &str, value: &str| {
            let hash = encoder.hash(name.as_bytes(), value.as_bytes());
            (hash as usize % PLACES, (hash >> 8) as usize % SEEN)
        };
        let (place, seen) = places("content-type", "application/grpc");
        let is_apart = |value: &String| {
            let of = places("x-unit", value);
            of.0 != place && of.1 != seen
        };
        let unit = (10..).map(|n: u32| n.to_string()).find(is_apart).unwrap();
        let given = [("content-type", "application/grpc"), ("x-unit", unit.as_str())];
        let lengths: Vec<usize> = (0..4)
            .map(|_| {
                let block = block(&mut encoder, &given);
                let read = fields(&mut decoder, &block);
                assert_eq!(read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), given);
                block.len()
            })
            .collect();
        assert!(lengths[1] < lengths[0], "{lengths:?}");
        assert_eq!(lengths[2..], [2, 2]);
    }

    #[test]
    fn secrets_are_never_kept() {
        let mut encoder = Encoder::default();
        for _ in 0..4 {
            let block = block(&mut encoder, &[("authorization", "Basic eDp5")]);
            // Literal never indexed, the name by its index 23 in the static table.
            assert_eq!(&block[..], b"\x1f\x08\x0aBasic eDp5");
        }
        assert!(encoder.entries.is_empty());
    }

    #[test]
    fn values_that_never_come_again_leave_the_table_alone() {
        let mut encoder = Encoder::default();
        for number in 0..1000 {
            block(&mut encoder, &[("x-request-id", &number.to_string())]);
        }
        assert!(encoder.entries.is_empty());
    }

    #[test]
    fn the_table_keeps_to_the_peers_size() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let given: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), "v".repeat(n))).collect();
        let given: Vec<(&str, &str)> = given.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        for limit in [4096, 4096, 100, 0, 0, 5000, 2000] {
            encoder.limit(limit);
            for _ in 0..3 {
                let block = block(&mut encoder, &given);
                let read = fields(&mut decoder, &block);
                assert_eq!(read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), given);
                assert!(encoder.size <= limit.min(TABLE_BYTES));
            }
        }
    }

    #[test]
    fn a_size_made_small_and_large_again_is_said_twice() {
        let mut encoder = Encoder::default();
        encoder.limit(0);
        encoder.limit(4096);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        assert_eq!(out, [0x20, 0x3f, 0xe1, 0x1f]);
        out.clear();
        encoder.begin(&mut out);
        assert!(out.is_empty());
    }
}
