//! Secrets in plugins' settings at rest and in answers.
//!
//! A setting is a secret by what it is, so that it is hidden also where the plugin is unknown or the document is broken: by its
//! name ([`is_secret`]), as a header or parameter that carries credentials, as a header of an exporter or a variable of a module's
//! environment, which may be called anything, or as a URL with credentials in it. At rest it is
//! `{"sealed": "v1:<key's name>:<base64>"}`, bound to the plugin config and to its place in it; in answers it is
//! `{"fingerprint": "…"}`, which may be written back.

mod binding;

use std::borrow::Cow;

use gateway_core::http::credentials::{is_credential_field, is_credential_parameter, is_credential_url};
use http::HeaderName;
use serde_json::{Map, Value, json};

pub use binding::check_binding;

use super::{FINGERPRINT, Keys, SEALED, SHOWN, SealError, fingerprint, is_sealed, open_value, seal_value};

/// Names of secrets, and endings of them after a `_`.
const SECRETS: &[&str] = &[
    "access_key",
    "api_key",
    "apikey",
    "encryption_key",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "private_key",
    "secret",
    "secret_key",
    "secrets",
    "session_key",
    "signing_key",
    "token",
    "tokens",
];
/// Maps of which every value is a secret, by the ends of their places: headers of an exporter, and a module's environment.
const SECRET_MAPS: &[&str] = &["/exporter/headers", "/environment"];
/// Settings that code is given as they are.
const SETTINGS_OF_CODE: &[&str] = &["settings", "vm_settings"];
/// Levels of a plugin's settings that are looked into; what lies deeper is refused.
const MAX_DEPTH: usize = 32;

/// Whether a setting of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    is_one_of(SECRETS, &snake_case(name))
}

/// A name as settings have theirs: `apiKey` and `API-KEY` are `api_key`.
fn snake_case(name: &str) -> String {
    let mut plain = String::with_capacity(name.len() + 4);
    let mut before = '_';
    for c in name.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            plain.push('_');
        }
        plain.push(if c == '-' || c == '.' { '_' } else { c.to_ascii_lowercase() });
        before = c;
    }
    plain
}

/// Whether the name is one of these, or ends with one after a `_`.
fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| {
        name.strip_suffix(known).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

/// A place without the `previous_` of its setting: a secret may become the previous one.
fn previous_of(place: &str) -> Cow<'_, str> {
    match place.rsplit_once('/') {
        Some(("", name)) => {
            name.strip_prefix("previous_").map_or_else(|| place.into(), |name| format!("/{name}").into())
        }
        _ => place.into(),
    }
}

/// Whether a header, parameter or field of a body with this name carries a credential.
fn is_credential(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    is_secret(name)
        || is_credential_parameter(name)
        || HeaderName::try_from(name).is_ok_and(|name| is_credential_field(&name))
}

/// Whether the setting `name` of these holds a secret. `place` is theirs.
fn holds_secret(fields: &Map<String, Value>, place: &str, name: &str) -> bool {
    let Some(value) = fields.get(name) else { return false };
    let is_literal = || !value.as_str().is_some_and(is_one_variable);
    let parent = place.rsplit('/').next().unwrap_or_default();
    // There names are claims, and values are names of headers.
    let is_of_claims = parent.ends_with("_to_headers");
    let is_of_headers = is_one_of(&["headers"], parent);
    let is_of_code = SETTINGS_OF_CODE.iter().any(|settings| place.split('/').nth(1) == Some(settings));
    is_secret_value(value)
        || is_secret(name) && !is_of_claims && (!is_of_headers || is_literal())
        || SECRET_MAPS.iter().any(|map| place.ends_with(map))
        // Any text that code is given, and in a map of them what its name says.
        || place.is_empty() && SETTINGS_OF_CODE.contains(&name) && value.is_string()
        || is_of_code && is_leaf(value) && (is_credential(name) || snake_case(name).ends_with("_key"))
        || is_of_headers && !is_of_claims && is_credential(name) && is_leaf(value) && is_literal()
        // A rule that writes such a header, parameter or field of a body.
        || name == "value" && is_literal() && ["key", "name"].iter().any(|field| {
            fields.get(*field).and_then(Value::as_str).is_some_and(is_credential)
        })
}

