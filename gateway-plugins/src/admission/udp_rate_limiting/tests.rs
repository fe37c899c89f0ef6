//! Dropped datagrams, rejected sessions, and the proxies that accept the plugin.

use std::time::Duration;

use gateway_core::limit::meter::Admitted;
use gateway_core::plugin::entry;
use gateway_core::stream::session::Direction;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Beside;
use serde_json::{Value, json};

use super::*;

fn spec(scheme: &str, config: &Value) -> String {
    let proxy = match scheme {
        "http" => json!({ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 1 }),
        _ => {
            json!({ "id": "a", "listen_port": 7000, "backend_scheme": scheme, "backend_host": "t.test", "backend_port": 1 })
        }
    };
    json!({
        "proxies": [proxy],
        "plugin_configs": [
            { "id": "udp", "plugin_name": "udp_rate_limiting", "proxy_id": "a", "config": config },
        ],
    })
    .to_string()
}

fn trial(config: &Value, world: &World) -> Trial {
    let trial = Trial::of_spec(&[entry::<UdpRateLimiting>()], &spec("udp", config), world);
    trial.start(&Beside);
    trial
}

#[tokio::test(start_paused = true)]
async fn datagrams_beyond_a_limit_are_dropped_and_counted() {
    let config = json!({ "datagrams_per_second": 10, "bytes_per_second": "100kB", "byte_burst": 3000 });
    let world = World::default();
    let before = trial(&config, &world);
    let (mut flow, record) = before.flow("a").await.unwrap();
    let mut passed = |bytes| (0..20).filter(|_| flow.admit(Direction::Up, bytes) == Admitted::Yes).count();
    assert_eq!(passed(100), 10);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(passed(1000), 3, "the bytes are the tighter limit");
    // A change applies to sessions that run, and keeps what was used.
    let _more = trial(&json!({ "datagrams_per_second": 1000, "bytes_per_second": "100kB" }), &world);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(passed(1), 20);
    assert_eq!(flow.admit(Direction::Down, 1 << 20), Admitted::Yes, "only the client's count");
    drop(flow);
    assert_eq!(record.lock().unwrap().as_ref().map(|ended| ended.dropped), Some(10 + 17));
}

#[tokio::test(start_paused = true)]
async fn sessions_beyond_a_limit_are_refused() {
    let trial = trial(&json!({ "max_sessions": 2, "sessions_per_second": 3 }), &World::default());
    let first = trial.flow("a").await.unwrap();
    let _second = trial.flow("a").await.unwrap();
    assert_eq!(trial.flow("a").await.err(), Some("udp_limit_sessions"));
    drop(first);
    let _third = trial.flow("a").await.unwrap();
    assert_eq!(trial.flow("a").await.err(), Some("udp_limit_rate"));
}

#[test]
fn it_is_for_datagrams_only() {
    let config = json!({ "max_sessions": 2, "bytes_per_second": 1000 });
    for (scheme, taken) in [("udp", true), ("dtls", true), ("tcp", false), ("http", false)] {
        let entries = [entry::<UdpRateLimiting>()];
        let built = Trial::try_of_spec(&entries, &spec(scheme, &config), &World::default());
        match built {
            Ok(_) => assert!(taken, "{scheme}"),
            Err(problems) => assert!(!taken && problems.to_string().contains("does nothing"), "{problems}"),
        }
    }
    for config in [
        json!({}),
        json!({ "max_sessions": 1, "from": "both" }),
        json!({ "max_sessions": 1, "datagram_burst": 3 }),
    ] {
        assert!(
            Trial::try_of_spec(&[entry::<UdpRateLimiting>()], &spec("udp", &config), &World::default())
                .is_err()
        );
    }
}
