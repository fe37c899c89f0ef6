//! Consumers' credentials at rest: what only has to be recognised is hashed, what a scheme needs in clear is encrypted
//! with a key that the database never sees.
//!
//! The plugin that checks a type of credential declares which ([`AtRest`]):
//!
//! - Hashed, such as `key_auth`'s: `{"key": …}` becomes `{"key_sha256": "<hex>"}`.
//! - Sealed, such as `basic_auth`'s unless it comes as `password_hash`, and every type that no plugin declares:
//!   `{"sealed": "v1:<key's name>:<base64>"}`.
//! - Clear, such as `mtls_auth`'s, which names an identity and is no secret.
//!
//! Sealing the same document twice gives the same text, so that putting a consumer again changes nothing: the nonce is
//! a keyed hash of what is encrypted and of where it stands.

mod keys;
pub mod plugin;

use std::borrow::Cow;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::config::credential::{AtRest, CredentialType, CredentialTypes};
use gateway_core::config::file;
use serde_json::{Map, Value, json};

pub use keys::{KEY_BYTES, Keys, MAX_KEYS};

/// Where an encrypted credential stands.
const SEALED: &str = "sealed";
/// Where the text of a plugin's secret is, within what is sealed.
const PLAIN: &str = "value";
/// What a credential is shown as.
const SHOWN: &str = "fingerprint";
/// The form of what is sealed.
const VERSION: &str = "v1";
/// Hexadecimal digits of a fingerprint.
const FINGERPRINT: usize = 12;

/// How a credential of this type is kept. Of a type that nobody declares nothing is known, so it is a secret.
fn at_rest(kind: Option<&CredentialType>) -> AtRest {
    kind.map_or(AtRest::Sealed(None), |kind| kind.at_rest)
}

/// Why credentials can't be kept or read. No text in it holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The document is none of a consumer.
    #[error("this is not a consumer: {0}")]
    Document(&'static str),
    /// The document is none of a plugin config.
    #[error("this is not a plugin config: {0}")]
    PluginConfig(&'static str),
    /// A setting of a plugin config, named by its place in `config`, can't be kept.
    #[error("`config{place}`: {cause}")]
    Setting {
        /// As a JSON pointer.
        place: String,
        /// Why.
        cause: &'static str,
    },
    /// A secret was to be kept while something changes that decides where it goes.
    #[error(
        "`config{0}` is bound to the server, code, header and list item that the settings named before, and does not go elsewhere"
    )]
    Moved(String),
    /// A credential is not such as can be kept.
    #[error("`{place}` has neither `{key}` alone nor `{hash}` alone, so it is no credential of this type")]
    Credential {
        /// Its type, and its number in a list, such as `key_auth[1]`.
        place: String,
        /// The name of the text.
        key: &'static str,
        /// The name of its hash.
        hash: &'static str,
    },
    /// Encryption is needed and there is no key for it.
    #[error("`{0}` has to be encrypted, and there is no key for it")]
    NoKey(String),
    /// What is stored as a hash can't be looked up later.
    #[error("`{0}` is stored as a hash, so it can't be a reference")]
    Reference(String),
    /// What was sealed can't be opened.
    #[error("`{name}` of `{consumer}` cannot be decrypted: {cause}")]
    Shut {
        /// Whose.
        consumer: String,
        /// Of what type.
        name: String,
        /// Why.
        cause: &'static str,
    },
    /// A key of the operator is none.
    #[error("encryption key {number} is not {KEY_BYTES} bytes in hexadecimal digits or base64")]
    Key {
        /// Which, counted from 1.
        number: usize,
    },
    /// There are too many keys, or none where there should be some.
    #[error("there are {0} encryption keys; 1 to {MAX_KEYS} are possible")]
    Keys(usize),
    /// The file with the keys can't be read.
    #[error("the file of FERRUM_DB_ENCRYPTION_KEY_FILE can't be read: {0}")]
    File(std::io::Error),
}

