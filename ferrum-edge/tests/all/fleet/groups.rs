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

#[test]
fn a_group_gets_the_proxies_of_its_workspaces() {
    let plane = Plane::new();
    let edge = Edge::start(&plane.invite("a-1", "a"));
    plane.write(&answering("a-shop", "/a", "a"));
    plane.write(&answering("b-shop", "/b", "b"));
    edge.until_answers("/b", "b");
    let assign = || plane.command(&["assign", "a", "--workspace", "team"]);
    assert!(!assign().status.success(), "there is no such workspace yet");
    let set = |name: &str, objects: &[&str]| {
        let answer = plane.ask("PUT", &format!("/v1/workspaces/{name}"), &json!({ "objects": objects }));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    set("team", &["a-*"]);
    assert!(assign().status.success());
    until("the other proxy is gone", || edge.get("/b").status == 404);
    assert_eq!(edge.get("/a").text, "a");
    // The group follows the workspace: what it covers, and its name.
    set("team", &["b-*"]);
    edge.until_answers("/b", "b");
    until("the first proxy is gone", || edge.get("/a").status == 404);
    let renamed = plane.ask("PATCH", "/v1/workspaces/team", &json!({ "name": "crew" }));
    assert_eq!(renamed.status, 200, "{renamed:?}");
    let group =
        plane.fleet()["groups"].as_array().unwrap().iter().find(|group| group["name"] == "a").cloned();
    assert_eq!(group.unwrap()["workspaces"], json!(["crew"]));
    set("crew", &["a-*", "b-*"]);
    edge.until_answers("/a", "a");
    // Edges would lose the proxies of a workspace that is removed.
    let used = plane.ask("GET", "/v1/workspaces", &serde_json::Value::Null).json();
    assert_eq!(used["items"][0]["used_by"]["edge_groups"], json!(["a"]), "{used}");
    let removed = || plane.ask("DELETE", "/v1/workspaces/crew", &serde_json::Value::Null);
    assert_eq!((removed().status, removed().json()["code"].clone()), (409, json!("in_use")));
    assert!(plane.command(&["assign", "a", "--all"]).status.success());
    assert_eq!(removed().status, 204);
}
