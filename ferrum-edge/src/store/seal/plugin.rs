//! Secrets in plugins' settings at rest and in answers.
//!
//! A setting is a secret by its name ([`is_secret`]), so that it is hidden also where the plugin is unknown or the
//! document is broken. So are headers that carry credentials, and all headers of exporters: collectors take their keys in
//! headers of any name. At rest it is `{"sealed": "v1:<key's name>:<base64>"}`, bound to the plugin config and to its
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
/// Headers that are credentials though their names don't say so; settings of these names are more than texts.
const CREDENTIAL_HEADERS: &[&str] = &["authorization", "proxy_authorization", "apikey", "x_apikey"];
/// The headers of an exporter, by the end of their place.
const EXPORTER_HEADERS: &str = "/exporter/headers";
/// Names of settings that say which server gets a secret, and how it is reached, and endings of them after a `_`.
const SERVERS: &[&str] = &[
    "address",
    "addresses",
    "broker",
    "brokers",
    "ca_path",
    "endpoint",
    "endpoints",
    "host",
    "hosts",
    "issuer",
    "issuers",
    "port",
    "protocol",
    "scheme",
    "server",
    "servers",
    "tls",
    "uri",
    "uris",
    "upstream",
    "upstream_id",
    "url",
    "urls",
    "verify",
];
/// Levels of a plugin's settings that are looked into; what lies deeper is refused.
const MAX_DEPTH: usize = 32;

/// Whether a setting of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    is_one_of(SECRETS, name)
}

/// Whether the name is one of these, or ends with one after a `_`.
fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| {
        name.strip_suffix(known).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

/// Whether a header of this name carries a credential.
fn is_credential_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    is_secret(&name) || CREDENTIAL_HEADERS.contains(&&*name)
}

/// Whether the setting `name` of these holds a secret. `place` is theirs.
fn holds_secret(fields: &Map<String, Value>, place: &str, name: &str) -> bool {
    let is =
        |field: &str, wanted: fn(&str) -> bool| fields.get(field).and_then(Value::as_str).is_some_and(wanted);
    // A template takes its value from the request.
    let is_literal =
        || fields.get(name).is_some_and(|value| value.as_str().is_none_or(|it| !it.contains("${")));
    is_secret(name)
        || place.ends_with(EXPORTER_HEADERS)
        || is_credential_header(name) && fields.get(name).is_some_and(is_leaf) && is_literal()
        // A rule of a transformer that writes such a header.
        || name == "value" && is("target", |it| it == "header") && is("key", is_credential_header) && is_literal()
}

/// A text, or what is kept or shown in its place.
fn is_leaf(value: &Value) -> bool {
    let stands_for_text = |fields: &Map<String, Value>| is_sealed(fields) || fields.contains_key(SHOWN);
    value.is_string() || value.as_object().is_some_and(stands_for_text)
}

/// A plugin config's document with its secrets encrypted. A document without secrets needs no key.
///
/// # Errors
/// [`SealError::NoKey`], [`SealError::PluginConfig`], [`SealError::Shut`].
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

/// A plugin config's document in which fingerprints stand for secrets of the `stored` one: these are put in their places.
///
/// # Errors
/// [`SealError::PluginConfig`]; [`SealError::Setting`] when a fingerprint is none of the stored secrets'.
pub fn retain(document: &str, stored: &str) -> Result<String, SealError> {
    let mut known: Vec<(String, Value)> = Vec::new();
    changed(stored, |_, _, value| {
        known.push((fingerprint(value), value.clone()));
        Ok(())
    })?;
    changed(document, |_, place, value| {
        let Some(mark) = value.get(SHOWN).and_then(Value::as_str) else { return Ok(()) };
        let found = known.iter().find(|(of, _)| of == mark);
        let cause = "the fingerprint is none of the stored secrets'";
        let (_, kept) = found.ok_or_else(|| SealError::Setting { place: place.to_owned(), cause })?;
        *value = kept.clone();
        Ok(())
    })
}

/// Holds a plugin config's new document against the `stored` one: whoever may change settings but does not know the secrets must
/// not have them sent to another server. `request` is what was sent, in which secrets count as known.
///
/// # Errors
/// [`SealError::Moved`] when a stored secret is kept while the settings name another server or plugin.
pub fn check_servers(request: &Value, document: &str, stored: &str) -> Result<(), SealError> {
    if servers(document)? == servers(stored)? {
        return Ok(());
    }
    let mut known: Vec<Value> = Vec::new();
    changed(stored, |_, _, value| {
        known.push(value.clone());
        Ok(())
    })?;
    changed(document, |_, place, value| {
        let is_sent = request.pointer(&format!("/config{place}")) == Some(&*value);
        match known.contains(value) && !is_sent {
            true => Err(SealError::Moved(place.to_owned())),
            false => Ok(()),
        }
    })
    .map(drop)
}

