//! Who is let into a fleet, and who is not any more.

use gateway_fleet::{Invitation, Link, enrolment_config, signing_request};
use serde_json::{Value, json};

use crate::fleet::place::{Edge, Plane, answering};
use crate::process::{Folder, ferrum_edge, until};

/// What an edge says that can't enrol by this invitation.
fn refused(invitation: &str) -> String {
    let folder = Folder::new();
    folder.write("ferrum.yaml", "gateway: { http: '127.0.0.1:0', https: off }\n");
    let mut command = ferrum_edge(&folder);
    command.args(["run", "--mode", "edge"]).env("FERRUM_EDGE_STATE", folder.path("state"));
    let output = command.env("FERRUM_EDGE_INVITATION", invitation).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_invitation_is_used_once_and_only_with_its_control_plane() {
    let plane = Plane::new();
    let invitation = plane.invite("ann", "default");
    let (rest, pin) = invitation.split_once("?pin=").unwrap();
    let log = refused(&format!("{rest}?pin={}", "0".repeat(pin.len())));
    assert!(log.contains("could not be enrolled"), "another authority is not trusted: {log}");
    assert!(log.contains("is not the control plane of this invitation"), "{log}");
    let wrong =
        rest.strip_suffix(|_: char| true).unwrap().to_owned() + if rest.ends_with('a') { "b" } else { "a" };
    let log = refused(&format!("{wrong}?pin={pin}"));
    assert!(log.contains("wrong, used or expired"), "{log}");
    let edge = Edge::start(&invitation);
    plane.until_served("ann");
    let log = refused(&invitation);
    assert!(log.contains("wrong, used or expired"), "{log}");
    // No secret of the enrolment is in a log or in an answer.
    let code = rest.rsplit('/').next().unwrap();
    for text in [plane.gateway.log(), edge.gateway.log(), plane.fleet().to_string()] {
        assert!(!text.contains(code) && !text.contains("PRIVATE KEY"), "{text}");
    }
}

/// An administrator lists the pending invitations, and withdraws one that was sent to the wrong person.
#[test]
fn invitations_are_listed_without_their_codes_and_withdrawn() {
    const PATH: &str = "/v1/fleet/invitations";
    let plane = Plane::new();
    let (used, by_api, by_id, by_name) = (
        plane.invite("ann", "default"),
        plane.invite("bob", "eu"),
        plane.invite("cat", "eu"),
        plane.invite("dan", "us"),
    );
    let _edge = Edge::start(&used);
    plane.until_served("ann");
    let answer = plane.ask("GET", PATH, &Value::Null);
    let listed = answer.json()["items"].as_array().unwrap().clone();
    let named = |name: &str| listed.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null);
    assert_eq!(named("ann"), &Value::Null, "a used one waits no more");
    assert_eq!((named("bob")["group"].as_str(), named("bob")["edge"].as_str()), (Some("eu"), None));
    assert!(named("bob")["expires_at"].is_string());
    let printed = String::from_utf8(plane.command(&["invitations"]).stdout).unwrap();
    assert_eq!(printed.lines().count(), 3, "{printed}");
    for invitation in [&by_api, &by_id, &by_name] {
        let code = invitation.rsplit('/').next().unwrap().split('?').next().unwrap();
        let secret = code.split_once('-').unwrap().1;
        assert!(!answer.text.contains(secret) && !printed.contains(secret), "{printed}");
    }
    let one = format!("{PATH}/{}", named("bob")["id"].as_str().unwrap());
    assert_eq!(plane.ask("DELETE", &one, &Value::Null).status, 204);
    assert!(plane.command(&["withdraw", named("cat")["id"].as_str().unwrap()]).status.success());
    // Another control plane withdraws it, and this one knows.
    let beside = plane.beside();
    assert!(beside.command(&["withdraw", "dan"]).status.success());
    for (invitation, name) in [(&by_api, "bob"), (&by_id, "cat"), (&by_name, "dan")] {
        let log = refused(invitation);
        assert!(log.contains("wrong, used or expired"), "{name}: {log}");
        let again = plane.command(&["withdraw", name]);
        assert!(!again.status.success(), "{name}");
        assert!(String::from_utf8_lossy(&again.stderr).contains("fleet invitations"), "{again:?}");
    }
    assert_eq!(plane.ask("DELETE", &one, &Value::Null).status, 404);
    assert_eq!(plane.ask("GET", PATH, &Value::Null).json()["items"], json!([]));
    let audit = plane.ask("GET", "/v1/audit?limit=100", &Value::Null).text;
    assert!(audit.contains(&format!("DELETE {one}")), "{audit}");
}

