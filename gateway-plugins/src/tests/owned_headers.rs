//! Header fields by which targets know the caller: no client writes them, whichever plugins run.

use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use crate::PLUGINS;

fn with_plugin(plugin: &str, config: &Value) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{
            "id": "p", "plugin_name": plugin, "proxy_id": "a", "config": config, "when": { "path": "/guarded" },
        }],
    });
    Trial::of_spec(PLUGINS, &spec.to_string(), &World::default())
}

/// Each plugin that sets such a field, with settings that set `x-user`.
fn plugins() -> Vec<(&'static str, Value)> {
    let claims = json!({ "sub": "x-user" });
    let secret = "0123456789abcdef0123456789abcdef";
    vec![
        ("jwt_auth", json!({ "claims_to_headers": claims })),
        (
            "jwks_auth",
            json!({ "claims_to_headers": claims, "providers": [{ "issuer": "https://i.test", "audience": "a" }] }),
        ),
        (
            "oauth2_introspection",
            json!({ "claims_to_headers": claims, "introspection_url": "https://i.test/x", "client_id": "a",
                    "client_secret": secret }),
        ),
        ("forward_auth", json!({ "url": "http://i.test/", "response_headers": ["x-user"] })),
        ("forward_auth", json!({ "url": "http://i.test/", "caller_header": "x-user" })),
    ]
}

#[tokio::test]
async fn a_request_that_when_exempts_brings_no_identity() {
    for (plugin, config) in plugins() {
        let trial = with_plugin(plugin, &config);
        assert!(trial.why_closed().is_empty(), "{plugin}: {:?}", trial.why_closed());
        let got = trial.get("/open", &[("x-user", "root"), ("x-other", "stays")]).await;
        assert_eq!(got.status, 200, "{plugin}: {}", got.text());
        let asked = trial.asked().pop().expect("a request");
        assert_eq!((asked.field("x-user"), asked.field("x-other")), ("", "stays"), "{plugin} {config}");
    }
}

/// Two plugin configs share a field; the one that runs keeps what it set.
#[tokio::test]
async fn an_owner_that_runs_keeps_its_field() {
    let jwt = |id: &str, path: &str, lookup: &str| {
        json!({
            "id": id, "plugin_name": "jwt_auth", "proxy_id": "a", "when": { "path": path },
            "config": { "claims_to_headers": { "sub": "x-user" },
                        "token_lookup": lookup, "anonymous": "ann" },
        })
    };
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "ann", "username": "ann" }],
        "plugin_configs": [
            jwt("p", "/a", "header:x-token"), jwt("q", "/b", "header:x-token"),
            { "id": "t", "plugin_name": "request_transformer", "proxy_id": "a", "when": { "path": "/a" },
              "config": { "rules": [{ "operation": "set", "target": "header", "key": "x-user", "value": "made" }] } },
        ],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    assert!(trial.why_closed().is_empty(), "{:?}", trial.why_closed());
    for (path, expected) in [("/a", "made"), ("/c", "")] {
        assert_eq!(trial.get(path, &[("x-user", "root")]).await.status, 200);
        assert_eq!(trial.asked().pop().expect("a request").field("x-user"), expected, "{path}");
    }
}
