//! JSON that stays text, with a list of where its values begin: eight bytes a value, where a tree takes seventy and more.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use memchr::memchr2;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Numbers that nobody who sends names can know.
static SEEDS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

/// Where a value or a name begins in the text, and the place in the list behind all that it contains.
#[derive(Debug, Clone, Copy)]
struct Mark {
    start: u32,
    next: u32,
}

/// A document. Its places are numbers: 0 is the whole, a container is followed by what it contains, each name by its value.
#[derive(Debug)]
pub struct FlatJson<'t> {
    text: &'t str,
    marks: Vec<Mark>,
}

impl<'t> FlatJson<'t> {
    /// Reads a document; `None` where it is malformed, has duplicate names at any depth, trailing bytes, numbers that are too large,
    /// or more than 4 GiB.
    pub fn read(bytes: &'t [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        u32::try_from(text.len()).ok()?;
        serde_json::from_str::<Whole>(text).ok()?;
        // Not more than there are borders, those in texts among them.
        let borders = bytes.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
        let mut read = Self { text, marks: Vec::with_capacity(borders + 1) };
        read.mark_all();
        read.names_are_single().then_some(read)
    }

    /// Notes where everything begins in a text that is JSON.
    fn mark_all(&mut self) {
        let bytes = self.text.as_bytes();
        let mut open: Vec<u32> = Vec::new();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            // Both fit: the text's length does.
            let (start, place) = (at as u32, self.marks.len() as u32);
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => at += 1,
                b']' | b'}' => {
                    if let Some(mark) = open.pop().and_then(|place| self.marks.get_mut(place as usize)) {
                        mark.next = place;
                    }
                    at += 1;
                }
                b'[' | b'{' => {
                    open.push(place);
                    self.marks.push(Mark { start, next: place + 1 });
                    at += 1;
                }
                _ => {
                    self.marks.push(Mark { start, next: place + 1 });
                    at = end_of_scalar(bytes, at);
                }
            }
        }
    }

    fn names_are_single(&self) -> bool {
        let mut names = Vec::new();
        let objects = (0..self.marks.len()).filter(|place| self.kind(*place) == JsonKind::Object);
        for object in objects {
            names.clear();
            names.extend(self.members(object).map(|(name, _)| {
                let mut hasher = SEEDS.build_hasher();
                hasher.write(self.string(name).as_bytes());
                (hasher.finish() as u32, name as u32)
            }));
            names.sort_unstable();
            let equal = names.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1);
            for group in equal {
                let mut same: Vec<Cow<'_, str>> =
                    group.iter().map(|(_, name)| self.string(*name as usize)).collect();
                same.sort_unstable();
                if same.windows(2).any(|pair| pair[0] == pair[1]) {
                    return false;
                }
            }
        }
        true
    }

    /// Values and names.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    fn start(&self, place: usize) -> usize {
        self.marks.get(place).map_or(self.text.len(), |mark| mark.start as usize)
    }

    /// The place behind a value and all that it contains.
    pub fn next(&self, place: usize) -> usize {
        self.marks.get(place).map_or(place + 1, |mark| mark.next as usize)
    }

    pub fn kind(&self, place: usize) -> JsonKind {
        match self.text.as_bytes().get(self.start(place)) {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::List,
            Some(b'"') => JsonKind::Text,
            Some(b't' | b'f') => JsonKind::Boolean,
            Some(b'-' | b'0'..=b'9') => JsonKind::Number,
            _ => JsonKind::Null,
        }
    }

    /// A value that contains no others, as it is written.
    pub fn scalar_text(&self, place: usize) -> &'t str {
        let start = self.start(place);
        self.text.get(start..end_of_scalar(self.text.as_bytes(), start)).unwrap_or_default()
    }

    /// What a text or name says.
    pub fn string(&self, place: usize) -> Cow<'t, str> {
        let written = self.scalar_text(place);
        let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
        match inner.contains('\\') {
            true => serde_json::from_str::<String>(written).unwrap_or_default().into(),
            false => inner.into(),
        }
    }

    /// The values of a list.
    pub fn items(&self, list: usize) -> impl Iterator<Item = usize> {
        let end = self.next(list);
        let first = (list + 1 < end).then_some(list + 1);
        std::iter::successors(first, move |item| Some(self.next(*item)).filter(|next| *next < end))
    }

    /// The names of an object and their values.
    pub fn members(&self, object: usize) -> impl Iterator<Item = (usize, usize)> {
        let end = self.next(object);
        let first = (object + 1 < end).then_some(object + 1);
        let names =
            std::iter::successors(first, move |name| Some(self.next(*name + 1)).filter(|next| *next < end));
        names.map(|name| (name, name + 1))
    }
}