/// Whether a value is a secret whatever it is called: what stands for one, or a URL with a credential in it.
fn is_secret_value(value: &Value) -> bool {
    match value {
        Value::String(text) => is_credential_url(&without_variables(text)),
        Value::Object(fields) if fields.len() == 1 => {
            let text = |name| fields.get(name).and_then(Value::as_str);
            text(SEALED).is_some_and(|text| text.starts_with("v1:"))
                || text(SHOWN).is_some_and(|mark| {
                    mark.len() == FINGERPRINT && mark.bytes().all(|digit| digit.is_ascii_hexdigit())
                })
        }
        _ => false,
    }
}

/// A text without its variables, whose values come from elsewhere.
fn without_variables(text: &str) -> String {
    let mut pieces = text.split("${");
    let mut rest = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once('}').filter(|(name, _)| !name.contains(":-")) {
            Some((_, after)) => rest.push_str(after),
            None => rest.extend(["${", piece]),
        }
    }
    rest
}

/// A template that takes its whole value from elsewhere, and has no text of its own that could be a secret: no default either.
fn is_one_variable(text: &str) -> bool {
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|name| !name.contains(['{', '}']) && !name.contains(":-"))
}

/// A text, or what is kept or shown in its place.
fn is_leaf(value: &Value) -> bool {
    let stands_for_text = |fields: &Map<String, Value>| is_sealed(fields) || fields.contains_key(SHOWN);
    value.is_string() || value.as_object().is_some_and(stands_for_text)
}

/// A plugin config's document with its secrets encrypted. A document without secrets needs no key. Without a key, secrets that the
/// `stored` one has in the clear stay so: whoever lost the key, or never had one, can still switch a plugin off.
///
/// # Errors
/// [`SealError::NoKey`], [`SealError::PluginConfig`], [`SealError::Shut`].
pub fn seal(document: &str, stored: Option<&str>, keys: &Keys) -> Result<String, SealError> {
    let mut clear: Vec<Value> = Vec::new();
    if let Some(stored) = stored.filter(|_| keys.is_empty()) {
        let all = changed(stored, |_, _, value| {
            clear.extend(Some(&*value).filter(|value| !value.as_object().is_some_and(is_sealed)).cloned());
            Ok(())
        });
        // What is damaged is being repaired.
        drop(all);
    }
    changed(document, |id, place, value| {
        if clear.contains(value) {
            tracing::warn!(
                plugin_config = id,
                place,
                "a secret stays in the database in the clear: there is no key"
            );
            return Ok(());
        }
        let plain = match value.as_object().filter(|fields| is_sealed(fields)) {
            Some(fields) => open_value(fields, id, place, keys)?,
            None => value.take(),
        };
        *value = Value::Object(seal_value(&plain, id, place, keys)?);
        Ok(())
    })
}

/// A plugin config's document with its secrets in the clear, to be checked and built.
///
/// # Errors
/// [`SealError::Shut`] when a key is missing or something was changed or moved; [`SealError::PluginConfig`].
pub fn unseal(document: &str, keys: &Keys) -> Result<String, SealError> {
    changed(document, |id, place, value| {
        if let Value::Object(fields) = value
            && is_sealed(fields)
        {
            *value = open_value(fields, id, place, keys)?;
        }
        Ok(())
    })
}

/// A plugin config's document for answers: a fingerprint stands for each secret.
///
/// # Errors
/// [`SealError::PluginConfig`]; such a document must not be shown.
pub fn redact(document: &str) -> Result<String, SealError> {
    changed(document, |_, _, value| {
        *value = json!({ SHOWN: fingerprint(value) });
        Ok(())
    })
}

