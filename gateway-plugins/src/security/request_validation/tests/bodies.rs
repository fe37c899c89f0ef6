//! Bodies that are costly to judge, places of faults, and bodies that are not JSON.

use super::*;

/// A tree of groups and sections that look alike, as documents have them.
fn tree() -> Value {
    let part = |name: &str| {
        json!({
            "type": "object", "required": ["kind"], "properties": {
                "kind": { "type": "string" }, "name": { "type": name },
                "children": { "type": "array", "items": { "$ref": "#/$defs/node" } },
            },
        })
    };
    json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "node": { "oneOf": [{ "$ref": "#/$defs/group" }, { "$ref": "#/$defs/section" }] },
            "group": part("string"), "section": part("integer"),
        },
    })
}

#[tokio::test]
async fn alternatives_within_each_other_are_judged_in_steps_that_are_counted() {
    let twice = json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "node": { "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/b" }] },
            "a": { "properties": { "children": { "items": { "$ref": "#/$defs/node" } } } },
            "b": { "properties": { "children": { "items": { "$ref": "#/$defs/node" } }, "kind": { "type": "string" } } },
        },
    });
    let nested = json!({
        "anyOf": [{ "$ref": "#/$defs/node" }, { "not": { "$ref": "#/$defs/node" } }], "$defs": tree()["$defs"],
    });
    for schema in [tree(), twice, nested] {
        let trial = trial(json!({ "body_schema": schema }));
        let wrong =
            format!("{}{}{}", r#"{"kind":"k","children":["#.repeat(60), r#"{"kind":5}"#, "]}".repeat(60));
        let began = std::time::Instant::now();
        let got = post(&trial, wrong).await;
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(matches!(got.status, 200 | 400), "{}", got.text());
        assert!(got.text().len() < 4096, "{}", got.text());
    }
    let got = post(&trial(json!({ "body_schema": tree() })), r#"{"kind":"k","children":[{"kind":5}]}"#).await;
    let detail = got.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!((got.status, detail.as_str()), (400, "body: it fits none of the schemas (`oneOf`)"));
}

#[tokio::test]
async fn faults_are_named_where_they_are() {
    let schema = json!({
        "type": "object",
        "properties": {
            "pets": { "type": "array", "items": { "oneOf": [
                { "properties": { "bark": { "type": "boolean" } }, "required": ["bark"] },
                { "properties": { "meow": { "type": "boolean" } }, "required": ["meow"] },
            ] } },
            "size": { "allOf": [{ "$ref": "#/$defs/size" }] },
            "pair": { "prefixItems": [{ "type": "string" }], "items": { "type": "integer" } },
            "map": { "patternProperties": { "^x-": { "type": "string" } }, "additionalProperties": { "type": "integer" } },
            "odd": { "if": { "type": "string" }, "then": { "minLength": 3 }, "else": { "minimum": 5 } },
            "one": { "contains": { "type": "string" } },
            "no": { "not": { "type": "string" } },
        },
        "additionalProperties": false,
        "$defs": { "size": { "type": "object", "properties": { "w": { "type": "integer" } } } },
    });
    let trial = trial(json!({ "body_schema": schema }));
    for (body, place) in [
        (json!({ "pets": [{ "bark": true }, { "moo": 1 }] }), "body at /pets/1: it fits none"),
        (json!({ "size": { "w": "x" } }), "body at /size/w: "),
        (json!({ "pair": [1] }), "body at /pair/0: "),
        (json!({ "pair": ["a", 1, "b"] }), "body at /pair/2: "),
        (json!({ "map": { "x-a": 1 } }), "body at /map/x-a: "),
        (json!({ "map": { "y": "a" } }), "body at /map/y: "),
        (json!({ "odd": "ab" }), "body at /odd: "),
        (json!({ "odd": 4 }), "body at /odd: "),
        (json!({ "one": [1] }), "body at /one: "),
        (json!({ "no": "a" }), "body at /no: "),
        (json!({ "a/b": 1 }), "body at /a~1b: "),
    ] {
        let got = post(&trial, &body).await;
        let detail = got.json()["detail"].as_str().unwrap().to_owned();
        assert!(got.status == 400 && detail.starts_with(place), "{body}: {detail}");
    }
}

#[tokio::test]
async fn texts_and_forms_of_several_parts_fit_their_schema() {
    let document = json!({
        "openapi": "3.1.0", "info": {}, "paths": { "/a": { "post": { "requestBody": { "content": {
            "text/plain": { "schema": { "type": "string", "maxLength": 5 } },
            "multipart/form-data": { "schema": {
                "type": "object", "required": ["name"], "additionalProperties": false,
                "properties": {
                    "name": { "type": "string", "maxLength": 5 }, "age": { "type": "integer" }, "file": {},
                    "tags": { "type": "array", "items": { "type": "string" } },
                    "meta": { "type": "object", "required": ["a"] },
                },
            } },
            "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
        } } } } },
    });
    let trial =
        with_document(&document.to_string(), json!({})).unwrap_or_else(|problems| panic!("{problems}"));
    let form = |parts: &[(&str, &str)]| {
        let part = |(name, text): &(&str, &str)| {
            format!("--B\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
        };
        format!("{}--B--\r\n", parts.iter().map(part).collect::<String>())
    };
    const FORM: &str = "multipart/form-data; boundary=B";
    for (kind, body, status) in [
        ("text/plain", "hello".to_owned(), 200),
        ("text/plain; charset=utf-8", "hello!".to_owned(), 400),
        (FORM, form(&[("name", "ann"), ("age", "5"), ("file", "x"), ("tags", "a"), ("tags", "b")]), 200),
        (FORM, form(&[("name", "ann"), ("meta", "{\"a\":1}")]), 200),
        (FORM, form(&[("name", "ann"), ("meta", "{}")]), 400),
        (FORM, form(&[("name", "ann"), ("age", "x")]), 400),
        (FORM, form(&[("name", "annabel")]), 400),
        (FORM, form(&[("age", "5")]), 400),
        (FORM, form(&[("name", "ann"), ("name", "bob")]), 400),
        (FORM, form(&[("name", "ann"), ("other", "x")]), 400),
        (FORM, "--B\r\nnonsense".to_owned(), 400),
        ("multipart/form-data", form(&[("name", "ann")]), 400),
        ("application/octet-stream", "\u{0}".to_owned(), 200),
    ] {
        let got = trial.request("POST", "/a", &[("content-type", kind)], body.clone()).await;
        assert_eq!(got.status, status, "{kind} {body}: {}", got.text());
    }
}

#[tokio::test]
async fn parameters_may_be_objects_and_empty() {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": "integer" }, "b": { "type": "string" } },
    });
    let document = json!({
        "openapi": "3.0.3", "info": {}, "paths": { "/a": { "get": { "parameters": [
            { "in": "query", "name": "filter", "style": "deepObject", "explode": true, "schema": schema },
            { "in": "query", "name": "flag", "allowEmptyValue": true, "schema": { "type": "boolean" } },
            { "in": "query", "name": "strict", "schema": { "type": "boolean" } },
        ] } } },
    });
    let config = json!({ "on_unknown_query": "deny" });
    let trial = with_document(&document.to_string(), config).unwrap_or_else(|problems| panic!("{problems}"));
    for (query, status) in [
        ("", 200),
        ("filter[a]=1&filter[b]=x", 200),
        ("filter%5Ba%5D=1", 200),
        ("filter[a]=x", 400),
        ("filter[b]=x", 400),
        ("filter[a]=1&filter[c]=x", 400),
        ("filter[a]=1&filter[a]=2", 400),
        ("filter=1", 400),
        ("flag=", 200),
        ("flag", 200),
        ("flag=true", 200),
        ("flag=x", 400),
        ("strict=", 400),
    ] {
        let got = trial.get(&format!("/a?{query}"), &[]).await;
        assert_eq!(got.status, status, "{query}: {}", got.text());
    }
}
