//! JSON as the bytes of a message, field by field: a message in memory takes thirty times the room of its JSON.
//!
//! The bytes of a message are those of its fields, one after the other, in any order. Messages within messages are walked here, and
//! lists element by element; single values, enums, maps and the well-known types are read by the library.

use std::borrow::Cow;
use std::fmt;

use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

/// How requests are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestReading {
    /// Unknown query parameters and fields of bodies are left out, not refused.
    pub(super) ignores_unknown: bool,
}

/// What JSON is read by.
#[derive(Clone, Copy)]
pub(super) struct Encoding<'a> {
    pub(super) reading: RequestReading,
    /// Paths of fields that are given elsewhere and left out here.
    pub(super) skipped: &'a [&'a str],
}

/// Reads the JSON of a message and appends the message's bytes.
///
/// # Errors
/// What is wrong with the JSON.
pub(super) fn message(
    about: &MessageDescriptor,
    json: &[u8],
    how: Encoding<'_>,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(json);
    if is_walked(about) {
        WholeMessage { about, how, prefix: "", out }.deserialize(&mut json)?;
    } else {
        let read = DynamicMessage::deserialize_with_options(about.clone(), &mut json, &how.options())?;
        out.extend(read.encode_to_vec());
    }
    json.end()
}

/// The same where the JSON is the value of one field.
///
/// # Errors
/// What is wrong with the JSON.
pub(super) fn field(
    about: &FieldDescriptor,
    json: &[u8],
    how: Encoding<'_>,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(json);
    FieldValue { about, how, prefix: about.name(), out }.deserialize(&mut json)?;
    json.end()
}

impl Encoding<'_> {
    fn options(self) -> DeserializeOptions {
        DeserializeOptions::new().deny_unknown_fields(!self.reading.ignores_unknown)
    }
}

/// Whether the fields of a message are read one by one: JSON has forms of their own for the well-known types.
fn is_walked(about: &MessageDescriptor) -> bool {
    !about.full_name().starts_with("google.protobuf.")
}

struct WholeMessage<'a> {
    about: &'a MessageDescriptor,
    how: Encoding<'a>,
    /// The path of the message, with a dot behind it.
    prefix: &'a str,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for WholeMessage<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WholeMessage<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<u32> = Vec::new();
        let mut oneofs: Vec<String> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let field =
                self.about.get_field_by_json_name(&key).or_else(|| self.about.get_field_by_name(&key));
            let Some(field) = field else {
                self.unknown(&key, &mut map)?;
                continue;
            };
            if seen.contains(&field.number()) {
                return Err(A::Error::custom(format!("`{}` is given twice", field.name())));
            }
            seen.push(field.number());
            let path = format!("{}{}", self.prefix, field.name());
            if self.how.skipped.contains(&&*path) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = FieldValue { about: &field, how: self.how, prefix: &path, out: &mut *self.out };
            let is_given = map.next_value_seed(value)?;
            let Some(oneof) = field.containing_oneof().filter(|_| is_given) else { continue };
            if oneofs.iter().any(|known| known == oneof.name()) {
                let why = format!("multiple fields provided for oneof '{}'", oneof.name());
                return Err(A::Error::custom(why));
            }
            oneofs.push(oneof.name().to_owned());
        }
        Ok(())
    }
}

impl WholeMessage<'_> {
    /// An extension, or nothing.
    fn unknown<'de, A: MapAccess<'de>>(&self, key: &str, map: &mut A) -> Result<(), A::Error> {
        if self.about.get_extension_by_json_name(key).is_some() {
            return Err(A::Error::custom(format!("the extension `{key}` can't be set")));
        }
        if !self.how.reading.ignores_unknown {
            return Err(A::Error::custom(format!("unrecognized field name '{key}'")));
        }
        map.next_value::<IgnoredAny>().map(drop)
    }
}

/// The value of a field; whether one is given.
struct FieldValue<'a> {
    about: &'a FieldDescriptor,
    how: Encoding<'a>,
    /// The path of the field.
    prefix: &'a str,
    out: &'a mut Vec<u8>,
}

