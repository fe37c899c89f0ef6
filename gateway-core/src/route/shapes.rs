//! Values by path template, found at a cost that goes by the number of shapes in use, not of templates.
//!
//! A template's shape says which of its segments have names. Of a path and a shape follows the only key that a template
//! of this shape which covers the path can have, so that each shape costs one look-up.

use std::sync::Arc;

use smallvec::SmallVec;

use super::path::PathHash;
use crate::config::index::Index;
use crate::config::pattern::{PathTemplate, Segment};

/// What the segments of a template are, in the order in which one template goes before another: letter for letter,
/// a text before a name before a rest.
type TemplateShape = Box<[u8]>;

const TEXT: u8 = b't';
const NAME: u8 = b'u';
const REST: u8 = b'v';

/// Values by template.
#[derive(Clone)]
pub(super) struct TemplateMap<V> {
    /// Each shape in use with the number of its templates.
    shapes: Vec<(TemplateShape, usize)>,
    entries: Index<Arc<str>, V>,
}

impl<V> Default for TemplateMap<V> {
    fn default() -> Self {
        Self { shapes: Vec::new(), entries: Index::new() }
    }
}

impl<V> TemplateMap<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<V: Clone> TemplateMap<V> {
    /// The value that `choose` takes, of the templates that cover a path, in their order.
    pub(super) fn find<'s, T>(
        &'s self,
        hash: PathHash,
        path: &str,
        mut choose: impl FnMut(&'s V) -> Option<T>,
    ) -> Option<T> {
        let rest = path.strip_prefix('/')?;
        let count = memchr::memchr_iter(b'/', rest.as_bytes()).count() + 1;
        let mut key = SmallVec::<[u8; 256]>::new();
        self.shapes.iter().find_map(|(shape, _)| {
            if !fill(shape, rest, count, &mut key) {
                return None;
            }
            let found = self.entries.get_hashed(hash.host(&key), |known| known.as_bytes() == &*key);
            found.and_then(&mut choose)
        })
    }

    pub(super) fn get(&self, hash: PathHash, template: &PathTemplate) -> Option<&V> {
        let (_, key) = key(template);
        self.entries.get_hashed(hash.host(key.as_bytes()), |known| **known == *key)
    }

    pub(super) fn get_mut(&mut self, hash: PathHash, template: &PathTemplate) -> Option<&mut V> {
        let (_, key) = key(template);
        self.entries.get_mut_hashed(hash.host(key.as_bytes()), |known| **known == *key)
    }

    pub(super) fn insert(&mut self, hash: PathHash, template: &PathTemplate, value: V) {
        let (shape, key) = key(template);
        let hash = hash.host(key.as_bytes());
        if self.entries.insert_hashed(hash, key.into(), value).is_some() {
            return;
        }
        match self.shapes.binary_search_by(|(known, _)| known.cmp(&shape)) {
            Ok(at) => self.shapes[at].1 += 1,
            Err(at) => self.shapes.insert(at, (shape, 1)),
        }
    }

    pub(super) fn remove(&mut self, hash: PathHash, template: &PathTemplate) {
        let (shape, key) = key(template);
        if self.entries.remove_hashed(hash.host(key.as_bytes()), |known| **known == *key).is_none() {
            return;
        }
        if let Ok(at) = self.shapes.binary_search_by(|(known, _)| known.cmp(&shape)) {
            self.shapes[at].1 -= 1;
            if self.shapes[at].1 == 0 {
                self.shapes.remove(at);
            }
        }
    }
}

/// The shape of a template and its key: the shape, then each text with a slash before it.
fn key(template: &PathTemplate) -> (TemplateShape, String) {
    let segments = template.segments();
    let kind = |segment: &Segment| match segment {
        Segment::Literal(_) => TEXT,
        Segment::Name => NAME,
        Segment::Rest => REST,
    };
    let shape: TemplateShape = segments.iter().map(kind).collect();
    let mut key = String::from_utf8_lossy(&shape).into_owned();
    for segment in segments {
        if let Segment::Literal(text) = segment {
            key.push('/');
            key.push_str(text);
        }
    }
    (shape, key)
}

/// Writes the key that a template of this shape has when it covers the path, given without its first slash; false when
/// none can.
fn fill(shape: &[u8], path: &str, count: usize, key: &mut SmallVec<[u8; 256]>) -> bool {
    let has_rest = shape.last() == Some(&REST);
    if count < shape.len() || count > shape.len() && !has_rest {
        return false;
    }
    key.clear();
    key.extend_from_slice(shape);
    for (kind, segment) in shape.iter().zip(path.split('/')) {
        match *kind {
            TEXT => {
                key.push(b'/');
                key.extend_from_slice(segment.as_bytes());
            }
            NAME if segment.is_empty() => return false,
            _ => {}
        }
    }
    true
}

/// The shape of a template, by which one goes before another.
#[cfg(test)]
pub(super) fn shape(template: &PathTemplate) -> Vec<u8> {
    key(template).0.into_vec()
}
