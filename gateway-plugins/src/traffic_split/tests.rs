//! Where requests go.

use std::collections::HashMap;

use gateway_core::plugin::{Entry, World, entry};
use gateway_core::testing::Trial;
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
    let mut metrics = String::new();
    world.meters().write(&mut metrics);
    assert!(metrics.contains("{plugin_config=\"s\",upstream=\"blue\"} 1"), "{metrics}");
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
