//! Schemas, compiled; and what is said of a value that does not fit one.

use std::sync::Arc;

use gateway_plugin_common::flat_json::FlatJson;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

use super::dialect::SchemaDialect;
use super::instance::{Flat, Instance};
use super::locate::Locator;

/// Faults that are said of one value; the others are not looked for.
const MAX_FAULTS: usize = 5;
/// Characters said of one fault.
const MAX_TEXT: usize = 200;

/// A compiled schema.
pub(super) struct Schema {
    compiled: Validator<Flat>,
    locator: Locator,
}

/// Why a schema can't be compiled.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error("a schema is an object or a boolean")]
    Kind,
    #[error("the schema can't be used{place}: {0}", place = place(.0))]
    Unusable(#[source] ValidationError<'static>),
}

/// Where the schema is wrong, unless that is its root.
fn place(error: &ValidationError<'_>) -> String {
    match error.schema_path().to_string().as_str() {
        "" => String::new(),
        place => format!(" at {place}"),
    }
}

impl Schema {
    /// Compiles a schema; references lead into `components`, or into itself.
    pub(super) fn compile(
        schema: &Value,
        components: Option<&Arc<Value>>,
        written: SchemaDialect,
    ) -> Result<Self, SchemaError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) && components.is_none() {
            return Err(SchemaError::Kind);
        }
        let mut schema = schema.clone();
        written.rewrite(&mut schema, components.is_some());
        let whole =
            components.map(|components| serde_json::json!({ "allOf": [schema], "components": **components }));
        let root = whole.as_ref().unwrap_or(&schema);
        let mut options = written.options();
        if written == SchemaDialect::Standard && root.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        let compiled = options.build(root).map_err(|error| SchemaError::Unusable(error.to_owned()))?;
        Ok(Self { compiled, locator: Locator::new(schema, components.cloned(), written) })
    }

    /// The same for a value that was made of texts.
    pub(super) fn check_made(&self, what: &str, value: &Value, faults: &mut Vec<String>) {
        match value {
            Value::String(text) => self.check(what, Instance::Text(text), faults),
            _ => {
                let text = value.to_string();
                match FlatJson::read(text.as_bytes()) {
                    Some(json) => self.check(what, Instance::whole(&json), faults),
                    None => faults.push(format!("{what}: it is too deep")),
                }
            }
        }
    }

    /// Says where a value does not fit, each with the name of what it is.
    pub(super) fn check(&self, what: &str, value: Instance<'_>, faults: &mut Vec<String>) {
        if self.compiled.is_valid(value) {
            return;
        }
        for fault in self.locator.faults(value, MAX_FAULTS.saturating_sub(faults.len())) {
            let place = match fault.place.as_str() {
                "" => what.to_owned(),
                place => format!("{what} at {place}"),
            };
            let text = format!("{place}: {}", fault.message);
            faults.push(text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect());
        }
        if faults.is_empty() {
            faults.push(format!("{what}: does not fit the schema"));
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz(data: &[u8]) {
    let part = |kind: &str| {
        serde_json::json!({
            "type": "object", "required": ["kind"], "maxProperties": 6,
            "properties": {
                "kind": { "enum": ["a", "b", 1] }, "name": { "type": kind },
                "children": { "type": "array", "items": { "$ref": "#/$defs/node" }, "maxItems": 9 },
                "pair": { "prefixItems": [{ "type": "string" }], "items": { "not": { "type": "null" } } },
                "odd": { "if": { "type": "string" }, "then": { "minLength": 2 }, "else": { "contains": { "const": 1 } } },
            },
            "patternProperties": { "^x-": { "type": ["integer", "null"] } }, "additionalProperties": false,
        })
    };
    let schema = serde_json::json!({
        "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "array", "items": { "$ref": "#/$defs/node" } }],
        "$defs": {
            "node": { "oneOf": [{ "$ref": "#/$defs/group" }, { "$ref": "#/$defs/section" }] },
            "group": part("string"), "section": { "allOf": [part("integer"), { "required": ["name"] }] },
        },
    });
    thread_local! {
        static SCHEMA: std::cell::OnceCell<Schema> = const { std::cell::OnceCell::new() };
    }
    let Some(json) = FlatJson::read(data) else { return };
    let value = Instance::whole(&json);
    SCHEMA.with(|compiled| {
        let compiled = compiled.get_or_init(|| {
            let compiled = Schema::compile(&schema, None, SchemaDialect::Standard);
            compiled.unwrap_or_else(|why| panic!("{why}"))
        });
        let faults = compiled.locator.faults(value, MAX_FAULTS);
        assert_eq!(compiled.compiled.is_valid(value), faults.is_empty(), "{json:?}: {faults:?}");
    });
}
