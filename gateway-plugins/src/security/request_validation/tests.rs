//! What fits, what is refused, and that each option does something.

mod bodies;

use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::{Machine, metric};
use serde_json::{Value, json};

use super::*;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<RequestValidation>()], "request_validation", config)
}

const JSON: (&str, &str) = ("content-type", "application/json");

async fn post(trial: &Trial, body: impl ToString) -> Got {
    trial.request("POST", "/", &[JSON], body.to_string()).await
}

fn person() -> Value {
    json!({
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "maxLength": 10 },
            "age": { "type": "integer", "minimum": 0 },
            "mail": { "type": "string", "format": "email" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "admin": { "type": "boolean" },
        },
    })
}

#[tokio::test]
async fn bodies_fit_their_schema() {
    let trial = trial(json!({ "body_schema": person() }));
    for (body, fits) in [
        (json!({ "name": "a", "age": 5, "mail": "a@b.example" }), true),
        (json!({ "age": 5 }), false),
        (json!({ "name": "a", "age": "5" }), false),
        (json!({ "name": "a", "mail": "nonsense" }), false),
        (json!({ "name": "a", "other": 1 }), false),
        (json!([]), false),
    ] {
        assert_eq!(post(&trial, &body).await.status, if fits { 200 } else { 400 }, "{body}");
    }
    assert_eq!(trial.asked()[0].body, json!({ "name": "a", "age": 5, "mail": "a@b.example" }).to_string());
    let got = post(&trial, json!({ "name": "a secret that is too long" })).await;
    let detail = got.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("body at /name") && detail.contains("maxLength"), "{detail}");
    assert!(!got.text().contains("secret"), "the value is not echoed: {detail}");
    assert_eq!(trial.records().pop().unwrap().reason, Some("request_invalid"));
}

