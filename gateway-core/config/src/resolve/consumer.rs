//! A consumer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Notes, words};
use crate::consumer::digest;
use crate::credential::{CredentialType, CredentialTypes};
use crate::file;
use crate::model::{Consumer, Credential, Digest, Secret};
use crate::problem::Problems;

/// Credentials of one type a consumer may have: one in use, and others while they are rotated.
const MAX_CREDENTIALS: usize = 8;
/// Bytes of a consumer's credentials, as JSON.
const MAX_CREDENTIAL_BYTES: usize = 64 << 10;
/// Bytes of one text in a credential.
const MAX_TEXT: usize = 4096;
/// Resolves a consumer that stands at `at`, with credentials of these types. Where the types aren't known, its credentials
/// are left out.
///
/// # Errors
/// Every problem in it, without a word of its secrets.
pub fn consumer(
    written: &file::Consumer,
    at: &str,
    types: Option<&CredentialTypes>,
) -> Result<Consumer, Problems> {
    let mut notes = Notes::new(at);
    let id = words::id(&mut notes, written.id.as_deref());
    let username = words::label(written.username.as_ref());
    if username.is_none() {
        notes.add("", "`username` is missing").remedy =
            Some("write the name by which plugins such as `access_control` know it".to_owned());
    }
    let credentials =
        types.map(|types| credentials(&mut notes, &written.credentials, types)).unwrap_or_default();
    let (Some(id), Some(username), true) = (id, username, notes.problems.is_empty()) else {
        return Err(notes.problems);
    };
    Ok(Consumer {
        id,
        username,
        custom_id: words::label(written.custom_id.as_ref()),
        acl_groups: written.acl_groups.iter().map(|group| Arc::from(group.as_str())).collect(),
        credentials,
    })
}

fn credentials(
    notes: &mut Notes<'_>,
    written: &BTreeMap<String, Value>,
    types: &CredentialTypes,
) -> Box<[Credential]> {
    let bytes: usize = written.values().map(|value| value.to_string().len()).sum();
    if bytes > MAX_CREDENTIAL_BYTES {
        notes.add("credentials", format!("these have more than {MAX_CREDENTIAL_BYTES} bytes"));
        return Box::default();
    }
    let mut resolved: Vec<Credential> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in written {
        let at = format!("credentials.{name}");
        let Some(kind) = types.find(name) else {
            let names = types.iter().map(|kind| kind.name);
            let near = words::did_you_mean(name, names.clone());
            notes.add(&at, format!("there are no credentials of type `{name}`")).remedy =
                near.or_else(|| Some(format!("one of: {}", names.collect::<Vec<_>>().join(", "))));
            continue;
        };
        if seen.contains(&kind.name) {
            notes.add(&at, format!("`{}` is listed here under another name", kind.name)).remedy =
                Some("keep one of the two".to_owned());
            continue;
        }
        seen.push(kind.name);
        match value {
            Value::Array(values) => resolved.extend(list(notes, &at, values, kind)),
            value => resolved.extend(credential(notes, &at, value, kind)),
        }
    }
    resolved.into()
}

fn list(notes: &mut Notes<'_>, at: &str, values: &[Value], kind: &'static CredentialType) -> Vec<Credential> {
    if values.is_empty() || values.len() > MAX_CREDENTIALS {
        notes.add(at, format!("there are {} of them", values.len())).remedy =
            Some(format!("1 to {MAX_CREDENTIALS}, or leave it out"));
    }
    let each = values.iter().take(MAX_CREDENTIALS).enumerate();
    each.filter_map(|(n, value)| credential(notes, &format!("{at}[{n}]"), value, kind)).collect()
}

fn credential(
    notes: &mut Notes<'_>,
    at: &str,
    value: &Value,
    kind: &'static CredentialType,
) -> Option<Credential> {
    let fields = match value {
        Value::String(text) => Map::from_iter([(kind.key.to_owned(), Value::String(text.clone()))]),
        Value::Object(fields) => fields.clone(),
        _ => {
            notes.add(at, "this is not a credential").remedy =
                Some(format!("`{{{}: …}}`, in quotes", kind.key));
            return None;
        }
    };
    let before = notes.problems.count();
    for (name, value) in &fields {
        let known = std::iter::once(&kind.key).chain(kind.instead).chain(kind.optional).any(|it| it == name);
        let at = format!("{at}.{name}");
        match value.as_str() {
            _ if !known => {
                notes.add(&at, format!("unknown key `{name}`")).remedy =
                    Some(format!("the key is `{}`", kind.key));
            }
            None => notes.add(&at, "expected a string").remedy = Some("put it in quotes".to_owned()),
            Some(text) if text.len() > MAX_TEXT => {
                notes.add(&at, format!("this has more than {MAX_TEXT} bytes"));
            }
            Some(text) if name == kind.key && text.len() < kind.min_bytes => {
                notes
                    .add(&at, format!("this has {} bytes, fewer than {}", text.len(), kind.min_bytes))
                    .remedy = Some("use a longer, random one".to_owned());
            }
            Some(text) => {
                if let Some(wrong) = (kind.check)(name, text) {
                    notes.add(&at, wrong);
                }
            }
        }
    }
    let given =
        std::iter::once(&kind.key).chain(kind.instead).filter(|key| fields.contains_key(**key)).count();
    if given != 1 {
        let message = if given == 0 { "`{}` is missing" } else { "only one of `{}` is allowed" };
        let keys: Vec<&str> = std::iter::once(kind.key).chain(kind.instead.iter().copied()).collect();
        notes.add(at, message.replace("{}", &keys.join("` or `")));
    }
    if notes.problems.count() > before {
        return None;
    }
    if !kind.is_unique {
        return Some(Credential::Secret { kind, secret: Box::new(Secret(Value::Object(fields))) });
    }
    let digest = match fields.get(kind.key).and_then(Value::as_str) {
        Some(text) => Some(digest(text.as_bytes())),
        None => fields.values().next().and_then(Value::as_str).and_then(hex),
    };
    if digest.is_none() {
        notes.add(at, "this is not a SHA-256").remedy = Some("64 hexadecimal digits".to_owned());
    }
    Some(Credential::Digest { kind, digest: digest? })
}

/// The digest that 64 hexadecimal digits stand for.
fn hex(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    if digits.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}
