//! What a change does to its objects, gathered for the audit.

/// Objects of one change that an entry names.
const MAX_CHANGES: usize = 1000;
/// Bytes of documents, before and after, in one entry.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// What a change does to its objects, for the audit; bounded.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) changes: Vec<Gain>,
    pub(crate) left_out: u64,
    bytes: usize,
}

/// What is done to one object.
#[derive(Debug)]
pub(crate) struct Gain {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) action: &'static str,
    /// Before and after; `None` when all of them together are too long.
    pub(crate) documents: Option<(Option<String>, Option<String>)>,
}

impl Gathered {
    pub(crate) fn add(&mut self, kind: &str, id: &str, before: Option<&str>, after: Option<&str>) {
        if self.changes.len() == MAX_CHANGES {
            self.left_out += 1;
            return;
        }
        let action = match (before, after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        };
        let bytes = before.map_or(0, str::len) + after.map_or(0, str::len);
        let fits = self.bytes + bytes <= MAX_DOCUMENT_BYTES;
        self.bytes += if fits { bytes } else { 0 };
        let documents = fits.then(|| (before.map(str::to_owned), after.map(str::to_owned)));
        self.changes.push(Gain { kind: kind.to_owned(), id: id.to_owned(), action, documents });
    }
}
