//! The dialects that schemas are written in, and what is made of them before they are compiled.

use std::sync::Arc;

use base64::Engine as _;
use jsonschema::{Draft, PatternOptions, ValidationOptions};
use serde_json::{Map, Value};

use super::instance::Flat;

/// Steps back that a pattern may take on one text before it counts as not matched.
const BACKTRACKS: usize = 50_000;

/// Which dialect a schema is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// What its `$schema` says, else JSON Schema 2020-12, as in OpenAPI 3.1.
    Standard,
    /// That of OpenAPI 3.0.
    OpenApi30,
}

impl SchemaDialect {
    /// How schemas of the dialect are compiled.
    pub(super) fn options(self) -> ValidationOptions<'static, Arc<dyn jsonschema::Retrieve>, Flat> {
        let options = jsonschema::options_for::<Flat>()
            .offline()
            .should_validate_formats(true)
            // OpenAPI's, and what draft 4, which OpenAPI 3.0 goes by, does not know yet.
            .with_format("uuid", is_uuid)
            .with_format("byte", is_base64)
            .should_ignore_unknown_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS));
        match self {
            Self::OpenApi30 => options.with_draft(Draft::Draft4),
            Self::Standard => options,
        }
    }

    /// The components of a document, to which the references of its schemas lead.
    pub(super) fn components(self, written: &Value) -> Arc<Value> {
        let mut components = written.clone();
        self.rewrite(&mut components, true);
        Arc::new(components)
    }

    /// Turns what JSON Schema does not have into what it has.
    pub(super) fn rewrite(self, schema: &mut Value, is_openapi: bool) {
        if self == Self::OpenApi30 {
            normalise(schema);
        }
        if is_openapi {
            number_formats(schema);
        }
        without_read_only(schema);
    }
}

/// Turns what OpenAPI 3.0 has of its own into what JSON Schema has: `nullable`.
fn normalise(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(map) => {
            map.values_mut().for_each(normalise);
            if map.get("nullable") == Some(&Value::Bool(true)) {
                nullable(map);
            }
        }
        _ => {}
    }
}

/// Turns OpenAPI's formats of numbers into ranges.
fn number_formats(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(number_formats),
        Value::Object(map) => {
            map.values_mut().for_each(number_formats);
            let (least, most) = match map.get("format").and_then(Value::as_str) {
                Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                Some("int64") => (i64::MIN, i64::MAX),
                _ => return,
            };
            if map.get("type").is_some_and(|kind| kind.to_string().contains("\"integer\"")) {
                map.entry("minimum").or_insert_with(|| least.into());
                map.entry("maximum").or_insert_with(|| most.into());
            }
        }
        _ => {}
    }
}

/// RFC 9562 §4: `8-4-4-4-12` hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == b'-',
            _ => c.is_ascii_hexdigit(),
        })
}

/// Base64 of RFC 4648 §4, with its padding.
fn is_base64(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn nullable(map: &mut Map<String, Value>) {
    if let Some(Value::String(kind)) = map.get("type") {
        let both = serde_json::json!([kind, "null"]);
        map.insert("type".into(), both);
    }
    if let Some(Value::Array(values)) = map.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Takes properties that only responses have out of what requests must have.
fn without_read_only(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_read_only),
        Value::Object(map) => {
            map.values_mut().for_each(without_read_only);
            let is_read_only = |property: &Value| property.get("readOnly") == Some(&Value::Bool(true));
            let names: Vec<String> = match map.get("properties") {
                Some(Value::Object(all)) => {
                    all.iter().filter(|(_, it)| is_read_only(it)).map(|(name, _)| name.clone()).collect()
                }
                _ => return,
            };
            if let Some(Value::Array(required)) = map.get_mut("required") {
                required.retain(|name| !name.as_str().is_some_and(|name| names.iter().any(|it| it == name)));
                // Draft 4 does not know an empty list.
                if required.is_empty() {
                    map.remove("required");
                }
            }
        }
        _ => {}
    }
}
