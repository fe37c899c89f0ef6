//! Groups of edges.

use serde_json::json;

use crate::client::target;
use crate::fleet::place::{Edge, Plane, answering};
use crate::process::until;

#[test]
fn credentials_are_checked_by_edges_and_are_not_in_their_files() {
    let plane = Plane::new();
    let port = target("shop").port();
    let proxy = |id: &str, path: &str| {
        json!({
            "id": id, "listen_path": path, "backend_scheme": "http", "backend_host": "127.0.0.1",
            "backend_port": port, "strip_listen_path": false,
        })
    };
    let guard = |id: &str, plugin: &str, proxy: &str| json!({ "id": id, "plugin_name": plugin, "scope": "proxy", "proxy_id": proxy, "config": {} });
    let batch = json!({
        "proxies": [proxy("shop", "/"), proxy("other", "/other")],
        "plugin_configs": [guard("keys", "key_auth", "shop"), guard("signed", "hmac_auth", "other")],
        "consumers": [{
            "id": "ann", "username": "ann",
            "credentials": { "key_auth": { "key": "open-sesame" }, "hmac_auth": { "secret": "hidden-in-the-hat" } },
        }],
    });
    plane.write(&batch);
    let mut edge = Edge::start(&plane.invite("ann", "eu"));
    plane.until_served("ann");
    assert_eq!(plane.edge("ann")["broken"]["count"], 0, "{}", plane.edge("ann"));
    assert_eq!(edge.get_with("/", "open-sesame").text, "shop / ann -");
    assert_eq!(edge.get_with("/", "wrong").status, 401);
    plane.gateway.signal("STOP");
    edge.restart();
    assert_eq!(edge.get_with("/", "open-sesame").text, "shop / ann -");
    plane.gateway.signal("CONT");
    let kept = std::fs::read(edge.folder.path("state").join("last-good")).unwrap();
    for secret in ["open-sesame", "hidden-in-the-hat", "ann", "shop"] {
        assert!(!kept.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret}");
    }
}

#[test]
fn moved_edges_get_the_configuration_of_their_new_group() {
    let plane = Plane::new();
    plane.write(&answering("all", "/", "one"));
    let edge = Edge::start(&plane.invite("ann", "eu"));
    plane.until_served("ann");
    assert_eq!(edge.standing()["group"], "eu");
    assert!(plane.command(&["move", "ann", "us"]).status.success());
    plane.write(&answering("all", "/", "two"));
    edge.until_answers("/", "two");
    assert_eq!(plane.edge("ann")["group"], "us");
}

#[test]
fn a_group_gets_the_proxies_that_are_meant_for_it_and_nothing_else() {
    let plane = Plane::new();
    let eu = Edge::start(&plane.invite("eu-1", "eu"));
    let all = Edge::start(&plane.invite("all-1", "default"));
    plane.write(&answering("eu-shop", "/eu", "eu"));
    plane.write(&answering("us-shop", "/us", "us"));
    all.until_answers("/us", "us");
    eu.until_answers("/us", "us");
    assert!(plane.command(&["assign", "eu", "eu-*"]).status.success());
    until("the other proxy is gone", || eu.get("/us").status == 404);
    assert_eq!(eu.get("/eu").text, "eu");
    assert_eq!(all.get("/us").text, "us");
    let groups = plane.fleet()["groups"].clone();
    let count = |name: &str| {
        let group = groups.as_array().unwrap().iter().find(|group| group["name"] == name);
        group.unwrap()["objects"].as_u64()
    };
    assert_eq!((count("eu"), count("default")), (Some(2), Some(4)), "the proxy and its plugin config");
    assert!(plane.command(&["assign", "eu", "--all"]).status.success());
    eu.until_answers("/us", "us");
    assert!(!plane.command(&["assign", "eu", "no/id"]).status.success());
}
