//! What the target is asked.

use gateway_core::plugin::{Entry, World, entry};
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::Rewrite;

const PLUGINS: &[Entry] = &[entry::<Rewrite>()];

fn trial(config: Value) -> Trial {
    Trial::new(PLUGINS, "rewrite", config)
}

/// What the target is asked for, or the status of a refusal.
async fn asked(config: Value, path: &str) -> String {
    let trial = trial(config);
    let got = trial.get(path, &[("x-a", "v 1/..")]).await;
    trial.asked().first().map_or_else(|| got.status.to_string(), |asked| asked.path.clone())
}

#[tokio::test]
async fn paths_are_made_anew() {
    let prefix = json!({"prefix": {"from": "/api", "to": "/v2/"}});
    let root = json!({"prefix": {"from": "/api/", "to": "/"}});
    let regex = json!({"regex": [
        {"from": "^/users/(?<id>[0-9]+)$", "to": "/people/${id}"},
        {"from": "/old/", "to": "/new/"},
    ]});
    let all = json!({"regex": [{"from": "/([a-z]+)-", "to": "/${1}_", "all": true}]});
    for (config, path, expected) in [
        (&all, "/ab-c/de-f?g=/h-", "/ab_c/de_f?g=/h-"),
        (&prefix, "/api", "/v2"),
        (&prefix, "/api/x?q=1", "/v2/x?q=1"),
        (&prefix, "/apiary", "/apiary"),
        (&root, "/api", "/"),
        (&root, "/api/x", "/x"),
        (&regex, "/users/7?q", "/people/7?q"),
        (&regex, "/a/old/b/old/", "/a/new/b/old/"),
        (&regex, "/other", "/other"),
        (&json!({"path": "/fixed"}), "/a?b=c", "/fixed?b=c"),
        (&json!({"path": "/fixed?x=1"}), "/a?b=c", "/fixed?x=1&b=c"),
        (&json!({"path": "/h/${request.query.q}"}), "/a?q=x%3Fy", "/h/x%3Fy?q=x%3Fy"),
    ] {
        assert_eq!(asked(config.clone(), path).await, expected, "{config} {path}");
    }
}

#[tokio::test]
async fn queries_are_changed_and_the_rest_stays() {
    for (query, path, expected) in [
        (json!({"remove": ["b"]}), "/p?a=%41&b=1&%62=2&c", "/p?a=%41&c"),
        (json!({"remove_all": true}), "/p?a=1&b", "/p"),
        (
            json!({"remove_all": true, "add": [{"name": "c", "value": "${request.query.a}"}]}),
            "/p?a=1&b",
            "/p?c=1",
        ),
        (json!({"remove": ["a b"]}), "/p?a+b=1&a%20b=2", "/p"),
        (
            json!({"set": [{"name": "a", "value": "x&y=${request.query.a}"}]}),
            "/p?a=1&b=2&a=3",
            "/p?a=x%26y%3D1&b=2",
        ),
        (json!({"set": [{"name": "a", "value": "${request.header.x-a}"}]}), "/p", "/p?a=v%201/.."),
        (json!({"set": [{"name": "a", "value": "${request.query.b}"}]}), "/p?b=1%26c%3D2", "/p?a=1%26c%3D2"),
        (json!({"add": [{"name": "a=", "value": "2"}]}), "/p?a=1", "/p?a=1&a%3D=2"),
        (json!({"set": [{"name": "a", "value": "a b#c+100%"}]}), "/p", "/p?a=a%20b%23c%2B100%25"),
        (json!({"set": [{"name": "a", "value": "1&admin=1"}]}), "/p", "/p?a=1%26admin%3D1"),
    ] {
        let got = asked(json!({"query": query}), path).await;
        let expected = if expected == "/p?a=1%26c%3D2" { "/p?b=1%26c%3D2&a=1%26c%3D2" } else { expected };
        assert_eq!(got, expected, "{query}");
    }
    let both = json!({"prefix": {"from": "/p", "to": "/r"}, "query": {"remove": ["a"]}});
    assert_eq!(asked(both, "/p/x?a=1&b=2").await, "/r/x?b=2");
}

#[tokio::test]
async fn the_host_is_the_targets_to_see() {
    let trial = trial(json!({"host": "${request.query.t:-none}.example.com:8443"}));
    trial.get("/?t=a", &[]).await;
    trial.get("/", &[]).await;
    let hosts: Vec<String> = trial.asked().iter().map(|asked| asked.field("host").to_owned()).collect();
    assert_eq!(hosts, ["a.example.com:8443", "none.example.com:8443"]);
    for bad in ["a/b", "u@b", "a%0d%0ax:y"] {
        assert_eq!(trial.get(&format!("/?t={bad}"), &[]).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn no_value_leads_out_of_its_folder() {
    let config = json!({"path": "/files/${request.query.f}"});
    for bad in ["../etc/passwd", "a/../../x", "%2e%2e/x", "..", "./x", "a%00b", "a%5c..%5cb"] {
        assert_eq!(asked(config.clone(), &format!("/?f={bad}")).await, "400", "{bad}");
    }
    let regex = json!({"regex": [{"from": "^/a/(.*)$", "to": "/x/.$1"}]});
    assert_eq!(asked(regex, "/a/./b").await, "/x/.b?".trim_end_matches('?'));
    let regex = json!({"regex": [{"from": "^/a/(.*)$", "to": "/x/.$1"}]});
    assert_eq!(asked(regex, "/a/").await, "400", "it would be `/x/.`");
    let regex = json!({"regex": [{"from": "^/a(.*)$", "to": "http://evil.test$1"}]});
    assert_eq!(asked(regex, "/a/b").await, "400");
}

#[tokio::test]
async fn a_query_alone_leaves_the_proxys_own_path_rules() {
    let spec = json!({
        "proxies": [{
            "id": "a", "matches": [{"path": "/u/{id}"}], "listen_path": null, "backend_host": "target.test",
            "backend_port": 80, "backend_scheme": "http", "backend_path": "/base",
        }],
        "plugin_configs": [{
            "id": "r", "plugin_name": "rewrite", "proxy_id": "a",
            "config": {"query": {"set": [{"name": "id", "value": "${capture.id}"}]}},
        }],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default());
    trial.get("/u/7?x=1", &[]).await;
    let path = trial.asked()[0].path.clone();
    assert!(path.starts_with("/base") && path.ends_with("?x=1&id=7"), "{path}");
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for config in [
        json!({}),
        json!({"path": "a"}),
        json!({"path": "/a", "prefix": {"from": "/", "to": "/x"}}),
        json!({"path": "/a b"}),
        json!({"path": "/a#b"}),
        json!({"path": "/caf\u{e9}/${capture.x}"}),
        json!({"path": "/${request.header.x:-a b}"}),
        json!({"prefix": {"from": "api", "to": "/"}}),
        json!({"prefix": {"from": "/", "to": "/x?y"}}),
        json!({"regex": [{"from": "(", "to": "/"}]}),
        json!({"query": {"set": [{"name": "a", "value": "${response.status}"}]}}),
    ] {
        Trial::refused(PLUGINS, "rewrite", &config);
    }
}
