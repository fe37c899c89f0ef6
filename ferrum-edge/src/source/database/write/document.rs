//! Documents on their way to the store.

use gateway_core::config::model::Id;
use serde_json::{Map, Value};

use crate::store::seal::is_sealed;

/// The document as it is stored: with its id in front, without what only answers have.
pub(super) fn normal(mut document: Map<String, Value>, id: &Id) -> String {
    for key in ["id", "created_at", "updated_at", "revision"] {
        document.shift_remove(key);
    }
    let mut whole = Map::with_capacity(document.len() + 1);
    whole.insert("id".to_owned(), Value::String(id.to_string()));
    whole.extend(document);
    Value::Object(whole).to_string()
}

/// Credentials are never shown, so who sends a consumer back without them means those it has.
pub(super) fn keep_credentials(document: &mut Map<String, Value>, stored: &str) {
    if document.contains_key("credentials") {
        return;
    }
    let stored = serde_json::from_str::<Map<String, Value>>(stored).ok();
    if let Some(credentials) = stored.and_then(|mut stored| stored.shift_remove("credentials")) {
        document.insert("credentials".to_owned(), credentials);
    }
}

/// A stored document changed by a merge patch. A credential in the patch takes the place of the stored one as a whole: what is
/// stored is hashed or sealed, and has no parts that could be changed by themselves. `alike` says whether two names are one
/// type of credential.
pub(super) fn patched(
    stored: Option<&str>,
    patch: &Map<String, Value>,
    alike: impl Fn(&str, &str) -> bool,
) -> Map<String, Value> {
    let stored = stored.and_then(|document| serde_json::from_str::<Map<String, Value>>(document).ok());
    let mut merged = stored.unwrap_or_default();
    let given = patch.get("credentials").and_then(Value::as_object);
    if let (Some(Value::Object(credentials)), Some(given)) = (merged.get_mut("credentials"), given) {
        credentials.retain(|name, _| !given.keys().any(|other| alike(name, other)));
    }
    let mut merged = Value::Object(merged);
    merge(&mut merged, &Value::Object(patch.clone()));
    match merged {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// RFC 7396, §2; what is sealed has no fields to merge into.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if target.as_object().is_none_or(is_sealed) {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.shift_remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
