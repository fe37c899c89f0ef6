//! Plugins that read the bodies of responses: the target is asked for a plain one, and the client gets what it likes all the same.

use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

fn readers() -> Vec<(&'static str, Value, &'static str)> {
    let rule = json!({ "operation": "set", "target": "body", "key": "/a", "value": 2 });
    vec![
        ("response_transformer", json!({ "rules": [rule] }), "application/json"),
        ("sse", json!({}), "text/event-stream"),
    ]
}

#[tokio::test]
async fn the_target_is_asked_for_a_body_that_can_be_read() {
    for (name, config, kind) in readers() {
        for method in ["GET", "HEAD"] {
            let plugins = [("compression", json!({ "min_content_length": 0 })), (name, config.clone())];
            let trial = Trial::of_plugins(PLUGINS, &plugins).answering(move |_| {
                let response = Response::builder().header("content-type", kind);
                response
                    .body(Body::from(r#"{"a":1,"b":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}"#))
                    .unwrap()
            });
            let browser = [("accept-encoding", "gzip, br"), ("accept", "text/event-stream, */*")];
            let got = trial.request(method, "/", &browser, "").await;
            assert_eq!(trial.asked()[0].field("accept-encoding"), "", "{name} {method}");
            assert_eq!((got.status, got.field("content-encoding")), (200, "br"), "{name} {method}");
        }
    }
}