/// Behind a text, number or word that begins at `start`, in a text that is JSON.
pub fn end_of_scalar(bytes: &[u8], start: usize) -> usize {
    let from = |at: usize| bytes.get(at..).unwrap_or_default();
    if bytes.get(start) != Some(&b'"') {
        let is_over = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\r' | b'\n');
        return from(start).iter().position(is_over).map_or(bytes.len(), |length| start + length);
    }
    let mut at = start + 1;
    while let Some(found) = memchr2(b'"', b'\\', from(at)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Any JSON, read to see whether it is some, and not kept.
struct Whole;

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Whole {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::strict_json;

    /// The tree of a place.
    fn tree(json: &FlatJson<'_>, place: usize) -> Value {
        match json.kind(place) {
            JsonKind::Null => Value::Null,
            JsonKind::Boolean | JsonKind::Number => serde_json::from_str(json.scalar_text(place)).unwrap(),
            JsonKind::Text => Value::String(json.string(place).into_owned()),
            JsonKind::List => json.items(place).map(|item| tree(json, item)).collect(),
            JsonKind::Object => {
                let members = json.members(place);
                let members =
                    members.map(|(name, value)| (json.string(name).into_owned(), tree(json, value)));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    #[test]
    fn documents_are_read_as_a_tree_is() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let wide: String = (0..3000).map(|n| format!("\"a{n}\":{n},")).collect();
        let (wide, twice) = (format!("{{{wide}\"z\":0}}"), format!("{{{wide}\"a7\":0}}"));
        let (deep, deeper) = (deep(127), deep(128));
        let documents = [
            "null",
            "true",
            " false ",
            "0",
            "-0.5e-3",
            "1e308",
            "1e309",
            "12345678901234567890123",
            "\"\"",
            "\"a\\\"b\"",
            "\"\\u00e4\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"\u{1}\"",
            "\"ä\"",
            "[]",
            "[ ]",
            "{}",
            "{ }",
            "[1,2,[3,[]],{}]",
            r#"{"a":{"b":[1,"x,]}",{"c":null}]},"d":"}"}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"x":[{"a":1,"b":2,"a":3}]}]"#,
            r#"{"":1," ":2}"#,
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{1:2}",
            "[1]x",
            "",
            " ",
            "01",
            "+1",
            "nul",
            "tru",
            "[1}",
            "\"",
            "\"\\x\"",
            "\u{feff}1",
            "[1\t,\r\n2]",
            &wide,
            &twice,
            &deep,
            &deeper,
        ];
        for text in documents {
            let expected = strict_json::value(text.as_bytes());
            let read = FlatJson::read(text.as_bytes()).map(|json| tree(&json, 0));
            assert_eq!(read, expected, "{text}");
        }
        assert!(FlatJson::read(b"\"\xff\"").is_none());
    }

    #[test]
    fn a_value_takes_eight_bytes() {
        let text = format!("[0{}]", ",0".repeat(100_000));
        let json = FlatJson::read(text.as_bytes()).unwrap();
        assert_eq!((json.len(), json.items(0).count()), (100_002, 100_001));
        assert_eq!(size_of_val(&json.marks[..]), json.len() * 8);
        assert!(json.marks.capacity() <= json.len() + 1);
    }
}
