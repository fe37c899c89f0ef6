//! Texts of parameters, headers and forms as the JSON that their schemas are about.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Pairs that a query or form may have, and parts that a form may have.
pub(super) const MAX_PAIRS: usize = 1000;
/// Values that the texts of one request are read as: items of lists, and what is in JSON.
const MAX_VALUES: usize = 4096;

/// What texts are read as, from a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueShape {
    /// The first of these that the text is.
    Scalar { number: bool, boolean: bool },
    /// A list of these.
    List(Box<Self>),
    /// An object, as JSON.
    Object,
}

/// References that are followed to see what a schema is about.
const MAX_REFERENCES: usize = 16;

/// The object of a reference such as `#/components/schemas/A`, or the value itself.
pub(super) fn resolved<'d>(root: &'d Value, mut value: &'d Value) -> Option<&'d Value> {
    for _ in 0..MAX_REFERENCES {
        let Some(reference) = value.get("$ref") else { return Some(value) };
        let pointer = reference.as_str()?.strip_prefix('#')?;
        value = root.pointer(&percent_decode_str(pointer).decode_utf8().ok()?)?;
    }
    None
}

impl ValueShape {
    /// What texts of this schema are read as.
    pub(super) fn of(root: &Value, schema: &Value) -> Self {
        let Some(schema) = resolved(root, schema) else { return Self::text() };
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => match schema.get("allOf").or_else(|| schema.get("anyOf")).or_else(|| schema.get("oneOf")) {
                Some(Value::Array(parts)) => {
                    let first =
                        parts.iter().map(|part| Self::of(root, part)).find(|shape| *shape != Self::text());
                    return first.unwrap_or_else(Self::text);
                }
                _ => Vec::new(),
            },
        };
        if kinds.contains(&"array") {
            let items = schema.get("items").map_or_else(Self::text, |items| Self::of(root, items));
            return Self::List(Box::new(items));
        }
        if kinds == ["object"] {
            return Self::Object;
        }
        // What may be a text as well stays one.
        let text = kinds.contains(&"string");
        Self::Scalar {
            number: !text && (kinds.contains(&"integer") || kinds.contains(&"number")),
            boolean: !text && kinds.contains(&"boolean"),
        }
    }

    pub(super) fn text() -> Self {
        Self::Scalar { number: false, boolean: false }
    }

    /// A text as JSON; one that is not what it should be, or has more values than are left, stays a text, which does not fit its
    /// schema.
    pub(super) fn read(&self, text: &str, separator: char, left: &mut ValuesLeft) -> Value {
        match self {
            Self::List(item) if left.take(text.matches(separator).count()) => {
                Value::Array(text.split(separator).map(|text| item.read(text, separator, left)).collect())
            }
            Self::List(_) => text.into(),
            Self::Object => left.json(text).filter(Value::is_object).unwrap_or_else(|| text.into()),
            Self::Scalar { boolean: true, .. } if matches!(text, "true" | "false") => {
                Value::Bool(text == "true")
            }
            Self::Scalar { number: true, .. } => match serde_json::from_str::<Value>(text) {
                Ok(number @ Value::Number(_)) if text.trim() == text => number,
                _ => text.into(),
            },
            Self::Scalar { .. } => text.into(),
        }
    }

    /// Several texts of one name as JSON; `None` where there may be one only: two readers would take different ones.
    pub(super) fn read_all(&self, texts: &[String], left: &mut ValuesLeft) -> Option<Value> {
        match (self, texts) {
            (Self::List(item), _) => {
                Some(Value::Array(texts.iter().map(|text| item.read(text, ',', left)).collect()))
            }
            (_, [one]) => Some(self.read(one, ',', left)),
            _ => None,
        }
    }
}

/// Values that texts of one request may still be read as.
pub(super) struct ValuesLeft(usize);

impl Default for ValuesLeft {
    fn default() -> Self {
        Self(MAX_VALUES)
    }
}

impl ValuesLeft {
    fn take(&mut self, many: usize) -> bool {
        let left = self.0.checked_sub(many);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// A text that is JSON; `None` where it is none, has duplicate names, or has more values than are left.
    pub(super) fn json(&mut self, text: &str) -> Option<Value> {
        let borders = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
        if !self.take(borders) {
            return None;
        }
        gateway_plugin_common::strict_json::value(text.as_bytes())
    }
}

/// The pairs of a query or form, decoded; `None` where one is not UTF-8, or there are more than [`MAX_PAIRS`].
pub(super) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8().ok().map(String::from)
    };
    let pairs = || text.split('&').filter(|pair| !pair.is_empty());
    if pairs().nth(MAX_PAIRS).is_some() {
        return None;
    }
    pairs()
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

/// A property that is no list and is given more than once.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is given more than once")]
pub(super) struct GivenTwice(String);

/// Texts by name as an object, read as the properties of a schema are.
///
/// # Errors
/// A property that is no list is given more than once.
pub(super) fn object(
    pairs: Vec<(String, String)>,
    properties: &[(String, ValueShape)],
) -> Result<Value, GivenTwice> {
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in pairs {
        match texts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => texts.push((name, vec![value])),
        }
    }
    let (mut object, mut left) = (Map::new(), ValuesLeft::default());
    for (name, values) in texts {
        let value = match properties.iter().find(|(known, _)| *known == name) {
            Some((name, shape)) => {
                shape.read_all(&values, &mut left).ok_or_else(|| GivenTwice(name.clone()))?
            }
            None if values.len() == 1 => values.concat().into(),
            None => values.into(),
        };
        object.insert(name, value);
    }
    Ok(Value::Object(object))
}

/// What the properties of a schema are read as.
pub(super) fn properties(root: &Value, schema: &Value) -> Vec<(String, ValueShape)> {
    let Some(Value::Object(map)) = resolved(root, schema).and_then(|schema| schema.get("properties")) else {
        return Vec::new();
    };
    map.iter().map(|(name, schema)| (name.clone(), ValueShape::of(root, schema))).collect()
}
