//! How many requests are hit, and how.

use std::time::{Duration, Instant};

use gateway_core::plugin::{Entry, World, entry};
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::FaultInjection;

const PLUGINS: &[Entry] = &[entry::<FaultInjection>()];

async fn hit(config: Value, requests: usize) -> usize {
    let trial = Trial::new(PLUGINS, "fault_injection", config);
    for _ in 0..requests {
        trial.get("/", &[]).await;
    }
    trial.records().iter().filter(|record| record.reason == Some("fault_injected")).count()
}

#[tokio::test]
async fn the_share_is_kept() {
    assert_eq!(hit(json!({"abort": {"percentage": 0}}), 200).await, 0);
    assert_eq!(hit(json!({"abort": {"percentage": 100}}), 200).await, 200);
    // 30 % of 2,000 has a standard deviation of 20; twelve of them either way never come.
    let some = hit(json!({"abort": {"percentage": 30.0}}), 2000).await;
    assert!((360..=840).contains(&some), "{some}");
}

#[tokio::test]
async fn a_refusal_has_its_status_also_for_grpc() {
    let trial =
        Trial::new(PLUGINS, "fault_injection", json!({"abort": {"percentage": 100, "status_code": 429}}));
    assert_eq!(trial.get("/", &[]).await.status, 429);
    let call = trial.request("POST", "/s/m", &[("content-type", "application/grpc")], "").await;
    assert_eq!((call.status, call.field("grpc-status")), (200, "8"));
    assert!(trial.asked().is_empty());
    assert_eq!(hit(json!({"abort": {"percentage": 100}}), 1).await, 1);
}

#[tokio::test]
async fn a_delay_holds_up_and_then_goes_on() {
    let world = World::default();
    let spec = json!({
        "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
        "plugin_configs": [{
            "id": "f", "plugin_name": "fault_injection", "proxy_id": "a",
            "config": {"delay": {"percentage": 100, "duration": "30ms"}},
        }],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &world);
    let begun = Instant::now();
    assert_eq!(trial.get("/", &[]).await.text(), "ok");
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert_eq!(trial.records()[0].fields[0].0, "fault_injection.delay");
    let metrics = world.meters().text();
    assert!(metrics.contains("{plugin_config=\"f\",fault=\"delay\"} 1"), "{metrics}");
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for config in [
        json!({}),
        json!({"abort": {"percentage": 101}}),
        json!({"abort": {"percentage": -1}}),
        json!({"abort": {"percentage": 1, "status_code": 200}}),
        json!({"delay": {"percentage": 1, "duration": "2m"}}),
        json!({"delay": {"percentage": 1}}),
    ] {
        Trial::refused(PLUGINS, "fault_injection", &config);
    }
}
