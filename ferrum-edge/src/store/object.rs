//! What the store holds: objects of four kinds, each a JSON text under an id.

use std::fmt;

/// Bytes a document may have.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Bytes an id may have.
pub const MAX_ID_BYTES: usize = 254;

pub use gateway_core::config::catalog::ObjectKind;

/// One object as it is now.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// Unique within its kind.
    pub id: String,
    /// JSON text, byte for byte as it was put. Whoever edits the database by hand may leave something else here.
    pub document: String,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub updated_at: u64,
    /// The revision that changed it last.
    pub revision: u64,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Documents hold credentials.
        f.debug_struct("Object")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// One step of a change.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates the object, or replaces its document.
    Put {
        /// What it is.
        kind: ObjectKind,
        /// 1 to [`MAX_ID_BYTES`] bytes without NUL.
        id: String,
        /// At most [`MAX_DOCUMENT_BYTES`] bytes without NUL.
        document: String,
    },
    /// Removes the object; nothing happens when there is none.
    Delete {
        /// What it is.
        kind: ObjectKind,
        /// Which one.
        id: String,
    },
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, (kind, id)) = (if self.document().is_some() { "Put" } else { "Delete" }, self.key());
        f.debug_struct(verb).field("kind", &kind).field("id", &id).finish_non_exhaustive()
    }
}

impl Op {
    /// What it is about.
    pub fn key(&self) -> (ObjectKind, &str) {
        match self {
            Self::Put { kind, id, .. } | Self::Delete { kind, id } => (*kind, id),
        }
    }

    /// What it puts.
    pub fn document(&self) -> Option<&str> {
        match self {
            Self::Put { document, .. } => Some(document),
            Self::Delete { .. } => None,
        }
    }
}
