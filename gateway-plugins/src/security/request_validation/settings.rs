//! What users write, and what it is checked to mean.

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::World;
use gateway_core::request_values;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ValidationRefusal;
use super::content::{BodyContent, BodyRule, ObjectSchema};
use super::dialect::SchemaDialect;
use super::openapi::{OnUnknown, OpenApi, Unknown};
use super::values;

/// Settings of `request_validation`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// JSON Schema of bodies: of JSON, of forms (URL-encoded or multipart) as an object, of `text/*` as a string, if
    /// `content_types` contains it. Default none.
    body_schema: Option<Map<String, Value>>,
    /// JSON Schema of the query, as an object. Its `properties` decide which parameters are read as numbers, booleans
    /// and lists. Default none.
    query_schema: Option<Map<String, Value>>,
    /// JSON Schema of the headers, as an object with lower-case names. Default none.
    headers_schema: Option<Map<String, Value>>,
    /// Allowed media types of bodies, such as `application/json` or `image/*`. Default any.
    content_types: Vec<String>,
    /// Rejects requests without a body. Default false.
    require_body: bool,
    /// File with an OpenAPI document, 3.0 or 3.1, in JSON or YAML, up to 16 MiB. The plugin checks requests against its
    /// paths, methods, parameters and bodies. Not together with the schemas above. Default none.
    #[schemars(extend("format" = "path"))]
    openapi: Option<PathBuf>,
    /// Prefix of the document's paths in requests. Default the path of its first server.
    base_path: Option<String>,
    /// What happens to paths and methods that the document does not contain: `deny` answers 404 or 405, `allow` admits
    /// them unchecked. Default `deny`.
    on_unknown_path: Unknown,
    /// What happens to query parameters that the document does not contain: `allow` or `deny`. Default `allow`.
    on_unknown_query: Option<Unknown>,
    /// Size of a body to check, 1 byte to 64 MiB; larger ones are rejected. Default 1 MiB.
    #[schemars(range(min = 1, max = 67_108_864))]
    max_body: Bytes,
    /// Status of invalid requests, 400 to 499. Default 400.
    #[schemars(range(min = 400, max = 499))]
    status_code: u16,
    /// Counts violations and logs `request_validation.would_refuse`, but rejects nothing. Default false.
    dry_run: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            body_schema: None,
            query_schema: None,
            headers_schema: None,
            content_types: Vec::new(),
            require_body: false,
            openapi: None,
            base_path: None,
            on_unknown_path: Unknown::Deny,
            on_unknown_query: None,
            max_body: Bytes(1 << 20),
            status_code: 400,
            dry_run: false,
        }
    }
}

