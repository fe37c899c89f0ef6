//! Bodies with and without a length.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use http::Request;
use serde_json::{Value, json};

use super::*;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<RequestSizeLimiting>()], "request_size_limiting", config)
}

/// A body whose length is not known before its end.
fn flowing(bytes: usize) -> Request<Body> {
    let body = Body::full(vec![b'x'; bytes]).map(Ok);
    assert_eq!(body.exact_length(), None);
    Request::post("/").body(body).unwrap()
}

#[tokio::test]
async fn up_to_the_limit_and_not_a_byte_more() {
    let trial = trial(json!({ "max_size": 10 }));
    for (bytes, status) in [(0, 200), (10, 200), (11, 413), (100_000, 413)] {
        assert_eq!(trial.request("POST", "/", &[], vec![b'x'; bytes]).await.status, status, "{bytes}");
        assert_eq!(trial.send(flowing(bytes)).await.status, status, "{bytes} without a length");
    }
    assert_eq!(trial.asked().iter().map(|asked| asked.body.len()).collect::<Vec<_>>(), [0, 0, 10, 10]);
    assert_eq!(trial.records().last().unwrap().cause, Some(Cause::BodyTooLarge));
}

#[tokio::test]
async fn the_proxys_own_limit_stays() {
    for (own, plugins, status) in [(50, 100, 413), (100, 50, 413), (100, 100, 200)] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "target.test", "backend_port": 80,
                "backend_scheme": "http", "max_request_body": own }],
            "plugin_configs": [{ "id": "p", "plugin_name": "request_size_limiting", "proxy_id": "a",
                "config": { "max_size": plugins } }],
        });
        let entries = [entry::<RequestSizeLimiting>()];
        let trial = Trial::of_spec(&entries, &spec.to_string(), &World::default());
        assert_eq!(trial.send(flowing(80)).await.status, status, "{own} {plugins}");
    }
}

#[tokio::test]
async fn a_length_may_be_required() {
    let trial = trial(json!({ "max_size": 10, "require_content_length": true }));
    assert_eq!(trial.send(flowing(5)).await.status, 411);
    assert_eq!(trial.request("POST", "/", &[], "12345").await.status, 200);
    assert_eq!(trial.get("/", &[]).await.status, 200);
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in
        [(json!({ "max_size": 0 }), "config.max_size"), (json!({ "max_size": "5s" }), "config.max_size")]
    {
        let entries = [entry::<RequestSizeLimiting>()];
        assert_eq!(Trial::refused(&entries, "request_size_limiting", &config).0[0].path, path);
    }
    Trial::refused(&[entry::<RequestSizeLimiting>()], "request_size_limiting", &json!({}));
}
