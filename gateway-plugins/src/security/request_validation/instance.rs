//! Values that are checked, as the library sees them: a document that stays text, see `flat_json.rs`.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use gateway_plugin_common::flat_json::{FlatJson, JsonKind};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Number, Value};

/// Values of a container that are made a tree for an error. None of them is shown.
const MAX_TREE: usize = 64;

/// Numbers that nobody who sends values can know.
static SEEDS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The library's name for documents of this kind.
pub(super) struct Flat;

/// A value that is checked.
#[derive(Clone, Copy)]
pub(super) enum Instance<'a> {
    At {
        json: &'a FlatJson<'a>,
        place: usize,
    },
    /// A text that is in no document: a name, or a body of text.
    Text(&'a str),
}

impl<'a> Instance<'a> {
    pub(super) fn whole(json: &'a FlatJson<'a>) -> Self {
        Self::At { json, place: 0 }
    }

    pub(super) fn kind(self) -> JsonKind {
        match self {
            Self::At { json, place } => json.kind(place),
            Self::Text(_) => JsonKind::Text,
        }
    }

    /// What no other value of the same document has.
    pub(super) fn place(self) -> usize {
        match self {
            Self::At { place, .. } => place,
            Self::Text(_) => 0,
        }
    }

    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        let list = match self {
            Self::At { json, place } if json.kind(place) == JsonKind::List => Some((json, place)),
            _ => None,
        };
        list.into_iter()
            .flat_map(|(json, place)| json.items(place).map(move |place| Self::At { json, place }))
    }

    pub(super) fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let object = match self {
            Self::At { json, place } if json.kind(place) == JsonKind::Object => Some((json, place)),
            _ => None,
        };
        object.into_iter().flat_map(|(json, place)| {
            json.members(place).map(move |(name, place)| (json.string(name), Self::At { json, place }))
        })
    }

    fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::At { json, place } if json.kind(place) == JsonKind::Text => Some(json.string(place)),
            Self::At { .. } => None,
            Self::Text(text) => Some(text.into()),
        }
    }

    fn number(self) -> Option<Number> {
        match self {
            Self::At { json, place } if json.kind(place) == JsonKind::Number => {
                serde_json::from_str(json.scalar_text(place)).ok()
            }
            _ => None,
        }
    }

    fn is_true(self) -> bool {
        matches!(self, Self::At { json, place } if json.scalar_text(place) == "true")
    }

    /// Whether two values are the same; numbers are compared by what they are.
    fn is(self, other: Self) -> bool {
        match (self.kind(), other.kind()) {
            (JsonKind::List, JsonKind::List) => {
                let (mut all, mut others) = (self.items(), other.items());
                loop {
                    match (all.next(), others.next()) {
                        (None, None) => return true,
                        (Some(one), Some(other)) if one.is(other) => {}
                        _ => return false,
                    }
                }
            }
            (JsonKind::Object, JsonKind::Object) => {
                let count = self.members().count();
                count == other.members().count()
                    && self.members().all(|(name, value)| other.member(&name).is_some_and(|it| it.is(value)))
            }
            (kind, of_other) => kind == of_other && cmp::equal(&scalar(self), &scalar(other)),
        }
    }

    /// The same for a value of the schema.
    fn is_value(self, expected: &Value) -> bool {
        match (self.kind(), expected) {
            (JsonKind::List, Value::Array(expected)) => {
                let mut items = self.items();
                expected.iter().all(|expected| items.next().is_some_and(|it| it.is_value(expected)))
                    && items.next().is_none()
            }
            (JsonKind::Object, Value::Object(expected)) => {
                self.members().count() == expected.len()
                    && self
                        .members()
                        .all(|(name, it)| expected.get(&*name).is_some_and(|value| it.is_value(value)))
            }
            (JsonKind::List | JsonKind::Object, _) | (_, Value::Array(_) | Value::Object(_)) => false,
            _ => cmp::equal(&scalar(self), expected),
        }
    }

    pub(super) fn member(self, name: &str) -> Option<Self> {
        self.members().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The same for values that are the same.
    fn digest(self) -> u64 {
        let mut hasher = SEEDS.build_hasher();
        let kind = self.kind();
        hasher.write_u8(kind as u8);
        match kind {
            JsonKind::Null => {}
            JsonKind::Boolean => hasher.write_u8(u8::from(self.is_true())),
            JsonKind::Number => {
                // `-0` is `0`.
                let number = self.number().and_then(|number| number.as_f64()).unwrap_or_default() + 0.0;
                hasher.write_u64(number.to_bits());
            }
            JsonKind::Text => hasher.write(self.text().unwrap_or_default().as_bytes()),
            JsonKind::List => self.items().for_each(|item| hasher.write_u64(item.digest())),
            JsonKind::Object => {
                // Whatever the order.
                let members = self.members().map(|(name, value)| {
                    let mut hasher = SEEDS.build_hasher();
                    hasher.write(name.as_bytes());
                    hasher.write_u64(value.digest());
                    hasher.finish()
                });
                hasher.write_u64(members.fold(0, u64::wrapping_add));
            }
        }
        hasher.finish()
    }
}

