//! A document as a tree in which everything knows its line.

use std::fmt::Write as _;

/// Bytes of text that count as one node.
const NODE_BYTES: usize = 128;

/// One value and its line.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// 1-based.
    pub(super) line: u32,
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text {
        text: String,
        /// It comes from a reference and stands for a number or a truth value where one is wanted.
        loose: bool,
    },
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

/// One key with its value.
#[derive(Debug, Clone)]
pub(super) struct MapEntry {
    pub(super) key: String,
    pub(super) line: u32,
    pub(super) value: Node,
}

impl Node {
    /// A value whose place in a text is not known.
    pub(super) fn of_json(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match value {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(value) => Value::Number(value.clone()),
            Json::String(text) => Value::Text { text: text.clone(), loose: false },
            Json::Array(values) => Value::List(values.iter().map(Self::of_json).collect()),
            Json::Object(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, value)| MapEntry { key: key.clone(), line: 0, value: Self::of_json(value) })
                    .collect(),
            ),
        };
        Self { line: 0, value }
    }

    /// What `id` says, for items that cannot be read as a whole.
    pub(super) fn id(&self) -> Option<&str> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let id = entries.iter().find(|entry| entry.key == "id")?;
        match &id.value.value {
            Value::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The number of nodes, itself included; a long text or key counts as several.
    pub(super) fn size(&self) -> usize {
        1 + match &self.value {
            Value::List(nodes) => nodes.iter().map(Self::size).sum(),
            Value::Map(entries) => {
                entries.iter().map(|entry| entry.key.len() / NODE_BYTES + entry.value.size()).sum()
            }
            Value::Text { text, .. } => text.len() / NODE_BYTES,
            _ => 0,
        }
    }

    pub(super) fn into_json(self) -> serde_json::Value {
        match self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => value.into(),
            Value::Number(value) => value.into(),
            Value::Text { text, .. } => text.into(),
            Value::List(nodes) => nodes.into_iter().map(Self::into_json).collect::<Vec<_>>().into(),
            Value::Map(entries) => serde_json::Value::Object(
                entries.into_iter().map(|entry| (entry.key, entry.value.into_json())).collect(),
            ),
        }
    }
}

/// The path to where a walk through a document is, as people write it: `proxies[2].listen_path`.
#[derive(Debug)]
pub(super) struct Trail(String);

/// Bytes that most paths don't grow beyond.
const USUAL_PATH: usize = 128;

impl Trail {
    pub(super) fn new() -> Self {
        Self::at("")
    }

    pub(super) fn at(path: &str) -> Self {
        let mut trail = String::with_capacity(path.len() + USUAL_PATH);
        trail.push_str(path);
        Self(trail)
    }

    /// Goes to a key; what it returns leads back.
    pub(super) fn key(&mut self, key: &str) -> usize {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(key);
        length
    }

    /// Goes to a position; what it returns leads back.
    pub(super) fn position(&mut self, n: usize) -> usize {
        let length = self.0.len();
        // A text takes all that is written to it.
        write!(self.0, "[{n}]").unwrap_or_default();
        length
    }

    pub(super) fn back(&mut self, length: usize) {
        self.0.truncate(length);
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
