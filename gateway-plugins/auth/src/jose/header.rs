//! The header of a token (RFC 7515 §4), read without keeping more of it than is needed: every request that brings a token has
//! one.

use std::borrow::Cow;
use std::fmt;

use gateway_plugin_common::strict_json::Strict;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use smallvec::SmallVec;

use super::{Algorithm, TokenError};

/// Bytes of a token's `kid`.
const MAX_KEY_ID: usize = 256;
/// Fields of a header; the registered ones are eleven.
const MAX_FIELDS: usize = 32;
/// Header fields that bring a key along, say that there is something else that must be understood, or change what is
/// signed. A token that has one is refused (RFC 8725 §3.10, RFC 7515 §4.1.11, RFC 7797).
const REFUSED: [&str; 6] = ["jwk", "jku", "x5u", "x5c", "crit", "b64"];

/// What is needed of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
}

impl Header {
    /// Reads a header whose `typ`, where it says one, is among `kinds`.
    ///
    /// # Errors
    /// It is no JSON object, has a name twice, a field that is refused, one of another type than it has to be, another
    /// `typ`, or an algorithm that is not known.
    pub(super) fn read(bytes: &[u8], kinds: &[&str]) -> Result<Self, TokenError> {
        let fields: Fields<'_> = serde_json::from_slice(bytes).map_err(|_| TokenError::Malformed)?;
        if fields.kind.is_some_and(|kind| !is_one_of(&kind, kinds)) {
            return Err(TokenError::Malformed);
        }
        let name = fields.algorithm.ok_or(TokenError::Malformed)?;
        let algorithm = Algorithm::named(&name).ok_or(TokenError::Algorithm)?;
        Ok(Self { algorithm, key_id: fields.key_id.map(Cow::into_owned) })
    }
}

/// A token that says it is something else, such as a logout token, must not be taken for an access token (RFC 8725
/// §3.11).
fn is_one_of(kind: &str, kinds: &[&str]) -> bool {
    let kind = kind.strip_prefix("application/").unwrap_or(kind);
    kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
}

#[derive(Default)]
struct Fields<'t> {
    algorithm: Option<Cow<'t, str>>,
    kind: Option<Cow<'t, str>>,
    key_id: Option<Cow<'t, str>>,
}

/// A text that is not copied where it has no escapes.
struct Text<'t>(Cow<'t, str>);

impl<'t> Deserialize<'t> for Text<'t> {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'t> Visitor<'t> for TextVisitor {
            type Value = Text<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Text<'t>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'t>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(TextVisitor)
    }
}

impl<'t> Deserialize<'t> for Fields<'t> {
    fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'t> Visitor<'t> for FieldsVisitor {
    type Value = Fields<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header without duplicate names")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut fields: A) -> Result<Fields<'t>, A::Error> {
        let mut read = Fields::default();
        let mut names = SmallVec::<[Cow<'t, str>; 4]>::new();
        while let Some(Text(name)) = fields.next_key()? {
            if names.contains(&name) || REFUSED.contains(&&*name) || names.len() == MAX_FIELDS {
                return Err(A::Error::custom("a name that is there twice, is refused, or is one too many"));
            }
            let text = match &*name {
                "alg" => Some(&mut read.algorithm),
                "typ" => Some(&mut read.kind),
                "kid" => Some(&mut read.key_id),
                _ => None,
            };
            match text {
                Some(place) => *place = Some(fields.next_value::<Text<'t>>()?.0),
                None => drop(fields.next_value::<Strict>()?),
            }
            names.push(name);
        }
        if read.key_id.as_ref().is_some_and(|id| id.len() > MAX_KEY_ID) {
            return Err(A::Error::custom("the key's id is too long"));
        }
        Ok(read)
    }
}