/// A tree of a value; of one with many values the outermost only.
fn scalar(value: Instance<'_>) -> Value {
    match value.kind() {
        JsonKind::Null => Value::Null,
        JsonKind::Boolean => Value::Bool(value.is_true()),
        JsonKind::Number => value.number().map_or(Value::Null, Value::Number),
        JsonKind::Text => Value::String(value.text().unwrap_or_default().into_owned()),
        JsonKind::List => Value::Array(Vec::new()),
        JsonKind::Object => Value::Object(Map::new()),
    }
}

impl Json for Flat {
    type Node<'a> = Instance<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = ();

    // A lookup goes through all members. The library multiplies this by the number of names it looks for.
    const KEYS_PER_LOOKUP: usize = usize::MAX >> 8;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Instance<'_>) -> T) -> T {
        f(Instance::Text(string))
    }
}

impl<'a> Node<'a, Flat> for Instance<'a> {
    type Object = ObjectOf<'a>;
    type Array = ListOf<'a>;
    type Number = Number;

    fn as_object(&self) -> Option<ObjectOf<'a>> {
        (self.kind() == JsonKind::Object).then_some(ObjectOf(*self))
    }

    fn as_array(&self) -> Option<ListOf<'a>> {
        (self.kind() == JsonKind::List).then_some(ListOf(*self))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.text()
    }

    fn as_number(&self) -> Option<Number> {
        self.number()
    }

    fn as_boolean(&self) -> Option<bool> {
        (self.kind() == JsonKind::Boolean).then(|| self.is_true())
    }

    fn is_null(&self) -> bool {
        self.kind() == JsonKind::Null
    }

    fn is_number(&self) -> bool {
        self.kind() == JsonKind::Number
    }

    fn json_type(&self) -> JsonType {
        match self.kind() {
            JsonKind::Null => JsonType::Null,
            JsonKind::Boolean => JsonType::Boolean,
            JsonKind::Number => JsonType::Number,
            JsonKind::Text => JsonType::String,
            JsonKind::List => JsonType::Array,
            JsonKind::Object => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.is_value(expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(tree(*self, &mut MAX_TREE.clone()))
    }

    fn identity(&self) -> Option<NodeIdentity> {
        match self {
            Self::At { json, place } => {
                let address = std::ptr::from_ref(*json).addr();
                Some(NodeIdentity::tagged(address, u32::try_from(*place).ok()?))
            }
            Self::Text(text) => Some(NodeIdentity::new(text.as_ptr().addr())),
        }
    }
}

/// A tree of up to `left` values, for what an error tells of a value.
fn tree(value: Instance<'_>, left: &mut usize) -> Value {
    *left = left.saturating_sub(1);
    match scalar(value) {
        Value::Array(_) => {
            let mut items = Vec::new();
            for item in value.items() {
                if *left == 0 {
                    break;
                }
                items.push(tree(item, left));
            }
            Value::Array(items)
        }
        Value::Object(_) => {
            let mut members = Map::new();
            for (name, member) in value.members() {
                if *left == 0 {
                    break;
                }
                members.insert(name.into_owned(), tree(member, left));
            }
            Value::Object(members)
        }
        other => other,
    }
}

/// An object of a document.
pub(super) struct ObjectOf<'a>(Instance<'a>);

impl<'a> Object<'a, Flat> for ObjectOf<'a> {
    type Node = Instance<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = Box<dyn Iterator<Item = (Cow<'a, str>, Instance<'a>)> + 'a>;

    fn len(&self) -> usize {
        self.0.members().count()
    }

    fn is_empty(&self) -> bool {
        self.0.members().next().is_none()
    }

    fn get(&self, key: &Box<str>) -> Option<Instance<'a>> {
        self.0.member(key)
    }

    fn members(&self) -> Self::MembersIter {
        Box::new(self.0.members())
    }
}

/// A list of a document.
pub(super) struct ListOf<'a>(Instance<'a>);