impl SealError {
    /// Which part of the object it is about, as a JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        match self {
            Self::Setting { place, .. } | Self::Moved(place) => format!("/config{place}"),
            Self::PluginConfig(_) => "/config".to_owned(),
            // Settings are named by their places, credentials by their types.
            Self::NoKey(name) | Self::Reference(name) | Self::Shut { name, .. } if name.starts_with('/') => {
                format!("/config{name}")
            }
            Self::NoKey(name) | Self::Reference(name) | Self::Shut { name, .. } => {
                format!("/credentials/{name}")
            }
            Self::Credential { place, .. } => {
                format!("/credentials/{}", place.replace('[', "/").trim_end_matches(']'))
            }
            _ => "/credentials".to_owned(),
        }
    }

    /// What to do about it, as a sentence without a full stop.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Document(_) | Self::PluginConfig(_) => "put a JSON object with an `id`",
            Self::Setting { .. } => "write the secret itself, or the fingerprint that is shown now",
            Self::Moved(_) => {
                "write the secret itself, together with what changes; with a reference, put a new plugin config"
            }
            Self::Credential { .. } => "put the text itself or its hash, and nothing beside it",
            Self::Reference(_) => "put the key itself; only its hash is stored",
            Self::NoKey(_) => {
                "set `FERRUM_DB_ENCRYPTION_KEY` to 32 random bytes, such as `openssl rand -base64 32` gives, on every gateway"
            }
            Self::Shut { .. } => {
                "add the key it was sealed with to `FERRUM_DB_ENCRYPTION_KEY`, or put the credential anew"
            }
            Self::Key { .. } | Self::Keys(_) => {
                "write keys as `openssl rand -base64 32` gives them, the newest first"
            }
            Self::File(_) => "check the path and that this user may read it",
        }
    }
}

/// A text that is encrypted for a place, such as the key of the fleet's authority. `None` without a key.
#[cfg(any(feature = "fleet", feature = "console"))]
pub(crate) fn seal_text(text: &str, place: &str, keys: &Keys) -> Option<String> {
    let (key, bytes) = keys.seal(text.as_bytes(), place.as_bytes())?;
    Some(format!("{VERSION}:{key}:{}", STANDARD.encode(bytes)))
}

/// The text that [`seal_text`] encrypted.
///
/// # Errors
/// Why it can't be decrypted.
#[cfg(any(feature = "fleet", feature = "console"))]
pub(crate) fn open_text(sealed: &str, place: &str, keys: &Keys) -> Result<String, &'static str> {
    let unreadable = "it is not what was encrypted";
    let (key, bytes) = sealed
        .strip_prefix(VERSION)
        .and_then(|rest| rest.strip_prefix(':')?.split_once(':'))
        .ok_or(unreadable)?;
    let bytes = STANDARD.decode(bytes).map_err(|_| unreadable)?;
    String::from_utf8(keys.open(key, bytes, place.as_bytes())?).map_err(|_| unreadable)
}

/// A consumer's document with its credentials hashed and encrypted. What is so already stays, and what was encrypted
/// with an older key is encrypted with the first.
///
/// # Errors
/// [`SealError::NoKey`] when something needs a key and there is none; [`SealError::Document`]; [`SealError::Shut`].
pub fn seal(document: &str, types: &CredentialTypes, keys: &Keys) -> Result<String, SealError> {
    let mut consumer = Consumer::read(document)?;
    let id = consumer.id.clone();
    consumer.each(|name, credential| {
        let kind = types.find(name);
        let key = kind.map_or(PLAIN, |kind| kind.key);
        let fields = match credential.take() {
            Value::Object(fields) => fields,
            plain => Map::from_iter([(key.to_owned(), plain)]),
        };
        *credential = Value::Object(match at_rest(kind) {
            AtRest::Clear => fields,
            AtRest::Hashed(into) => {
                let fields = literal(fields).ok_or_else(|| SealError::Reference(name.to_owned()))?;
                hashed(&fields, key, into)?
            }
            AtRest::Sealed(open)
                if open.is_some_and(|open| fields.len() == 1 && fields.contains_key(open)) =>
            {
                fields
            }
            AtRest::Sealed(_) => {
                let place = SealContext { consumer: &id, name: canonical(kind, name) };
                let fields = if is_sealed(&fields) { opened(&fields, place, keys)? } else { fields };
                let text = Value::Object(fields).to_string();
                let bytes = keys.seal(text.as_bytes(), &place.bytes());
                let (key, bytes) = bytes.ok_or_else(|| SealError::NoKey(name.to_owned()))?;
                let sealed = format!("{VERSION}:{key}:{}", STANDARD.encode(bytes));
                Map::from_iter([(SEALED.to_owned(), Value::String(sealed))])
            }
        });
        Ok(())
    })?;
    Ok(consumer.document.to_string())
}

