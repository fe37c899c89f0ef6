//! Where requests go.

use std::collections::HashMap;

use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, World, entry};
use gateway_core::testing::Trial;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::TrafficSplit;

const PLUGINS: &[Entry] = &[entry::<TrafficSplit>()];

fn spec(config: Value) -> String {
    let upstream = |id: &str| json!({"id": id, "targets": [{"host": format!("{id}.test"), "port": 80}]});
    json!({
        "upstreams": [upstream("blue"), upstream("green")],
        "proxies": [{
            "id": "a", "listen_path": "/", "backend_host": "own.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "plugin_configs": [{"id": "s", "plugin_name": "traffic_split", "proxy_id": "a", "config": config}],
    })
    .to_string()
}

fn trial(config: Value) -> Trial {
    Trial::of_spec(PLUGINS, &spec(config), &World::default())
}

/// The host that each request came to.
async fn hosts(config: Value, requests: &[(&str, &str)]) -> Vec<String> {
    let trial = trial(config);
    for field in requests {
        assert_eq!(trial.get("/", &[*field]).await.status, 200);
    }
    let host = |authority: &str| authority.split([':', '.']).next().unwrap_or_default().to_owned();
    trial.asked().iter().map(|asked| host(&asked.authority)).collect()
}

#[tokio::test]
async fn weights_are_kept() {
    let config = json!({"splits": [{"weight": 3}, {"upstream_id": "blue", "weight": 1}, {"upstream_id": "green", "weight": 0}]});
    let mut counts = HashMap::<String, usize>::new();
    for host in hosts(config, &[("x-a", "1"); 2000]).await {
        *counts.entry(host).or_default() += 1;
    }
    // A quarter of 2,000 has a standard deviation of 19; twelve of them either way never come.
    assert!((270..=730).contains(&counts["blue"]), "{counts:?}");
    assert_eq!((counts["own"] + counts["blue"], counts.get("green")), (2000, None));
}

#[tokio::test]
async fn an_override_decides_first() {
    let config = json!({
        "splits": [{"weight": 1}],
        "overrides": [
            {"header": "X-Canary", "value": "always", "upstream_id": "blue"},
            {"cookie": "canary", "upstream_id": "green"},
            {"header": "x-own"},
        ],
    });
    let requests = [
        ("x-canary", "always"),
        ("x-canary", "never"),
        ("cookie", "a=1; canary=x"),
        ("cookie", "canary="),
        ("x-a", "1"),
    ];
    assert_eq!(hosts(config, &requests).await, ["blue", "own", "green", "own", "own"]);
    let config =
        json!({"splits": [{"upstream_id": "blue", "weight": 1}], "overrides": [{"header": "x-own"}]});
    assert_eq!(hosts(config, &[("x-own", "1"), ("x-a", "1")]).await, ["own", "blue"]);
}

#[tokio::test]
async fn a_caller_stays_where_it_is() {
    let config = |seed: &str| {
        json!({
            "splits": [{"upstream_id": "blue", "weight": 1}, {"upstream_id": "green", "weight": 1}],
            "sticky_by": "${request.header.x-user}", "seed": seed,
        })
    };
    let names: Vec<String> = (0..200).map(|n| format!("user-{n}")).collect();
    let requests: Vec<_> = names.iter().map(|name| ("x-user", name.as_str())).collect();
    let first = hosts(config(""), &requests).await;
    assert_eq!(first, hosts(config(""), &requests).await, "also in another gateway");
    let blue = first.iter().filter(|host| *host == "blue").count();
    assert!((50..=150).contains(&blue), "{blue}");
    assert_ne!(first, hosts(config("other"), &requests).await);
    // Who is not known goes by chance: all 64 in one place would be one chance in 2^63.
    let unknown = hosts(config(""), &[("x-a", "1"); 64]).await;
    assert!(unknown.iter().any(|host| *host != unknown[0]));
}

#[tokio::test]
async fn records_and_metrics_say_where() {
    let world = World::default();
    let config = json!({"splits": [{"upstream_id": "blue", "weight": 1}]});
    let trial = Trial::of_spec(PLUGINS, &spec(config), &world);
    trial.get("/", &[]).await;
    assert_eq!(trial.records()[0].fields, [("traffic_split.upstream", "blue".into())]);
    let metrics = world.meters().text();
    assert!(metrics.contains("{plugin_config=\"s\",upstream=\"blue\",subset=\"\"} 1"), "{metrics}");
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    let splits = json!([{"weight": 1}]);
    for config in [
        json!({}),
        json!({"splits": [{"weight": 0}]}),
        json!({"splits": splits, "sticky_by": "constant"}),
        json!({"splits": splits, "sticky_by": "${response.status}"}),
        json!({"splits": splits, "overrides": [{"value": "x"}]}),
        json!({"splits": splits, "overrides": [{"header": "a", "cookie": "b"}]}),
        json!({"splits": splits, "overrides": [{"header": "a b"}]}),
        json!({"splits": splits, "overrides": [{"when": {"methods": ["GET"]}, "value": "x"}]}),
        json!({"splits": splits, "overrides": [{"when": {"methods": ["no method"]}}]}),
        json!({"splits": [{"weight": 1, "fallback": "any"}]}),
        json!({"splits": [{"weight": 1, "tags": {"v": "1"}, "fallback": "else"}]}),
        json!({"splits": [{"weight": 1, "tags": {"v": "1"}, "fallback": {"tags": {"v": "1"}}}]}),
    ] {
        Trial::refused(PLUGINS, "traffic_split", &config);
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_closes_the_proxy() {
    let config = json!({"splits": [{"upstream_id": "red", "weight": 1}]});
    match Trial::try_of_spec(PLUGINS, &spec(config), &World::default()) {
        Err(problems) => assert!(problems.to_string().contains("red"), "{problems}"),
        Ok(trial) => {
            assert_eq!((trial.closed(), trial.get("/", &[]).await.status), (vec!["a".to_owned()], 503))
        }
    }
}

/// An upstream with targets `one` and `two`, tagged so, and one without a tag.
fn tagged(config: &Value) -> Trial {
    let target = |name: &str| json!({"host": format!("{name}.test"), "port": 80, "tags": {"v": name}});
    let upstream = json!({
        "id": "u", "targets": [target("one"), target("two"), {"host": "plain.test", "port": 80}],
        "health_checks": {"passive": {"unhealthy_threshold": 1, "healthy_after": 600}},
    });
    let spec = json!({
        "upstreams": [upstream],
        "proxies": [{"id": "a", "listen_path": "/", "upstream_id": "u", "backend_scheme": "http"}],
        "plugin_configs": [{"id": "s", "plugin_name": "traffic_split", "proxy_id": "a", "config": config}],
    });
    Trial::of_spec(PLUGINS, &spec.to_string(), &World::default())
}

fn came_to(trial: &Trial) -> Vec<String> {
    let host = |authority: &str| authority.split([':', '.']).next().unwrap_or_default().to_owned();
    trial.asked().iter().map(|asked| host(&asked.authority)).collect()
}

#[tokio::test]
async fn tags_choose_targets_of_one_upstream() {
    let trial = tagged(&json!({
        "splits": [{"weight": 1, "tags": {"v": "one"}}],
        "overrides": [
            {"header": "x-canary", "tags": {"v": "two"}},
            {"cookie": "canary", "value": "yes", "tags": {"v": "two"}},
            {"when": {"headers": {"x-any": "1"}}},
        ],
    }));
    for _ in 0..3 {
        for field in [("x-a", "1"), ("x-canary", "1"), ("cookie", "canary=yes")] {
            assert_eq!(trial.get("/", &[field]).await.status, 200);
        }
    }
    assert_eq!(came_to(&trial), ["one", "two", "two"].repeat(3));
    let fields = [("traffic_split.upstream", "own".into()), ("traffic_split.subset", "v=one".into())];
    assert_eq!(trial.records()[0].fields, fields);
    for _ in 0..6 {
        trial.get("/", &[("x-any", "1")]).await;
    }
    let all = came_to(&trial).split_off(9);
    assert!(["one", "two", "plain"].iter().all(|name| all.contains(&(*name).to_owned())), "{all:?}");
}

#[tokio::test]
async fn shares_of_one_upstream_are_sticky() {
    let config = json!({
        "splits": [{"weight": 1, "tags": {"v": "one"}}, {"weight": 1, "tags": {"v": "two"}}],
        "sticky_by": "${request.header.x-user}",
    });
    let names: Vec<String> = (0..50).map(|n| format!("user-{n}")).collect();
    let trial = tagged(&config);
    for name in names.iter().chain(&names) {
        trial.get("/", &[("x-user", name)]).await;
    }
    let hosts = came_to(&trial);
    let (first, again) = hosts.split_at(names.len());
    assert_eq!(first, again);
    assert!(first.contains(&"one".to_owned()) && first.contains(&"two".to_owned()), "{first:?}");
}

/// The targets that requests with and without `x-canary` come to, once target `two` has failed.
async fn after_a_failure(fallback: Value) -> (u16, String, Vec<String>) {
    let mut canary = json!({"header": "x-canary", "tags": {"v": "two"}});
    if !fallback.is_null() {
        canary["fallback"] = fallback;
    }
    let trial = tagged(&json!({"splits": [{"weight": 1}], "overrides": [canary]})).answering(|asked| {
        let status = if asked.authority.starts_with("two") { 503 } else { 200 };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    });
    assert_eq!(trial.get("/", &[("x-canary", "1")]).await.status, 503);
    let mut status = 0;
    for _ in 0..6 {
        status = trial.get("/", &[("x-canary", "1")]).await.status;
    }
    let mut hosts = came_to(&trial).split_off(1);
    hosts.sort();
    hosts.dedup();
    (status, trial.records().pop().unwrap().reason.unwrap_or_default().to_owned(), hosts)
}

#[tokio::test]
async fn tags_without_a_healthy_target_fall_back_as_they_say() {
    for fallback in [Value::Null, json!("refuse")] {
        let (status, reason, hosts) = after_a_failure(fallback).await;
        assert_eq!((status, &*reason), (503, "subset_unhealthy"));
        assert!(hosts.is_empty(), "{hosts:?}");
    }
    let (status, _, hosts) = after_a_failure(json!("any")).await;
    assert_eq!((status, hosts), (200, vec!["one".to_owned(), "plain".to_owned()]));
    let (status, _, hosts) = after_a_failure(json!({"tags": {"v": "one"}})).await;
    assert_eq!((status, hosts), (200, vec!["one".to_owned()]));
}

#[tokio::test]
async fn tags_that_no_target_has_close_the_proxy() {
    for split in [
        json!({"weight": 1, "tags": {"v": "three"}}),
        json!({"weight": 1, "tags": {"v": "one"}, "fallback": {"tags": {"v": "three"}}}),
    ] {
        let trial = tagged(&json!({"splits": [split]}));
        assert_eq!(trial.get("/", &[]).await.status, 503);
        assert_eq!(trial.records()[0].reason, Some("quarantined"));
    }
    assert_eq!(
        tagged(&json!({"splits": [{"weight": 1, "tags": {"v": "one"}}]})).get("/", &[]).await.status,
        200
    );
}
