//! The settings of this gateway and where each comes from: `/v1/settings`.
//!
//! Flags go before the environment, the environment before the file, the file before defaults. Values of the file are those
//! that it had when it was loaded, without secrets; a change of a setting that is read at the start only is among
//! `config.restart_needed` of `/v1/status`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use gateway_core::config::file::File;
use gateway_core::config::settings::{SETTINGS, Setting};
use gateway_core::http::credentials::redact_text;
use serde_json::{Value, json};

use super::query::{nothing_else, pairs};
use super::resources::answer;
use crate::engine::Engine;
use crate::variables::VARIABLES;

/// Where they are read.
pub(super) const PATH: &str = "/v1/settings";

/// What a secret is shown as.
const HIDDEN: &str = "***";
/// What the names of variables with secrets contain; those of paths contain none.
const SECRET: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "HMAC_KEY", "ENCRYPTION_KEY"];

/// A setting with its place in the schema.
struct Leaf {
    key: String,
    meaning: String,
}

/// `GET /v1/settings`.
pub(super) async fn list(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    answer(nothing_else(&pairs(query.as_deref())).map(|()| {
        let written = engine.audit.file_object("gateway", "gateway").unwrap_or_default();
        let flags = engine.flags.get().map_or(&[][..], Vec::as_slice);
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let leaves = leaves();
        let items = leaves.iter().map(|leaf| setting_document(leaf, &written, flags, &variable));
        let items: Vec<Value> =
            items.chain(VARIABLES.iter().map(|one| of_variable(one.name, one.doc, &variable))).collect();
        Json(json!({ "items": items, "next": null })).into_response()
    }))
}

fn setting_document(
    leaf: &Leaf,
    written: &Value,
    flags: &[(String, String)],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Value {
    let key = leaf.key.as_str();
    // A variable may set the whole of what a leaf is part of, as an address and a port set a listener.
    let settings: Vec<&Setting> = SETTINGS.iter().filter(|setting| is_about(setting, key)).collect();
    let given = |of: &dyn Fn(&str) -> Option<String>| -> Vec<String> {
        let given = settings.iter().filter_map(|setting| {
            let value = of(setting.name).or_else(|| of(&format!("{}_FILE", setting.name)))?;
            Some(if settings.len() == 1 {
                visible(setting.name, &value)
            } else {
                format!("{}={}", setting.name, visible(setting.name, &value))
            })
        });
        given.collect()
    };
    let flag = |name: &str| flags.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let (by_flag, by_variable) = (given(&flag), given(variable));
    let in_file = at(written, key).filter(|value| !value.is_null());
    let (origin, value) = match (by_flag.is_empty(), by_variable.is_empty(), in_file) {
        (false, ..) => ("flag", json!(by_flag.join(", "))),
        (true, false, _) => ("environment", json!(by_variable.join(", "))),
        (true, true, Some(value)) => ("file", value.clone()),
        (true, true, None) => ("default", Value::Null),
    };
    let names: Vec<&str> = settings.iter().map(|setting| setting.name).collect();
    json!({
        "setting": format!("gateway.{key}"),
        "value": value,
        "origin": origin,
        "variable": (!names.is_empty()).then(|| names.join(", ")),
        "meaning": leaf.meaning,
    })
}

/// A variable that is no setting of a file.
fn of_variable(name: &str, meaning: &str, variable: &dyn Fn(&str) -> Option<String>) -> Value {
    let value = variable(name).map(|value| visible(name, &value));
    let value = value.or_else(|| variable(&format!("{name}_FILE")).map(|file| format!("from {file}")));
    let origin = if value.is_some() { "environment" } else { "default" };
    json!({ "setting": name, "value": value, "origin": origin, "variable": name, "meaning": meaning })
}

fn is_about(setting: &Setting, key: &str) -> bool {
    setting.key == key
}

/// A value without secrets.
fn visible(name: &str, value: &str) -> String {
    if SECRET.iter().any(|part| name.contains(part)) {
        return HIDDEN.to_owned();
    }
    match redact_text(value) {
        Cow::Owned(redacted) => redacted,
        Cow::Borrowed(plain) => plain.to_owned(),
    }
}

/// `tls.min_version` of an object.
fn at<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(object, |object, name| object.get(name))
}

