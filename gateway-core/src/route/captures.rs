//! What the names in a route's path stood for.

/// The named parts of a request's path, as they stand in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures(Vec<(Box<str>, Box<str>)>);

impl Captures {
    /// These names and what they stood for.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(parts.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// What a name stood for; `None` for a name that isn't there and for a group that took no part.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Every name with what it stood for.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}
