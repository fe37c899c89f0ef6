//! The description of the admin API, made of the table of endpoints and of the schema files are checked by.

mod bodies;
mod schemas;

use std::sync::OnceLock;

use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use serde_json::{Map, Value, json};

use super::changes;
use super::endpoint::{Body, Endpoint, Narrowed, Param, ResponseContent, Type};

/// `GET /v1/openapi.json`: the description of `all` endpoints, made once.
pub(super) async fn document(all: fn() -> Vec<Endpoint>) -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| format!("{}\n", openapi(all())));
    ([(CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

/// The whole description (OpenAPI 3.1).
fn openapi(all: Vec<Endpoint>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in all {
        // Objects of each kind have types of their own.
        let kinds =
            if endpoint.path.contains("{kind}") { ObjectKind::ALL.map(Some).to_vec() } else { vec![None] };
        for kind in kinds {
            let path = kind.map_or_else(
                || endpoint.path.to_owned(),
                |kind| endpoint.path.replace("{kind}", kind.as_str()),
            );
            let operations = paths.entry(path.clone()).or_insert_with(|| json!({}));
            let method = endpoint.method.as_str().to_lowercase();
            let id = format!("{method}{}", name(&path));
            operations[&method] = operation(&endpoint, tag(&path), kind, &id);
        }
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ferrum-edge admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A write answers once every worker of the gateway serves it; `ferrum-revision` says as which revision. Errors are RFC 9457 documents with a pointer to each bad field.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "responses": { "Problem": { "description": "An error.", "content": {
                "application/problem+json": { "schema": reference("Problem") },
            } } },
            "schemas": schemas::all(),
        },
    });
    give_types(&mut document);
    document
}

/// Names the type of values that are listed one by one: generators of code take them for anything otherwise.
fn give_types(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(give_types),
        Value::Object(fields) => {
            fields.values_mut().for_each(give_types);
            let listed = fields.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty());
            let is_text = listed.is_some_and(|values| values.iter().all(Value::is_string));
            if is_text && !fields.contains_key("type") {
                fields.insert("type".to_owned(), json!("string"));
            }
        }
        _ => {}
    }
}

/// What an operation is listed under: the first word of its path.
fn tag(path: &str) -> &str {
    match path.strip_prefix("/v1/") {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => "health",
    }
}

/// `/v1/revisions/{revision}/rollback` is `RevisionsByRevisionRollback`.
fn name(path: &str) -> String {
    let words = path.trim_start_matches("/v1").split('/').filter(|part| !part.is_empty());
    let words = words.map(|part| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(parameter) => format!("By{}", pascal(parameter)),
        None => pascal(part),
    });
    words.collect()
}

fn pascal(text: &str) -> String {
    let words = text.split(['_', '.', '-']).filter(|word| !word.is_empty());
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
    };
    words.filter_map(capital).collect()
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// What the schemas call an object of a kind.
fn type_of(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Upstreams => "Upstream",
        ObjectKind::PluginConfigs => "PluginConfig",
        ObjectKind::Proxies => "Proxy",
        ObjectKind::Consumers => "Consumer",
    }
}

fn operation(endpoint: &Endpoint, tag: &str, kind: Option<ObjectKind>, id: &str) -> Value {
    let mut operation = json!({
        "operationId": id,
        "tags": [tag],
        "summary": endpoint.summary,
        "parameters": parameters(endpoint),
        "responses": responses(endpoint, kind),
    });
    if let Some(role) = endpoint.gate.role() {
        operation["security"] = json!([{ "bearer": [] }]);
        operation["description"] = json!(format!("Needs the role {}.", role.as_str()));
        operation["x-ferrum-grants"] = json!(match endpoint.narrowed {
            Narrowed::Refused => "none",
            Narrowed::Own => "own",
            Narrowed::ByProxy => "proxy",
        });
    }
    if let Some(body) = endpoint.body {
        let content = match body {
            Body::Patch => "application/merge-patch+json",
            _ => "application/json",
        };
        let is_required = !matches!(body, Body::Target | Body::Action);
        operation["requestBody"] = json!({ "required": is_required, "content": { content: { "schema": bodies::request_schema(body, kind) } } });
    }
    operation
}

