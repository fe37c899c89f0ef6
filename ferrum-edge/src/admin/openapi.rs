//! The description of the admin API, made of the table of endpoints and of the schema files are checked by.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gateway_core::config::file::File;
use serde_json::{Map, Value, json};

use super::endpoints::{Body, Endpoint, all};

/// `GET /v1/openapi.json`.
pub(super) async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{}\n", openapi()));
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// The whole description (OpenAPI 3.1).
fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in all() {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = operation(&endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ferrum-edge admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A write answers once every worker of the gateway serves it; `ferrum-revision` says as which revision. Errors are RFC 9457 documents with a pointer to each bad field.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut operation = json!({ "summary": endpoint.summary, "parameters": parameters(endpoint) });
    if endpoint.role.is_some() {
        let role = format!("{:?}", endpoint.role).to_lowercase();
        let role = role.trim_start_matches("some(").trim_end_matches(')');
        operation["security"] = json!([{ "bearer": [] }]);
        operation["description"] = json!(format!("Needs the role {role}."));
    }
    if let Some(body) = endpoint.body {
        let content = match body {
            Body::Patch => "application/merge-patch+json",
            Body::Object | Body::Target | Body::Batch | Body::File | Body::Action => "application/json",
        };
        operation["requestBody"] = json!({ "content": { content: { "schema": schema(body) } } });
    }
    let good = endpoint.status.to_string();
    operation["responses"] = json!({ good: { "description": "Done." } });
    if endpoint.role.is_some() {
        let problem = json!({ "description": "An error.", "content": {
            "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } },
        } });
        operation["responses"]["default"] = problem;
    }
    operation
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| match name {
        "kind" => json!({
            "name": name, "in": "path", "required": true,
            "schema": { "enum": ["upstreams", "plugin_configs", "proxies", "consumers"] },
        }),
        name => json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
    });
    let in_query = endpoint.query.iter().map(|(name, meaning)| {
        json!({ "name": name, "in": "query", "description": meaning, "schema": { "type": "string" } })
    });
    let mut parameters: Vec<Value> = in_path.chain(in_query).collect();
    if endpoint.path.ends_with("{id}") && endpoint.method != http::Method::GET {
        let meaning = "The ETag the object must have; 412 when somebody changed it meanwhile.";
        parameters.push(json!({
            "name": "If-Match", "in": "header", "description": meaning, "schema": { "type": "string" },
        }));
    }
    parameters
}

fn schema(body: Body) -> Value {
    let list =
        |name: &str| json!({ "type": "array", "items": { "$ref": format!("#/components/schemas/{name}") } });
    match body {
        Body::Object => json!({ "oneOf": [
            { "$ref": "#/components/schemas/Proxy" }, { "$ref": "#/components/schemas/Consumer" },
            { "$ref": "#/components/schemas/Upstream" }, { "$ref": "#/components/schemas/PluginConfig" },
        ] }),
        Body::Patch | Body::Action => json!({ "type": "object" }),
        Body::Target => json!({ "$ref": "#/components/schemas/Target" }),
        Body::Batch => json!({ "type": "object", "properties": {
            "upstreams": list("Upstream"), "plugin_configs": list("PluginConfig"),
            "proxies": list("Proxy"), "consumers": list("Consumer"),
            "delete": { "type": "object", "description": "Lists of ids by kind." },
        } }),
        Body::File => json!({ "$ref": "#/components/schemas/File" }),
    }
}

/// The types of configuration files, and the error.
fn schemas() -> Value {
    let mut file = File::schema().as_value().clone();
    relink(&mut file);
    let mut schemas = match file.as_object_mut().and_then(|file| file.shift_remove("$defs")) {
        Some(Value::Object(types)) => types,
        _ => Map::new(),
    };
    schemas.insert("File".to_owned(), file);
    let error = json!({ "type": "object", "properties": {
        "pointer": { "type": "string", "description": "The field (RFC 6901)." },
        "detail": { "type": "string" }, "remedy": { "type": ["string", "null"] },
    } });
    schemas.insert(
        "Problem".to_owned(),
        json!({ "type": "object", "properties": {
        "type": { "type": "string" }, "title": { "type": "string" }, "status": { "type": "integer" },
        "code": { "type": "string", "description": "Stable, for machines." },
        "detail": { "type": "string" }, "errors": { "type": "array", "items": error },
    } }),
    );
    Value::Object(schemas)
}

/// References within a schema, as an OpenAPI document writes them.
fn relink(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/$defs/", "#/components/schemas/");
                    }
                    value => relink(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(relink),
        _ => {}
    }
}
