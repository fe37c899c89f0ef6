//! What is answered from a store beside the plugins that guard, choose and transform.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use gateway_core::http::body::Body;
use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Machine;
use gateway_plugin_common::testing::net::Served;
use http::Response;
use serde_json::{Value, json};

use crate::PLUGINS;

#[tokio::test]
async fn stored_responses_are_compressed_and_transformed_like_others() {
    let rules = json!([{"operation": "add", "target": "header", "key": "x-seen", "value": "yes"}]);
    let plugins = [
        ("compression", json!({"min_content_length": 0, "algorithms": ["gzip"]})),
        ("response_transformer", json!({ "rules": rules })),
        ("response_cache", json!({})),
    ];
    let trial = Trial::of_plugins(PLUGINS, &plugins).answering(|_| {
        let response =
            Response::builder().header("cache-control", "max-age=60").header("content-type", "text/plain");
        response.body("text to be compressed".into()).unwrap()
    });
    for round in 0..2 {
        let got = trial.get("/a", &[("accept-encoding", "gzip;q=0.5")]).await;
        assert_eq!((got.field("content-encoding"), got.field("x-seen")), ("gzip", "yes"), "round {round}");
        assert_eq!(got.headers.get_all("x-seen").iter().count(), 1, "what is stored is what the target sent");
    }
    assert_eq!(trial.get("/a", &[]).await.text(), "text to be compressed");
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn identified_callers_have_responses_of_their_own_where_settings_say() {
    let spec = |config: Value| {
        json!({
            "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
            "consumers": [
                {"id": "c1", "username": "ann", "credentials": {"key_auth": [{"key": "key-of-ann"}]}},
                {"id": "c2", "username": "bob", "credentials": {"key_auth": [{"key": "key-of-bob"}]}},
            ],
            "plugin_configs": [
                {"id": "p1", "plugin_name": "key_auth", "proxy_id": "a"},
                {"id": "p2", "plugin_name": "response_cache", "proxy_id": "a", "config": config},
            ],
        })
        .to_string()
    };
    let trial = |config| {
        let count = AtomicU32::new(0);
        Trial::of_spec(PLUGINS, &spec(config), &World::default()).answering(move |_| {
            let n = count.fetch_add(1, Relaxed) + 1;
            Response::builder().header("cache-control", "max-age=60").body(Body::full(n.to_string())).unwrap()
        })
    };
    let plain = trial(json!({}));
    for (key, text) in [("key-of-ann", "1"), ("key-of-ann", "2"), ("key-of-bob", "3")] {
        assert_eq!(plain.get("/a", &[("x-api-key", key)]).await.text(), text);
    }
    let each = trial(json!({ "key": { "caller": true } }));
    for (key, text) in [("key-of-ann", "1"), ("key-of-ann", "1"), ("key-of-bob", "2"), ("key-of-ann", "1")] {
        assert_eq!(each.get("/a", &[("x-api-key", key)]).await.text(), text);
    }
    assert_eq!(each.get("/a", &[]).await.status, 401, "who may not ask gets nothing from the store either");
    assert_eq!(each.get("/a", &[("x-api-key", "wrong")]).await.status, 401);
}

#[tokio::test]
async fn it_can_not_be_moved_before_what_guards() {
    let spec = |order: (&str, &str)| {
        json!({
            "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
            "plugin_configs": [
                {"id": "auth", "plugin_name": "key_auth", "proxy_id": "a"},
                {"id": "compress", "plugin_name": "compression", "proxy_id": "a"},
                {"id": "cache", "plugin_name": "response_cache", "proxy_id": "a", order.0: order.1},
            ],
        })
        .to_string()
    };
    let closed = |order| match Trial::try_of_spec(PLUGINS, &spec(order), &World::default()) {
        Ok(trial) => !trial.closed().is_empty(),
        Err(_) => true,
    };
    assert!(closed(("before", "key_auth")));
    assert!(!closed(("before", "compression")), "compressed responses may be stored");
}

#[tokio::test]
async fn a_canarys_responses_are_its_own() {
    let target = |name: &str| json!({"host": format!("{name}.test"), "port": 80, "tags": {"v": name}});
    let spec = json!({
        "upstreams": [{"id": "u", "targets": [target("old"), target("new")]}],
        "proxies": [{"id": "a", "listen_path": "/", "upstream_id": "u", "backend_scheme": "http"}],
        "plugin_configs": [
            {"id": "s", "plugin_name": "traffic_split", "proxy_id": "a", "config": {
                "splits": [{"weight": 1, "tags": {"v": "old"}}],
                "overrides": [{"header": "x-canary", "tags": {"v": "new"}}],
            }},
            {"id": "c", "plugin_name": "response_cache", "proxy_id": "a", "config": {}},
        ],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default()).answering(|asked| {
        let response = Response::builder().header("cache-control", "max-age=60, stale-while-revalidate=600");
        response.body(Body::full(asked.authority.clone())).unwrap()
    });
    for _ in 0..2 {
        assert_eq!(trial.get("/a", &[("x-canary", "1")]).await.text(), "new.test:80");
        assert_eq!(trial.get("/a", &[]).await.text(), "old.test:80");
    }
    assert_eq!(trial.asked().len(), 2, "each is stored");
}

/// Code of the operator's may refuse a request: what was said to another one must not be handed out without asking it.
#[cfg(feature = "script")]
#[test]
fn answers_are_not_given_again_past_a_script() {
    let spec = |order: Option<&str>, source: &str| {
        let mut script =
            json!({"id": "s", "plugin_name": "script", "proxy_id": "a", "config": {"source": source}});
        if let Some(before) = order {
            script["before"] = before.into();
        }
        json!({
            "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
            "plugin_configs": [
                {"id": "d", "plugin_name": "request_deduplication", "proxy_id": "a", "config": {}},
                script,
            ],
        })
        .to_string()
    };
    let closed =
        |order, source| Trial::of_spec(PLUGINS, &spec(order, source), &World::default()).why_closed();
    let asks = "fn on_request(request) { }";
    assert!(closed(None, asks)[0].contains("request_deduplication"), "{:?}", closed(None, asks));
    assert_eq!(closed(Some("request_deduplication"), asks).len(), 0);
    assert_eq!(closed(None, "fn on_response(request, response) { }").len(), 0, "it refuses no requests");
}

#[tokio::test]
async fn places_where_a_plugin_reads_credentials_count_where_it_does_not_run() {
    for (place, field) in [("header:X-Acme", ("x-acme", "k")), ("cookie:acme", ("cookie", "acme=k"))] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http" }],
            "plugin_configs": [
                { "id": "k", "plugin_name": "key_auth", "proxy_id": "a", "config": { "key_location": place },
                  "when": { "path": "/private" } },
                { "id": "c", "plugin_name": "response_cache", "proxy_id": "a" },
            ],
        });
        let count = AtomicU32::new(0);
        let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default()).answering(move |_| {
            let n = count.fetch_add(1, Relaxed) + 1;
            let response = Response::builder().header("cache-control", "max-age=60");
            response.body(Body::full(format!("answer {n}"))).unwrap()
        });
        assert_eq!(trial.get("/a", &[field]).await.text(), "answer 1");
        assert_eq!(trial.get("/a", &[]).await.text(), "answer 2", "{place}");
    }
}

