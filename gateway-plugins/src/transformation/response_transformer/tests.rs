//! What a client gets of a transformed response.

mod rewriting;

use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use http::Response;
use serde_json::{Value, json};

use super::ResponseTransformer;

const PLUGINS: &[Entry] = &[entry::<ResponseTransformer>()];

fn trial(
    config: Value,
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static str,
) -> Trial {
    Trial::new(PLUGINS, "response_transformer", config).answering(move |_| {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(Body::from(body)).unwrap()
    })
}

async fn got(config: Value, fields: &'static [(&'static str, &'static str)], body: &'static str) -> Got {
    trial(config, 200, fields, body).get("/p", &[]).await
}

#[tokio::test]
async fn headers_with_values_of_request_and_response() {
    let config = json!({"rules": [
        {"operation": "remove", "target": "header", "key": "server"},
        {"operation": "rename", "target": "header", "key": "x-old", "new_key": "x-new"},
        {"operation": "set", "target": "header", "key": "x-seen", "value": "${request.path} ${response.status} ${response.header.server}"},
        {"operation": "append", "target": "header", "key": "vary", "value": "Origin"},
    ]});
    let got = got(config, &[("server", "s/1"), ("x-old", "1"), ("vary", "Accept")], "ok").await;
    assert_eq!((got.field("server"), got.field("x-old"), got.field("x-new")), ("", "", "1"));
    assert_eq!(got.field("x-seen"), "/p 200 s/1");
    assert_eq!(got.headers.get_all("vary").iter().count(), 2);
}

