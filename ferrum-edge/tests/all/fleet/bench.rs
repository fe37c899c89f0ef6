//! `proto_bench fleet`: a second implementation of the protocol, beside the gateway's own.

use std::time::Duration;

use proto_bench::fleet::{self, FleetError, FleetOutcome, Options};
use serde_json::json;

use crate::fleet::place::{Edge, Plane};
use crate::process::TIMEOUT;

fn options() -> Options {
    Options {
        edges: 12,
        real: 0,
        proxies: 50,
        changes: 3,
        rate: Some(20),
        duration: Duration::from_secs(2),
        slow: 2,
        slow_for: Duration::from_millis(300),
        cuts: 5.0,
        away: Duration::from_millis(50),
        settle: TIMEOUT,
        limit: None,
    }
}

/// Real edges are started as the tests start theirs.
fn run(options: &Options, plane: &Plane) -> Result<FleetOutcome, FleetError> {
    let mut edges = Vec::new();
    let mut start = |_: usize, invitation: &str| {
        edges.push(Edge::start(invitation));
        Ok(())
    };
    fleet::run(options, &mut plane.under_test(), &mut start, &mut |_| {})
}

#[test]
fn simulated_edges_serve_every_change_and_have_the_hash_of_the_store() {
    let plane = Plane::new();
    let outcome = run(&options(), &plane).unwrap();
    // A busy machine commits fewer changes a second; whatever else is void is wrong.
    let void: Vec<_> = outcome.void.iter().filter(|why| !why.contains("committed")).collect();
    assert!(void.is_empty(), "{void:?}");
    assert_eq!((outcome.hashes_compared, outcome.single.by_all.count), (12, 3));
    assert_eq!(outcome.single.by_each.count, 3 * 10, "slow edges are counted apart");
    assert!(outcome.single.by_slow.min_us >= 300_000.0, "{:?}", outcome.single.by_slow);
    let storm = outcome.storm.unwrap();
    assert!(storm.phase.calls > 0 && storm.reconnections > 0, "{storm:?}");
    assert_eq!(storm.phase.by_all.count, storm.phase.calls as u64);
    // The control plane agrees: each edge served the newest. The end of the bench disconnects them.
    let fleet = plane.fleet();
    let hash = &fleet["groups"][0]["position"]["hash"];
    let edges = fleet["edges"].as_array().unwrap();
    let served = edges.iter().filter(|edge| edge["served"]["hash"] == *hash);
    assert_eq!(served.count(), 12, "{fleet}");
    assert_eq!(fleet["groups"][0]["position"]["revision"], outcome.revision);
}

#[test]
fn a_delay_above_the_limit_is_void_and_edges_that_do_not_come_are_told() {
    let plane = Plane::new();
    let limited =
        Options { edges: 2, real: 1, rate: None, slow: 0, limit: Some(Duration::from_nanos(1)), ..options() };
    let outcome = run(&limited, &plane).unwrap();
    let real = outcome.real.unwrap();
    assert_eq!((real.edges, real.by_all.count), (1, 3));
    assert!(outcome.void.len() == 2 && outcome.void[0].contains("(p99), not within"), "{:?}", outcome.void);
    let hasty = Options { edges: 4, real: 0, settle: Duration::ZERO, ..limited };
    let late = run(&hasty, &Plane::new()).unwrap_err();
    assert!(matches!(late, FleetError::Late { edges: 4, .. }), "{late}");
}

/// Simulated edges have no plugins, as edges of a version that lacks one.
#[test]
fn a_write_names_the_edges_that_lack_its_plugin() {
    let plane = Plane::new();
    let one = Options { edges: 1, changes: 1, rate: None, slow: 0, ..options() };
    assert!(run(&one, &plane).unwrap().void.is_empty());
    let config = |id: &str| json!({ "id": id, "plugin_name": "key_auth", "scope": "proxy", "proxy_id": "p1", "config": {} });
    let batch = json!({ "plugin_configs": [config("keys")] });
    for path in ["/v1/batch?validate_only", "/v1/batch"] {
        let answer = plane.ask("POST", path, &batch).json();
        let lacking = json!({ "count": 1, "edges": [{ "edge": "edge-0", "plugins": ["key_auth"], "settings": [], "left_out": [] }] });
        assert_eq!(answer["edges_lacking"], lacking, "{answer}");
    }
    let put = plane.ask("PUT", "/v1/plugin_configs/keys", &config("keys"));
    assert_eq!(put.header("ferrum-edges-lacking"), Some("edge-0 lacks key_auth"), "{put:?}");
    let other = plane.ask(
        "POST",
        "/v1/batch",
        &json!({ "upstreams": [{ "id": "u", "targets": [{ "host": "127.0.0.1", "port": 9 }] }] }),
    );
    assert_eq!(other.json()["edges_lacking"], serde_json::Value::Null);
}
