//! Keys found, refused, and taken out.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::json;

use super::*;

/// Two consumers; one has two keys while they are rotated.
fn trial(key_location: &str, hide: bool) -> Trial {
    trial_with(&json!({ "key_location": key_location, "hide_credentials": hide }))
}

fn trial_with(config: &serde_json::Value) -> Trial {
    let spec = json!({
        "proxies": [{
            "id": "a", "listen_path": "/", "strip_listen_path": false,
            "backend_host": "t.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "consumers": [
            { "id": "a", "username": "alice", "credentials": { "key_auth": [{ "key": "old" }, { "key": "new key" }] } },
            { "id": "b", "username": "bob", "credentials": { "keyauth": "bobs" } },
        ],
        "plugin_configs": [{
            "id": "k", "plugin_name": "key_auth", "proxy_id": "a",
            "config": config,
        }],
    });
    Trial::of_spec(&[entry::<KeyAuth>()], &spec.to_string(), &World::default())
}

/// Who is recognised, or the refusal's status; and what the target was asked.
async fn caller(trial: &Trial, target: &str, fields: &[(&str, &str)]) -> (String, Option<String>, bool) {
    let got = trial.get(target, fields).await;
    if got.status != 200 {
        assert!(got.headers.contains_key(WWW_AUTHENTICATE), "a refusal says how to do better");
        return (got.status.to_string(), None, false);
    }
    let name = trial.records().last().and_then(|record| record.caller.clone()).expect("a caller");
    let asked = trial.asked().pop().expect("a request");
    (name.to_string(), Some(asked.path.clone()), asked.headers.contains_key("x-api-key"))
}

#[tokio::test]
async fn keys_in_a_header() {
    let trial = trial("header:X-API-Key", true);
    for (fields, expected) in [
        (&[("x-api-key", "old")][..], "alice"),
        (&[("x-api-key", "new key")], "alice"),
        (&[("x-api-key", "bobs")], "bob"),
        (&[("x-api-key", "Old")], "401"),
        (&[("x-api-key", "")], "401"),
        (&[("x-api-key", "old"), ("x-api-key", "bobs")], "401"),
        (&[("other", "old")], "401"),
    ] {
        let (name, _, still_there) = caller(&trial, "/", fields).await;
        assert_eq!(name, expected, "{fields:?}");
        assert!(!still_there, "a good key must not reach the target");
    }
}

#[tokio::test]
async fn keys_in_the_query() {
    let trial = trial("query:key", true);
    for (target, expected, left) in [
        ("/p?key=old", "alice", Some("/p")),
        ("/p?a=1&key=new%20key&b=2", "alice", Some("/p?a=1&b=2")),
        ("/p?k%65y=old&a=1", "alice", Some("/p?a=1")),
        ("/p?k%65y=old&key=bobs", "401", None),
        ("/p?akey=old&keys=old", "401", None),
        ("/p?key=old&key=bobs", "401", None),
        ("/p?key", "401", None),
        ("/p", "401", None),
    ] {
        let (name, path, _) = caller(&trial, target, &[]).await;
        assert_eq!((name.as_str(), path.as_deref()), (expected, left), "{target}");
    }
}

#[tokio::test]
async fn keys_stay_where_the_operator_wants_them() {
    let found = caller(&trial("query:key", false), "/p?key=bobs", &[]).await;
    assert_eq!((found.0.as_str(), found.1.as_deref()), ("bob", Some("/p?key=bobs")));
}

#[test]
fn places_that_are_none_are_refused() {
    for place in
        ["", "header:", "header:a b", "query:", "query:a&b", "cookie:", "cookie:a;b", "body:x", "X-API-Key"]
    {
        let config = json!({ "key_location": place });
        let problems = Trial::refused(&[entry::<KeyAuth>()], "key_auth", &config);
        assert_eq!(problems.0[0].path, "config.key_location", "{place}");
    }
}

#[tokio::test]
async fn keys_in_several_places() {
    let trial = trial_with(&json!({
        "key_location": ["header:X-API-Key", "header:Authorization", "query:key", "cookie:key"],
    }));
    for (target, fields, expected) in [
        ("/p", &[("x-api-key", "old")][..], "alice"),
        ("/p", &[("authorization", "Bearer bobs")], "bob"),
        ("/p?key=bobs", &[], "bob"),
        ("/p", &[("cookie", "a=1; key=bobs")], "bob"),
        ("/p", &[("authorization", "Basic Ym9iczo=")], "401"),
        ("/p?key=old", &[("x-api-key", "bobs")], "401"),
        ("/p", &[("cookie", "key=old"), ("cookie", "key=bobs")], "401"),
    ] {
        assert_eq!(caller(&trial, target, fields).await.0, expected, "{target} {fields:?}");
    }
    let asked = trial.asked();
    assert!(asked.iter().all(|it| it.path == "/p" && it.field("authorization").is_empty()));
    assert_eq!(asked.last().expect("a request").field("cookie"), "a=1");
}

#[tokio::test]
async fn a_request_without_a_key_may_be_a_consumers() {
    let open = trial_with(&json!({ "anonymous": "bob" }));
    assert_eq!(caller(&open, "/", &[]).await.0, "bob");
    assert_eq!(caller(&open, "/", &[("x-api-key", "wrong")]).await.0, "401");
    let nobody = trial_with(&json!({ "anonymous": "no such consumer" }));
    assert_eq!(caller(&nobody, "/", &[]).await.0, "401");
}
