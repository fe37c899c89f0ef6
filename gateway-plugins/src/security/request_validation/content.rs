//! What bodies and other objects may be, and whether a request's is.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::http::exchange::Exchange;
use gateway_plugin_common::flat_json::FlatJson;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::dialect::SchemaDialect;
use super::instance::Instance;
use super::schema::{Schema, SchemaError};
use super::values::{self, MAX_PAIRS, ValueShape};
use super::{ValidationRefusal, media_type};
use crate::security::multipart;

/// The schema of an object that is made of texts.
pub(super) struct ObjectSchema {
    pub(super) schema: Schema,
    pub(super) properties: Vec<(String, ValueShape)>,
}

/// What bodies may be.
#[derive(Default)]
pub(super) struct BodyContent {
    pub(super) required: bool,
    /// By media type; none is any type, unchecked.
    pub(super) types: Vec<(String, Option<ObjectSchema>)>,
}

/// How the body of one request is checked.
pub(super) struct BodyRule {
    content: Arc<BodyContent>,
    media_type: Option<String>,
    /// What parts the parts of a form.
    boundary: Option<String>,
}

impl ObjectSchema {
    pub(super) fn compile(
        root: &Value,
        schema: &Value,
        components: Option<&Arc<Value>>,
        written: SchemaDialect,
    ) -> Result<Self, SchemaError> {
        let properties = values::properties(root, schema);
        Ok(Self { schema: Schema::compile(schema, components, written)?, properties })
    }

    /// Checks what is made of texts; `None` is one that can't be read.
    pub(super) fn check(&self, what: &str, pairs: Option<Vec<(String, String)>>, faults: &mut Vec<String>) {
        match pairs.map(|pairs| values::object(pairs, &self.properties)) {
            Some(Ok(object)) => self.schema.check_made(what, &object, faults),
            Some(Err(why)) => faults.push(format!("{what}: {why}")),
            None => faults.push(format!("{what}: it is not UTF-8, or has more than {MAX_PAIRS} parameters")),
        }
    }
}

/// How exactly a media type is meant; zero is not at all.
fn rank(pattern: &str, media_type: &str) -> u8 {
    match pattern.strip_suffix("/*") {
        Some("*") => 1,
        Some(kind) if media_type.split('/').next() == Some(kind) => 2,
        None if pattern == media_type => 3,
        _ => 0,
    }
}

impl BodyRule {
    pub(super) fn new(content: Arc<BodyContent>, exchange: &Exchange) -> Result<Self, ValidationRefusal> {
        let rule = Self { media_type: None, boundary: None, content };
        if rule.is_nothing() {
            return Ok(rule);
        }
        if exchange.body.is_empty() {
            return match rule.content.required {
                true => Err(ValidationRefusal::invalid(&["body: it is required".to_owned()])),
                false => Ok(Self::nothing()),
            };
        }
        let media_type = media_type(exchange)?;
        let is_known = rule.content.types.is_empty()
            || rule
                .content
                .types
                .iter()
                .any(|(pattern, _)| rank(pattern, media_type.as_deref().unwrap_or("")) > 0);
        if !is_known {
            let known: Vec<&str> =
                rule.content.types.iter().map(|(pattern, _)| pattern.as_str()).take(10).collect();
            let detail = format!("the content type is not one of {}", known.join(", "));
            return Err(ValidationRefusal::with(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_type_unsupported",
                detail,
            ));
        }
        let boundary = match media_type.as_deref() {
            Some("multipart/form-data") => {
                let field = exchange.request.headers.get(CONTENT_TYPE);
                field.and_then(|field| multipart::boundary(field.to_str().ok()?))
            }
            _ => None,
        };
        let rule = Self { media_type, boundary, ..rule };
        // A type without a schema is all that is asked for.
        let unchecked = !rule.content.required && rule.schema().is_none();
        Ok(if unchecked { Self::nothing() } else { rule })
    }

    /// Whether the type is one that may be, not one of any: a schema that is about objects fits every text.
    fn is_named(&self) -> bool {
        let media_type = self.media_type.as_deref().unwrap_or("");
        self.content.types.iter().any(|(pattern, _)| rank(pattern, media_type) > 1)
    }

    fn nothing() -> Self {
        Self { content: Arc::default(), media_type: None, boundary: None }
    }

    /// Whether there is nothing to check.
    pub(super) fn is_nothing(&self) -> bool {
        !self.content.required && self.content.types.is_empty()
    }

    fn schema(&self) -> Option<&ObjectSchema> {
        let media_type = self.media_type.as_deref().unwrap_or("");
        let types = self.content.types.iter().map(|(pattern, schema)| (rank(pattern, media_type), schema));
        types
            .filter(|(rank, _)| *rank > 0)
            .max_by_key(|(rank, _)| *rank)
            .and_then(|(_, schema)| schema.as_ref())
    }

    /// Checks a whole body.
    pub(super) fn check(&self, bytes: &Bytes) -> Result<(), ValidationRefusal> {
        if bytes.is_empty() {
            return match self.content.required {
                true => Err(ValidationRefusal::invalid(&["body: it is required".to_owned()])),
                false => Ok(()),
            };
        }
        let Some(schema) = self.schema() else { return Ok(()) };
        let mut faults = Vec::new();
        match self.media_type.as_deref().unwrap_or("") {
            kind if kind == "application/json" || kind.ends_with("+json") => match FlatJson::read(bytes) {
                Some(json) => schema.schema.check("body", Instance::whole(&json), &mut faults),
                None => faults.push("body: it is malformed, or has a key twice".to_owned()),
            },
            "application/x-www-form-urlencoded" => {
                schema.check("body", std::str::from_utf8(bytes).ok().and_then(values::pairs), &mut faults);
            }
            "multipart/form-data" => match self.boundary.as_deref().and_then(|it| form_pairs(it, bytes)) {
                Some(pairs) => schema.check("body", Some(pairs), &mut faults),
                None => faults.push("body: the form can't be read".to_owned()),
            },
            kind if kind.starts_with("text/") && self.is_named() => match std::str::from_utf8(bytes) {
                Ok(text) => schema.schema.check("body", Instance::Text(text), &mut faults),
                Err(_) => faults.push("body: it is not UTF-8".to_owned()),
            },
            _ => {
                let detail = "bodies of this content type can't be checked";
                return Err(ValidationRefusal::with(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "content_type_unsupported",
                    detail,
                ));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(ValidationRefusal::invalid(&faults)) }
    }
}

/// The parts of a form as texts by name, files among them; what is not UTF-8 in a file is left out. `None` where it can't be read.
fn form_pairs(boundary: &str, form: &Bytes) -> Option<Vec<(String, String)>> {
    let parts = multipart::parts(boundary, form, MAX_PAIRS)?;
    let text = |content: &Bytes| String::from_utf8_lossy(content).into_owned();
    Some(parts.into_iter().map(|part| (part.name, text(&part.content))).collect())
}
