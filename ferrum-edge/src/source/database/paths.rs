//! Which settings name files. Whoever may write objects could otherwise read and write every file that the
//! gateway's user may, its own token among them.

use std::collections::HashMap;
use std::path::Path;

use gateway_core::config::problem::{Problem, Problems};
use gateway_core::plugin::Registry;
use serde_json::Value;

use super::Permitted;

/// The schemas of plugins that have such settings, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths(HashMap<&'static str, Value>);

/// Schemas within schemas.
const MAX_DEPTH: usize = 64;

impl Paths {
    pub(crate) fn of(registry: &Registry) -> Self {
        let schemas = registry.entries().iter().map(|entry| (entry.name, (entry.schema)().to_value()));
        Self(schemas.filter(|(_, schema)| has_any(schema)).collect())
    }

    /// What is wrong with the files that these settings name. `at` is where the plugin config stands.
    pub(super) fn check(&self, plugin: &str, config: &Value, at: &str, permitted: &Permitted) -> Problems {
        let mut problems = Problems::default();
        if let Some(schema) = self.0.get(plugin) {
            let mut walk = Walk { root: schema, permitted, problems: &mut problems };
            walk.value(schema, config, &format!("{at}.config"), 0);
        }
        problems
    }
}

fn has_any(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => is_path(schema) || map.values().any(has_any),
        Value::Array(list) => list.iter().any(has_any),
        _ => false,
    }
}

/// How the schema says that a text, or each text of a list, names a file or a folder.
fn is_path(schema: &Value) -> bool {
    schema.get("format").and_then(Value::as_str) == Some("path")
}

/// What is wrong with a file or folder that is named at `at`.
pub(super) fn problem(path: &Path, at: &str, permitted: &Permitted) -> Option<Problem> {
    if permitted.takes_file(path) {
        return None;
    }
    let path = path.display();
    let message = format!("the file or folder `{path}` is not permitted to objects in a database");
    let remedy = format!("permit it by FERRUM_DB_REFERENCES=file:{path} on every gateway");
    Some(Problem::new(at, message).remedy(remedy))
}

struct Walk<'w> {
    root: &'w Value,
    permitted: &'w Permitted,
    problems: &'w mut Problems,
}

impl Walk<'_> {
    fn value(&mut self, schema: &Value, value: &Value, at: &str, depth: usize) {
        if depth > MAX_DEPTH || value.is_null() {
            return;
        }
        if is_path(schema) {
            return self.names(value, at);
        }
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
        if let Some(schema) = target.and_then(|pointer| self.root.pointer(pointer)) {
            self.value(schema, value, at, depth + 1);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for schema in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.value(schema, value, at, depth + 1);
            }
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let own = schema.get("properties").and_then(|all| all.get(name));
                    if let Some(schema) = own.or_else(|| schema.get("additionalProperties")) {
                        self.value(schema, value, &format!("{at}.{name}"), depth + 1);
                    }
                }
            }
            Value::Array(list) => {
                for (n, value) in list.iter().enumerate() {
                    if let Some(schema) = schema.get("items") {
                        self.value(schema, value, &format!("{at}[{n}]"), depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    fn names(&mut self, value: &Value, at: &str) {
        match value {
            // None of these settings takes an empty text for a file.
            Value::String(path) if !path.is_empty() => {
                self.problems.0.extend(problem(Path::new(path), at, self.permitted));
            }
            Value::Array(list) => {
                for (n, value) in list.iter().enumerate() {
                    self.names(value, &format!("{at}[{n}]"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(plugin: &str, config: &Value, permitted: &str) -> Vec<String> {
        let paths = Paths::of(&crate::plugins());
        let problems = paths.check(plugin, config, "plugin_configs.a", &permitted.parse().unwrap());
        let path = |problem: Problem| problem.path.strip_prefix("plugin_configs.a.").map(str::to_owned);
        problems.0.into_iter().filter_map(path).collect()
    }

    #[test]
    fn every_file_of_settings_is_found() {
        for (plugin, config, expected) in [
            ("static_files", json!({ "root": "/etc" }), &["config.root"][..]),
            ("static_files", json!({ "root": "etc" }), &["config.root"]),
            ("static_files", json!({ "root": "/usr/share/../../etc" }), &["config.root"]),
            ("upload", json!({ "path": "/etc" }), &["config.path"]),
            ("waf", json!({ "rules": { "crs": "/etc" } }), &["config.rules.crs"]),
            ("waf", json!({ "shadow": { "crs": "/etc" } }), &["config.shadow.crs"]),
            (
                "script",
                json!({ "calls": { "a": { "url": "https://a", "ca_path": "/etc/x" } } }),
                &["config.calls.a.ca_path"],
            ),
            ("wasm", json!({ "path": "/etc/passwd" }), &["config.path"]),
            (
                "basic_auth",
                json!({ "htpasswd_files": ["/etc/a", "/usr/share/a"] }),
                &["config.htpasswd_files[0]"],
            ),
            ("response_cache", json!({ "disk": { "path": "/etc" } }), &["config.disk.path"]),
            ("rewrite", json!({ "path": "/etc" }), &[]),
            ("static_files", json!({ "root": "/usr/share" }), &[]),
            ("static_files", json!({ "root": "/usr/share/none/yet" }), &[]),
        ] {
            assert_eq!(refused(plugin, &config, "file:/usr/share"), expected, "{plugin} {config}");
        }
        assert_eq!(refused("static_files", &json!({ "root": "/usr/share" }), ""), ["config.root"]);
    }

    /// A setting that names a file and is not marked so would be open to whoever may write objects.
    #[test]
    fn settings_that_sound_like_files_are_marked_or_known_to_be_none() {
        const NONE: &[&str] = &[
            "path",
            "redirect_path",
            "login_path",
            "logout_path",
            "backchannel_logout_path",
            "frontchannel_logout_path",
            "cookie_path",
            "base_path",
            "try_files",
        ];
        fn look(plugin: &str, schema: &Value, found: &mut Vec<String>) {
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                let kind = property.get("type").map(Value::to_string).unwrap_or_default();
                let is_text = kind.contains("string") || kind.contains("array");
                let last = name.rsplit('_').next().unwrap_or_default();
                let sounds = ["path", "file", "files", "folder", "root", "database", "dir", "crs", "openapi"];
                if is_text && sounds.contains(&last) && !is_path(property) && !NONE.contains(&name.as_str()) {
                    found.push(format!("{plugin}.{name}"));
                }
            }
            let inner = schema.as_object().into_iter().flat_map(|map| map.values());
            let listed = schema.as_array().into_iter().flatten();
            inner.chain(listed).for_each(|schema| look(plugin, schema, found));
        }
        let mut found = Vec::new();
        for entry in crate::plugins().entries() {
            look(entry.name, &(entry.schema)().to_value(), &mut found);
        }
        assert!(found.is_empty(), "{found:?}");
    }
}
