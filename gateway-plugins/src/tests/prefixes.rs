//! Networks that count as one caller, for each plugin that tells callers apart by address.

use std::net::IpAddr;

use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Machine;
use serde_json::{Value, json};

use super::super::PLUGINS;

const SAME: [&str; 2] = ["192.0.2.1", "192.0.2.9"];
const SAME_V6: [&str; 2] = ["2001:db8:1:1::1", "2001:db8:1:2::1"];

/// Whether requests from both addresses count as one caller's.
async fn alike(plugin: &str, config: &Value, [first, second]: [&str; 2]) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80 }],
        "plugin_configs": [{ "id": "p", "plugin_name": plugin, "proxy_id": "a", "config": config }],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &Machine::default().world());
    let ask = async |trial: &Trial| trial.request("POST", "/", &[("idempotency-key", "k")], "x").await.status;
    let trial = trial.from_client(address(first), None);
    assert_eq!(ask(&trial).await, 200, "{plugin} {config}");
    let trial = trial.from_client(address(second), None);
    // The second is refused, or answered with what was stored.
    ask(&trial).await == 429 || trial.asked().len() == 1
}

#[tokio::test]
async fn networks_count_as_one_caller_as_the_settings_say() {
    for (plugin, config) in [
        ("quota", json!({ "limits": [{ "limit": 1, "per": "3650d" }], "limit_by": "address", "path": "/q" })),
        ("rate_limiting", json!({ "limits": [{ "rate": 1, "per": "1d" }] })),
        ("request_deduplication", json!({ "scope": "address" })),
    ] {
        let with = |name: &str, bits: u8| {
            let mut config = config.clone();
            config[name] = bits.into();
            config
        };
        assert!(!alike(plugin, &config, SAME).await, "{plugin}: IPv4 addresses are told apart");
        assert!(alike(plugin, &with("ipv4_prefix", 24), SAME).await, "{plugin}: a /24 is one caller");
        assert!(!alike(plugin, &config, SAME_V6).await, "{plugin}: networks of 64 bits are told apart");
        assert!(alike(plugin, &with("ipv6_prefix", 48), SAME_V6).await, "{plugin}: a /48 is one caller");
    }
}
