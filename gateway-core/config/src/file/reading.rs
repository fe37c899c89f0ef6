//! A tree into values of our types.

use serde::Deserializer;
use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Error;

use super::check::check_plugin;
use super::legacy::OldSpelling;
use super::rules::Rules;
use super::tree::{MapEntry, Node, Value};
use crate::problem::{Problem, Problems};

/// A plugin's settings, checked against the rules of the plugin's schema, and the old spellings in them. A key with an
/// empty value counts as absent.
///
/// # Errors
/// Every problem, each path beginning with `config`.
pub fn plugin_settings<T: DeserializeOwned>(
    rules: &Rules,
    settings: &serde_json::Value,
) -> Result<(T, Vec<OldSpelling>), Problems> {
    let mut problems = Problems::default();
    let mut node = Node::of_json(settings);
    let old = check_plugin(rules, &mut node, "config", &mut problems);
    let read = if problems.is_empty() { convert(node, "config", &mut problems) } else { None };
    read.map(|settings| (settings, old)).ok_or(problems)
}

/// The last step: what the schema's check let pass, serde can read; a difference between the two is still a
/// problem and never a panic.
pub(super) fn convert<T: DeserializeOwned>(node: Node, at: &str, problems: &mut Problems) -> Option<T> {
    let line = node.line;
    match T::deserialize(node) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.push(Problem { line, ..Problem::new(at, error.to_string()) });
            None
        }
    }
}

fn list(nodes: Vec<Node>) -> SeqDeserializer<std::vec::IntoIter<Node>, Error> {
    SeqDeserializer::new(nodes.into_iter())
}

/// The entries of a map as pairs.
type Pairs = std::iter::Map<std::vec::IntoIter<MapEntry>, fn(MapEntry) -> (String, Node)>;

fn map<'de>(entries: Vec<MapEntry>) -> MapDeserializer<'de, Pairs, Error> {
    MapDeserializer::new(entries.into_iter().map(|entry| (entry.key, entry.value)))
}

impl<'de> IntoDeserializer<'de, Error> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads as `serde_json` reads its values.
impl<'de> Deserializer<'de> for Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::Text { text, .. } => visitor.visit_string(text),
            Value::List(nodes) => {
                let mut nodes = list(nodes);
                let value = visitor.visit_seq(&mut nodes)?;
                nodes.end().map(|()| value)
            }
            Value::Map(entries) => {
                let mut entries = map(entries);
                let value = visitor.visit_map(&mut entries)?;
                entries.end().map(|()| value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Text { text, .. } => {
                StringDeserializer::<Error>::new(text).deserialize_enum(name, variants, visitor)
            }
            Value::Map(entries) if entries.len() != 1 => {
                Err(Error::invalid_value(Unexpected::Map, &"map with a single key"))
            }
            Value::Map(entries) => {
                MapAccessDeserializer::new(map(entries)).deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        One,
        Two { of: u8 },
        Three(Vec<u8>),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Wrapped(f64);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Everything {
        word: Word,
        pair: (u8, bool),
        wrapped: Wrapped,
        #[serde(default)]
        missing: Option<u8>,
        any: serde_json::Value,
        map: BTreeMap<String, i64>,
    }

    #[test]
    fn a_tree_reads_as_the_json_that_it_is() {
        let good = json!({
            "word": {"two": {"of": 3}}, "pair": [1, true], "wrapped": 1.5, "missing": null, "any": {"b": [null], "a": 2},
            "map": {"x": -1},
        });
        let with = |key: &str, value: serde_json::Value| {
            let mut changed = good.clone();
            changed[key] = value;
            changed
        };
        let all = [
            good.clone(),
            with("word", json!("one")),
            with("word", json!({"three": [1, 2]})),
            with("word", json!("four")),
            with("word", json!({"three": [], "one": 1})),
            with("word", json!(4)),
            with("pair", json!([1])),
            with("pair", json!([1, true, 2])),
            with("wrapped", json!("x")),
            with("missing", json!(7)),
            with("missing", json!(700)),
            with("map", json!({"x": 1.5})),
            with("other", json!(1)),
            json!([]),
            json!(null),
        ];
        let mut read = 0;
        for document in all {
            let ours = Everything::deserialize(Node::of_json(&document));
            let theirs = serde_json::from_value::<Everything>(document.clone());
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{document}: {ours:?} and {theirs:?}");
            read += usize::from(ours.is_ok());
            assert_eq!(ours.ok(), theirs.ok(), "{document}");
        }
        assert_eq!(read, 4);
    }
}