impl FieldValue<'_> {
    /// The message that is walked for each value.
    fn walked(&self) -> Option<MessageDescriptor> {
        match self.about.kind() {
            Kind::Message(about) if !self.about.is_map() && !self.about.is_group() => {
                Some(about).filter(is_walked)
            }
            _ => None,
        }
    }

    /// One message within the field.
    fn nested<'de, D: Deserializer<'de>>(
        &mut self,
        about: &MessageDescriptor,
        from: D,
    ) -> Result<(), D::Error> {
        let mut inner = Vec::new();
        let prefix = format!("{}.", self.prefix);
        WholeMessage { about, how: self.how, prefix: &prefix, out: &mut inner }.deserialize(from)?;
        encode_key(self.about.number(), WireType::LengthDelimited, self.out);
        encode_varint(inner.len() as u64, self.out);
        self.out.append(&mut inner);
        Ok(())
    }

    /// A value as the library reads it, in a message with nothing else.
    fn single<'de, D: Deserializer<'de>>(&mut self, from: D) -> Result<bool, D::Error> {
        let only = MapAccessDeserializer::new(Only { key: Some(self.about.json_name()), value: Some(from) });
        let parent = self.about.parent_message().clone();
        let read = DynamicMessage::deserialize_with_options(parent, only, &self.how.options())?;
        let is_given = read.has_field(self.about);
        // Writing to memory can't fail for want of room.
        read.encode(self.out).map_err(D::Error::custom)?;
        Ok(is_given)
    }
}

impl<'de> DeserializeSeed<'de> for FieldValue<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(mut self, from: D) -> Result<bool, D::Error> {
        if self.about.is_list() {
            return from.deserialize_option(self);
        }
        match self.walked() {
            Some(_) => from.deserialize_option(self),
            None => self.single(from),
        }
    }
}

impl<'de> Visitor<'de> for FieldValue<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.about.is_list() { "a list" } else { "a map" })
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(mut self, from: D) -> Result<bool, D::Error> {
        match self.walked().filter(|_| !self.about.is_list()) {
            Some(about) => self.nested(&about, from).map(|()| true),
            None => from.deserialize_seq(self),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<bool, A::Error> {
        while items.next_element_seed(ListItem(&mut self))?.is_some() {}
        Ok(false)
    }
}

/// One element of a list.
struct ListItem<'i, 'a>(&'i mut FieldValue<'a>);

impl<'de> DeserializeSeed<'de> for ListItem<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.0.walked() {
            Some(about) => self.0.nested(&about, from),
            None => self.0.single(OnlyItem(Some(from))).map(drop),
        }
    }
}

/// A map of one field.
struct Only<'k, D> {
    key: Option<&'k str>,
    value: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for Only<'_, D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, D::Error> {
        self.key.take().map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, D::Error> {
        let value = self.value.take().ok_or_else(|| D::Error::custom("a value is read twice"))?;
        seed.deserialize(value)
    }
}

/// A list of one element.
struct OnlyItem<D>(Option<D>);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for OnlyItem<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_seq(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, D: Deserializer<'de>> SeqAccess<'de> for OnlyItem<D> {
    type Error = D::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, D::Error> {
        self.0.take().map(|item| seed.deserialize(item)).transpose()
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz(data: &[u8]) {
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    };
    let field = |number: i32, name: &str, label: Label, kind: Type| FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name: (kind == Type::Message).then(|| ".t.Node".into()),
        ..FieldDescriptorProto::default()
    };
    let node = DescriptorProto {
        name: Some("Node".into()),
        field: vec![
            field(1, "nodes", Label::Repeated, Type::Message),
            field(2, "numbers", Label::Repeated, Type::Int32),
            field(3, "names", Label::Repeated, Type::String),
            field(4, "one", Label::Optional, Type::Message),
            field(5, "flag", Label::Optional, Type::Bool),
            field(6, "raw_bytes", Label::Optional, Type::Bytes),
            field(7, "price", Label::Optional, Type::Double),
        ],
        ..DescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("t.proto".into()),
        package: Some("t".into()),
        syntax: Some("proto3".into()),
        message_type: vec![node],
        ..FileDescriptorProto::default()
    };
    let pool =
        prost_reflect::DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file: vec![file] });
    let about = pool.ok().and_then(|pool| pool.get_message_by_name("t.Node"));
    let Some(about) = about else { panic!("the definitions can't be used") };
    let how = Encoding { reading: RequestReading { ignores_unknown: false }, skipped: &[] };
    let mut bytes = Vec::new();
    if message(&about, data, how, &mut bytes).is_err() {
        return;
    }
    let mut json = serde_json::Deserializer::from_slice(data);
    let theirs = DynamicMessage::deserialize_with_options(about.clone(), &mut json, &how.options());
    let ours = DynamicMessage::decode(about, &*bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec()),
        (ours, theirs) => panic!("{ours:?}, {theirs:?}"),
    }
}
