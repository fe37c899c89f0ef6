//! The fields of a document that a change affects, with their values before and after.

use serde_json::{Value, json};

/// Maximum number of changed fields in the answer for one object.
const MAX_FIELDS: usize = 100;
/// Maximum depth at which maps and lists are compared field by field. Deeper values are compared as a whole.
const MAX_DEPTH: usize = 16;

/// The fields that differ, each as `{path, before, after}` with a JSON pointer. A missing field is null.
pub(crate) fn field_changes(before: &Value, after: &Value) -> Vec<Value> {
    let mut changes = Vec::new();
    compare(&mut changes, String::new(), before, after, MAX_DEPTH);
    changes
}

fn compare(changes: &mut Vec<Value>, path: String, before: &Value, after: &Value, depth: usize) {
    if before == after || changes.len() >= MAX_FIELDS {
        return;
    }
    let below = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    match (before, after) {
        (Value::Object(old), Value::Object(new)) if depth > 0 => {
            for (name, value) in old {
                let other = new.get(name).unwrap_or(&Value::Null);
                compare(changes, below(name), value, other, depth - 1);
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                compare(changes, below(name), &Value::Null, value, depth - 1);
            }
        }
        (Value::Array(old), Value::Array(new)) if depth > 0 && old.len() == new.len() => {
            for (n, (value, other)) in old.iter().zip(new).enumerate() {
                compare(changes, below(&n.to_string()), value, other, depth - 1);
            }
        }
        _ => changes.push(json!({ "path": path, "before": before, "after": after })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_with_both_values() {
        let before = json!({ "a": { "x": 1, "y/z": [1, 2] }, "b": "gone", "same": true });
        let after = json!({ "a": { "x": 2, "y/z": [1, 3] }, "c": [], "same": true });
        assert_eq!(
            field_changes(&before, &after),
            [
                json!({ "path": "/a/x", "before": 1, "after": 2 }),
                json!({ "path": "/a/y~1z/1", "before": 2, "after": 3 }),
                json!({ "path": "/b", "before": "gone", "after": null }),
                json!({ "path": "/c", "before": null, "after": [] }),
            ]
        );
        let lists = field_changes(&json!([1]), &json!([1, 2]));
        assert_eq!(lists, [json!({ "path": "", "before": [1], "after": [1, 2] })]);
    }
}
