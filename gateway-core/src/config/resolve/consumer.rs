//! A consumer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Notes, words};
use crate::config::file;
use crate::config::model::{Consumer, Secret};
use crate::config::problem::Problems;

/// Credentials of one type a consumer may have: one in use, and others while they are rotated.
const MAX_CREDENTIALS: usize = 8;
/// Bytes of a consumer's credentials, as JSON.
const MAX_CREDENTIAL_BYTES: usize = 64 << 10;
/// Bytes of one text in a credential.
const MAX_TEXT: usize = 4096;
/// Bytes a shared secret must have: as many as the HMAC-SHA-256 it keys gives (RFC 7518 §3.2).
const MIN_SECRET: usize = 32;

/// A type of credential the configuration knows.
#[derive(Debug)]
pub struct CredentialType {
    /// As the plugin is called that checks it, which is how it stands in a [`Consumer`].
    pub name: &'static str,
    /// What else it may be called.
    pub also: &'static [&'static str],
    /// What a plain text stands for.
    pub key: &'static str,
    /// What may stand instead of [`Self::key`].
    pub or: &'static [&'static str],
    /// No two consumers may have the same.
    pub unique: bool,
    /// Fewest bytes of the key's text.
    pub min_bytes: usize,
}

/// Every type of credential.
pub const CREDENTIALS: &[CredentialType] = &[
    CredentialType { name: "key_auth", also: &["keyauth"], key: "key", or: &[], unique: true, min_bytes: 1 },
    CredentialType {
        name: "basic_auth",
        also: &["basicauth"],
        key: "password",
        or: &["password_hash"],
        unique: false,
        min_bytes: 1,
    },
    CredentialType {
        name: "jwt_auth",
        also: &["jwt", "jwtauth"],
        key: "secret",
        or: &[],
        unique: false,
        min_bytes: MIN_SECRET,
    },
    CredentialType {
        name: "hmac_auth",
        also: &["hmacauth"],
        key: "secret",
        or: &[],
        unique: false,
        min_bytes: 1,
    },
    CredentialType {
        name: "mtls_auth",
        also: &["mtlsauth"],
        key: "identity",
        or: &[],
        unique: true,
        min_bytes: 1,
    },
];

/// Resolves a consumer that stands at `at`.
///
/// # Errors
/// Every problem in it, without a word of its secrets.
pub fn consumer(written: &file::Consumer, at: &str) -> Result<Consumer, Problems> {
    let mut notes = Notes::new(at);
    let id = words::id(&mut notes, written.id.as_deref());
    words::namespace(&mut notes, written.namespace.as_deref());
    let username = words::label(written.username.as_ref());
    if username.is_none() {
        notes.add("", "`username` is missing").remedy =
            Some("write the name by which plugins such as `access_control` know it".to_owned());
    }
    let credentials = credentials(&mut notes, &written.credentials);
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

fn credentials(notes: &mut Notes<'_>, written: &BTreeMap<String, Value>) -> BTreeMap<String, Vec<Secret>> {
    let bytes: usize = written.values().map(|value| value.to_string().len()).sum();
    if bytes > MAX_CREDENTIAL_BYTES {
        notes.add("credentials", format!("these have more than {MAX_CREDENTIAL_BYTES} bytes"));
        return BTreeMap::new();
    }
    let mut resolved: BTreeMap<String, Vec<Secret>> = BTreeMap::new();
    for (name, value) in written {
        let at = format!("credentials.{name}");
        let Some(kind) =
            CREDENTIALS.iter().find(|kind| kind.name == name || kind.also.contains(&name.as_str()))
        else {
            let names = CREDENTIALS.iter().map(|kind| kind.name);
            let near = words::did_you_mean(name, names.clone());
            notes.add(&at, format!("there are no credentials of type `{name}`")).remedy =
                near.or_else(|| Some(format!("one of: {}", names.collect::<Vec<_>>().join(", "))));
            continue;
        };
        if resolved.contains_key(kind.name) {
            notes.add(&at, format!("`{}` stands here in another spelling", kind.name)).remedy =
                Some("keep one of the two".to_owned());
            continue;
        }
        let secrets = match value {
            Value::Array(values) => list(notes, &at, values, kind),
            value => secret(notes, &at, value, kind).into_iter().collect(),
        };
        resolved.insert(kind.name.to_owned(), secrets);
    }
    resolved
}

fn list(notes: &mut Notes<'_>, at: &str, values: &[Value], kind: &CredentialType) -> Vec<Secret> {
    if values.is_empty() || values.len() > MAX_CREDENTIALS {
        notes.add(at, format!("there are {} of them", values.len())).remedy =
            Some(format!("1 to {MAX_CREDENTIALS}, or leave it out"));
    }
    let each = values.iter().take(MAX_CREDENTIALS).enumerate();
    each.filter_map(|(n, value)| secret(notes, &format!("{at}[{n}]"), value, kind)).collect()
}

fn secret(notes: &mut Notes<'_>, at: &str, value: &Value, kind: &CredentialType) -> Option<Secret> {
    let fields = match value {
        Value::String(text) => Map::from_iter([(kind.key.to_owned(), Value::String(text.clone()))]),
        Value::Object(fields) => fields.clone(),
        _ => {
            notes.add(at, "this is not a credential").remedy =
                Some(format!("`{{{}: …}}`, in quotes", kind.key));
            return None;
        }
    };
    let before = notes.problems.0.len();
    for (name, value) in &fields {
        let known = name == kind.key || kind.or.contains(&name.as_str());
        let at = format!("{at}.{name}");
        match value.as_str() {
            _ if !known => {
                notes.add(&at, "this key is not known").remedy = Some(format!("the key is `{}`", kind.key));
            }
            None => notes.add(&at, "this has to be text").remedy = Some("put it in quotes".to_owned()),
            Some(text) if text.len() > MAX_TEXT => {
                notes.add(&at, format!("this has more than {MAX_TEXT} bytes"));
            }
            Some(text) if name == kind.key && text.len() < kind.min_bytes => {
                notes
                    .add(&at, format!("this has {} bytes, fewer than {}", text.len(), kind.min_bytes))
                    .remedy = Some("a longer one, made by chance".to_owned());
            }
            Some(_) => {}
        }
    }
    let given = std::iter::once(&kind.key).chain(kind.or).filter(|key| fields.contains_key(**key)).count();
    if given != 1 {
        let message = if given == 0 { "`{}` is missing" } else { "only one of `{}` may stand here" };
        let keys: Vec<&str> = std::iter::once(kind.key).chain(kind.or.iter().copied()).collect();
        notes.add(at, message.replace("{}", &keys.join("` or `")));
    }
    (notes.problems.0.len() == before).then_some(Secret(Value::Object(fields)))
}