/// Settings, checked.
pub(super) struct Rules {
    query: Option<ObjectSchema>,
    headers: Option<ObjectSchema>,
    body: Arc<BodyContent>,
    openapi: Option<OpenApi>,
    pub(super) max_body: u64,
    pub(super) status: StatusCode,
    pub(super) dry_run: bool,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, world: &World, problems: &mut Problems) -> Rules {
    let has_schemas =
        config.body_schema.is_some() || config.query_schema.is_some() || config.headers_schema.is_some();
    let has_rules = has_schemas || !config.content_types.is_empty() || config.require_body;
    if !has_rules && config.openapi.is_none() {
        problems.add("config", "nothing is checked").remedy =
            Some("give `openapi`, or a schema such as `body_schema`".into());
    }
    if config.openapi.is_some() && has_rules {
        problems
            .add("config.openapi", "the document stands for all schemas, types and `require_body`")
            .remedy = Some("use another plugin config for further schemas".into());
    }
    for (name, given) in [
        ("base_path", config.base_path.is_some()),
        ("on_unknown_path", config.on_unknown_path == Unknown::Allow),
        ("on_unknown_query", config.on_unknown_query.is_some()),
    ] {
        if given && config.openapi.is_none() {
            problems.add(format!("config.{name}"), "this is about an OpenAPI document");
        }
    }
    if let Some(name) = config.headers_schema.as_ref().and_then(name_in_capitals) {
        problems.add("config.headers_schema", format!("no request has the header `{name}`")).remedy =
            Some(format!("write names in lower case: `{}`", name.to_ascii_lowercase()));
    }
    let mut object = |name: &str, schema: Option<Map<String, Value>>| {
        let schema = Value::Object(schema?);
        match ObjectSchema::compile(&schema, &schema, None, SchemaDialect::Standard) {
            Ok(compiled) => Some(compiled),
            Err(why) => {
                problems.add(format!("config.{name}"), why);
                None
            }
        }
    };
    let query = object("query_schema", config.query_schema);
    let headers = object("headers_schema", config.headers_schema);
    let body = object("body_schema", config.body_schema);
    let body = content(body, config.content_types, config.require_body, problems);
    let openapi = config.openapi.as_ref().and_then(|path| {
        let query = config.on_unknown_query.unwrap_or(Unknown::Allow);
        let unknown = OnUnknown { path: config.on_unknown_path, query };
        OpenApi::read(path, config.base_path.as_deref(), unknown, world, problems)
    });
    Rules {
        query,
        headers,
        body: Arc::new(body),
        openapi,
        max_body: config.max_body.0,
        status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::BAD_REQUEST),
        dry_run: config.dry_run,
    }
}

/// A header's name that a schema writes in capitals: names come in lower case.
fn name_in_capitals(schema: &Map<String, Value>) -> Option<&str> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut names = required.filter_map(Value::as_str).chain(properties.map(|(name, _)| name.as_str()));
    names.find(|name| name.bytes().any(|c| c.is_ascii_uppercase()))
}

fn content(
    schema: Option<ObjectSchema>,
    types: Vec<String>,
    required: bool,
    problems: &mut Problems,
) -> BodyContent {
    for (n, text) in types.iter().enumerate() {
        let is_token = |text: &str| {
            !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"!#$&^_.+-*".contains(&c))
        };
        if !text.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub)) {
            problems.add(format!("config.content_types[{n}]"), format!("`{text}` is not a media type"));
        }
    }
    let mut types: Vec<_> = types.into_iter().map(|text| (text.to_ascii_lowercase(), None)).collect();
    match schema {
        None => {}
        Some(schema) if types.is_empty() => types = vec![("*/*".into(), Some(schema))],
        // One schema, whichever of the types a body has.
        Some(schema) => {
            let shared: Vec<_> = types.drain(1..).collect();
            types = std::iter::once((types.remove(0).0, Some(schema))).collect();
            if !shared.is_empty() {
                problems.add("config.content_types", "with `body_schema` there is one content type").remedy =
                    Some("use a plugin config for each, with `when`".into());
            }
        }
    }
    BodyContent { required, types }
}

impl Rules {
    /// Checks what is known before the body; says how the body is to be checked.
    pub(super) fn check_head(&self, exchange: &Exchange) -> Result<BodyRule, ValidationRefusal> {
        if let Some(openapi) = &self.openapi {
            let content = openapi.check(exchange)?;
            return BodyRule::new(content.unwrap_or_default(), exchange);
        }
        let mut faults = Vec::new();
        if let Some(query) = &self.query {
            let pairs = values::pairs(exchange.request.uri.query().unwrap_or_default());
            query.check("query", pairs, &mut faults);
        }
        if let Some(schema) = &self.headers {
            let headers = &exchange.request.headers;
            let pairs = headers.keys().filter_map(|name| {
                // Several fields of one name are one value.
                let value = request_values::header(headers, name)?;
                Some((name.as_str().to_owned(), String::from_utf8_lossy(&value).into_owned()))
            });
            schema.check("headers", Some(pairs.collect()), &mut faults);
        }
        if !faults.is_empty() {
            return Err(ValidationRefusal::invalid(&faults));
        }
        BodyRule::new(self.body.clone(), exchange)
    }
}
