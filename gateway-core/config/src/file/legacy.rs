//! Old spellings of settings: read as the new ones, with a warning that names those.
//!
//! They are what files of the system of the same name have, and what this one had before its first release. Settings
//! once named their unit (`timeout_ms: 500` is `timeout: 500ms`); those need no row of their own.

use super::tree::{MapEntry, Node, Value};

/// Old spellings kept of one document; more are read all the same.
pub(super) const MAX_KEPT: usize = 100;

/// An old spelling that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldSpelling {
    /// Where, the old key last: `proxies[0].total_timeout_ms`.
    pub path: String,
    /// What to write instead; empty where the key says nothing.
    pub new: String,
}

/// What a value becomes under its new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// A plain number counted milliseconds: it becomes text with that unit.
    Milliseconds,
    /// It means the same.
    Same,
    /// `false` becomes this under the new key; `true` was the default and goes.
    WhenFalse(&'static str),
    /// The key says nothing and goes; only this value was possible, or any where it is empty.
    Nothing(&'static str),
}

/// Suffixes by which keys once named their unit.
const SUFFIXES: &[(&str, Conversion)] = &[
    ("_ms", Conversion::Milliseconds),
    ("_seconds", Conversion::Same),
    ("_secs", Conversion::Same),
    ("_bytes", Conversion::Same),
];

/// Old key, new key, and what becomes of the value.
const KEYS: &[(&str, &str, Conversion)] = &[
    ("backend_tls_server_ca_cert_path", "backend_tls_ca_path", Conversion::Same),
    ("pool_enable_http2", "backend_http_version", Conversion::WhenFalse("1.1")),
    ("pool_enable_http_keep_alive", "pool_max_idle_per_host", Conversion::WhenFalse("0")),
    ("response_body_mode", "", Conversion::Nothing("stream")),
    ("namespace", "", Conversion::Nothing("ferrum")),
    ("created_at", "", Conversion::Nothing("")),
    ("updated_at", "", Conversion::Nothing("")),
    ("root_ca_path", "ca_path", Conversion::Same),
    ("max_bytes", "max_size", Conversion::Same),
    ("max_header_bytes", "max_header_size", Conversion::Same),
    ("max_url_bytes", "max_url_size", Conversion::Same),
    ("max_client_bytes", "max_from_client", Conversion::Same),
    ("max_target_bytes", "max_from_target", Conversion::Same),
    ("max_file_bytes", "max_file_size", Conversion::Same),
    ("memory_file_bytes", "memory_file_size", Conversion::Same),
    ("queue_bytes", "queue_size", Conversion::Same),
    ("value_bytes", "value_size", Conversion::Same),
];

/// Old keys that set several new ones where those are not given, the first row first.
const FILLS: &[(&str, &[&str])] = &[
    ("backend_read_timeout_ms", &["backend_first_byte_timeout", "backend_idle_timeout"]),
    ("backend_write_timeout_ms", &["backend_idle_timeout"]),
];

/// Replaces the old keys of a map by new ones that `is_known`. A key whose new spelling stands beside it is left, so
/// that it is reported as unknown.
pub(super) fn rename(
    entries: &mut Vec<MapEntry>,
    is_known: impl Fn(&str) -> bool,
    at: &str,
    found: &mut Vec<OldSpelling>,
) {
    if entries.iter().all(|entry| is_known(&entry.key)) {
        return;
    }
    let mut note = |key: &str, new: String| {
        if found.len() < MAX_KEPT {
            let path = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
            found.push(OldSpelling { path, new });
        }
    };
    let mut n = 0;
    while let Some(entry) = entries.get(n) {
        let new = if is_known(&entry.key) { None } else { new_key(&entry.key, &is_known) };
        let is_free = |key: &str| key.is_empty() || entries.iter().all(|other| other.key != key);
        let new = new.filter(|(key, conversion)| is_free(key) && conversion.takes(&entry.value.value));
        let Some((key, conversion)) = new else {
            n += 1;
            continue;
        };
        let value = conversion.convert(&entry.value);
        note(&entry.key, value.as_ref().map(|value| advice(&key, value)).unwrap_or_default());
        match (value, entries.get_mut(n)) {
            (Some(value), Some(entry)) => (entry.key, entry.value) = (key, value),
            _ => drop(entries.remove(n)),
        }
    }
    for (old, keys) in FILLS {
        let Some(n) = entries.iter().position(|entry| entry.key == *old) else { continue };
        if !keys.iter().all(|key| is_known(key)) {
            continue;
        }
        let entry = entries.remove(n);
        let value = Conversion::Milliseconds.convert(&entry.value).unwrap_or(entry.value);
        note(old, keys.iter().map(|key| advice(key, &value)).collect::<Vec<_>>().join("` and `"));
        for key in *keys {
            if entries.iter().all(|other| other.key != **key) {
                entries.push(MapEntry { key: (*key).to_owned(), line: entry.line, value: value.clone() });
            }
        }
    }
}

/// The new name of an old key. [`rename`] leaves an old key only where both are given, or its value was never possible.
pub(super) fn newer(old: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    new_key(old, &is_known).map(|(new, _)| new).filter(|new| !new.is_empty())
}

/// The new spelling of a key, where there is one.
fn new_key(old: &str, is_known: &impl Fn(&str) -> bool) -> Option<(String, Conversion)> {
    let row = KEYS.iter().find(|(key, new, _)| *key == old && (new.is_empty() || is_known(new)));
    let by_suffix = || {
        SUFFIXES.iter().find_map(|(suffix, conversion)| {
            let new = old.strip_suffix(suffix).filter(|new| is_known(new))?;
            Some((new.to_owned(), *conversion))
        })
    };
    row.map(|(_, new, conversion)| ((*new).to_owned(), *conversion)).or_else(by_suffix)
}

/// What to write for a value under a key, the value only where it is short.
fn advice(key: &str, value: &Node) -> String {
    match &value.value {
        Value::Text { text, .. } if text.len() <= 20 => format!("{key}: {text}"),
        Value::Number(number) => format!("{key}: {number}"),
        _ => key.to_owned(),
    }
}

impl Conversion {
    /// Whether a value is one that this can say otherwise.
    fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::WhenFalse(_), Value::Bool(_)) | (Self::Milliseconds | Self::Same, _) => true,
            (Self::Nothing(only), Value::Text { text, .. }) => only.is_empty() || text == only,
            (Self::Nothing(_) | Self::WhenFalse(_), _) => false,
        }
    }

    /// The value under the new key; `None` drops the key.
    fn convert(self, old: &Node) -> Option<Node> {
        let node = |value| Node { line: old.line, value };
        let text = |text: String| node(Value::Text { text, loose: true });
        match (self, &old.value) {
            (Self::Nothing(_), _) | (Self::WhenFalse(_), Value::Bool(true)) => None,
            (Self::WhenFalse(value), _) => Some(text(value.to_owned())),
            (Self::Milliseconds, Value::Number(number)) => Some(text(format!("{number}ms"))),
            (Self::Milliseconds, Value::Text { text: written, .. })
                if written.trim().bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Some(text(format!("{}ms", written.trim())))
            }
            _ => Some(old.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn old_keys_become_new_ones() {
        const KNOWN: &[&str] = &[
            "timeout",
            "ttl",
            "max_body",
            "max_size",
            "backend_first_byte_timeout",
            "backend_idle_timeout",
            "backend_http_version",
            "pool_max_idle_per_host",
        ];
        let cases = [
            (json!({"timeout_ms": 1500}), json!({"timeout": "1500ms"}), 1),
            (json!({"timeout_ms": "1500"}), json!({"timeout": "1500ms"}), 1),
            (json!({"timeout_ms": "2s"}), json!({"timeout": "2s"}), 1),
            (json!({"ttl_seconds": 5, "max_bytes": 7}), json!({"ttl": 5, "max_size": 7}), 2),
            (
                json!({"ttl_secs": "5m", "max_body_bytes": "1KiB"}),
                json!({"ttl": "5m", "max_body": "1KiB"}),
                2,
            ),
            // Both spellings at once, one that was never there, a value that was never possible: told as unknown.
            (json!({"ttl": 5, "ttl_seconds": 6}), json!({"ttl": 5, "ttl_seconds": 6}), 0),
            (json!({"other_ms": 5}), json!({"other_ms": 5}), 0),
            (json!({"namespace": "theirs"}), json!({"namespace": "theirs"}), 0),
            (
                json!({"namespace": "ferrum", "created_at": "2024", "response_body_mode": "stream"}),
                json!({}),
                3,
            ),
            (json!({"pool_enable_http2": false}), json!({"backend_http_version": "1.1"}), 1),
            (json!({"pool_enable_http2": true}), json!({}), 1),
            (json!({"pool_enable_http_keep_alive": false}), json!({"pool_max_idle_per_host": "0"}), 1),
            (
                json!({"backend_write_timeout_ms": 10, "backend_read_timeout_ms": 20, "backend_idle_timeout": 3}),
                json!({"backend_first_byte_timeout": "20ms", "backend_idle_timeout": 3}),
                2,
            ),
            (
                json!({"backend_write_timeout_ms": 10, "backend_read_timeout_ms": 20}),
                json!({"backend_first_byte_timeout": "20ms", "backend_idle_timeout": "20ms"}),
                2,
            ),
            (json!({"backend_write_timeout_ms": 10}), json!({"backend_idle_timeout": "10ms"}), 1),
        ];
        for (old, new, count) in cases {
            let (mut node, mut found) = (Node::of_json(&old), Vec::new());
            let Value::Map(entries) = &mut node.value else { panic!("{old} is no map") };
            rename(entries, |key| KNOWN.contains(&key), "at", &mut found);
            assert_eq!(node.into_json(), new, "{old}");
            assert_eq!(found.len(), count, "{old}: {found:?}");
        }
    }

    #[test]
    fn the_advice_can_be_copied() {
        let mut found = Vec::new();
        let mut node = Node::of_json(&json!({"timeout_ms": 1500}));
        let Value::Map(entries) = &mut node.value else { panic!("no map") };
        rename(entries, |key| key == "timeout", "proxies[0]", &mut found);
        let expected = OldSpelling { path: "proxies[0].timeout_ms".into(), new: "timeout: 1500ms".into() };
        assert_eq!(found, [expected]);
    }
}
