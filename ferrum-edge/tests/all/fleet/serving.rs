//! Changes reach edges, and edges serve whatever becomes of their control plane.

use serde_json::{Value, json};

use crate::fleet::place::{Edge, Plane, answering};
use crate::process::{Folder, until};

#[test]
fn a_change_is_served_by_every_edge_also_after_the_control_plane_is_gone() {
    let mut plane = Plane::new();
    plane.write(&answering("all", "/", "one"));
    let mut edges = ["ann", "bob"].map(|name| Edge::start(&plane.invite(name, "default")));
    for (edge, name) in edges.iter().zip(["ann", "bob"]) {
        // It takes no connection before it has a configuration.
        assert_eq!(edge.get("/").text, "one");
        plane.until_served(name);
    }
    let revision = plane.write(&answering("all", "/", "two"));
    for (edge, name) in edges.iter().zip(["ann", "bob"]) {
        plane.until_served(name);
        assert_eq!(plane.edge(name)["served"]["revision"], revision);
        // `served` is said once every worker has the configuration.
        assert_eq!(edge.get("/").text, "two");
    }
    let shown = plane.command(&["status"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains("ann") && text.contains("served, connected"), "{text}");

    let listening = plane.listening();
    plane.gateway.signal("KILL");
    plane.gateway.wait();
    for edge in &mut edges {
        // It is on the disk a moment after it is served.
        until("it is kept", || edge.standing()["last_good"]["revision"] == revision);
        edge.restart();
        assert_eq!(edge.get("/").text, "two");
        assert_eq!(edge.standing()["control_plane"], Value::Null);
    }
    plane.restart(&listening);
    plane.write(&answering("all", "/", "three"));
    for edge in &edges {
        edge.until_answers("/", "three");
    }
}

#[test]
fn an_object_that_an_edge_cannot_use_is_named_and_closed_there() {
    let plane = Plane::new();
    let mut batch = answering("open", "/open", "open");
    // The control plane may resolve the reference, the edge may not.
    batch["plugin_configs"].as_array_mut().unwrap().push(json!({
        "id": "guard", "plugin_name": "key_auth", "scope": "proxy", "proxy_id": "guarded",
        "config": { "key_location": "header:${env:FLEET_TEST_HOST}" },
    }));
    batch["proxies"].as_array_mut().unwrap().push(json!({
        "id": "guarded", "listen_path": "/guarded", "backend_scheme": "http",
        "backend_host": "127.0.0.1", "backend_port": 9,
    }));
    plane.write(&batch);
    let edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    assert_eq!(edge.get("/open").text, "open");
    assert_eq!(edge.get("/guarded").status, 503, "without its guard it is closed");
    let broken = plane.edge("ann")["broken"].clone();
    assert_eq!(broken["count"], 2, "the guard, and the proxy that it guards: {broken}");
    assert_eq!(broken["objects"][0]["id"], "guard");
    assert_eq!(edge.standing()["broken"][0]["kind"], "plugin_configs");
    let of = |path: &str| plane.ask("GET", &format!("/v1/fleet/objects/{path}"), &json!(null));
    let guard = of("plugin_configs/guard").json()["edges"][0].clone();
    assert_eq!((&guard["name"], &guard["serves"]), (&json!("ann"), &json!(false)), "{guard}");
    assert!(guard["why"].as_str().unwrap().contains("can't be used there"), "{guard}");
    assert_eq!(of("proxies/open").json()["edges"][0]["serves"], true);
    assert_eq!((of("proxies/none").status, of("colours/red").status), (404, 404));
    let shown = plane.command(&["status", "--object", "plugin_configs/guard"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.status.code() == Some(4) && text.contains("ann (") && text.contains("can't be used"),
        "{text}"
    );
    // Repaired, it opens.
    batch["plugin_configs"][1]["config"] = json!({ "key_location": "header:x-api-key" });
    plane.write(&batch);
    plane.until_served("ann");
    assert_eq!(plane.edge("ann")["broken"]["count"], 0);
    assert_eq!(edge.get("/guarded").status, 401);
}

#[test]
fn an_edge_starts_from_a_first_configuration_while_no_control_plane_answers() {
    let mut plane = Plane::new();
    let listening = plane.listening();
    plane.write(&answering("all", "/", "from the control plane"));
    let folder = Folder::new();
    // JSON is YAML.
    folder.write("first.yaml", &answering("first", "/first", "first").to_string());
    // Enrolled, and then the control plane goes before a configuration was kept.
    let invitation = plane.invite("ann", "default");
    let first = folder.path("first.yaml");
    let edge = Edge::start_with(folder, |command| {
        command.env("FERRUM_EDGE_INVITATION", &invitation);
    });
    drop(edge.gateway);
    std::fs::remove_file(edge.folder.path("state").join("last-good")).unwrap_or(());
    plane.gateway.signal("KILL");
    plane.gateway.wait();
    let edge = Edge::start_with(edge.folder, |command| {
        command.env("FERRUM_EDGE_FIRST_CONFIGURATION", &first);
    });
    assert_eq!(edge.get("/first").text, "first");
    plane.restart(&listening);
    edge.until_answers("/", "from the control plane");
    until("what only the first configuration had is gone", || {
        edge.get("/first").text == "from the control plane"
    });
}

#[test]
fn without_any_configuration_an_edge_does_not_start() {
    let plane = Plane::new();
    let folder = Folder::new();
    folder.write("ferrum.yaml", "gateway: { http: '127.0.0.1:0', https: off }\n");
    let run = |adjust: &dyn Fn(&mut std::process::Command)| {
        let mut command = crate::process::ferrum_edge(&folder);
        command.args(["run", "--mode", "edge"]).env("FERRUM_EDGE_STATE", folder.path("state"));
        adjust(&mut command);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, log) = run(&|_| {});
    assert!(code == Some(1) && log.contains("not enrolled"), "{log}");
    let (code, log) = run(&|command| {
        command.env("FERRUM_EDGE_INVITATION", "ferrum-fleet://nowhere");
    });
    assert!(code == Some(3) && log.contains("FERRUM_EDGE_INVITATION"), "{log}");
    // Enrolled, but nobody answers any more.
    let mut edge = Edge::start_with(folder, |command| {
        command.env("FERRUM_EDGE_INVITATION", plane.invite("ann", "default"));
    });
    edge.gateway.signal("KILL");
    edge.gateway.wait();
    drop(plane);
    std::fs::write(edge.folder.path("state").join("last-good"), "damaged").unwrap();
    let mut command = crate::process::ferrum_edge(&edge.folder);
    command.args(["run", "--mode", "edge"]).env("FERRUM_EDGE_STATE", edge.folder.path("state"));
    let output = command.env("FERRUM_EDGE_START_TIMEOUT", "300ms").output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && log.contains("there is no configuration yet"), "{log}");
}