#[tokio::test]
async fn bodies_change_with_what_describes_them() {
    let config = json!({"rules": [{"operation": "remove", "target": "body", "key": "/password"}]});
    const JSON: &[(&str, &str)] = &[
        ("content-type", "application/problem+json"),
        ("etag", "\"1\""),
        ("content-length", "26"),
        ("accept-ranges", "bytes"),
    ];
    let changed = got(config.clone(), JSON, r#"{"password":"x","a":1.250}"#).await;
    assert_eq!(changed.json(), json!({"a": 1.25}));
    assert_eq!((changed.field("etag"), changed.field("accept-ranges")), ("", ""));
    assert_eq!(changed.field("content-length"), changed.body.len().to_string());
    let same = got(config, JSON, r#"{"a":1.250               }"#).await;
    assert_eq!((same.text().as_str(), same.field("etag")), (r#"{"a":1.250               }"#, "\"1\""));
}

#[tokio::test]
async fn a_secret_that_can_not_be_removed_does_not_pass() {
    let rules = json!([{"operation": "remove", "target": "body", "key": "/password"}]);
    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
    const GZIP: &[(&str, &str)] = &[("content-type", "application/json"), ("content-encoding", "gzip")];
    for (fields, body) in [(JSON, r#"{"password":"12345678"}"#), (JSON, "{broken"), (GZIP, "\x1f")] {
        for (otherwise, status) in [("refuse", 502), ("pass", 200)] {
            let config = json!({"rules": rules, "body": {"max_size": 16, "otherwise": otherwise}});
            let got = got(config, fields, body).await;
            assert_eq!(got.status, status, "{body}");
            assert_eq!(got.text() == body, status == 200);
        }
    }
}

#[tokio::test]
async fn a_part_of_a_body_does_not_pass_the_rules_by() {
    let rules = json!([{"operation": "remove", "target": "body", "key": "/password"}]);
    let config = |otherwise| json!({"rules": rules, "body": {"otherwise": otherwise}});
    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
    const TEXT: &[(&str, &str)] = &[("content-type", "text/plain")];
    let range = [("range", "bytes=1-15"), ("if-range", "\"v1\"")];
    for (fields, otherwise, status) in [(JSON, "refuse", 502), (JSON, "pass", 206), (TEXT, "refuse", 206)] {
        let trial = trial(config(otherwise), 206, fields, "{\"b");
        let part = trial.get("/", &range).await;
        assert_eq!((part.status, part.text() == "{\"b"), (status, status == 206), "{fields:?} {otherwise}");
        let asked = &trial.asked()[0];
        assert_eq!((asked.field("range"), asked.field("if-range")), ("", ""));
    }
    let headers_only = json!({"rules": [{"operation": "remove", "target": "header", "key": "server"}]});
    let trial = trial(headers_only, 206, JSON, "{\"b");
    assert_eq!(trial.get("/", &range).await.status, 206);
    assert_eq!(trial.asked()[0].field("range"), "bytes=1-15");
}

#[tokio::test]
async fn ranges_of_stored_responses_have_no_removed_field() {
    let rules = json!([{"operation": "remove", "target": "body", "key": "/password"}]);
    let plugins = [("response_transformer", json!({ "rules": rules })), ("response_cache", json!({}))];
    let trial = Trial::of_plugins(crate::PLUGINS, &plugins).answering(|_| {
        let response = Response::builder().header("content-type", "application/json");
        let response = response.header("cache-control", "max-age=60");
        response.body(Body::from(r#"{"password":"secret","a":1}"#)).unwrap()
    });
    for _ in 0..2 {
        let got = trial.get("/", &[("range", "bytes=0-20")]).await;
        assert_eq!((got.status, got.text().as_str()), (200, r#"{"a":1}"#));
    }
    assert_eq!(trial.asked().len(), 1);
    // Behind the cache it changes what is stored, and refuses nobody.
    let behind = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [
            { "id": "c", "plugin_name": "response_cache", "proxy_id": "a" },
            { "id": "t", "plugin_name": "response_transformer", "proxy_id": "a", "after": "response_cache", "config": { "rules": rules } },
        ],
    });
    let trial = Trial::of_spec(crate::PLUGINS, &behind.to_string(), &gateway_core::plugin::World::default());
    assert_eq!(trial.closed(), Vec::<String>::new());
}

#[tokio::test]
async fn what_two_readers_take_for_different_things_does_not_pass() {
    let rules = json!([{"operation": "set", "target": "body", "key": "/role", "value": "user"}]);
    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
    const TWO: &[(&str, &str)] = &[("content-type", "text/plain"), ("content-type", "application/json")];
    for (fields, body) in [
        (JSON, r#"{"role":"admin","role":"user"}"#),
        (JSON, r#"{"r\u006fle":"admin","role":"user"}"#),
        (JSON, r#"{"role":"user","a":[{"b":1,"b":2}]}"#),
        (TWO, r#"{"role":"admin"}"#),
    ] {
        for (otherwise, status) in [("refuse", 502), ("pass", 200)] {
            let config = json!({"rules": rules, "body": {"otherwise": otherwise}});
            let got = got(config, fields, body).await;
            assert_eq!((got.status, got.text() == body), (status, status == 200), "{body}");
        }
    }
}

#[tokio::test]
async fn what_has_no_body_keeps_its_head() {
    let config = json!({"rules": [{"operation": "set", "target": "body", "key": "/a", "value": 1}]});
    let head = trial(config, 200, &[("content-type", "application/json"), ("content-length", "7")], "");
    let head = head.request("HEAD", "/", &[], "").await;
    assert_eq!((head.status, head.field("content-length")), (200, ""));
}

#[test]
fn a_response_has_no_query() {
    let rules = json!([{"operation": "remove", "target": "query", "key": "a"}]);
    Trial::refused(PLUGINS, "response_transformer", &json!({ "rules": rules }));
}

#[tokio::test]
async fn trailers_go_on_behind_a_body_that_is_changed() {
    let config = json!({"rules": [{"operation": "remove", "target": "body", "key": "/a"}]});
    for (body, changed) in [(r#"{"a":1,"b":2}"#, r#"{"b":2}"#), (r#"{"b":2}"#, r#"{"b":2}"#)] {
        let trial = Trial::new(PLUGINS, "response_transformer", config.clone()).answering(move |_| {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", http::HeaderValue::from_static("1"));
            trailers.insert("content-digest", http::HeaderValue::from_static("d"));
            let body = Body::full_with_trailers(body, trailers);
            Response::builder().header("content-type", "application/json").body(body).unwrap()
        });
        let got = trial.get("/p", &[]).await;
        let trailers = got.trailers.clone().expect("trailers");
        assert_eq!((got.text().as_str(), &trailers["x-sum"] == "1"), (changed, true));
        assert_eq!(trailers.contains_key("content-digest"), body == changed);
    }
}

/// A body in one coding after the other.
fn encoded(codings: &[&str], body: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut bytes = body.as_bytes().to_vec();
    for coding in codings {
        bytes = match *coding {
            "gzip" => {
                let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                out.write_all(&bytes).unwrap();
                out.finish().unwrap()
            }
            "br" => {
                let mut out = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 20);
                out.write_all(&bytes).unwrap();
                out.into_inner()
            }
            "zstd" => zstd::stream::encode_all(&bytes[..], 1).unwrap(),
            _ => bytes,
        };
    }
    bytes
}

#[tokio::test]
async fn bodies_that_come_compressed_are_changed_as_well() {
    let rules = json!([{ "operation": "remove", "target": "body", "key": "/password" }]);
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(3000));
    for (codings, body, otherwise, expected) in [
        (&["gzip"][..], r#"{"password":"s","a":1}"#, "refuse", Some(r#"{"a":1}"#)),
        (&["br"], r#"{"password":"s","a":1}"#, "refuse", Some(r#"{"a":1}"#)),
        (&["zstd"], r#"{"password":"s","a":1}"#, "refuse", Some(r#"{"a":1}"#)),
        (&["gzip", "br"], r#"{"password":"s","a":1}"#, "refuse", Some(r#"{"a":1}"#)),
        (&["gzip", "br", "zstd"], r#"{"password":"s","a":1}"#, "refuse", None),
        (&["snappy"], r#"{"password":"s","a":1}"#, "refuse", None),
        (&["gzip"], &large, "refuse", None),
    ] {
        let (text, sent) = (codings.join(", "), encoded(codings, body));
        let config = json!({ "rules": rules, "body": { "otherwise": otherwise, "max_size": 1000 } });
        let plugins = [("compression", json!({ "min_content_length": 0 })), ("response_transformer", config)];
        let trial = Trial::of_plugins(crate::PLUGINS, &plugins).answering(move |_| {
            let response = Response::builder().header("content-type", "application/json");
            response.header("content-encoding", &text).body(Body::full(sent.clone())).unwrap()
        });
        let plain = trial.get("/", &[]).await;
        assert_eq!(trial.asked()[0].field("accept-encoding"), "");
        let Some(expected) = expected else {
            assert_eq!(plain.status, 502, "{codings:?}");
            continue;
        };
        assert_eq!((plain.text().as_str(), plain.field("content-encoding")), (expected, ""), "{codings:?}");
        let got = trial.get("/", &[("accept-encoding", "gzip, br, zstd")]).await;
        assert_eq!(trial.asked()[1].field("accept-encoding"), "", "the target is asked for a plain body");
        assert_eq!(got.field("content-encoding"), "zstd", "the client still gets what it likes");
        assert_eq!(zstd::stream::decode_all(&got.body[..]).unwrap(), expected.as_bytes());
    }
}

#[tokio::test]
async fn only_responses_of_the_statuses_are_changed() {
    let config = |statuses: Value| json!({"statuses": statuses, "rules": [{"operation": "set", "target": "header", "key": "x-a", "value": "1"}]});
    for (statuses, status, is_changed) in [
        (json!([]), 500, true),
        (json!(["200", "3xx"]), 200, true),
        (json!(["200", "3xx"]), 304, true),
        (json!(["200", "3xx"]), 201, false),
        (json!(["200", "3xx"]), 500, false),
    ] {
        let got = trial(config(statuses.clone()), status, &[], "").get("/p", &[]).await;
        assert_eq!(got.field("x-a") == "1", is_changed, "{statuses} {status}");
    }
}