/// An entity tag as the API answers it, or any.
const ETAG: &str = "^(\\*|\"[0-9]{1,19}\")$";
/// A status as records are asked for by it; the second of a range is not below the first.
const STATUS: &str = "^([1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?)$";
/// An address or a block of them, as far as a pattern says it.
const NETWORK: &str = "^[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?$";
/// A target in a path, decoded.
const TARGET: &str = "^(unix:/.*|srv:.+|.+:[0-9]{1,5})$";
/// A time that the API reads.
const TIME: &str = "^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d)T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\dZ$";

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.filter(|name| *name != "kind").map(|name| {
        let schema = match name {
            "revision" | "number" => json!({ "type": "integer", "minimum": 0 }),
            "id" => json!({ "type": "string", "minLength": 1, "maxLength": 254, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$" }),
            "target" => json!({ "type": "string", "pattern": TARGET }),
            _ => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let in_query = endpoint.query.iter().map(|Param { name, meaning, of, required }| {
        let schema = match of {
            Type::Text => json!({ "type": "string" }),
            Type::Status => json!({ "type": "string", "pattern": STATUS }),
            Type::Address => {
                json!({ "type": "string", "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] })
            }
            Type::Network => json!({ "type": "string", "pattern": NETWORK }),
            Type::OneOf(words) => json!({ "type": "string", "enum": words }),
            Type::Page => json!({ "type": "string", "pattern": "^([0-9]{1,19}|udp-[0-9]{1,4}-[0-9]{1,4}-[0-9]{1,19})$" }),
            Type::Time => json!({ "type": "string", "format": "date-time", "pattern": TIME }),
            Type::Switch => json!({ "type": "boolean" }),
            // Its name alone is enough.
            Type::Flag => json!({ "type": "string" }),
            Type::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        };
        json!({ "name": name, "in": "query", "required": required, "description": meaning, "schema": schema })
    });
    let mut parameters: Vec<Value> = in_path.chain(in_query).collect();
    let mut header = |name: &str, pattern: &str, meaning: &str| {
        parameters.push(json!({
            "name": name, "in": "header", "required": false, "description": meaning,
            "schema": { "type": "string", "pattern": pattern },
        }));
    };
    let is_write = endpoint.method != Method::GET;
    if !is_write && endpoint.answer == ResponseContent::Object && endpoint.path == "/v1/{kind}/{id}" {
        header("If-None-Match", ".*", "ETags; 304 if one of them matches.");
    }
    if is_write && endpoint.path == "/v1/{kind}/{id}" {
        header("If-Match", ETAG, "Required ETag of the object, or `*`; 412 if it has changed since.");
        header("If-None-Match", "^\\*$", "`*`: creates the object, and never replaces one (412).");
    } else if is_write && endpoint.answer == ResponseContent::Upstream {
        header(
            "If-Match",
            ETAG,
            "Required ETag of the upstream, or `*`. Without it, concurrent changes are not detected.",
        );
    } else if is_write && endpoint.answer == ResponseContent::Summary {
        header("If-Match", ETAG, "Required ETag of the whole configuration; 412 if it has changed since.");
    }
    parameters
}

/// Every status there is an answer for; all others are errors.
fn responses(endpoint: &Endpoint, kind: Option<ObjectKind>) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    let good = match endpoint.answer {
        ResponseContent::Health | ResponseContent::Metrics => {
            json!({ "text/plain": { "schema": { "type": "string" } } })
        }
        ResponseContent::Events => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        ResponseContent::Records => json!({ "application/x-ndjson": { "schema": { "type": "string" } } }),
        ResponseContent::Nothing => Value::Null,
        ResponseContent::Object => json_of(
            kind.map_or(json!({ "type": "object" }), |kind| reference(&format!("Stored{}", type_of(kind)))),
        ),
        ResponseContent::Page => json_of(reference(
            &kind.map_or_else(|| "Targets".to_owned(), |kind| format!("{}Page", type_of(kind))),
        )),
        ResponseContent::Export => json_of(reference("Export")),
        ResponseContent::Upstream => json_of(reference("StoredUpstream")),
        ResponseContent::Summary => json_of(reference("Summary")),
        ResponseContent::Revisions => json_of(reference("RevisionPage")),
        ResponseContent::Revision => json_of(reference("RevisionWithChanges")),
        ResponseContent::Diff => json_of(reference("Diff")),
        ResponseContent::Sessions => json_of(reference("SessionPage")),
        ResponseContent::Audit => json_of(reference("AuditPage")),
        ResponseContent::AuditCheck => json_of(reference("AuditCheck")),
        ResponseContent::Traffic => json_of(reference("Traffic")),
        ResponseContent::Document => json_of(json!({ "type": "object" })),
    };
    let with = |description: &str| match &good {
        Value::Null => json!({ "description": description }),
        content => json!({ "description": description, "content": content }),
    };
    let mut responses = json!({ endpoint.status.to_string(): with("Done.") });
    if endpoint.answer == ResponseContent::Health {
        responses["503"] = with("Not ready; each check contains the reason.");
    }
    if matches!(
        endpoint.answer,
        ResponseContent::Object | ResponseContent::Nothing | ResponseContent::Upstream
    ) && endpoint.method != Method::GET
    {
        let checked = json!({ "description": "`validate_only`: the change is valid.", "content": json_of(reference("Checked")) });
        match (endpoint.status, endpoint.method == Method::PUT) {
            // A PUT answers 201 when it created the object, and 200 when it replaced it or only checked it.
            (200, true) => responses["201"] = with("Created."),
            (201 | 204, _) => responses["200"] = checked,
            _ => {}
        }
    }
    if endpoint.query.iter().any(|key| key.name == "validate_only") && endpoint.path != changes::APPROVE {
        let waits = "The change waits until another user approves it; see `gateway.admin_approval`.";
        responses["202"] = json!({ "description": waits, "content": json_of(json!({ "type": "object" })) });
    }
    if endpoint.answer == ResponseContent::Object && endpoint.method == Method::GET {
        responses["304"] = json!({ "description": "It has not changed." });
    }
    responses["default"] = json!({ "$ref": "#/components/responses/Problem" });
    responses
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::endpoints::all;
    use super::*;

    /// Every schema under this value that lists values, or is of a parameter.
    fn listed<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| listed(item, found)),
            Value::Object(fields) => {
                if fields.get("enum").is_some_and(Value::is_array)
                    || fields.get("const").is_some_and(|it| !it.is_object())
                {
                    found.push(value);
                }
                if fields.contains_key("in")
                    && let Some(schema) = fields.get("schema")
                {
                    found.push(schema);
                }
                fields.values().for_each(|value| listed(value, found));
            }
            _ => {}
        }
    }

    #[test]
    fn everything_listed_has_a_type() {
        let (description, mut found) = (openapi(all()), Vec::new());
        listed(&description, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for schema in found {
            assert!(schema.get("type").is_some(), "{schema}");
        }
        let session = &description["components"]["schemas"]["SessionPage"]["properties"]["items"]["items"];
        let protocols = &session["properties"]["protocol"];
        assert_eq!(
            protocols["enum"],
            json!(["tcp", "udp", "dtls", "websocket", "event_stream", "grpc", "http"]),
            "{session}"
        );
        let tags = |path: &str| &description["paths"][path]["get"]["tags"];
        assert_eq!((tags("/livez"), tags("/v1/proxies/{id}")), (&json!(["health"]), &json!(["proxies"])));
    }

    /// What a pattern forbids is refused, and what is taken fits it.
    #[test]
    fn patterns_say_what_is_taken() {
        let is_status: fn(&str) -> bool = |text| super::super::records::status_range(text).is_some();
        let is_network: fn(&str) -> bool = |text| super::super::records::network(text).is_ok();
        let is_target: fn(&str) -> bool = |text| super::super::targets::address(text).is_ok();
        type Case<'c> = (&'c str, fn(&str) -> bool, &'c [&'c str], &'c [&'c str]);
        let cases: [Case<'_>; 3] = [
            (
                STATUS,
                is_status,
                &["404", "5xx", "500-504", "100", "599"],
                &[
                    "", "xx", "0xx", "6xx", "01xx", "+5xx", "99", "600", "0404", "+404", "404-", "-404",
                    "4040",
                ],
            ),
            (
                NETWORK,
                is_network,
                &["10.0.0.0/8", "::1", "2001:db8::/32", "192.0.2.7", "::ffff:192.0.2.7"],
                &["", "x", "10.0.0.0/", "10.0.0.0/1000", "localhost", "10.0.0.0 /8"],
            ),
            (
                TARGET,
                is_target,
                &["a:80", "[::1]:443", "10.0.0.1:1", "unix:/run/app.sock", "srv:_http._tcp.shop.example.com"],
                &["", "a", ":80", "a:", "a:x", "a:123456", "srv:", "unix:", "unix:app.sock"],
            ),
        ];
        for (pattern, is_taken, good, bad) in cases {
            let written = regex::Regex::new(pattern).unwrap();
            for text in good {
                assert!(written.is_match(text) && is_taken(text), "{text} fits {pattern}");
            }
            for text in bad {
                assert!(!written.is_match(text) && !is_taken(text), "{text} does not fit {pattern}");
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own_and_typed_answers() {
        let description = openapi(all());
        let mut names = BTreeSet::new();
        for (path, operations) in description["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} twice");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("default") && responses.len() > 1, "{method} {path}");
            }
        }
        for name in
            ["getProxies", "putProxiesById", "postRevisionsByRevisionRollback", "getStatus", "getLivez"]
        {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        let proxies = &description["paths"]["/v1/proxies"];
        assert_eq!(
            proxies["post"]["requestBody"]["content"]["application/json"]["schema"],
            reference("Proxy")
        );
        assert_eq!(
            proxies["get"]["responses"]["200"]["content"]["application/json"]["schema"],
            reference("ProxyPage")
        );
        let limit = proxies["get"]["parameters"].as_array().unwrap().iter().find(|of| of["name"] == "limit");
        assert_eq!(limit.unwrap()["schema"], json!({ "type": "integer", "minimum": 1, "maximum": 1000 }));
        let deleted = description["paths"]["/v1/proxies/{id}"]["delete"]["parameters"].as_array().unwrap();
        let pattern =
            |name: &str| &deleted.iter().find(|of| of["name"] == name).unwrap()["schema"]["pattern"];
        assert_eq!((pattern("If-None-Match"), pattern("If-Match")), (&json!("^\\*$"), &json!(ETAG)));
        let from = &description["paths"]["/v1/diff"]["get"]["parameters"][0];
        assert_eq!((&from["name"], &from["required"]), (&json!("from"), &json!(true)));
    }
}