/// The settings of a plugin, in the clear, for answers.
pub fn redact_settings(mut settings: Value) -> Value {
    let hide = |_: &str, value: &mut Value| {
        *value = json!({ SHOWN: fingerprint(value) });
        Ok(())
    };
    match walk(&mut settings, &mut String::new(), 0, &mut { hide }) {
        Ok(()) => settings,
        Err(_) => Value::Null,
    }
}

/// A plugin config's document in which fingerprints stand for secrets of the `stored` one: these are put in their places. Items of
/// a list may change places, and a secret may become the previous one; else a fingerprint counts only where it was shown.
///
/// # Errors
/// [`SealError::PluginConfig`]; [`SealError::Setting`] when a fingerprint is none of the stored secrets'; [`SealError::Shut`] when
/// one that goes to another place can't be opened.
pub fn retain(document: &str, stored: &str, keys: &Keys) -> Result<String, SealError> {
    let mut known: Vec<(String, String, Value)> = Vec::new();
    changed(stored, |_, place, value| {
        known.push((fingerprint(value), place.to_owned(), value.clone()));
        Ok(())
    })?;
    changed(document, |id, place, value| {
        let Some(mark) = value.get(SHOWN).and_then(Value::as_str) else { return Ok(()) };
        let known = || known.iter().filter(|(of, ..)| of == mark);
        let found = known().find(|(_, from, _)| from == place);
        let found =
            found.or_else(|| known().find(|(_, from, _)| binding::setting(from) == binding::setting(place)));
        let cause = "the fingerprint is none of the stored secrets'";
        let (_, from, kept) = found.ok_or_else(|| SealError::Setting { place: place.to_owned(), cause })?;
        *value = match kept.as_object().filter(|fields| is_sealed(fields) && from != place) {
            // It is bound to the place it had.
            Some(fields) => Value::Object(seal_value(&open_value(fields, id, from, keys)?, id, place, keys)?),
            None => kept.clone(),
        };
        Ok(())
    })
}

/// The document, each secret of its `config` changed by `work`, which gets the id, the secret's place and the secret.
fn changed(
    document: &str,
    mut work: impl FnMut(&str, &str, &mut Value) -> Result<(), SealError>,
) -> Result<String, SealError> {
    let mut read: Value =
        serde_json::from_str(document).map_err(|_| SealError::PluginConfig("it is not JSON"))?;
    let id =
        read.get("id").and_then(Value::as_str).ok_or(SealError::PluginConfig("it has no `id`"))?.to_owned();
    let Some(config) = read.get_mut("config") else { return Ok(document.to_owned()) };
    let mut touched = false;
    walk(config, &mut String::new(), 0, &mut |place: &str, value: &mut Value| {
        touched = true;
        work(&id, place, value)
    })?;
    Ok(if touched { read.to_string() } else { document.to_owned() })
}

/// Hands each secret to `work`, with its place.
fn walk(
    value: &mut Value,
    place: &mut String,
    depth: usize,
    work: &mut impl FnMut(&str, &mut Value) -> Result<(), SealError>,
) -> Result<(), SealError> {
    if depth > MAX_DEPTH {
        return Err(SealError::PluginConfig("its settings are nested too deeply"));
    }
    let length = place.len();
    match value {
        Value::Object(fields) => each_field(fields, place, depth, work)?,
        Value::Array(values) => {
            for (n, value) in values.iter_mut().enumerate() {
                place.push_str(&format!("/{n}"));
                if is_secret_value(value) {
                    work(place, value)?;
                } else {
                    walk(value, place, depth + 1, work)?;
                }
                place.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

fn each_field(
    fields: &mut Map<String, Value>,
    place: &mut String,
    depth: usize,
    work: &mut impl FnMut(&str, &mut Value) -> Result<(), SealError>,
) -> Result<(), SealError> {
    let length = place.len();
    let secrets: Vec<bool> = fields.keys().map(|name| holds_secret(fields, place, name)).collect();
    for ((name, value), is_secret) in fields.iter_mut().zip(secrets) {
        place.push('/');
        place.push_str(name);
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            value if is_secret => work(place, value)?,
            value => walk(value, place, depth + 1, work)?,
        }
        place.truncate(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