impl<'a> Array<'a, Flat> for ListOf<'a> {
    type Node = Instance<'a>;
    type ElementsIter = Box<dyn Iterator<Item = Instance<'a>> + 'a>;

    fn len(&self) -> usize {
        self.0.items().count()
    }

    fn elements(&self) -> Self::ElementsIter {
        Box::new(self.0.items())
    }

    fn is_unique(&self) -> bool {
        let Instance::At { json, .. } = self.0 else { return true };
        let mut digests: Vec<(u32, u32)> = Vec::with_capacity(self.len());
        // Both are cut to 32 bits: places have no more, and equal digests are looked at.
        digests.extend(self.0.items().map(|item| (item.digest() as u32, item.place() as u32)));
        digests.sort_unstable();
        let at = |place: u32| Instance::At { json, place: place as usize };
        let mut groups = digests.chunk_by(|one, other| one.0 == other.0);
        groups.all(|group| {
            let mut pairs =
                group.iter().enumerate().flat_map(|(n, one)| group[n + 1..].iter().map(move |it| (one, it)));
            !pairs.any(|(one, other)| at(one.1).is(at(other.1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DOCUMENTS: &[&str] = &[
        "1",
        "1.0",
        "-0",
        "0.0",
        "1.5",
        "9007199254740993",
        "9007199254740992.0",
        "18446744073709551615",
        "1e300",
        "true",
        "false",
        "null",
        "\"1\"",
        "\"xä\"",
        "\"x\\u00e4\"",
        "\"xäyz\"",
        "[]",
        "[1]",
        "[1,1.0]",
        "[1,\"1\",true,null]",
        "[1,2.0,{\"a\":null}]",
        "[ 1 , 2 , { \"a\" : null } ]",
        "[[1,{\"a\":1,\"b\":2}],[1,{\"b\":2.0,\"a\":1}]]",
        "[[],{}]",
        "[9007199254740993,9007199254740992.0]",
        "[[[1,[2]]],3]",
        "[\"x\",\"\\u0078\"]",
        "{}",
        "{\"a\":[3,1]}",
        "{\"a\":[3,2]}",
        "{\"a\":[true],\"b\":\"ä\"}",
        "{\"b\":\"\\u00e4\",\"a\":[true]}",
        "{\"\\u00e4\":1}",
        "{\"bc\":1}",
        "{\"a\":1,\"b\":[]}",
        "[1,2]",
        "[\"x\"]",
    ];

    /// What a tree is checked to be, a document that stays text is as well.
    #[test]
    fn documents_fit_what_trees_fit() {
        let schemas = [
            json!({ "type": "integer" }),
            json!({ "type": ["number", "null", "boolean"] }),
            json!({ "const": 1 }),
            json!({ "enum": [[1, 2.0, { "a": null }], { "a": [true], "b": "ä" }, "1", false, null, -0.0, []] }),
            json!({ "uniqueItems": true }),
            json!({ "minItems": 2, "maxItems": 3, "contains": { "type": "string" } }),
            json!({ "required": ["a"], "properties": { "a": { "type": "array", "items": { "minimum": 2 } } } }),
            json!({ "additionalProperties": false, "patternProperties": { "^a|ä$": true } }),
            json!({ "propertyNames": { "maxLength": 1 }, "minProperties": 1, "maxProperties": 2 }),
            json!({ "minLength": 2, "maxLength": 3, "pattern": "^.ä" }),
            json!({ "dependentRequired": { "a": ["b"] }, "unevaluatedProperties": { "type": "array" } }),
            json!({ "prefixItems": [{ "type": "integer" }], "unevaluatedItems": false }),
            json!({ "multipleOf": 0.5, "exclusiveMaximum": 9_007_199_254_740_993_u64 }),
            json!({ "$defs": { "n": { "anyOf": [{ "type": "integer" }, { "items": { "$ref": "#/$defs/n" } }] } }, "$ref": "#/$defs/n" }),
            json!({ "not": { "const": { "b": "ä", "a": [true] } } }),
        ];
        for schema in &schemas {
            let tree = jsonschema::options().build(schema).unwrap();
            let flat = jsonschema::options_for::<Flat>().build(schema).unwrap();
            for text in DOCUMENTS {
                let value: Value = serde_json::from_str(text).unwrap();
                let json = FlatJson::read(text.as_bytes()).unwrap();
                let fits = flat.is_valid(Instance::whole(&json));
                assert_eq!(fits, tree.is_valid(&value), "{text} and {schema}");
                let said =
                    |it: &jsonschema::ValidationError<'_>| format!("{} {}", it.kind().keyword(), it.masked());
                let mut of_tree: Vec<String> = tree.iter_errors(&value).map(|it| said(&it)).collect();
                let mut of_flat: Vec<String> =
                    flat.iter_errors(Instance::whole(&json)).map(|it| said(&it)).collect();
                of_tree.sort();
                of_flat.sort();
                assert_eq!(of_flat, of_tree, "{text} and {schema}");
            }
        }
    }
}
