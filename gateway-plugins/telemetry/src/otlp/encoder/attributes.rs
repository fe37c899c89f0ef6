//! Attributes: pairs of a key and a value.

use std::net::IpAddr;

use super::{
    BYTES, Encoder, Encoding, Field, List, MAX_TEXT, MAX_VARINT, VARINT, cut, size_of_varint, tag, varint,
};
use crate::json::AddressText;

const KEY: Field = Field(1, "key");
const VALUE: Field = Field(2, "value");
const STRING_VALUE: Field = Field(1, "stringValue");
const BOOL_VALUE: Field = Field(2, "boolValue");
const INT_VALUE: Field = Field(3, "intValue");
const DOUBLE_VALUE: Field = Field(4, "doubleValue");
const ARRAY_VALUE: Field = Field(5, "arrayValue");
const VALUES: Field = Field(1, "values");

/// Attributes that are being written. Every span and record has many: as protobuf, their lengths are known before they are written.
pub struct Attributes<'a, 'l, 'b> {
    pub(super) list: &'a mut List<'l, 'b>,
}

impl Attributes<'_, '_, '_> {
    /// A text; any bytes, those that are not UTF-8 are replaced.
    pub fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        match self.list.encoder.encoding {
            Encoding::Protobuf => self.text_pair(key, &cut(text)),
            Encoding::Json => self.value(key, |value| value.plain_text(STRING_VALUE, text)),
        }
    }

    /// A text that is known to be one.
    pub fn str(&mut self, key: &str, text: &str) {
        match self.list.encoder.encoding {
            Encoding::Protobuf if text.len() <= MAX_TEXT => self.text_pair(key, text),
            _ => self.text(key, text),
        }
    }

    fn text_pair(&mut self, key: &str, text: &str) {
        let length = text.len() as u64;
        self.pair(key, 1 + size_of_varint(length) + text.len(), |out| {
            tag(out, STRING_VALUE, BYTES);
            varint(out, length);
            out.extend_from_slice(text.as_bytes());
        });
    }

    /// A whole number; what is beyond `i64` is the largest there is.
    pub fn int(&mut self, key: &str, number: impl TryInto<i64>) {
        let number = number.try_into().unwrap_or(i64::MAX);
        match self.list.encoder.encoding {
            Encoding::Protobuf => {
                let number = u64::from_ne_bytes(number.to_ne_bytes());
                self.pair(key, 1 + size_of_varint(number), |out| {
                    tag(out, INT_VALUE, VARINT);
                    varint(out, number);
                });
            }
            Encoding::Json => self.value(key, |value| value.int(INT_VALUE, number)),
        }
    }

    /// A fraction.
    pub fn double(&mut self, key: &str, number: f64) {
        if number.is_finite() {
            self.value(key, |value| value.double(DOUBLE_VALUE, number));
        }
    }

    /// Yes or no.
    pub fn bool(&mut self, key: &str, flag: bool) {
        self.value(key, |value| value.bool(BOOL_VALUE, flag));
    }

    /// An address.
    pub fn address(&mut self, key: &str, address: IpAddr) {
        self.text(key, AddressText::of(address).as_bytes());
    }

    /// Texts.
    pub fn texts<T: AsRef<[u8]>>(&mut self, key: &str, texts: impl IntoIterator<Item = T>) {
        self.value(key, |value| {
            value.message(ARRAY_VALUE, |array| {
                array.list(VALUES, texts, |item, text| item.plain_text(STRING_VALUE, text.as_ref()));
            });
        });
    }

    fn value(&mut self, key: &str, write: impl FnOnce(&mut Encoder<'_>)) {
        self.list.item(|pair| {
            pair.text(KEY, key);
            pair.message(VALUE, write);
        });
    }

    /// A pair as protobuf, whose value has so many bytes.
    fn pair(&mut self, key: &str, value: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let keyed = 1 + size_of_varint(key.len() as u64) + key.len();
        let length = keyed + 1 + size_of_varint(value as u64) + value;
        let field = self.list.field;
        let out = &mut *self.list.encoder.out;
        out.reserve(length + 2 * MAX_VARINT);
        tag(out, field, BYTES);
        varint(out, length as u64);
        tag(out, KEY, BYTES);
        varint(out, key.len() as u64);
        out.extend_from_slice(key.as_bytes());
        tag(out, VALUE, BYTES);
        varint(out, value as u64);
        write(out);
    }
}
