//! Schemas, compiled; and what is said of a value that does not fit one.

use base64::Engine as _;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

/// Faults that are said of one value; the others are not looked for.
const MAX_FAULTS: usize = 5;
/// Characters said of one fault.
const MAX_TEXT: usize = 200;
/// Steps back that a pattern may take on one text before it counts as not matched.
const BACKTRACKS: usize = 50_000;

/// A compiled schema.
pub(super) struct Schema(Validator);

/// Which dialect a schema is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// What its `$schema` says, else JSON Schema 2020-12, as in OpenAPI 3.1.
    Standard,
    /// That of OpenAPI 3.0.
    OpenApi30,
}

impl Schema {
    /// Compiles a schema; references lead into `components`, or into itself.
    pub(super) fn compile(
        schema: &Value,
        components: Option<&Value>,
        written: SchemaDialect,
    ) -> Result<Self, String> {
        let mut root = match (schema, components) {
            (Value::Object(map), None) => Value::Object(map.clone()),
            (Value::Bool(_), None) => schema.clone(),
            (_, Some(components)) => serde_json::json!({ "allOf": [schema], "components": components }),
            _ => return Err("a schema is an object or a boolean".into()),
        };
        if written == SchemaDialect::OpenApi30 {
            normalise(&mut root);
        }
        if components.is_some() {
            number_formats(&mut root);
        }
        without_read_only(&mut root);
        let mut options = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            // OpenAPI's, and what draft 4, which OpenAPI 3.0 goes by, does not know yet.
            .with_format("uuid", is_uuid)
            .with_format("byte", is_base64)
            .should_ignore_unknown_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS));
        if written == SchemaDialect::OpenApi30 {
            options = options.with_draft(Draft::Draft4);
        } else if root.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        options.build(&root).map(Self).map_err(|error| {
            let place = error.schema_path().to_string();
            format!(
                "the schema can't be used{}: {error}",
                if place.is_empty() { String::new() } else { format!(" at {place}") }
            )
        })
    }

    /// Says where a value does not fit, each with the name of what it is.
    pub(super) fn check(&self, what: &str, value: &Value, faults: &mut Vec<String>) {
        if self.0.is_valid(value) {
            return;
        }
        for error in self.0.iter_errors(value).take(MAX_FAULTS.saturating_sub(faults.len())) {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { what.to_owned() } else { format!("{what} at {place}") };
            // Without the values that were sent.
            let text = format!("{place}: {} (`{}`)", error.masked(), error.kind().keyword());
            faults.push(text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect());
        }
        if faults.is_empty() {
            faults.push(format!("{what}: does not fit the schema"));
        }
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