#[test]
fn edges_that_enrol_at_the_same_time_wait_for_one_another() {
    const EDGES: usize = 24;
    let plane = Plane::new();
    let invitations: Vec<Invitation> =
        (0..EDGES).map(|n| plane.invite(&format!("e{n}"), "default").parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let enrolled = runtime.block_on(async {
        let enrolling = invitations.iter().map(|invitation| async {
            let (_key, request) = signing_request().unwrap();
            let tls = enrolment_config(&invitation.pin).unwrap();
            let link = Link::connect(&invitation.address, tls).await.unwrap();
            link.enrol(&invitation.code, &request, "1").await.unwrap().edge
        });
        futures_util::future::join_all(enrolling).await
    });
    let known: std::collections::BTreeSet<String> = enrolled.into_iter().collect();
    assert_eq!(known.len(), EDGES);
    assert_eq!(plane.fleet()["edges"].as_array().map(Vec::len), Some(EDGES));
}

#[test]
fn a_revoked_edge_is_cut_and_gets_nothing_new() {
    let plane = Plane::new();
    plane.write(&answering("all", "/", "before"));
    let edge = Edge::start(&plane.invite("ann", "default"));
    let other = Edge::start(&plane.invite("bob", "default"));
    plane.until_served("ann");
    plane.until_served("bob");
    let begun = std::time::Instant::now();
    assert!(plane.command(&["revoke", "ann"]).status.success());
    until("the edge knows", || edge.standing()["revoked"] != Value::Null);
    // A command and two looks lie in between.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    plane.write(&answering("all", "/", "after"));
    plane.until_served("bob");
    assert_eq!(other.get("/").text, "after");
    assert_eq!(edge.get("/").text, "before", "what it has goes on");
    assert_eq!(plane.edge("ann")["standing"], "revoked");
    // Its certificate is not accepted at the handshake, either.
    let mut edge = edge;
    edge.restart();
    let mut standing = Value::Null;
    until("the handshake is refused", || {
        standing = edge.standing();
        standing["revoked"].is_string()
    });
    assert!(standing["revoked"].as_str().is_some_and(|why| why.contains("new invitation")), "{standing}");
    assert!(edge.gateway.log().contains("this edge is revoked"), "{}", edge.gateway.log());
    assert_eq!(edge.get("/").text, "before");
    // Invited again it is the same edge.
    let id = plane.edge("ann")["id"].as_str().unwrap().to_owned();
    let body = json!({ "edge": id });
    let invited = plane.ask("POST", "/v1/fleet/invitations", &body).json();
    let again = Edge::start(invited["invitation"].as_str().unwrap());
    assert_eq!(again.get("/").text, "after");
    assert_eq!(again.standing()["edge"], id.as_str());
    assert_eq!(plane.edge("ann")["revoked_at"], Value::Null);
}

fn invite(command: &mut std::process::Command, invitation: &str) {
    command.env("FERRUM_EDGE_INVITATION", invitation);
}

/// A new invitation beside the state of a revoked edge is meant; the old one, which is still set, is not.
#[test]
fn a_new_invitation_takes_the_place_of_an_identity() {
    let plane = Plane::new();
    plane.write(&answering("all", "/", "one"));
    let first = plane.invite("ann", "default");
    let mut edge = Edge::start(&first);
    plane.until_served("ann");
    edge.restart_with(|command| invite(command, &first));
    until("it is connected", || edge.standing()["control_plane"] != Value::Null);
    let id = edge.standing()["edge"].clone();
    assert!(plane.command(&["revoke", "ann"]).status.success());
    // One of no use changes nothing.
    let (rest, pin) = first.split_once("?pin=").unwrap();
    let end = if rest.ends_with('a') { "b" } else { "a" };
    let wrong = format!("{}{end}?pin={pin}", rest.strip_suffix(|_: char| true).unwrap());
    edge.restart_with(|command| invite(command, &wrong));
    assert_eq!((edge.standing()["edge"].clone(), edge.get("/").text.as_str()), (id.clone(), "one"));
    let again = plane.ask("POST", "/v1/fleet/invitations", &json!({ "edge": id })).json();
    let again = again["invitation"].as_str().unwrap().to_owned();
    edge.restart_with(|command| invite(command, &again));
    plane.until_served("ann");
    assert_eq!(edge.standing()["revoked"], Value::Null);
    plane.write(&answering("all", "/", "two"));
    edge.until_answers("/", "two");
}

#[test]
fn edges_are_renamed_and_removed() {
    let plane = Plane::new();
    let edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    let identity = edge.standing()["edge"].clone();
    assert!(plane.command(&["rename", "ann", "carl"]).status.success());
    assert_eq!(plane.edge("carl")["id"], identity);
    assert_eq!(plane.edge("carl")["standing"], "served", "a name is a label");
    let refused = plane.command(&["rename", "carl", "no/name"]);
    assert!(!refused.status.success());
    assert!(!plane.command(&["revoke", "nobody"]).status.success());
    assert!(plane.command(&["remove", "carl"]).status.success());
    assert_eq!(plane.edge("carl"), Value::Null);
    until("its connection ends", || edge.standing()["revoked"] != Value::Null);
}

#[test]
fn the_fleet_is_changed_by_administrators_only() {
    let plane = Plane::new();
    let ask = |method: &str, path: &str, token: &str| {
        let head = format!("authorization: Bearer {token}\r\n");
        crate::client::Client::new(plane.gateway.admin).ask(method, path, &head, b"").status
    };
    for (method, path) in [
        ("GET", "/v1/fleet"),
        ("GET", "/v1/fleet/edges/e1"),
        ("PATCH", "/v1/fleet/edges/e1"),
        ("DELETE", "/v1/fleet/edges/e1"),
        ("POST", "/v1/fleet/edges/e1/revoke"),
        ("POST", "/v1/fleet/invitations"),
        ("GET", "/v1/fleet/invitations"),
        ("DELETE", "/v1/fleet/invitations/abc"),
    ] {
        assert_eq!(ask(method, path, "somebody-else-entirely"), 401, "{method} {path}");
    }
}