/// The plugin, and the settings that say which servers it asks, by their places.
fn servers(document: &str) -> Result<Vec<(String, Value)>, SealError> {
    let mut read: Value =
        serde_json::from_str(document).map_err(|_| SealError::PluginConfig("it is not JSON"))?;
    let mut found = vec![("plugin_name".to_owned(), read["plugin_name"].take())];
    let mut config = read["config"].take();
    walk(&mut config, &mut String::new(), 0, &mut |_: &str, value: &mut Value| {
        *value = Value::Null;
        Ok(())
    })?;
    named_servers(&config, "", false, &mut found);
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

fn named_servers(value: &Value, place: &str, is_server: bool, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let place = format!("{place}/{name}");
                named_servers(value, &place, is_server || is_one_of(SERVERS, name), found);
            }
        }
        Value::Array(values) => {
            for (n, value) in values.iter().enumerate() {
                named_servers(value, &format!("{place}/{n}"), is_server, found);
            }
        }
        Value::Null => {}
        value if is_server || value.as_str().is_some_and(|text| text.contains("://")) => {
            found.push((place.to_owned(), value.clone()));
        }
        _ => {}
    }
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
    fn headers_that_carry_keys_are_secrets() {
        let document = json!({ "id": "p", "plugin_name": "x", "config": {
            "exporter": { "headers": { "x-honeycomb-team": "hush-1", "x-scope-orgid": "hush-2" } },
            "headers": { "X-Api-Key": "hush-3", "Authorization": "Bearer hush-4", "accept": "shown-1" },
            "rules": [
                { "operation": "set", "target": "header", "key": "Authorization", "value": "Bearer hush-5" },
                { "operation": "set", "target": "header", "key": "x-note", "value": "shown-2" },
                { "operation": "set", "target": "header", "key": "x-api-key", "value": "${request.header.shown-3}" },
            ],
            "authorization": { "name": "shown-4" },
        }});
        let document = document.to_string();
        let sealed = seal(&document, &keys()).expect("is sealed");
        for text in [&sealed, &redact(&sealed).expect("is shown"), &redact(&document).expect("is shown")] {
            assert!(!text.contains("hush"), "{text}");
            for shown in 1..=4 {
                assert!(text.contains(&format!("shown-{shown}")), "{text}");
            }
        }
        assert_eq!(unseal(&sealed, &keys()).expect("opens"), document);
        assert_eq!(seal(&sealed, &keys()).expect("is sealed"), sealed, "sealing twice changes nothing");
        assert_eq!(retain(&redact(&sealed).expect("is shown"), &sealed).expect("is kept"), sealed);
    }

    #[test]
    fn a_kept_secret_does_not_go_to_another_server() {
        let document = |url: &str, rate: u32, secret: Value| {
            json!({ "id": "p", "plugin_name": "x", "config":
                { "introspection_url": url, "rate": rate, "client_secret": secret } })
        };
        let (home, other) = ("https://idp.example.com/i", "http://evil.example.com/");
        let stored = seal(&document(home, 1, json!("hush")).to_string(), &keys()).expect("is sealed");
        let kept: Value = serde_json::from_str(&stored).expect("JSON");
        let kept = kept["config"]["client_secret"].clone();
        let check = |request: Value, new: Value| {
            let new = seal(&new.to_string(), &keys()).expect("is sealed");
            check_servers(&request, &new, &stored)
        };
        check(json!({}), document(home, 2, kept.clone())).expect("the server is the same");
        let patch = json!({ "config": { "introspection_url": other } });
        let refused = check(patch, document(other, 1, kept.clone())).expect_err("the secret would go there");
        assert!(matches!(&refused, SealError::Moved(place) if place == "/client_secret"), "{refused}");
        assert_eq!(refused.pointer(), "/config/client_secret");
        // Who knows the secret, or has it as it is stored, may move it.
        check(json!({}), document(other, 1, json!("known"))).expect("it is a new secret");
        let whole = document(other, 1, kept.clone());
        check(whole.clone(), whole).expect("it was sent as it is stored");
        let mut renamed = document(home, 1, kept);
        renamed["plugin_name"] = json!("y");
        assert!(check(json!({}), renamed).is_err());
    }

    #[test]
    fn documents_without_secrets_need_no_key() {
        let plain = r#"{"id":"p","plugin_name":"x","config":{"rate":1}}"#;
        assert_eq!(seal(plain, &Keys::default()).expect("is stored"), plain);
    }
}
