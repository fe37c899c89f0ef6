//! What a target gets of a transformed request.

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{ReceivedRequest, Trial};
use serde_json::{Value, json};

use super::RequestTransformer;

const PLUGINS: &[Entry] = &[entry::<RequestTransformer>()];
const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

fn trial(rules: Value) -> Trial {
    Trial::new(PLUGINS, "request_transformer", json!({ "rules": rules }))
}

async fn asked(rules: Value, path: &str, fields: &[(&str, &str)], body: &str) -> ReceivedRequest {
    let trial = trial(rules);
    let got = trial.request("POST", path, fields, body.to_owned()).await;
    trial.asked().pop().unwrap_or_else(|| panic!("{} {}", got.status, got.text()))
}

#[tokio::test]
async fn headers_by_each_operation() {
    for (operation, value, new_key, given, expected) in [
        ("set", Some("n"), None, vec!["o", "p"], json!({"x-a": ["n"]})),
        ("set", Some("n"), None, vec![], json!({"x-a": ["n"]})),
        ("add", Some("n"), None, vec!["o"], json!({"x-a": ["o"]})),
        ("add", Some("n"), None, vec![], json!({"x-a": ["n"]})),
        ("update", Some("n"), None, vec!["o"], json!({"x-a": ["n"]})),
        ("update", Some("n"), None, vec![], json!({})),
        ("append", Some("n"), None, vec!["o"], json!({"x-a": ["o", "n"]})),
        ("remove", None, None, vec!["o", "p"], json!({})),
        ("rename", None, Some("x-b"), vec!["o", "p"], json!({"x-b": ["o", "p"]})),
        ("set", Some("${request.header.x-a:-none}!"), None, vec!["o"], json!({"x-a": ["o!"]})),
    ] {
        let mut rule = json!({"operation": operation, "target": "header", "key": "X-A"});
        if let Some(value) = value {
            rule["value"] = value.into();
        }
        if let Some(new_key) = new_key {
            rule["new_key"] = new_key.into();
        }
        let fields: Vec<_> = given.iter().map(|value| ("x-a", *value)).collect();
        let asked = asked(json!([rule]), "/", &fields, "").await;
        let mut found = json!({});
        for name in ["x-a", "x-b"] {
            let values: Vec<_> = asked.headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect();
            if !values.is_empty() {
                found[name] = json!(values);
            }
        }
        assert_eq!(found, expected, "{operation} {given:?}");
    }
}

#[tokio::test]
async fn queries_by_each_operation() {
    for (rule, path, expected) in [
        (json!({"operation": "set", "key": "a", "value": "n&"}), "/?a=1&b=2&a=3", "/?a=n%26&b=2"),
        (
            json!({"operation": "set", "key": "a", "value": "${request.query.b}"}),
            "/?b=x%26y",
            "/?b=x%26y&a=x%26y",
        ),
        (json!({"operation": "add", "key": "a", "value": 1}), "/?%61=2", "/?%61=2"),
        (json!({"operation": "add", "key": "a", "value": 1}), "/?b", "/?b&a=1"),
        (json!({"operation": "update", "key": "a", "value": true}), "/?a=2", "/?a=true"),
        (json!({"operation": "update", "key": "a", "value": true}), "/?b=2", "/?b=2"),
        (json!({"operation": "append", "key": "a", "value": "2"}), "/?a=1", "/?a=1&a=2"),
        (json!({"operation": "remove", "key": "a"}), "/?a=1&%61=2&ab=3", "/?ab=3"),
        (json!({"operation": "rename", "key": "a", "new_key": "c d"}), "/?a=1&b=2", "/?c%20d=1&b=2"),
    ] {
        let mut rule = rule;
        rule["target"] = "query".into();
        assert_eq!(asked(json!([rule]), path, &[], "").await.path, expected, "{rule}");
    }
}

