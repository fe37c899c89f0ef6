//! Proxies that need no target, because a plugin answers every request.

use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use crate::PLUGINS;

/// Plugin, settings, and whether a proxy without a target is taken.
fn cases() -> [(&'static str, Value, bool); 10] {
    let mock = |passes: bool| json!({ "rules": [{ "path": "/" }], "passthrough_on_no_match": passes });
    [
        ("redirect", json!({ "location": "https://a.test/" }), true),
        ("redirect", json!({ "scheme": "https" }), false),
        ("request_termination", json!({}), true),
        ("request_termination", json!({ "trigger": { "path_prefix": "/a" } }), false),
        ("static_files", json!({ "root": "/srv" }), true),
        ("static_files", json!({ "root": "/srv", "passthrough": true }), false),
        ("response_mock", mock(false), true),
        ("response_mock", mock(true), false),
        ("cors", json!({ "allowed_origins": ["https://a.test"] }), false),
        ("rate_limiting", json!({ "limits": [{ "rate": 1, "per": 1 }] }), false),
    ]
}

#[test]
fn a_redirect_to_https_needs_no_target_for_plain_requests() {
    let plain = json!({ "path": "/", "scheme": "http" });
    for (matches, when, is_taken) in [
        (json!([plain]), Value::Null, true),
        (json!([{ "path": "/", "methods": ["GET"], "scheme": "http" }, plain]), Value::Null, true),
        (json!([plain, { "path": "/a" }]), Value::Null, false),
        (json!([{ "path": "/", "scheme": "https" }]), Value::Null, false),
        (json!([{ "path": "/", "not": { "scheme": "http" } }]), Value::Null, false),
        (json!([{ "path": "/" }]), json!({ "scheme": "http" }), true),
        (json!([{ "path": "/" }]), json!({ "scheme": "https" }), false),
    ] {
        let config = json!({ "scheme": "https" });
        let document = json!({
            "proxies": [{ "id": "a", "matches": matches }],
            "plugin_configs": [
                { "id": "p", "plugin_name": "redirect", "proxy_id": "a", "config": config, "when": when }
            ],
        });
        let problems = Trial::try_of_spec(PLUGINS, &document.to_string(), &World::default()).err();
        let problems = problems.map(|problems| problems.to_string()).unwrap_or_default();
        match is_taken {
            true => assert_eq!(problems, "", "{matches} {when}"),
            false => assert!(problems.contains("`backend_host` is missing"), "{matches} {when}: {problems}"),
        }
    }
}

/// What it answers, and what it leaves: requests that came to a trusted proxy over TLS.
#[tokio::test]
async fn plain_requests_of_a_proxy_without_a_target_are_sent_to_https() {
    let document = json!({
        "proxies": [{ "id": "a", "matches": [{ "path": "/", "scheme": "http" }] }],
        "plugin_configs": [
            { "id": "p", "plugin_name": "redirect", "proxy_id": "a", "config": { "scheme": "https" } }
        ],
    });
    let trial = Trial::try_of_spec(PLUGINS, &document.to_string(), &World::default()).expect("it is taken");
    let answer = trial.get("/a?b", &[("host", "shop.test")]).await;
    assert_eq!((answer.status, answer.field("location")), (302, "https://shop.test/a?b"));
}

#[test]
fn a_target_is_needed_unless_a_plugin_answers() {
    for (plugin, config, is_taken) in cases() {
        let document = json!({
            "proxies": [{ "id": "a", "listen_path": "/" }],
            "plugin_configs": [{ "id": "p", "plugin_name": plugin, "proxy_id": "a", "config": config }],
        });
        let problems = Trial::try_of_spec(PLUGINS, &document.to_string(), &World::default()).err();
        let problems = problems.map(|problems| problems.to_string()).unwrap_or_default();
        match is_taken {
            true => assert_eq!(problems, "", "{plugin} {config}"),
            false => assert!(problems.contains("`backend_host` is missing"), "{plugin} {config}: {problems}"),
        }
    }
}
