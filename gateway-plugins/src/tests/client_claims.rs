//! What an untrusted client says of the way here: no plugin sees it.

use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use crate::PLUGINS;

const CLAIMS: [(&str, &str); 6] = [
    ("x-forwarded-for", "10.6.6.6"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "evil.test"),
    ("x-forwarded-port", "666"),
    ("x-real-ip", "10.6.6.6"),
    ("forwarded", "for=10.6.6.6;proto=https"),
];

fn trial(plugins: &Value) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": plugins,
    });
    Trial::of_spec(PLUGINS, &spec.to_string(), &World::default())
}

#[tokio::test]
async fn conditions_templates_and_limits_do_not_see_them() {
    for (name, value) in CLAIMS {
        let set = |value: &str| json!({ "rules": [{ "operation": "set", "target": "header", "key": "x-seen", "value": value }] });
        let plugins = json!([
            { "id": "t", "plugin_name": "request_transformer", "proxy_id": "a",
              "config": set(&format!("<${{request.header.{name}:-none}}>")) },
            { "id": "w", "plugin_name": "response_mock", "proxy_id": "a",
              "when": { "headers": { name: { "present": true } } },
              "config": { "rules": [{ "path": "/*", "body": "seen" }] } },
            { "id": "l", "plugin_name": "rate_limiting", "proxy_id": "a",
              "config": { "limit_by": format!("header:{name}"), "on_missing": "allow",
                          "limits": [{ "rate": 1, "per": "1h" }] } },
        ]);
        let trial = trial(&plugins);
        assert!(trial.why_closed().is_empty(), "{:?}", trial.why_closed());
        for _ in 0..3 {
            let got = trial.get("/", &[(name, value)]).await;
            assert_eq!((got.status, &*got.text()), (200, "ok"), "{name}");
            assert_eq!(trial.asked().pop().expect("a request").field("x-seen"), "<none>", "{name}");
        }
    }
}
