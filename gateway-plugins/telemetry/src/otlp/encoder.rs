//! Writes messages as protobuf or as protobuf's JSON, by the same description.

mod attributes;

use std::fmt::Write as _;

use crate::json::escape;
pub use attributes::Attributes;

/// Bytes of a text; what is beyond is cut off.
pub const MAX_TEXT: usize = crate::json::MAX_TEXT;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Binary protobuf.
    Protobuf,
    /// JSON, with ids in hexadecimal as OTLP wants them.
    Json,
}

/// A field of a message: its number in protobuf and its name in JSON.
#[derive(Debug, Clone, Copy)]
pub struct Field(pub u32, pub &'static str);

/// Wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// Writes fields of one message.
pub struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    encoding: Encoding,
}

impl<'b> Encoder<'b> {
    /// Writes behind what is in the buffer.
    pub fn new(out: &'b mut Vec<u8>, encoding: Encoding) -> Self {
        Self { out, encoding }
    }

    /// A whole message, such as a request.
    pub fn root(out: &mut Vec<u8>, encoding: Encoding, write: impl FnOnce(&mut Encoder<'_>)) {
        let mut encoder = Encoder { out, encoding };
        match encoding {
            Encoding::Protobuf => write(&mut encoder),
            Encoding::Json => encoder.object(write),
        }
    }

    /// A whole item of a list that is put together elsewhere: in JSON the object alone, in protobuf with its tag.
    pub fn item(&mut self, field: Field, write: impl FnOnce(&mut Encoder<'_>)) {
        match self.encoding {
            Encoding::Protobuf => self.nested(field, write),
            Encoding::Json => self.object(write),
        }
    }

    /// A text; any bytes, those that are not UTF-8 are replaced. An empty one is left out.
    pub fn text(&mut self, field: Field, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        if text.is_empty() {
            return;
        }
        self.plain_text(field, text);
    }

    fn plain_text(&mut self, field: Field, text: &[u8]) {
        match self.encoding {
            Encoding::Protobuf => {
                let text = cut(text);
                self.tag(field, BYTES);
                self.varint(text.len() as u64);
                self.out.extend_from_slice(text.as_bytes());
            }
            Encoding::Json => {
                self.key(field);
                self.out.push(b'"');
                escape(self.out, text);
                self.out.push(b'"');
            }
        }
    }

    /// An id of a trace or span.
    pub fn id(&mut self, field: Field, id: &[u8]) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, BYTES);
                self.varint(id.len() as u64);
                self.out.extend_from_slice(id);
            }
            Encoding::Json => {
                self.key(field);
                self.out.push(b'"');
                let mut digits = String::with_capacity(id.len() * 2);
                id.iter().for_each(|byte| _ = write!(digits, "{byte:02x}"));
                self.out.extend_from_slice(digits.as_bytes());
                self.out.push(b'"');
            }
        }
    }

    /// A small number: an enum or a count.
    pub fn number(&mut self, field: Field, number: u32) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, VARINT);
                self.varint(u64::from(number));
            }
            Encoding::Json => self.literal(field, number),
        }
    }

    /// A whole number of 64 bits (`int64`); JSON has it as a text.
    pub fn int(&mut self, field: Field, number: i64) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, VARINT);
                self.varint(u64::from_ne_bytes(number.to_ne_bytes()));
            }
            Encoding::Json => self.literal(field, format_args!("\"{number}\"")),
        }
    }

    /// A number or time of 64 bits (`fixed64`); JSON has it as a text.
    pub fn fixed(&mut self, field: Field, number: u64) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, FIXED64);
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Encoding::Json => self.literal(field, format_args!("\"{number}\"")),
        }
    }

    /// Flags (`fixed32`).
    pub fn flags(&mut self, field: Field, flags: u32) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, FIXED32);
                self.out.extend_from_slice(&flags.to_le_bytes());
            }
            Encoding::Json => self.literal(field, flags),
        }
    }

    /// A fraction; one that is not finite is left out.
    pub fn double(&mut self, field: Field, number: f64) {
        if !number.is_finite() {
            return;
        }
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, FIXED64);
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            Encoding::Json => self.literal(field, number),
        }
    }

    /// Yes or no.
    pub fn bool(&mut self, field: Field, value: bool) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, VARINT);
                self.out.push(u8::from(value));
            }
            Encoding::Json => self.literal(field, value),
        }
    }

    /// A message within this one.
    pub fn message(&mut self, field: Field, write: impl FnOnce(&mut Encoder<'_>)) {
        match self.encoding {
            Encoding::Protobuf => self.nested(field, write),
            Encoding::Json => {
                self.key(field);
                self.object(write);
            }
        }
    }

    /// A list of messages.
    pub fn list<T>(
        &mut self,
        field: Field,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Encoder<'_>, T),
    ) {
        self.list_by(field, |list| {
            for item in items {
                list.item(|encoder| write(encoder, item));
            }
        });
    }

    /// A list of messages that `write` adds one by one.
    pub fn list_by(&mut self, field: Field, write: impl FnOnce(&mut List<'_, '_>)) {
        if self.encoding == Encoding::Json {
            self.key(field);
            self.out.push(b'[');
        }
        write(&mut List { encoder: &mut Encoder { out: self.out, encoding: self.encoding }, field });
        if self.encoding == Encoding::Json {
            self.out.push(b']');
        }
    }

    /// A list of messages that were written as items before, with commas between in JSON.
    pub fn list_of(&mut self, field: Field, items: &[u8]) {
        match self.encoding {
            Encoding::Protobuf => self.out.extend_from_slice(items),
            Encoding::Json => {
                self.key(field);
                self.out.push(b'[');
                self.out.extend_from_slice(items);
                self.out.push(b']');
            }
        }
    }

    /// Numbers of 64 bits (`repeated fixed64`).
    pub fn fixed_list(&mut self, field: Field, numbers: &[u64]) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, BYTES);
                self.varint(numbers.len() as u64 * 8);
                numbers.iter().for_each(|number| self.out.extend_from_slice(&number.to_le_bytes()));
            }
            Encoding::Json => {
                let texts: Vec<String> = numbers.iter().map(|number| format!("\"{number}\"")).collect();
                self.literal(field, format_args!("[{}]", texts.join(",")));
            }
        }
    }

    /// Fractions (`repeated double`); all of them finite.
    pub fn double_list(&mut self, field: Field, numbers: &[f64]) {
        match self.encoding {
            Encoding::Protobuf => {
                self.tag(field, BYTES);
                self.varint(numbers.len() as u64 * 8);
                numbers.iter().for_each(|number| self.out.extend_from_slice(&number.to_le_bytes()));
            }
            Encoding::Json => {
                let texts: Vec<String> = numbers.iter().map(f64::to_string).collect();
                self.literal(field, format_args!("[{}]", texts.join(",")));
            }
        }
    }

    /// Attributes: a list of keys and values.
    pub fn attributes(&mut self, field: Field, write: impl FnOnce(&mut Attributes<'_, '_, '_>)) {
        self.list_by(field, |list| write(&mut Attributes { list }));
    }

    fn nested(&mut self, field: Field, write: impl FnOnce(&mut Encoder<'_>)) {
        self.tag(field, BYTES);
        // Most messages are shorter than 128 bytes: room for one byte of length, moved where that was too little.
        self.out.push(0);
        let begin = self.out.len();
        write(&mut Encoder { out: self.out, encoding: self.encoding });
        let length = self.out.len() - begin;
        let more = size_of_varint(length as u64) - 1;
        if more > 0 {
            self.out.extend_from_slice(&[0; MAX_VARINT][..more]);
            self.out.copy_within(begin..begin + length, begin + more);
        }
        let mut number = length as u64;
        for place in self.out.iter_mut().skip(begin - 1).take(more) {
            *place = number.to_le_bytes()[0] | 0x80;
            number >>= 7;
        }
        if let Some(place) = self.out.get_mut(begin - 1 + more) {
            *place = number.to_le_bytes()[0];
        }
    }

    fn object(&mut self, write: impl FnOnce(&mut Encoder<'_>)) {
        self.out.push(b'{');
        write(&mut Encoder { out: self.out, encoding: self.encoding });
        self.out.push(b'}');
    }

    fn tag(&mut self, field: Field, wire: u32) {
        tag(self.out, field, wire);
    }

    fn varint(&mut self, number: u64) {
        varint(self.out, number);
    }

    fn key(&mut self, field: Field) {
        if !matches!(self.out.last(), None | Some(b'{')) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(field.1.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn literal(&mut self, field: Field, value: impl std::fmt::Display) {
        self.key(field);
        self.out.extend_from_slice(value.to_string().as_bytes());
    }
}

fn tag(out: &mut Vec<u8>, field: Field, wire: u32) {
    varint(out, u64::from(field.0 << 3 | wire));
}

/// Bytes of the longest varint.
const MAX_VARINT: usize = 10;

/// Bytes of a number as a varint.
fn size_of_varint(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Whole characters within the limit; what is not UTF-8 is replaced.
fn cut(text: &[u8]) -> std::borrow::Cow<'_, str> {
    let mut text = &text[..text.len().min(MAX_TEXT)];
    match std::str::from_utf8(text) {
        Ok(valid) => return valid.into(),
        Err(error) if error.error_len().is_none() => text = &text[..error.valid_up_to()],
        Err(_) => {}
    }
    String::from_utf8_lossy(text)
}

/// A list that is being written.
pub struct List<'l, 'b> {
    encoder: &'l mut Encoder<'b>,
    field: Field,
}

impl List<'_, '_> {
    /// One more message.
    pub fn item(&mut self, write: impl FnOnce(&mut Encoder<'_>)) {
        if self.encoder.encoding == Encoding::Json && self.encoder.out.last() != Some(&b'[') {
            self.encoder.out.push(b',');
        }
        self.encoder.item(self.field, write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Encoder<'_>)) -> (Vec<u8>, serde_json::Value) {
        let (mut binary, mut json) = (Vec::new(), Vec::new());
        write(&mut Encoder::new(&mut binary, Encoding::Protobuf));
        json.push(b'{');
        write(&mut Encoder::new(&mut json, Encoding::Json));
        json.push(b'}');
        (
            binary,
            serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{error}: {}", json.escape_ascii())),
        )
    }

    #[test]
    fn every_kind_of_field_is_written_in_both() {
        let (binary, json) = both(|it| {
            it.text(Field(1, "name"), "a\"b");
            it.text(Field(2, "empty"), "");
            it.id(Field(3, "id"), &[0xab, 1]);
            it.number(Field(4, "kind"), 300);
            it.int(Field(5, "int"), -1);
            it.fixed(Field(6, "time"), 7);
            it.flags(Field(16, "flags"), 0x101);
            it.bool(Field(7, "on"), true);
            it.double(Field(8, "share"), 0.5);
        });
        let expected = [
            &[0x0a, 3, b'a', b'"', b'b', 0x1a, 2, 0xab, 1, 0x20, 0xac, 2, 0x28][..],
            &[0xff; 9],
            &[1, 0x31, 7, 0, 0, 0, 0, 0, 0, 0, 0x85, 1, 1, 1, 0, 0, 0x38, 1, 0x41],
            &0.5_f64.to_le_bytes(),
        ];
        assert_eq!(binary, expected.concat());
        let expected = serde_json::json!({
            "name": "a\"b", "id": "ab01", "kind": 300, "int": "-1", "time": "7", "flags": 257, "on": true, "share": 0.5,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn long_messages_have_long_lengths() {
        for length in [0, 1, 120, 127, 128, 2000] {
            let text = "x".repeat(length);
            let (binary, _) = both(|it| it.message(Field(1, "m"), |m| m.text(Field(1, "t"), &text)));
            let mut expected_inner = Vec::new();
            if length > 0 {
                expected_inner.push(0x0a);
                varint(&mut expected_inner, length as u64);
                expected_inner.extend_from_slice(text.as_bytes());
            }
            let mut expected = vec![0x0a];
            varint(&mut expected, expected_inner.len() as u64);
            expected.extend_from_slice(&expected_inner);
            assert_eq!(binary, expected, "{length}");
        }
    }

    #[test]
    fn attributes_and_lists_are_written_in_both() {
        let (binary, json) = both(|it| {
            it.attributes(Field(9, "attributes"), |all| {
                all.text("a", b"\xff");
                all.int("b", u64::MAX);
                all.bool("c", false);
                all.double("d", f64::NAN);
                all.texts("e", ["x", ""]);
            });
            it.fixed_list(Field(6, "counts"), &[1, 2]);
            it.double_list(Field(7, "bounds"), &[0.5]);
        });
        let expected = serde_json::json!({
            "attributes": [
                { "key": "a", "value": { "stringValue": "\u{fffd}" } },
                { "key": "b", "value": { "intValue": "9223372036854775807" } },
                { "key": "c", "value": { "boolValue": false } },
                { "key": "e", "value": { "arrayValue": { "values": [{ "stringValue": "x" }, { "stringValue": "" }] } } },
            ],
            "counts": ["1", "2"],
            "bounds": [0.5],
        });
        assert_eq!(json, expected);
        let first = [0x4a, 10, 0x0a, 1, b'a', 0x12, 5, 0x0a, 3, 0xef, 0xbf, 0xbd];
        assert_eq!(&binary[..first.len()], first);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let (_, json) = both(|it| it.text(Field(1, "t"), "ü".repeat(MAX_TEXT)));
        assert!(json["t"].as_str().unwrap().len() <= MAX_TEXT + 3);
        assert_eq!(cut("xü".repeat(MAX_TEXT).as_bytes()).chars().filter(|c| *c == '\u{fffd}').count(), 0);
    }
}