/// A consumer's document with what was encrypted in clear again, for those who check credentials. Hashes stay.
///
/// # Errors
/// [`SealError::Shut`] when a key is missing or somebody changed what was sealed or moved it to another consumer or
/// type; [`SealError::Document`].
pub fn unseal<'a>(
    document: &'a str,
    types: &CredentialTypes,
    keys: &Keys,
) -> Result<Cow<'a, str>, SealError> {
    // Most have nothing sealed. One that hides the word behind escapes stays shut, and is then no valid credential.
    if !document.contains("\"sealed\"") {
        return Ok(Cow::Borrowed(document));
    }
    let mut consumer = Consumer::read(document)?;
    let id = consumer.id.clone();
    consumer.each(|name, credential| {
        if let Value::Object(fields) = credential
            && is_sealed(fields)
        {
            let place = SealContext { consumer: &id, name: canonical(types.find(name), name) };
            *fields = opened(fields, place, keys)?;
        }
        Ok(())
    })?;
    Ok(Cow::Owned(consumer.document.to_string()))
}

/// A stored consumer's document for everybody's eyes: instead of each credential stands a fingerprint, by which two can
/// be told apart and nothing else be learned.
///
/// # Errors
/// [`SealError::Document`]; such a document must not be shown.
pub fn redact(document: &str) -> Result<String, SealError> {
    let mut consumer = Consumer::read(document)?;
    consumer.each(|_, credential| {
        *credential = json!({ SHOWN: fingerprint(credential) });
        Ok(())
    })?;
    Ok(consumer.document.to_string())
}

/// A consumer's document as somebody wants it, in which fingerprints stand for credentials of the `stored` one: these
/// are put in their places, so that what was read can be changed and written back.
///
/// # Errors
/// [`SealError::Document`], also when a fingerprint is none of the stored credentials'.
pub fn retain(document: &str, stored: &str, types: &CredentialTypes) -> Result<String, SealError> {
    let mut known: Vec<(String, String, Value)> = Vec::new();
    Consumer::read(stored)?.each(|name, credential| {
        let mark = fingerprint(credential);
        known.push((canonical(types.find(name), name).to_owned(), mark, credential.take()));
        Ok(())
    })?;
    let mut consumer = Consumer::read(document)?;
    consumer.each(|name, credential| {
        let Some(mark) = credential.get(SHOWN).and_then(Value::as_str) else { return Ok(()) };
        let name = canonical(types.find(name), name);
        let found = known.iter().find(|(of, it, _)| of == name && it == mark);
        let (_, _, kept) = found.ok_or(SealError::Document("a fingerprint is none of its credentials'"))?;
        *credential = kept.clone();
        Ok(())
    })?;
    Ok(consumer.document.to_string())
}

/// Texts as they are meant; `None` when one is a reference, which is answered only later.
fn literal(mut fields: Map<String, Value>) -> Option<Map<String, Value>> {
    for value in fields.values_mut() {
        if let Value::String(text) = value {
            *text = file::literal(text)?;
        }
    }
    Some(fields)
}

/// A consumer as a JSON document.
struct Consumer {
    id: String,
    document: Value,
}

impl Consumer {
    fn read(document: &str) -> Result<Self, SealError> {
        let document: Value =
            serde_json::from_str(document).map_err(|_| SealError::Document("it is no JSON"))?;
        let id = document.get("id").and_then(Value::as_str).ok_or(SealError::Document("it has no `id`"))?;
        Ok(Self { id: id.to_owned(), document })
    }

    /// Hands each credential to `work` with its type, those of a list one by one.
    fn each(
        &mut self,
        mut work: impl FnMut(&str, &mut Value) -> Result<(), SealError>,
    ) -> Result<(), SealError> {
        let credentials = match self.document.get_mut("credentials") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(credentials)) => credentials,
            Some(_) => return Err(SealError::Document("its `credentials` are no object")),
        };
        let mut at = |name: &str, number: Option<usize>, value: &mut Value| {
            work(name, value).map_err(|error| match error {
                SealError::Credential { key, hash, .. } => {
                    let number = number.map(|n| format!("[{n}]")).unwrap_or_default();
                    SealError::Credential { place: format!("{name}{number}"), key, hash }
                }
                other => other,
            })
        };
        for (name, value) in credentials {
            match value {
                Value::Array(values) => {
                    values.iter_mut().enumerate().try_for_each(|(n, value)| at(name, Some(n), value))?;
                }
                value => at(name, None, value)?,
            }
        }
        Ok(())
    }
}