#[tokio::test]
async fn bodies_by_each_operation() {
    for (rule, body, expected) in [
        (json!({"operation": "set", "key": "/a/b", "value": 1}), r#"{"x":[1]}"#, r#"{"x":[1],"a":{"b":1}}"#),
        (json!({"operation": "set", "key": "/x/0", "value": 7}), r#"{"x":[1]}"#, r#"{"x":[7]}"#),
        (json!({"operation": "set", "key": "/x/-", "value": 2}), r#"{"x":[1]}"#, r#"{"x":[1,2]}"#),
        (json!({"operation": "set", "key": "/a/b", "value": 1}), r#"{"a":"text"}"#, r#"{"a":{"b":1}}"#),
        (json!({"operation": "set", "key": "/a/b/c", "value": 1}), r#"{"a":[1]}"#, r#"{"a":{"b":{"c":1}}}"#),
        (json!({"operation": "set", "key": "/a/0/c", "value": 1}), r#"{"a":[1]}"#, r#"{"a":[{"c":1}]}"#),
        (json!({"operation": "set", "key": "/a", "value": 1}), "null", r#"{"a":1}"#),
        (json!({"operation": "add", "key": "/a/b", "value": 1}), r#"{"a":"text"}"#, r#"{"a":"text"}"#),
        (json!({"operation": "append", "key": "/a/b", "value": 1}), r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (
            json!({"operation": "rename", "key": "/a", "new_key": "/b/c"}),
            r#"{"a":1,"b":2}"#,
            r#"{"b":{"c":1}}"#,
        ),
        (
            json!({"operation": "set", "key": "/a~1b", "value": {"q": ["${request.query.q}"]}}),
            "{}",
            r#"{"a/b":{"q":["v\"1"]}}"#,
        ),
        (json!({"operation": "add", "key": "/a", "value": 2}), r#"{"a":1}"#, r#"{"a":1}"#),
        (json!({"operation": "update", "key": "/a", "value": 2}), "{}", "{}"),
        (json!({"operation": "append", "key": "/a", "value": 2}), r#"{"a":[1]}"#, r#"{"a":[1,2]}"#),
        (json!({"operation": "append", "key": "/a", "value": 2}), "{}", r#"{"a":[2]}"#),
        (json!({"operation": "remove", "key": "/a/1"}), r#"{"a":[1,2,3]}"#, r#"{"a":[1,3]}"#),
        (json!({"operation": "remove", "key": "/a/01"}), r#"{"a":[1,2,3]}"#, r#"{"a":[1,2,3]}"#),
        (json!({"operation": "rename", "key": "/a", "new_key": "/b/c"}), r#"{"a":1}"#, r#"{"b":{"c":1}}"#),
    ] {
        let mut rule = rule;
        rule["target"] = "body".into();
        let asked = asked(json!([rule]), "/?q=v%221", &[JSON], body).await;
        let (got, wanted): (Value, Value) =
            (serde_json::from_slice(&asked.body).unwrap(), serde_json::from_str(expected).unwrap());
        assert_eq!(got, wanted, "{rule}");
        if body != expected {
            assert_eq!(asked.field("content-length"), asked.body.len().to_string());
        }
    }
}

#[tokio::test]
async fn a_body_that_can_not_be_changed_is_refused_or_passes() {
    let rules = json!([{"operation": "remove", "target": "body", "key": "/secret"}]);
    let deep = "[".repeat(100_000);
    for (fields, body, status) in [
        (vec![JSON], r#"{"secret": 12345678}"#, 413),
        (vec![JSON], "{", 400),
        (vec![JSON], "[[[[[[", 400),
        (vec![JSON, ("content-encoding", "gzip")], "{}", 415),
    ] {
        for (otherwise, expected) in [("refuse", status), ("pass", 200)] {
            let config = json!({"rules": rules, "body": {"max_size": 12, "otherwise": otherwise}});
            let trial = Trial::new(PLUGINS, "request_transformer", config);
            let got = trial.request("POST", "/", &fields, body.to_owned()).await;
            assert_eq!(got.status, expected, "{body} {otherwise}");
            if expected == 200 {
                assert_eq!(trial.asked()[0].body, body);
            }
        }
    }
    let untouched = asked(rules.clone(), "/", &[("content-type", "text/plain")], r#"{"secret":1}"#).await;
    assert_eq!(untouched.body, r#"{"secret":1}"#);
    let nested = trial(rules).request("POST", "/", &[JSON], deep).await;
    assert_eq!(nested.status, 400, "depth is limited");
}

/// A client must not evade a value that is forced on its request by sending another shape of body.
#[tokio::test]
async fn a_value_that_has_no_place_is_refused() {
    for (operation, body) in [
        (json!({"operation": "set", "key": "/a/b", "value": 1}), r#"[{"a":1}]"#),
        (json!({"operation": "set", "key": "/a/b", "value": 1}), r#""a""#),
        (json!({"operation": "set", "key": "/x/9", "value": 1}), r#"{"x":[1]}"#),
        (json!({"operation": "rename", "key": "/0", "new_key": "/a"}), "[1]"),
    ] {
        let mut rule = operation;
        rule["target"] = "body".into();
        for (otherwise, expected) in [("refuse", 400), ("pass", 200)] {
            let config = json!({"rules": [rule], "body": {"otherwise": otherwise}});
            let trial = Trial::new(PLUGINS, "request_transformer", config);
            assert_eq!(
                trial.request("POST", "/", &[JSON], body).await.status,
                expected,
                "{rule} {otherwise}"
            );
            assert!(trial.asked().iter().all(|asked| asked.body == body), "as it came, or not at all");
        }
    }
}

#[tokio::test]
async fn what_two_readers_take_for_different_things_does_not_reach_the_target() {
    let rules = json!([{"operation": "set", "target": "body", "key": "/role", "value": "user"}]);
    let two = &[("content-type", "text/plain"), JSON][..];
    for (fields, body) in [
        (&[JSON][..], r#"{"role":"admin","role":"user"}"#),
        (&[JSON], r#"{"r\u006fle":"admin","role":"user"}"#),
        (two, r#"{"role":"admin"}"#),
    ] {
        let trial = Trial::new(PLUGINS, "request_transformer", json!({ "rules": rules }));
        let got = trial.request("POST", "/", fields, body).await;
        assert_eq!((got.status, trial.asked().len()), (400, 0), "{body}");
    }
}

#[tokio::test]
async fn values_come_from_before_and_can_not_forge_lines() {
    let rules = json!([
        {"operation": "set", "target": "header", "key": "x-a", "value": "new"},
        {"operation": "set", "target": "header", "key": "x-b", "value": "${request.header.x-a}"},
    ]);
    assert_eq!(asked(rules, "/", &[("x-a", "old")], "").await.field("x-b"), "old");
    let rules =
        json!([{"operation": "set", "target": "header", "key": "x-a", "value": "${request.query.q}"}]);
    let trial = trial(rules);
    assert_eq!(trial.get("/?q=a%0d%0ax-admin:1", &[]).await.status, 400);
    assert!(trial.asked().is_empty());
}

#[test]
fn rules_that_can_not_be_meant_are_refused() {
    for rules in [
        json!([]),
        json!([{"operation": "set", "target": "header", "key": "a b", "value": "x"}]),
        json!([{"operation": "set", "target": "header", "key": "content-length", "value": "0"}]),
        json!([{"operation": "set", "target": "header", "key": "Transfer-Encoding", "value": "chunked"}]),
        json!([{"operation": "rename", "target": "header", "key": "x-a", "new_key": "host"}]),
        json!([{"operation": "remove", "target": "header", "key": "via"}]),
        json!([{"operation": "rename", "target": "header", "key": "x-a", "new_key": "x-consumer-id"}]),
        json!([{"operation": "set", "target": "header", "key": "x-a"}]),
        json!([{"operation": "remove", "target": "header", "key": "x-a", "value": "x"}]),
        json!([{"operation": "rename", "target": "header", "key": "x-a"}]),
        json!([{"operation": "set", "target": "header", "key": "x-a", "value": {"a": 1}}]),
        json!([{"operation": "set", "target": "query", "key": "", "value": "x"}]),
        json!([{"operation": "set", "target": "body", "key": "a", "value": "x"}]),
        json!([{"operation": "set", "target": "body", "key": "/a", "value": ["${response.status}"]}]),
    ] {
        Trial::refused(PLUGINS, "request_transformer", &json!({ "rules": rules }));
    }
}