#[tokio::test]
async fn the_cache_takes_no_response_for_everybodys() {
    let machine = Machine::default();
    let asks = json!({ "url": "https://auth.test/" });
    let calls = json!({ "url": "https://auth.test/", "caller_header": "X-User" });
    machine.net.serve(|sent| {
        let response = Response::builder().status(200).header("x-user", sent.field("cookie"));
        Served::Response(response.body(Body::empty()).expect("a response"))
    });
    for (auth, cache, said, shared) in [
        (&asks, json!({}), "max-age=60", false),
        (&asks, json!({}), "max-age=60, public", true),
        (&asks, json!({ "key": { "caller": true } }), "max-age=60", false),
        (&calls, json!({ "key": { "caller": true } }), "max-age=60", false),
    ] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
            "plugin_configs": [
                { "id": "f", "plugin_name": "forward_auth", "proxy_id": "a", "config": auth },
                { "id": "c", "plugin_name": "response_cache", "proxy_id": "a", "config": cache },
            ],
        });
        let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &machine.world()).answering(move |asked| {
            let text = format!("of {}", asked.field("cookie"));
            Response::builder().header("cache-control", said).body(Body::full(text)).expect("a response")
        });
        let mut texts = Vec::new();
        for cookie in ["a", "b"] {
            texts.push(trial.get("/", &[("cookie", cookie)]).await.text());
        }
        let second = if shared { "of a" } else { "of b" };
        assert_eq!(texts, ["of a", second], "{auth} {cache} {said}");
    }
}
