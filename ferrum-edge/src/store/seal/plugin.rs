//! Secrets in plugins' settings at rest and in answers.
//!
//! A setting is a secret by its name ([`is_secret`]), so that it is hidden also where the plugin is unknown or the
//! document is broken. At rest it is `{"sealed": "v1:<key's name>:<base64>"}`, bound to the plugin config and to its
//! place in it; in answers it is `{"fingerprint": "…"}`, which may be written back.

use serde_json::{Map, Value, json};

use super::{Keys, SHOWN, SealError, fingerprint, is_sealed, open_value, seal_value};

/// Names of secrets, and endings of them after a `_`.
const SECRETS: &[&str] = &[
    "secret",
    "secrets",
    "password",
    "passwords",
    "token",
    "tokens",
    "private_key",
    "api_key",
    "signing_key",
    "encryption_key",
    "session_key",
];
/// Levels of a plugin's settings that are looked into; what lies deeper is refused.
const MAX_DEPTH: usize = 32;

/// Whether a setting of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| {
        name.strip_suffix(secret).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

/// A plugin config's document with its secrets encrypted. A document without secrets needs no key.
///
/// # Errors
/// [`SealError::NoKey`], [`SealError::Document`], [`SealError::Shut`].
pub fn seal(document: &str, keys: &Keys) -> Result<String, SealError> {
    changed(document, |id, place, value| {
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
/// [`SealError::Shut`] when a key is missing or something was changed or moved; [`SealError::Document`].
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
/// [`SealError::Document`]; such a document must not be shown.
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

/// A plugin config's document in which fingerprints stand for secrets of the `stored` one: these are put in their places.
///
/// # Errors
/// [`SealError::Document`], also when a fingerprint is none of the stored secrets'.
pub fn retain(document: &str, stored: &str) -> Result<String, SealError> {
    let mut known: Vec<(String, Value)> = Vec::new();
    changed(stored, |_, _, value| {
        known.push((fingerprint(value), value.clone()));
        Ok(())
    })?;
    changed(document, |_, _, value| {
        let Some(mark) = value.get(SHOWN).and_then(Value::as_str) else { return Ok(()) };
        let found = known.iter().find(|(of, _)| of == mark);
        let (_, kept) = found.ok_or(SealError::Document("a fingerprint matches none of its secrets"))?;
        *value = kept.clone();
        Ok(())
    })
}

/// The document, each secret of its `config` changed by `work`, which gets the id, the secret's place and the secret.
fn changed(
    document: &str,
    mut work: impl FnMut(&str, &str, &mut Value) -> Result<(), SealError>,
) -> Result<String, SealError> {
    let mut read: Value =
        serde_json::from_str(document).map_err(|_| SealError::Document("it is not JSON"))?;
    let id = read.get("id").and_then(Value::as_str).ok_or(SealError::Document("it has no `id`"))?.to_owned();
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
        return Err(SealError::Document("its settings are nested too deeply"));
    }
    let length = place.len();
    match value {
        Value::Object(fields) => each_field(fields, place, depth, work)?,
        Value::Array(values) => {
            for (n, value) in values.iter_mut().enumerate() {
                place.push_str(&format!("/{n}"));
                walk(value, place, depth + 1, work)?;
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
    for (name, value) in fields {
        place.push('/');
        place.push_str(name);
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            value if is_secret(name) => work(place, value)?,
            value => walk(value, place, depth + 1, work)?,
        }
        place.truncate(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"id":"p","plugin_name":"x","config":{"client_id":"me","client_secret":"hush","issuers":[{"api_key":"k1"}],"token_header":"x-t"}}"#;

    fn keys() -> Keys {
        Keys::parse(&"11".repeat(super::super::KEY_BYTES)).expect("a key")
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in ["secret", "client_secret", "password", "bind_password", "api_key", "tokens"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["secretary", "key", "token_header", "key_location", "password_field", "xtoken"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn what_is_stored_holds_no_secret_and_opens_again() {
        let sealed = seal(DOCUMENT, &keys()).expect("is sealed");
        assert!(!sealed.contains("hush") && !sealed.contains("k1") && sealed.contains("x-t"), "{sealed}");
        assert_eq!(unseal(&sealed, &keys()).expect("opens"), DOCUMENT);
        assert_eq!(seal(&sealed, &keys()).expect("is sealed"), sealed, "sealing twice changes nothing");
        let elsewhere = sealed.replace(r#""id":"p""#, r#""id":"q""#);
        assert!(unseal(&elsewhere, &keys()).is_err(), "a secret is bound to its plugin config");
        assert!(seal(DOCUMENT, &Keys::default()).is_err(), "without a key nothing secret is stored");
    }

    #[test]
    fn answers_hold_fingerprints_that_can_be_written_back() {
        let sealed = seal(DOCUMENT, &keys()).expect("is sealed");
        let shown = redact(&sealed).expect("is shown");
        assert!(!shown.contains("sealed") && shown.contains("fingerprint"), "{shown}");
        assert_eq!(retain(&shown, &sealed).expect("is kept"), sealed);
        let foreign = shown.replace("fingerprint\":\"", "fingerprint\":\"0");
        assert!(retain(&foreign, &sealed).is_err());
    }

    #[test]
    fn documents_without_secrets_need_no_key() {
        let plain = r#"{"id":"p","plugin_name":"x","config":{"rate":1}}"#;
        assert_eq!(seal(plain, &Keys::default()).expect("is stored"), plain);
    }
}
