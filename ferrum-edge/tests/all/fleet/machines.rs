//! What the machine of one edge can't do stops neither the edge nor the others, and the control plane shows it.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::fleet::place::{Edge, Plane, answering};
use crate::process::until;

/// A batch with a proxy for each of these settings, which this machine can't apply.
fn with_settings(settings: &[(&str, &str)]) -> Value {
    let mut batch = answering("open", "/", "open");
    for (setting, value) in settings {
        batch["proxies"].as_array_mut().unwrap().push(json!({
            "id": setting, "listen_path": format!("/{setting}"), "backend_scheme": "http",
            "backend_host": "127.0.0.1", "backend_port": 9, *setting: value,
        }));
    }
    batch
}

#[test]
fn a_socket_setting_that_a_machine_cannot_apply_stops_only_its_proxy() {
    // RFC 5737: no machine has the address.
    let settings = [
        ("backend_source_address", "192.0.2.1"),
        ("backend_interface", "nope0"),
        ("backend_congestion_control", "not_there"),
    ];
    let mut plane = Plane::new();
    // It carries no traffic: what its own machine can apply does not matter.
    plane.write(&with_settings(&settings));
    let mut edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    for start in ["first", "from its disk"] {
        assert_eq!(edge.get("/").text, "open", "{start}");
        for (setting, _) in settings {
            assert_eq!(edge.get(&format!("/{setting}")).status, 502, "{start}: {setting}");
        }
        let failing = edge.gateway.status()["proxies"]["failing"].to_string();
        for (setting, value) in &settings[..2] {
            let found = failing.contains(&format!("{setting}: "));
            assert!(found, "{start}: {setting} {value}: {failing}");
        }
        assert!(edge.gateway.log().contains("backend_congestion_control: the kernel has no"), "{start}");
        edge.restart();
    }
    // A change in which such a setting comes with others is served, too.
    let mut batch = with_settings(&[("backend_source_address", "192.0.2.2")]);
    batch["plugin_configs"][0]["config"]["body"] = json!("changed");
    plane.write(&batch);
    plane.until_served("ann");
    assert_eq!(edge.get("/").text, "changed");
    let listening = plane.listening();
    plane.gateway.signal("KILL");
    plane.gateway.wait();
    plane.restart(&listening);
    plane.until_served("ann");
}

#[test]
fn a_port_that_an_edge_cannot_open_is_shown_by_its_control_plane_until_it_is_open() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let plane = Plane::new();
    let edge = Edge::start(&plane.invite("ann", "default"));
    plane.write(&json!({ "proxies": [{
        "id": "stream", "listen_port": port, "backend_scheme": "tcp", "backend_host": "127.0.0.1", "backend_port": 9,
    }] }));
    plane.until_served("ann");
    let broken = plane.edge("ann")["broken"].clone();
    assert_eq!((&broken["count"], &broken["objects"][0]["id"]), (&json!(1), &json!("stream")), "{broken}");
    assert!(broken["objects"][0]["reason"].as_str().unwrap().contains("in use"), "{broken}");
    let shown = plane.command(&["status", "--object", "proxies/stream"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.code() == Some(4) && text.contains("cannot listen on"), "{text}");
    let problems = edge.gateway.status()["problems"]["list"].clone();
    let codes: Vec<&str> =
        problems.as_array().unwrap().iter().filter_map(|problem| problem["code"].as_str()).collect();
    assert_eq!(codes, ["port_closed"], "{problems}");
    drop(taken);
    until("the control plane learns that the port is open", || plane.edge("ann")["broken"]["count"] == 0);
    let shown = plane.command(&["status", "--object", "proxies/stream"]);
    assert_eq!(shown.status.code(), Some(0));
}

#[test]
fn a_last_good_configuration_that_could_not_be_kept_is_kept_once_it_can_be() {
    let plane = Plane::new();
    plane.write(&answering("all", "/", "one"));
    let mut edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    // The file that is written before it takes the place of the one there is.
    let beside = edge.folder.path("state").join("last-good.new");
    until("the first is kept", || !edge.standing()["last_good"].is_null());
    std::fs::create_dir(&beside).unwrap();
    let revision = plane.write(&answering("all", "/", "two"));
    plane.until_served("ann");
    until("it can't be kept", || !edge.standing()["last_good_problem"].is_null());
    let problems = edge.gateway.status()["problems"]["list"].clone();
    let is_shown = |problem: &Value| problem["code"] == "last_good_unsaved" && problem["level"] == "error";
    assert!(problems.as_array().unwrap().iter().any(is_shown), "{problems}");
    std::fs::remove_dir(&beside).unwrap();
    until("it is kept without another change", || edge.standing()["last_good"]["revision"] == revision);
    assert_eq!(edge.standing()["last_good_problem"], Value::Null);
    drop(plane);
    edge.restart();
    assert_eq!(edge.get("/").text, "two");
}

#[test]
fn an_object_that_no_edge_can_use_is_refused_when_it_is_written() {
    let plane = Plane::new();
    plane.write(&answering("all", "/", "one"));
    let quota = json!({
        "id": "quota", "plugin_name": "traffic_quota", "scope": "proxy", "proxy_id": "all",
        "config": { "limit": "5MB", "database": true },
    });
    let refused = plane.ask("POST", "/v1/plugin_configs", &quota);
    assert_eq!(refused.status, 422, "{refused:?}");
    let errors = refused.json()["errors"].to_string();
    assert!(errors.contains("only gateways in database mode") && errors.contains("redis"), "{errors}");
}
