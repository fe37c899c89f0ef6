//! Changes to JSON in its text: what is not changed stays as it came, digit by digit, and no tree is made of it.
//!
//! The text was checked before: it is JSON without duplicate names.

use std::borrow::Cow;
use std::ops::Range;

use gateway_plugin_common::flat_json::end_of_scalar;

/// A document that is changed.
pub(super) struct Document(Vec<u8>);

/// What a value is, as far as a pointer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Object,
    List,
    Null,
    Plain,
}

/// Something in a container: its name, and where it stands.
struct PlacedValue {
    /// Where the name begins, or the value where it has none.
    start: usize,
    value: Range<usize>,
}

impl Document {
    pub(super) fn new(text: &[u8]) -> Self {
        Self(text.to_vec())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn text(&self, value: &Range<usize>) -> &[u8] {
        self.0.get(value.clone()).unwrap_or_default()
    }

    /// The whole value.
    pub(super) fn root(&self) -> Range<usize> {
        let start = self.beyond_space(0);
        start..self.end(start)
    }

    pub(super) fn kind(&self, value: &Range<usize>) -> PlaceKind {
        match self.0.get(value.start) {
            Some(b'{') => PlaceKind::Object,
            Some(b'[') => PlaceKind::List,
            Some(b'n') => PlaceKind::Null,
            _ => PlaceKind::Plain,
        }
    }

    fn beyond_space(&self, from: usize) -> usize {
        let rest = self.0.get(from..).unwrap_or_default();
        let space = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        from + space.count()
    }

    /// Behind the value that begins at `start`.
    fn end(&self, start: usize) -> usize {
        let (mut depth, mut at) = (0_usize, start);
        while let Some(byte) = self.0.get(at) {
            match byte {
                b'[' | b'{' => {
                    depth += 1;
                    at += 1;
                }
                b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => at += 1,
                _ => at = end_of_scalar(&self.0, at),
            }
            if depth == 0 {
                return at;
            }
        }
        at
    }

    /// What a container has, one after the other.
    fn entries(&self, container: &Range<usize>) -> impl Iterator<Item = PlacedValue> {
        let has_names = self.kind(container) == PlaceKind::Object;
        let mut at = container.start + 1;
        std::iter::from_fn(move || {
            let mut start = self.beyond_space(at);
            if self.0.get(start) == Some(&b',') {
                start = self.beyond_space(start + 1);
            }
            if matches!(self.0.get(start), None | Some(b']' | b'}')) {
                return None;
            }
            let value = match has_names {
                false => start,
                true => {
                    let colon = self.beyond_space(end_of_scalar(&self.0, start));
                    self.beyond_space(colon + 1)
                }
            };
            at = self.end(value);
            Some(PlacedValue { start, value: value..at })
        })
    }

    fn is_named(&self, entry: &PlacedValue, name: &str) -> bool {
        let written = self.text(&(entry.start..end_of_scalar(&self.0, entry.start)));
        let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
        let known = match inner.contains(&b'\\') {
            true => serde_json::from_slice::<String>(written).map_or(Cow::Borrowed(""), Cow::Owned),
            false => std::str::from_utf8(inner).map_or(Cow::Borrowed(""), Cow::Borrowed),
        };
        known == name
    }

    fn entry(&self, container: &Range<usize>, step: &str) -> Option<PlacedValue> {
        match self.kind(container) {
            PlaceKind::Object => self.entries(container).find(|entry| self.is_named(entry, step)),
            PlaceKind::List => index(step).and_then(|n| self.entries(container).nth(n)),
            PlaceKind::Null | PlaceKind::Plain => None,
        }
    }

    /// What a step leads to.
    pub(super) fn child(&self, container: &Range<usize>, step: &str) -> Option<Range<usize>> {
        self.entry(container, step).map(|entry| entry.value)
    }

    /// Whether a value has a place for this step.
    pub(super) fn takes(&self, value: &Range<usize>, step: &str) -> bool {
        match self.kind(value) {
            PlaceKind::Object => true,
            PlaceKind::List => step == "-" || self.child(value, step).is_some(),
            PlaceKind::Null | PlaceKind::Plain => false,
        }
    }

    pub(super) fn replace(&mut self, value: Range<usize>, text: &[u8]) {
        self.0.splice(value, text.iter().copied());
    }

    /// Puts a value behind all others of a list, or, with a name, of an object.
    pub(super) fn push(&mut self, container: &Range<usize>, name: Option<&str>, text: &[u8]) {
        let end = self.entries(container).map(|entry| entry.value.end).last();
        let mut added = Vec::with_capacity(text.len() + 1);
        if end.is_some() {
            added.push(b',');
        }
        if let Some(name) = name {
            added.extend_from_slice(&quoted(name));
            added.push(b':');
        }
        added.extend_from_slice(text);
        let at = end.unwrap_or(container.start + 1);
        self.replace(at..at, &added);
    }

    /// Takes out what a step leads to.
    pub(super) fn remove(&mut self, container: &Range<usize>, step: &str) -> Option<Vec<u8>> {
        let entry = self.entry(container, step)?;
        let text = self.text(&entry.value).to_vec();
        // With the comma behind it, or else the one before it.
        let behind = self.beyond_space(entry.value.end);
        let out = match self.0.get(behind) {
            Some(b',') => entry.start..self.beyond_space(behind + 1),
            _ => {
                let before = self.0.get(..entry.start).unwrap_or_default();
                let comma = before.iter().rposition(|byte| matches!(byte, b',' | b'[' | b'{'));
                let start = comma.filter(|at| before.get(*at) == Some(&b',')).unwrap_or(entry.start);
                start..entry.value.end
            }
        };
        self.replace(out, b"");
        Some(text)
    }
}

/// A text as JSON.
fn quoted(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

/// A value within objects of these names.
pub(super) fn nested(names: &[String], value: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for name in names {
        text.push(b'{');
        text.extend_from_slice(&quoted(name));
        text.push(b':');
    }
    text.extend_from_slice(value);
    text.resize(text.len() + names.len(), b'}');
    text
}

/// A place in a list: digits without a leading zero.
pub(super) fn index(step: &str) -> Option<usize> {
    let is_index = step == "0" || (!step.starts_with('0') && step.bytes().all(|b| b.is_ascii_digit()));
    if is_index { step.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_member_leaves_no_comma() {
        let cases = [
            ("{\"a\":1}", "a", "{}"),
            ("{ \"a\" : 1 , \"b\" : 2 }", "a", "{ \"b\" : 2 }"),
            ("{ \"a\" : 1 , \"b\" : 2 }", "b", "{ \"a\" : 1  }"),
            ("{\"a\":[1],\"b\":\"x,]\",\"c\":{}}", "b", "{\"a\":[1],\"c\":{}}"),
            ("[1,[2,\"]\"],3]", "1", "[1,3]"),
            ("[ 1.10 ]", "0", "[  ]"),
            ("[1,2]", "1", "[1]"),
            ("[1,2]", "2", "[1,2]"),
            ("{\"\\u0061\":1,\"b\":2}", "a", "{\"b\":2}"),
        ];
        for (text, step, expected) in cases {
            let mut document = Document::new(text.as_bytes());
            let root = document.root();
            document.remove(&root, step);
            assert_eq!(String::from_utf8_lossy(document.as_bytes()), expected, "{text}: {step}");
        }
    }
}