/// What a sealed credential is bound to.
#[derive(Clone, Copy)]
struct SealContext<'a> {
    consumer: &'a str,
    name: &'a str,
}

impl SealContext<'_> {
    fn bytes(self) -> Vec<u8> {
        // Neither part can hold a NUL, so no two places are the same bytes.
        [VERSION.as_bytes(), b"\0", self.consumer.as_bytes(), b"\0", self.name.as_bytes()].concat()
    }
}

/// The type's one spelling.
fn canonical<'a>(kind: Option<&'static CredentialType>, name: &'a str) -> &'a str {
    kind.map_or(name, |kind| kind.name)
}

/// The hash of what stands at `key`, or the hash that stands there already; anything else might be a secret under a
/// wrong name and is refused.
fn hashed(
    fields: &Map<String, Value>,
    key: &'static str,
    into: &'static str,
) -> Result<Map<String, Value>, SealError> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|_| fields.len() == 1);
    let hash = match (text(key), text(into)) {
        (Some(secret), _) => sha256(secret.as_bytes()),
        (_, Some(hash)) if is_hash(hash) => hash.to_ascii_lowercase(),
        // Where it stands is known by who looks through the document.
        _ => return Err(SealError::Credential { place: String::new(), key, hash: into }),
    };
    Ok(Map::from_iter([(into.to_owned(), Value::String(hash))]))
}

fn is_hash(text: &str) -> bool {
    text.len() == 2 * digest::SHA256_OUTPUT_LEN && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

pub(crate) fn is_sealed(fields: &Map<String, Value>) -> bool {
    fields.contains_key(SEALED)
}

fn opened(
    fields: &Map<String, Value>,
    place: SealContext<'_>,
    keys: &Keys,
) -> Result<Map<String, Value>, SealError> {
    let shut =
        |cause| SealError::Shut { consumer: place.consumer.to_owned(), name: place.name.to_owned(), cause };
    let sealed = fields.get(SEALED).and_then(Value::as_str).ok_or_else(|| shut("it is not text"))?;
    let mut parts = sealed.splitn(3, ':');
    let (Some(VERSION), Some(key), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(shut("it has another form"));
    };
    if fields.len() != 1 {
        return Err(shut("something else stands beside it"));
    }
    let bytes = STANDARD.decode(bytes).map_err(|_| shut("it is no base64"))?;
    let plain = keys.open(key, bytes, &place.bytes()).map_err(shut)?;
    match serde_json::from_slice(&plain) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(shut("its content is not a credential")),
    }
}

/// A secret of a plugin config, opened.
fn open_value(fields: &Map<String, Value>, id: &str, place: &str, keys: &Keys) -> Result<Value, SealError> {
    let fields = opened(fields, SealContext { consumer: id, name: place }, keys)?;
    fields.get(PLAIN).cloned().ok_or(SealError::PluginConfig("what was sealed has another form"))
}

/// A secret of a plugin config, sealed to its id and place.
fn seal_value(plain: &Value, id: &str, place: &str, keys: &Keys) -> Result<Map<String, Value>, SealError> {
    let text = json!({ PLAIN: plain }).to_string();
    let bytes = keys.seal(text.as_bytes(), &SealContext { consumer: id, name: place }.bytes());
    let (key, bytes) = bytes.ok_or_else(|| SealError::NoKey(place.to_owned()))?;
    let sealed = format!("{VERSION}:{key}:{}", STANDARD.encode(bytes));
    Ok(Map::from_iter([(SEALED.to_owned(), Value::String(sealed))]))
}

fn fingerprint(credential: &Value) -> String {
    // Dumps with fingerprints are applied again later, so what they are made of never changes.
    let of = ["key_sha256", SEALED].into_iter().find_map(|field| credential.get(field)?.as_str());
    // What is neither is hashed as a whole: a password's hash or an identity. A plain secret is never stored.
    let of = of.map_or_else(|| Cow::Owned(credential.to_string()), Cow::Borrowed);
    sha256(of.as_bytes()).chars().take(FINGERPRINT).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests;
