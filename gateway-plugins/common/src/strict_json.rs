//! JSON objects without duplicate names: two parsers of one token must never see different claims.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads an object; `None` for anything else, duplicate names at any depth, and trailing bytes.
pub fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Strict>(bytes).ok()?.0 {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// Reads any JSON; `None` where it is malformed, has duplicate names at any depth, or trailing bytes.
pub fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Strict>(bytes).ok().map(|strict| strict.0)
}

/// Values of a long list that are held together.
const CHUNK: usize = 1024;

/// Any JSON without duplicate names.
pub struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate names")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let (mut list, mut chunks) = (Vec::new(), Vec::new());
        while let Some(Strict(value)) = items.next_element()? {
            if list.len() == CHUNK {
                chunks.push(std::mem::take(&mut list));
            }
            list.push(value);
        }
        if chunks.is_empty() {
            return Ok(Value::Array(list));
        }
        // A list that doubles takes three times its size while it does.
        let mut all = Vec::with_capacity(chunks.len() * CHUNK + list.len());
        chunks.into_iter().for_each(|chunk| all.extend(chunk));
        all.append(&mut list);
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let Strict(value) = fields.next_value()?;
            if map.insert(name, value).is_some() {
                return Err(de::Error::custom("a name is there twice"));
            }
        }
        Ok(Value::Object(map))
    }
}
