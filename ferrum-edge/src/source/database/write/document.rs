//! Documents on their way to the store.

use gateway_core::config::model::Id;
use serde_json::{Map, Value};

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

/// RFC 7396, §2.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
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
