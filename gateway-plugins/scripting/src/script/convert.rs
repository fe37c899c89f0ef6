//! From the gateway's values to a script's, and back.

use bytes::Bytes;
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use rhai::{Dynamic, Map};
use serde_json::Value;

use super::failure::{ScriptResult, error};
use super::view::{MessageView, text};

/// Values within values.
const MAX_DEPTH: usize = 64;

/// A string, number or truth value as text.
pub(super) fn to_text(value: &Dynamic) -> ScriptResult<String> {
    if let Ok(text) = value.as_immutable_string_ref() {
        return Ok(text.as_str().to_owned());
    }
    if value.is_int() || value.is_float() || value.is_bool() || value.is_char() {
        return Ok(value.to_string());
    }
    error(format_args!("a string is needed here, not {}", value.type_name()))
}

/// A string or a blob.
pub(super) fn to_bytes(value: Dynamic) -> ScriptResult<Bytes> {
    if value.is_blob() {
        return Ok(value.into_blob().map(Bytes::from).unwrap_or_default());
    }
    to_text(&value).map(Bytes::from)
}

/// A value without closures.
pub(super) fn plain(value: Dynamic) -> ScriptResult<Dynamic> {
    let value = value.flatten();
    let is_plain = value.is_unit()
        || value.is_int()
        || value.is_float()
        || value.is_bool()
        || value.is_char()
        || value.is_string()
        || value.is_blob();
    if is_plain {
        return Ok(value);
    }
    if value.is_array() || value.is_map() {
        return Ok(from_json(&to_json(&value, 0)?));
    }
    error(format_args!("{} can't be kept", value.type_name()))
}

/// JSON as a script's value.
pub(super) fn from_json(value: &Value) -> Dynamic {
    match value {
        Value::Null => Dynamic::UNIT,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => Dynamic::from_array(list.iter().map(from_json).collect()),
        Value::Object(map) => from_object(map),
    }
}

/// A JSON object as a script's map.
pub(super) fn from_object(map: &serde_json::Map<String, Value>) -> Dynamic {
    Dynamic::from_map(map.iter().map(|(name, value)| (name.as_str().into(), from_json(value))).collect())
}

/// A script's value as JSON.
pub(super) fn to_json(value: &Dynamic, depth: usize) -> ScriptResult<Value> {
    if depth > MAX_DEPTH {
        return error("there are too many values within values");
    }
    if value.is_unit() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.as_bool() {
        return Ok(flag.into());
    }
    if let Ok(number) = value.as_int() {
        return Ok(number.into());
    }
    if let Ok(fraction) = value.as_float() {
        return Ok(fraction.into());
    }
    if let Ok(list) = value.as_array_ref() {
        let list: ScriptResult<Vec<Value>> = list.iter().map(|value| to_json(value, depth + 1)).collect();
        return list.map(Value::Array);
    }
    if let Ok(map) = value.as_map_ref() {
        let pairs = map.iter().map(|(name, value)| Ok((name.to_string(), to_json(value, depth + 1)?)));
        let map: ScriptResult<serde_json::Map<String, Value>> = pairs.collect();
        return map.map(Value::Object);
    }
    to_text(value).map(Value::String)
}

/// Who the caller is.
pub(super) fn identity(seen: &MessageView) -> Dynamic {
    let Some(identity) = &seen.identity else { return Dynamic::UNIT };
    let groups: rhai::Array = identity.groups().map(|group| (&**group).into()).collect();
    let consumer = identity.consumer.as_ref();
    let claims =
        identity.claims.as_ref().map_or_else(|| Dynamic::from_map(Map::new()), |claims| from_object(claims));
    Dynamic::from_map(Map::from_iter([
        ("name".into(), (&*identity.name).into()),
        ("groups".into(), Dynamic::from_array(groups)),
        ("consumer".into(), text(consumer.map(|consumer| consumer.id.as_str()))),
        ("claims".into(), claims),
    ]))
}

/// What the handshake told.
pub(super) fn tls(seen: &MessageView) -> Dynamic {
    let Some(tls) = &seen.client.tls else { return Dynamic::UNIT };
    let mut map = Map::from_iter([
        ("version".into(), tls.version.into()),
        ("cipher".into(), tls.cipher.into()),
        ("server_name".into(), text(tls.server_name.as_deref())),
    ]);
    if let Some(names) = seen.client.certificate_names() {
        let alternative: rhai::Array = names.alternative.iter().map(|name| name.as_str().into()).collect();
        map.insert("subject".into(), names.subject.as_str().into());
        map.insert("common_name".into(), text(names.common_name.as_deref()));
        map.insert("alternative_names".into(), Dynamic::from_array(alternative));
    }
    Dynamic::from_map(map)
}

/// The first query parameter of this name, decoded.
pub(super) fn parameter(query: &str, name: &str) -> Dynamic {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let value = pairs.filter(|(key, _)| decoded(key) == name).map(|(_, value)| decoded(value)).next();
    text(value)
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The first cookie of this name.
pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Dynamic {
    let lines = headers.get_all(http::header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    text(pairs.find(|(key, _)| *key == name).map(|(_, value)| value))
}