/// Every setting of the section `gateway`. Lists, maps and alternatives are one setting as a whole.
fn leaves() -> Vec<Leaf> {
    let schema = File::schema().as_value();
    let mut leaves = Vec::new();
    collect(schema, &schema["$defs"]["Gateway"], "", &mut leaves);
    leaves
}

/// How deep settings are, at most.
const MAX_DEPTH: usize = 6;

fn collect(schema: &Value, object: &Value, within: &str, leaves: &mut Vec<Leaf>) {
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let key = if within.is_empty() { name.clone() } else { format!("{within}.{name}") };
        match properties(schema, field).filter(|_| key.split('.').count() < MAX_DEPTH) {
            Some(object) => collect(schema, object, &key, leaves),
            None => {
                let meaning = field["description"].as_str().unwrap_or_default();
                let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
                leaves.push(Leaf { key, meaning });
            }
        }
    }
}

/// The object that a field is, where it can be nothing else but `null`.
fn properties<'a>(schema: &'a Value, field: &'a Value) -> Option<&'a Value> {
    let options = field["anyOf"].as_array().map_or_else(|| std::slice::from_ref(field), Vec::as_slice);
    let mut real = options.iter().filter(|option| option["type"] != "null");
    let (only, None) = (real.next()?, real.next()) else { return None };
    let target = match only["$ref"].as_str() {
        Some(place) => schema.pointer(place.trim_start_matches('#'))?,
        None => only,
    };
    target["properties"].is_object().then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_about_a_setting_that_is_listed() {
        let leaves = leaves();
        for setting in SETTINGS {
            assert!(
                leaves.iter().any(|leaf| is_about(setting, &leaf.key)),
                "{} ({})",
                setting.name,
                setting.key
            );
        }
        assert!(leaves.len() > 60, "{}", leaves.len());
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_the_file() {
        let leaf = Leaf { key: "workers".to_owned(), meaning: String::new() };
        let written = json!({ "workers": 3 });
        let none = |_: &str| None;
        let origin = |value: &Value| (value["origin"].as_str().unwrap().to_owned(), value["value"].clone());
        assert_eq!(
            origin(&setting_document(&leaf, &Value::Null, &[], &none)),
            ("default".to_owned(), Value::Null)
        );
        assert_eq!(origin(&setting_document(&leaf, &written, &[], &none)), ("file".to_owned(), json!(3)));
        let set = |name: &str| (name == "FERRUM_WORKER_THREADS").then(|| "2".to_owned());
        assert_eq!(
            origin(&setting_document(&leaf, &written, &[], &set)),
            ("environment".to_owned(), json!("2"))
        );
        let flags = [("FERRUM_WORKER_THREADS".to_owned(), "1".to_owned())];
        assert_eq!(origin(&setting_document(&leaf, &written, &flags, &set)), ("flag".to_owned(), json!("1")));
    }

    #[test]
    fn secrets_of_variables_are_not_shown() {
        for one in VARIABLES {
            let value = of_variable(one.name, "", &|name| {
                (name == one.name).then(|| "postgres://a:hunter2@db/x".to_owned())
            });
            assert!(!value.to_string().contains("hunter2"), "{value}");
        }
        for name in
            ["FERRUM_ACME_EXTERNAL_ACCOUNT_HMAC_KEY", "FERRUM_ADMIN_TOKEN", "FERRUM_DB_ENCRYPTION_KEY"]
        {
            assert_eq!(visible(name, "hunter2"), HIDDEN);
        }
    }
}
