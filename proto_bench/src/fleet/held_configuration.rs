//! What a simulated edge holds, and its hash, computed as `specs/fleet.proto` defines it and without the gateway's code.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use aws_lc_rs::digest::{Context, SHA256, digest};
use serde_json::value::RawValue;

use super::error::FleetError;
use super::messages::{Change, Hash, Header, changes};

/// Kind and id.
type Key = (String, String);

#[derive(Clone, Default)]
struct Bucket {
    documents: BTreeMap<Key, (Arc<str>, Hash)>,
    hash: Hash,
}

/// A whole configuration. A change copies the parts that it touches.
#[derive(Clone)]
pub(super) struct State {
    buckets: Vec<Arc<Bucket>>,
    pub(super) hash: Hash,
}

/// Parts of a configuration's hash.
const BUCKETS: usize = 256;
/// Bytes of a transfer at most, decompressed.
const MAX_BYTES: usize = 1 << 30;

fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    finish(context)
}

fn finish(context: Context) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

impl Bucket {
    fn rehash(&mut self) {
        let mut context = Context::new(&SHA256);
        self.documents.values().for_each(|(_, leaf)| context.update(leaf));
        self.hash = finish(context);
    }
}

impl State {
    /// No documents.
    pub(super) fn empty() -> Self {
        let mut bucket = Bucket::default();
        bucket.rehash();
        // All of them are the same empty one.
        let bucket = Arc::new(bucket);
        let mut state = Self { buckets: (0..BUCKETS).map(|_| bucket.clone()).collect(), hash: [0; 32] };
        state.rehash();
        state
    }

    fn rehash(&mut self) {
        let mut context = Context::new(&SHA256);
        self.buckets.iter().for_each(|bucket| context.update(&bucket.hash));
        self.hash = finish(context);
    }

    /// Puts and removes documents.
    pub(super) fn apply(&mut self, changes: Vec<Change>) {
        let mut touched = [false; BUCKETS];
        for (kind, id, document) in changes {
            let name = sha256(&[kind.as_bytes(), b"\0", id.as_bytes()]);
            let at = usize::from(name[0]);
            touched[at] = true;
            let documents = &mut Arc::make_mut(&mut self.buckets[at]).documents;
            match document {
                Some(text) => {
                    let canonical = canonical(&text);
                    let document = match &canonical {
                        Some(canonical) => sha256(&[&[0], canonical.as_bytes()]),
                        None => sha256(&[&[1], text.as_bytes()]),
                    };
                    let leaf = sha256(&[kind.as_bytes(), b"\0", id.as_bytes(), b"\0", &document]);
                    documents.insert((kind, id), (text.into(), leaf));
                }
                None => drop(documents.remove(&(kind, id))),
            }
        }
        for (bucket, _) in self.buckets.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            Arc::make_mut(bucket).rehash();
        }
        self.rehash();
    }

    /// Documents of a kind: id and text.
    pub(super) fn documents<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = (&'s str, &'s str)> {
        let all = self.buckets.iter().flat_map(|bucket| &bucket.documents);
        all.filter(move |((of, _), _)| of == kind).map(|((_, id), (text, _))| (id.as_str(), &**text))
    }
}

/// Canonical JSON of an object; `None` if the text is none.
fn canonical(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let is_object = text.trim_start().starts_with('{');
    is_object.then(|| write_value(text.trim(), &mut out)).flatten()?;
    Some(out)
}

fn write_value(text: &str, out: &mut String) -> Option<()> {
    match text.as_bytes().first()? {
        b'{' => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            for (number, (key, value)) in fields.iter().enumerate() {
                out.push(if number == 0 { '{' } else { ',' });
                out.push_str(&serde_json::to_string(key).ok()?);
                out.push(':');
                write_value(value.get(), out)?;
            }
            out.push_str(if fields.is_empty() { "{}" } else { "}" });
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            for (number, value) in items.iter().enumerate() {
                out.push(if number == 0 { '[' } else { ',' });
                write_value(value.get(), out)?;
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        b'"' => out.push_str(&serde_json::to_string(&serde_json::from_str::<String>(text).ok()?).ok()?),
        _ => out.push_str(text),
    }
    Some(())
}

/// States by how they were reached: the configuration that a transfer leads from, and the transfer's bytes.
type Reached = HashMap<(Option<Hash>, Hash), Weak<State>>;

/// The states that edges hold. Edges that received the same bytes onto the same configuration share the result, so that
/// thousands of them fit into one process; each still hashes every byte that it received.
#[derive(Default)]
pub(super) struct States(Mutex<Reached>);

impl States {
    /// Applies a transfer to what an edge holds.
    ///
    /// # Errors
    /// A transfer that can't be decompressed or read.
    pub(super) fn reach(
        &self,
        held: Option<&Arc<State>>,
        header: &Header,
        data: &[u8],
    ) -> Result<Arc<State>, FleetError> {
        let base = header.from.and(held);
        let mut received = [0; 32];
        received.copy_from_slice(digest(&SHA256, data).as_ref());
        let way = (base.map(|state| state.hash), received);
        let mut reached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = reached.get(&way).and_then(Weak::upgrade) {
            return Ok(state);
        }
        if header.bytes > MAX_BYTES {
            return Err(FleetError::Protocol(format!("a transfer of {} bytes", header.bytes)));
        }
        let plain = zstd::bulk::decompress(data, header.bytes).map_err(|error| {
            FleetError::Protocol(format!("a transfer that can't be decompressed: {error}"))
        })?;
        let mut state = base.map_or_else(State::empty, |state| (**state).clone());
        state.apply(changes(&plain)?);
        let state = Arc::new(state);
        reached.retain(|_, state| state.strong_count() > 0);
        reached.insert(way, Arc::downgrade(&state));
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_what_documents_mean() {
        let hash = |text: &str| {
            let mut state = State::empty();
            state.apply(vec![("proxies".to_owned(), "a".to_owned(), Some(text.to_owned()))]);
            state.hash
        };
        assert_eq!(hash(r#"{"b": [1, {}], "a": "A"}"#), hash(r#"{"a":"\u0041","b":[1,{}]}"#));
        assert_ne!(hash(r#"{"a":1}"#), hash(r#"{"a":1.0}"#));
        assert_ne!(hash("{}"), hash("[]"));
    }
}
