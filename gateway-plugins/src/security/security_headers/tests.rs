//! Each header, and what is left alone.

use gateway_core::http::exchange::ClientTls;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<SecurityHeaders>()], "security_headers", config)
}

#[tokio::test]
async fn defaults_are_careful_and_can_be_switched_off() {
    let got = trial(json!({})).get("/", &[]).await;
    assert_eq!(got.field("x-content-type-options"), "nosniff");
    assert_eq!(got.field("x-frame-options"), "SAMEORIGIN");
    assert_eq!(got.field("referrer-policy"), "strict-origin-when-cross-origin");
    assert_eq!(got.headers.len(), 3, "{:?}", got.headers);
    let off =
        trial(json!({ "nosniff": false, "frame_options": "", "referrer_policy": "", "remove": ["x-a"] }))
            .get("/", &[])
            .await;
    assert!(off.headers.is_empty(), "{:?}", off.headers);
}

#[tokio::test]
async fn each_option_is_a_header() {
    for (option, name, value) in [
        ("frame_options", "x-frame-options", "DENY"),
        ("referrer_policy", "referrer-policy", "no-referrer, same-origin"),
        ("content_security_policy", "content-security-policy", "default-src 'self'"),
        ("permissions_policy", "permissions-policy", "camera=()"),
        ("cross_origin_opener_policy", "cross-origin-opener-policy", "same-origin"),
        ("cross_origin_embedder_policy", "cross-origin-embedder-policy", "require-corp"),
        ("cross_origin_resource_policy", "cross-origin-resource-policy", "same-site"),
    ] {
        let got = trial(json!({ option: value })).get("/", &[]).await;
        assert_eq!(got.field(name), value);
    }
}

#[tokio::test]
async fn the_target_has_its_say_unless_overridden() {
    let speaking = |config| {
        trial(config).answering(|_| {
            let response = Response::builder().header("x-frame-options", "DENY").header("server", "x/1.2");
            response.body("ok".into()).unwrap()
        })
    };
    let got = speaking(json!({})).get("/", &[]).await;
    assert_eq!((got.field("x-frame-options"), got.field("server")), ("DENY", "x/1.2"));
    let got = speaking(json!({ "override": true, "remove": ["Server"] })).get("/", &[]).await;
    assert_eq!((got.field("x-frame-options"), got.field("server")), ("SAMEORIGIN", ""));
}

#[tokio::test]
async fn hsts_is_for_tls_only() {
    let config = json!({ "hsts": { "include_subdomains": true, "preload": true } });
    let plain = trial(config.clone()).get("/", &[]).await;
    assert!(!plain.headers.contains_key("strict-transport-security"));
    let tls = |config| trial(config).from_client([192, 0, 2, 1].into(), Some(ClientTls::default()));
    let got = tls(config).get("/", &[]).await;
    assert_eq!(got.field("strict-transport-security"), "max-age=31536000; includeSubDomains; preload");
    let got = tls(json!({ "hsts": { "max_age": "1h" } })).get("/", &[]).await;
    assert_eq!(got.field("strict-transport-security"), "max-age=3600");
}

#[test]
fn what_browsers_do_not_know_is_refused() {
    for (config, path) in [
        (json!({ "frame_options": "ALLOW-FROM https://a" }), "config.frame_options"),
        (json!({ "referrer_policy": "never" }), "config.referrer_policy"),
        (json!({ "content_security_policy": "a\r\nset-cookie: b" }), "config.content_security_policy"),
        (json!({ "cross_origin_opener_policy": "x" }), "config.cross_origin_opener_policy"),
        (json!({ "remove": ["a b"] }), "config.remove[0]"),
        (json!({ "hsts": { "preload": true } }), "config.hsts.preload"),
    ] {
        let problems = Trial::refused(&[entry::<SecurityHeaders>()], "security_headers", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}

#[tokio::test]
async fn only_responses_of_the_statuses_get_them() {
    for (status, is_meant) in [(200, true), (302, true), (404, false)] {
        let trial = trial(json!({ "statuses": ["2xx", "302"] }))
            .answering(move |_| Response::builder().status(status).body("ok".into()).unwrap());
        let got = trial.get("/", &[]).await;
        assert_eq!(got.field("x-content-type-options") == "nosniff", is_meant, "{status}");
    }
}
