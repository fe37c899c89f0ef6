//! Settings that go by who the caller is, where the plugin runs before that is known.

use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use crate::PLUGINS;

/// What is wrong with a plugin config of a proxy with key authentication, or without.
fn problems(plugin: &str, place: &Value, config: &Value, has_auth: bool) -> String {
    let mut configs = vec![json!({
        "id": "p", "plugin_name": plugin, "proxy_id": "a", "config": config,
    })];
    if let (Some(written), Some(place)) = (configs[0].as_object_mut(), place.as_object()) {
        written.extend(place.clone());
    }
    if has_auth {
        configs.push(json!({ "id": "k", "plugin_name": "key_auth", "proxy_id": "a" }));
    }
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": configs,
    });
    match Trial::try_of_spec(PLUGINS, &spec.to_string(), &World::default()) {
        Ok(trial) => trial.why_closed().join("; "),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn settings_that_go_by_the_caller_are_refused_before_authentication() {
    let (early, late) = (json!({ "before": "key_auth" }), json!({ "after": "key_auth" }));
    let groups = json!({ "exclusions": [{ "when": { "groups": ["staff"] }, "rules": ["1000400-1000499"] }] });
    let rule = |value: &str| json!({ "rules": [{ "operation": "set", "target": "header", "key": "x-a", "value": value }] });
    let in_body = json!({ "rules": [{
        "operation": "set", "target": "body", "key": "/a", "value": { "b": ["${identity.claim.sub}"] },
    }] });
    let one = json!({ "limit_by": "consumer", "limits": [{ "rate": 1, "per": "1s" }] });
    for (plugin, config, setting) in [
        ("waf", groups, "config.exclusions[0].when"),
        ("redirect", json!({ "location": "/${consumer.username}" }), "config.location"),
        ("redirect", json!({ "host": "${identity.name:-x}.test" }), "config.host"),
        ("redirect", json!({ "path": "/${identity.claim.sub}" }), "config.path"),
        ("rewrite", json!({ "path": "/${consumer.id}" }), "config.path"),
        (
            "rewrite",
            json!({ "query": { "add": [{ "name": "a", "value": "${consumer.group}" }] } }),
            "config.query.add[0].value",
        ),
        ("request_transformer", rule("${consumer.custom_id}"), "config.rules"),
        ("request_transformer", in_body, "config.rules"),
        (
            "traffic_split",
            json!({ "sticky_by": "${consumer.id}", "splits": [{ "weight": 1 }] }),
            "config.sticky_by",
        ),
        (
            "csrf",
            json!({ "bind_to": "${consumer.id}", "secret": "0123456789abcdef0123456789abcdef" }),
            "config.bind_to",
        ),
        ("rate_limiting", one, "config.limit_by"),
        ("request_deduplication", json!({}), "config.scope"),
    ] {
        let found = problems(plugin, &early, &config, true);
        assert!(found.contains(&format!("plugin_configs.p.{setting}: ")), "{plugin} {config}: {found}");
        assert!(found.contains("before the caller is known"), "{plugin} {config}: {found}");
        assert_eq!(problems(plugin, &late, &config, true), "", "{plugin} {config}");
    }
    assert_eq!(problems("redirect", &early, &json!({ "location": "/${request.host}" }), true), "");
}

/// All plugins that identify callers are asked before the request hooks behind the first of them.
#[test]
fn between_two_plugins_that_identify_callers_the_caller_is_known() {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80, "auth_mode": "multi" }],
        "plugin_configs": [
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "a" },
            { "id": "b", "plugin_name": "basic_auth", "proxy_id": "a" },
            { "id": "r", "plugin_name": "redirect", "proxy_id": "a", "after": "key_auth",
              "config": { "location": "/${consumer.username}" } },
        ],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    assert_eq!(trial.why_closed(), [""; 0]);
}

#[test]
fn without_authentication_a_condition_on_callers_is_refused_and_an_empty_name_is_not() {
    let groups =
        json!({ "exclusions": [{ "when": { "consumers": ["ann"] }, "rules": ["1000400-1000499"] }] });
    let found = problems("waf", &json!({}), &groups, false);
    assert!(found.contains("no plugin of this proxy identifies callers"), "{found}");
    assert_eq!(
        problems("redirect", &json!({}), &json!({ "location": "/${consumer.username:-x}" }), false),
        ""
    );
}