#[tokio::test]
async fn bodies_that_cant_be_read_are_refused() {
    let trial = trial(json!({ "body_schema": person(), "max_body": 100 }));
    for (fields, body, status) in [
        (vec![JSON], r#"{"name":"a","name":"b"}"#.to_owned(), 400),
        (vec![JSON], r#"{"name":"a"} x"#.to_owned(), 400),
        (vec![JSON], "{".to_owned(), 400),
        (vec![JSON], "[".repeat(99), 400),
        (vec![JSON], " ".repeat(101), 413),
        (vec![JSON, ("content-encoding", "gzip")], r#"{"name":"a"}"#.to_owned(), 415),
        (vec![("content-type", "text/plain")], r#"{"name":"a"}"#.to_owned(), 415),
        (vec![JSON, ("content-type", "text/plain")], r#"{"name":"a"}"#.to_owned(), 415),
        (vec![("content-type", "application/json; charset=utf-16")], r#"{"name":"a"}"#.to_owned(), 415),
        (vec![("content-type", "application/merge-patch+json")], r#"{"name":"a"}"#.to_owned(), 200),
        (
            vec![("content-type", "application/x-www-form-urlencoded")],
            "name=a&age=5&tags=x&tags=y&admin=true".to_owned(),
            200,
        ),
        (vec![("content-type", "application/x-www-form-urlencoded")], "name=a&name=b".to_owned(), 400),
        (vec![("content-type", "application/x-www-form-urlencoded")], "name=a&age=x".to_owned(), 400),
    ] {
        let got = trial.request("POST", "/", &fields, body.clone()).await;
        assert_eq!(got.status, status, "{fields:?} {body} {}", got.text());
    }
    assert_eq!(trial.get("/", &[]).await.status, 200, "no body is none to check");
}

#[tokio::test]
async fn large_bodies_are_checked_too() {
    let trial = trial(json!({ "body_schema": { "type": "array", "items": { "type": "integer" } } }));
    let numbers: Vec<u32> = (0..20_000).collect();
    assert_eq!(post(&trial, json!(numbers)).await.status, 200);
    assert_eq!(post(&trial, json!([numbers, "x"])).await.status, 400);
}

#[tokio::test]
async fn types_presence_and_the_status() {
    let types = trial(
        json!({ "content_types": ["application/json", "image/*"], "require_body": true, "status_code": 422 }),
    );
    for (kind, status) in [("application/json", 200), ("Image/PNG", 200), ("text/html", 415)] {
        assert_eq!(types.request("POST", "/", &[("content-type", kind)], "x").await.status, status, "{kind}");
    }
    assert_eq!(types.request("POST", "/", &[], "x").await.status, 415);
    assert_eq!(types.request("POST", "/", &[JSON], "").await.status, 422);
}

#[tokio::test]
async fn queries_and_headers_fit() {
    let schema = json!({
        "properties": { "page": { "type": "integer", "maximum": 9 }, "on": { "type": "boolean" }, "id": { "type": "array", "items": { "type": "number" } } },
        "required": ["page"], "additionalProperties": false,
    });
    let query = trial(json!({ "query_schema": schema }));
    for (text, status) in [
        ("page=5", 200),
        ("page=10", 400),
        ("page=05", 400),
        ("page=5&page=5", 400),
        ("page=x", 400),
        ("page=5&on=true&id=1&id=2.5", 200),
        ("page=5&on=yes", 400),
        ("page=5&other=1", 400),
        ("%70age=5", 200),
        ("page=%ff", 400),
        ("", 400),
    ] {
        assert_eq!(query.get(&format!("/?{text}"), &[]).await.status, status, "{text}");
    }
    let headers = trial(json!({ "headers_schema": {
        "required": ["x-tenant"], "properties": { "x-tenant": { "pattern": "^[a-z]+$" } } } }));
    for (fields, status) in [
        (vec![("x-tenant", "abc")], 200),
        (vec![("x-tenant", "ABC")], 400),
        (vec![("x-tenant", "abc"), ("x-tenant", "evil")], 400),
        (vec![], 400),
    ] {
        assert_eq!(headers.get("/", &fields).await.status, status, "{fields:?}");
    }
}

/// YAML 1.2, as the gateway's own file: Norway's code and a switch are text, and numbers have no octals.
#[tokio::test]
async fn a_document_is_yaml_as_openapi_says() {
    let document = r#"
openapi: 3.0.3
info: { title: t, version: "1" }
paths:
  /a:
    get:
      parameters:
        - { name: country, in: query, schema: { type: string, enum: [NO, DE] } }
        - { name: n, in: query, schema: { type: integer, maximum: 012 } }
        - { name: on, in: query, schema: { type: string, enum: [on, off, y] } }
"#;
    let trial = with_document(document, json!({})).unwrap();
    for (query, status) in [
        ("country=NO", 200),
        ("country=false", 400),
        ("n=12", 200),
        ("n=13", 400),
        ("on=y", 200),
        ("on=true", 400),
    ] {
        assert_eq!(trial.get(&format!("/a?{query}"), &[]).await.status, status, "{query}");
    }
}

const DOCUMENT: &str = r##"
openapi: 3.1.0
info: { title: t, version: "1" }
servers: [{ url: "https://api.example/v1" }]
paths:
  /pets:
    parameters:
      - { name: X-Tenant, in: header, required: true, schema: { type: string, minLength: 2 } }
    get:
      parameters:
        - { name: limit, in: query, schema: { type: integer, maximum: 100 } }
        - { name: ids, in: query, explode: false, schema: { type: array, items: { type: integer } } }
        - { name: tags, in: query, schema: { type: array, items: { type: string }, maxItems: 2 } }
        - { name: filter, in: query, content: { application/json: { schema: { type: object, required: [a] } } } }
        - { name: session, in: cookie, schema: { type: string, pattern: "^[a-f]+$" } }
    post:
      requestBody:
        required: true
        content:
          application/json: { schema: { $ref: "#/components/schemas/Pet" } }
          application/octet-stream: {}
  /pets/mine:
    get: {}
  /pets/{id}:
    get:
      parameters: [{ $ref: "#/components/parameters/Id" }]
components:
  parameters:
    Id: { name: id, in: path, required: true, schema: { type: integer } }
  schemas:
    Pet:
      type: object
      required: [name, id]
      properties:
        id: { type: integer, readOnly: true }
        name: { type: string }
        parent: { $ref: "#/components/schemas/Pet" }
"##;

fn with_document(document: &str, more: Value) -> Result<Trial, Problems> {
    let machine = Machine::default();
    machine.files.put("api.yaml", document);
    let mut config = json!({ "openapi": "api.yaml" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "v", "plugin_name": "request_validation", "proxy_id": "a", "config": config }],
    });
    Trial::try_of_spec(&[entry::<RequestValidation>()], &spec.to_string(), &machine.world())
}

fn documented(more: Value) -> Trial {
    with_document(DOCUMENT, more).unwrap_or_else(|problems| panic!("{problems}"))
}

#[tokio::test]
async fn a_whole_document_is_checked() {
    let trial = documented(json!({}));
    let tenant = [("x-tenant", "ab")];
    for (path, fields, status) in [
        ("/v1/pets", &tenant[..], 200),
        ("/v1/pets", &[], 400),
        ("/v1/pets", &[("x-tenant", "a")], 400),
        ("/v1/pets?limit=5", &tenant, 200),
        ("/v1/pets?limit=101", &tenant, 400),
        ("/v1/pets?limit=x", &tenant, 400),
        ("/v1/pets?limit=5&limit=5", &tenant, 400),
        ("/v1/pets?ids=1,2,3", &tenant, 200),
        ("/v1/pets?ids=1,x", &tenant, 400),
        ("/v1/pets?tags=a&tags=b", &tenant, 200),
        ("/v1/pets?tags=a&tags=b&tags=c", &tenant, 400),
        ("/v1/pets?filter=%7B%22a%22:1%7D", &tenant, 200),
        ("/v1/pets?filter=%7B%7D", &tenant, 400),
        ("/v1/pets?filter=x", &tenant, 400),
        ("/v1/pets?other=1", &tenant, 200),
        ("/v1/pets", &[("x-tenant", "ab"), ("cookie", "session=abc")], 200),
        ("/v1/pets", &[("x-tenant", "ab"), ("cookie", "session=xyz")], 400),
        ("/v1/pets", &[("x-tenant", "ab"), ("cookie", "session=abc; session=abc")], 400),
        ("/v1/pets", &[("x-tenant", "ab"), ("cookie", "session=abc"), ("cookie", "a=b; session=xyz")], 400),
        ("/v1/pets/7", &[], 200),
        ("/v1/pets/x", &[], 400),
        ("/v1/pets/mine", &[], 200),
        ("/v1/pets/", &[], 404),
        ("/v1/other", &[], 404),
        ("/pets", &tenant, 404),
        ("/v1evil/pets", &tenant, 404),
    ] {
        let got = trial.get(path, fields).await;
        assert_eq!(got.status, status, "{path} {}", got.text());
    }
    let other = trial.request("DELETE", "/v1/pets/7", &[], "").await;
    assert_eq!((other.status, other.field("allow")), (405, "GET, HEAD"));
    assert_eq!(trial.request("HEAD", "/v1/pets/7", &[], "").await.status, 200);
    for (kind, body, status) in [
        ("application/json", r#"{"name":"a","parent":{"name":"b"}}"#, 200),
        ("application/json", r#"{"name":"a","parent":{"name":5}}"#, 400),
        ("application/json", "{}", 400),
        ("application/octet-stream", "\u{1}", 200),
        ("text/plain", "x", 415),
        ("application/json", "", 400),
    ] {
        let fields = [("x-tenant", "ab"), ("content-type", kind)];
        assert_eq!(trial.request("POST", "/v1/pets", &fields, body).await.status, status, "{kind} {body}");
    }
}

#[tokio::test]
async fn a_document_may_leave_room() {
    let lax = documented(json!({ "on_unknown_path": "allow", "base_path": "/" }));
    assert_eq!(lax.get("/other", &[]).await.status, 200);
    assert_eq!(lax.request("DELETE", "/pets/7", &[], "").await.status, 200);
    assert_eq!(lax.get("/pets", &[]).await.status, 400);
    let strict = documented(json!({ "on_unknown_query": "deny" }));
    assert_eq!(strict.get("/v1/pets/7?x=1", &[]).await.status, 400);
    assert_eq!(strict.get("/v1/pets/7", &[]).await.status, 200);
}

#[tokio::test]
async fn formats_of_openapi_hold_in_both_versions() {
    for version in ["3.0.3", "3.1.0"] {
        let document = json!({
            "openapi": version, "info": {}, "paths": { "/a": { "post": { "requestBody": { "content": { "application/json": { "schema": {
                "type": "object", "properties": {
                    "u": { "type": "string", "format": "uuid" },
                    "i": { "type": "integer", "format": "int32" },
                    "l": { "type": "integer", "format": "int64", "maximum": 7 },
                    "b": { "type": "string", "format": "byte" },
                    "free": { "type": "string", "format": "of-its-own" },
                } } } } } } } },
        });
        let trial =
            with_document(&document.to_string(), json!({})).unwrap_or_else(|problems| panic!("{problems}"));
        for (body, status) in [
            (
                json!({ "u": "123e4567-e89b-12d3-a456-426614174000", "i": -5, "l": 7, "b": "aGk=", "free": "x" }),
                200,
            ),
            (json!({ "u": "123e4567e89b-12d3-a456-4266141740000" }), 400),
            (json!({ "i": 2_147_483_648_u64 }), 400),
            (json!({ "l": 8 }), 400),
            (json!({ "l": 9_223_372_036_854_775_808_u64 }), 400),
            (json!({ "b": "%%%" }), 400),
        ] {
            let got = trial.request("POST", "/a", &[JSON], body.to_string()).await;
            assert_eq!(got.status, status, "{version} {body}");
        }
    }
}

#[tokio::test]
async fn documents_of_version_3_0_have_nullable_and_boolean_bounds() {
    let document = json!({
        "openapi": "3.0.3", "info": {}, "paths": { "/a": { "post": { "requestBody": { "content": { "application/json": { "schema": {
            "type": "object", "properties": {
                "n": { "type": "integer", "minimum": 0, "exclusiveMinimum": true },
                "s": { "type": "string", "nullable": true },
            } } } } } } } },
    });
    let trial =
        with_document(&document.to_string(), json!({})).unwrap_or_else(|problems| panic!("{problems}"));
    for (body, status) in [
        (json!({ "n": 1, "s": null }), 200),
        (json!({ "n": 0 }), 400),
        (json!({ "n": null }), 400),
        (json!({ "s": "x" }), 200),
    ] {
        assert_eq!(trial.request("POST", "/a", &[JSON], body.to_string()).await.status, status, "{body}");
    }
}

#[tokio::test]
async fn a_dry_run_refuses_nothing() {
    let world = World::default();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "v", "plugin_name": "request_validation", "proxy_id": "a",
                             "config": { "dry_run": true, "body_schema": person() } }],
    });
    let trial = Trial::of_spec(&[entry::<RequestValidation>()], &spec.to_string(), &world);
    assert_eq!(post(&trial, "{}").await.status, 200);
    assert_eq!(trial.asked()[0].body, "{}");
    assert_eq!(trial.records()[0].fields, [("request_validation.would_refuse", "request_invalid".into())]);
    assert_eq!(metric(&world, REQUESTS.name, &["would_refuse"]), 1);
}

#[tokio::test]
async fn hostile_patterns_and_texts_end_soon() {
    let trial = trial(json!({ "body_schema": { "type": "string", "pattern": "^(?=(a+)+$)(a+)+$" } }));
    let got = post(&trial, json!(format!("{}!", "a".repeat(10_000)))).await;
    assert_eq!(got.status, 400);
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({}), "config"),
        (json!({ "body_schema": { "type": "strange" } }), "config.body_schema"),
        (json!({ "body_schema": { "$ref": "https://example.com/schema.json" } }), "config.body_schema"),
        (json!({ "body_schema": { "$ref": "file:///etc/passwd" } }), "config.body_schema"),
        (json!({ "body_schema": { "$ref": "#/nowhere" } }), "config.body_schema"),
        (json!({ "query_schema": { "pattern": "(" } }), "config.query_schema"),
        (json!({ "content_types": ["json"] }), "config.content_types[0]"),
        (json!({ "body_schema": {}, "content_types": ["a/b", "a/c"] }), "config.content_types"),
        (json!({ "require_body": true, "base_path": "/" }), "config.base_path"),
        (json!({ "require_body": true, "status_code": 500 }), "config.status_code"),
        (json!({ "require_body": true, "max_body": 0 }), "config.max_body"),
        (json!({ "openapi": "none.yaml" }), "config.openapi"),
    ] {
        let problems = Trial::refused(&[entry::<RequestValidation>()], "request_validation", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
    for (document, message) in [
        ("openapi: 2.0", "not an OpenAPI document"),
        ("{", "EOF"),
        ("openapi: 3.1.0", "#/paths: the document has no paths"),
        (
            "openapi: 3.1.0\npaths: { \"/a\": { $ref: \"#/nowhere\" } }",
            "#/paths/~1a: the reference leads nowhere",
        ),
        (
            "openapi: 3.1.0\npaths: { \"/a\": { get: { parameters: [{ in: body, name: x }] } } }",
            "#/paths/~1a/get/parameters/0: `in` is not",
        ),
        (
            "openapi: 3.1.0\npaths: { \"/a\": { post: { requestBody: { content: { application/json: { schema: { $ref: \"http://x.test/\" } } } } } } }",
            "#/paths/~1a/post/requestBody/content/application~1json: the schema can't be used",
        ),
        (
            "openapi: 3.1.0\npaths: { \"/a\": { get: { parameters: [{ in: query, name: x, style: deepObject, schema: {} }] } } }",
            "nothing else as `deepObject`",
        ),
    ] {
        let Err(problems) = with_document(document, json!({})) else { panic!("took {document}") };
        assert!(problems.to_string().contains(message), "{problems}");
    }
    let Err(problems) = with_document(DOCUMENT, json!({ "require_body": true })) else { panic!("took both") };
    assert!(problems.to_string().contains("config.openapi"));
}
