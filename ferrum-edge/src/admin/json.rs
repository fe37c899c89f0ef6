//! JSON in which no object has a name twice.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text can't be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum JsonError {
    /// It is no JSON.
    #[error("{0}")]
    Malformed(serde_json::Error),
    /// An object has a name twice.
    #[error("duplicate key `{pointer}`")]
    Twice {
        /// Where (RFC 6901).
        pointer: String,
    },
}

/// Reads a text.
///
/// # Errors
/// When it is no JSON, or has a name twice.
pub(super) fn parse(text: &[u8]) -> Result<Value, JsonError> {
    let mut twice = None;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read =
        Once { twice: &mut twice }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| match twice {
        Some(parts) => JsonError::Twice { pointer: pointer(&parts) },
        None => JsonError::Malformed(error),
    })
}

/// RFC 6901, §3.
fn pointer(parts: &[String]) -> String {
    parts.iter().rev().fold(String::new(), |pointer, part| {
        format!("{pointer}/{}", part.replace('~', "~0").replace('/', "~1"))
    })
}

/// Reads a value. When a name stands twice, `twice` becomes the way to it, the innermost part first: it is put together
/// on the way back, so that it costs nothing where all is well.
struct Once<'t> {
    twice: &'t mut Option<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            match items.next_element_seed(Once { twice: &mut *self.twice }) {
                Ok(Some(value)) => list.push(value),
                Ok(None) => return Ok(Value::Array(list)),
                Err(error) => {
                    if let Some(way) = self.twice {
                        way.push(list.len().to_string());
                    }
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) {
                *self.twice = Some(vec![name]);
                return Err(A::Error::custom("a name stands twice"));
            }
            match fields.next_value_seed(Once { twice: &mut *self.twice }) {
                Ok(value) => drop(map.insert(name, value)),
                Err(error) => {
                    if let Some(way) = self.twice {
                        way.push(name);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads() {
        for text in [
            "null",
            "[]",
            "{}",
            " [1, -1, 1.5, 1e400, 18446744073709551615, 18446744073709551616, true, \"\\u00e9\\n\", null] ",
            r#"{"a":{"b":[{"c":1},{"c":2}]},"":0}"#,
            "",
            "{",
            "[1,]",
            "{} {}",
            "{\"a\":}",
            "\u{feff}{}",
        ] {
            let expected = serde_json::from_str::<Value>(text);
            match (parse(text.as_bytes()), expected) {
                (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
                (Err(JsonError::Malformed(ours)), Err(theirs)) => {
                    assert_eq!(ours.to_string(), theirs.to_string(), "{text}");
                }
                (ours, theirs) => panic!("{text}: {ours:?}, not {theirs:?}"),
            }
        }
        let deep = "[".repeat(100_000);
        assert!(matches!(parse(deep.as_bytes()), Err(JsonError::Malformed(_))));
    }

    #[test]
    fn a_name_that_stands_twice_is_named() {
        for (text, expected) in [
            (r#"{"a":1,"a":1}"#, "/a"),
            (r#"{"a":1,"\u0061":2}"#, "/a"),
            (r#"{"a":[0,{"b/c":{"~":1,"x":[],"~":2}}]}"#, "/a/1/b~1c/~0"),
            (r#"[{"":1,"":2}]"#, "/0/"),
            // What comes after it is not looked at.
            (r#"{"a":1,"a":"#, "/a"),
        ] {
            match parse(text.as_bytes()) {
                Err(JsonError::Twice { pointer }) => assert_eq!(pointer, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(parse(br#"[{"a":1},{"a":1},{"b":{"a":1}}]"#).is_ok());
    }
}
