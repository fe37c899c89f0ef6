//! Who changes the store.

/// Who changes something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// As the audit names it.
    pub name: String,
    /// How it came: `admin`, `cli`, ….
    pub source: String,
}
