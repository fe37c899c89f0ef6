//! Replies of the gateway's own: those who refuse before a plugin's place in the chain leave its marks on the reply all the same.

use gateway_core::plugin::World;
use gateway_core::testing::{Got, Trial};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::PLUGINS;

const PAGE: &str = "https://page.test";

fn trial(scope: &str, more: &[Value]) -> Trial {
    let place = match scope {
        "global" => json!({ "scope": "global" }),
        _ => json!({ "proxy_id": "a" }),
    };
    let config = |plugin: &str, config: Value| {
        let mut all = json!({ "id": plugin, "plugin_name": plugin, "config": config });
        all.as_object_mut().expect("an object").extend(place.as_object().cloned().unwrap_or_default());
        all
    };
    let mut plugins = vec![
        config("cors", json!({ "allowed_origins": [PAGE] })),
        config("correlation_id", json!({})),
        config("security_headers", json!({})),
        config("error_pages", json!({ "pages": [{ "status": "4xx", "body": "page ${response.status}" }] })),
    ];
    plugins.extend(more.iter().cloned());
    let spec = json!({
        "proxies": [{
            "id": "a", "hosts": ["a.test"], "listen_path": "/", "backend_host": "t.test", "backend_port": 80,
            "allowed_methods": ["GET", "POST"], "max_request_body": 10,
        }],
        "plugin_configs": plugins,
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    assert!(trial.why_closed().is_empty(), "{:?}", trial.why_closed());
    trial
}

async fn ask(trial: &Trial, method: &str, host: &str, path: &str, body: &'static str) -> Got {
    let request = Request::builder().method(Method::from_bytes(method.as_bytes()).expect("a method"));
    let request = request.uri(path).header("host", host).header("origin", PAGE);
    trial.send(request.body(body.into()).expect("a request")).await
}

fn assert_marked(got: &Got, status: u16, case: &str) {
    assert_eq!(got.status, status, "{case}: {}", got.text());
    assert_eq!(got.field("access-control-allow-origin"), PAGE, "{case}");
    assert_eq!(got.field("x-content-type-options"), "nosniff", "{case}");
    assert!(!got.field("x-request-id").is_empty(), "{case}");
    if (400..500).contains(&status) {
        assert_eq!(got.text(), format!("page {status}"), "{case}");
    }
}

#[tokio::test]
async fn refusals_before_the_chain_are_marked() {
    for scope in ["global", "proxy"] {
        let trial = trial(scope, &[]);
        for (method, path, body, status) in
            [("POST", "/", "more than ten bytes", 413), ("DELETE", "/", "", 405), ("GET", "/a%2Fb", "", 400)]
        {
            let got = ask(&trial, method, "a.test", path, body).await;
            assert_marked(&got, status, &format!("{scope} {method} {path}"));
        }
    }
}

#[tokio::test]
async fn replies_of_plugins_before_them_are_marked() {
    let terminated = json!({
        "id": "t", "plugin_name": "request_termination", "proxy_id": "a", "before": "otel_tracing",
        "config": { "status_code": 503, "message": "closed" },
    });
    let redirected = json!({
        "id": "t", "plugin_name": "redirect", "proxy_id": "a", "config": { "location": "https://b.test/" },
    });
    for (plugin, status) in [(terminated, 503), (redirected, 302)] {
        let got = ask(&trial("proxy", &[plugin]), "GET", "a.test", "/", "").await;
        assert_marked(&got, status, &status.to_string());
    }
}

#[tokio::test]
async fn replies_without_a_proxy_are_marked_by_global_plugins() {
    let trial = trial("global", &[]);
    for (host, path, status) in [("b.test", "/", 404), ("a.test", "/a%00", 400)] {
        let got = ask(&trial, "GET", host, path, "").await;
        assert_marked(&got, status, path);
        let record = trial.records().pop().expect("a record");
        assert_eq!(record.status, status);
    }
}

/// A preflight is routed as the request it asks about, and reaches no target.
#[tokio::test]
async fn preflights_of_proxies_matched_by_method() {
    let proxy = |id: &str, method: &str| {
        json!({ "id": id, "backend_host": "t.test", "backend_port": 80,
                "matches": [{ "path": "/api", "methods": [method] }] })
    };
    let spec = json!({
        "proxies": [proxy("write", "PUT"), proxy("remove", "DELETE"), proxy("open", "PATCH")],
        "plugin_configs": [
            { "id": "c", "plugin_name": "cors", "proxy_id": "write", "config": { "allowed_origins": [PAGE] } },
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "write" },
            { "id": "d", "plugin_name": "cors", "proxy_id": "remove", "when": { "headers": { "x-page": { "present": true } } } },
        ],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    assert!(trial.why_closed().is_empty(), "{:?}", trial.why_closed());
    for (method, more, status) in [
        ("PUT", None, 204),
        ("DELETE", None, 404),
        ("DELETE", Some("x-page"), 204),
        // No plugin answers it there, and its target takes no OPTIONS.
        ("PATCH", None, 404),
        ("POST", None, 404),
    ] {
        let mut fields = vec![("origin", PAGE), ("access-control-request-method", method)];
        fields.extend(more.map(|name| (name, "1")));
        let got = trial.request("OPTIONS", "/api/x", &fields, "").await;
        assert_eq!(got.status, status, "{method} {}", got.text());
        assert!(trial.asked().is_empty(), "{method}");
    }
    assert_eq!(trial.request("OPTIONS", "/api/x", &[("origin", PAGE)], "").await.status, 404, "no preflight");
}
