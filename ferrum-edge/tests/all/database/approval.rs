//! Changes that another user has to approve.

use std::sync::Arc;
use std::time::Duration;

use ferrum_edge::core::config::model::{AdminApproval, Settings};
use ferrum_edge::source::database::Database;
use ferrum_edge::store::Engine;
use serde_json::{Value, json};

use crate::client::{Answer, Client, target, until};
use crate::database::grants::token_of;
use crate::database::peers::{self, database};
use crate::database::place::{ADMIN, Api, Folder, Running, WRITE, consumer, key_auth, proxy};
use crate::servers::shared;

fn rules(objects: &[&str]) -> AdminApproval {
    AdminApproval {
        roles: ["write", "admin"].into(),
        objects: objects.iter().map(|pattern| Box::from(*pattern)).collect(),
        by_admin: false,
        expires_after: Duration::from_secs(3600),
    }
}

fn start_on(database: Database, rules: AdminApproval) -> Running {
    Running::with(database, Settings { admin_approval: Some(Arc::new(rules)), ..Settings::default() })
}

fn start(folder: &Folder, objects: &[&str]) -> Running {
    start_on(Running::database(folder.location()), rules(objects))
}

/// A person with a JWT.
fn person(running: &Running, name: &str, role: &str) -> Api {
    Api { client: Client::new(running.admin), token: token_of(name, role, &Value::Null) }
}

fn is(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{answer:?}");
}

/// The number of the change that an answer tells of.
fn number(answer: &Answer) -> u64 {
    assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")), "{answer:?}");
    let number = answer.json()["number"].as_u64().unwrap();
    assert_eq!(answer.header("location"), Some(&*format!("/v1/changes/{number}")));
    number
}

fn approve(api: &mut Api, number: u64) -> Answer {
    api.ask("POST", &format!("/v1/changes/{number}/approve"), "", b"")
}

/// Applies a change as the operator.
fn forced(running: &Running, method: &str, path: &str, body: &Value) {
    let waiting = number(&running.api().send(method, path, body));
    let path = format!("/v1/changes/{waiting}/approve?emergency&note=begin");
    assert_eq!(running.api().ask("POST", &path, "", b"").status, 200);
}

fn export(running: &Running) -> Value {
    running.api().get("/v1/export").json()
}

#[test]
fn a_change_is_applied_once_another_person_approves_it() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    applied_once(&running, &running);
}

#[test]
fn changes_in_postgres_are_approved_at_any_gateway() {
    approved_on(Engine::Postgres);
}

#[test]
fn changes_in_mariadb_are_approved_at_any_gateway() {
    approved_on(Engine::MySql);
}

fn approved_on(engine: Engine) {
    let location = database(shared(engine), "test_approval");
    let at = || start_on(peers::patient_database(&location), rules(&["*"]));
    applied_once(&at(), &at());
}

/// Proposed at one gateway, approved at the other.
fn applied_once(one: &Running, other: &Running) {
    let behind = target("behind");
    let (mut ann, mut bob) = (person(one, "ann", "write"), person(other, "bob", "write"));
    let before = export(one);
    let sent = ann.send("PUT", "/v1/proxies/a?note=the%20shop", &proxy("a", "/a", behind));
    let waiting = number(&sent);
    assert_eq!((export(one), one.client().get("/a", None).status), (before, 404));
    let shown = bob.get(&format!("/v1/changes/{waiting}")).json();
    assert_eq!((&shown["author"], &shown["note"]), (&json!("ann"), &json!("the shop")), "{shown}");
    let change = &shown["changes"][0];
    assert_eq!((&change["before"], &change["after"]["listen_path"]), (&Value::Null, &json!("/a")));
    assert_eq!((&change["fits"], &shown["refusal"]), (&json!(true), &Value::Null));
    assert_eq!(bob.get("/v1/changes?state=pending").json()["items"].as_array().unwrap().len(), 1);

    is(&approve(&mut ann, waiting), 403, "own_change");
    is(&approve(&mut person(other, "ANN", "admin"), waiting), 403, "own_change");
    is(&approve(&mut person(other, "carl", "read"), waiting), 403, "forbidden");
    for token in [WRITE, ADMIN] {
        is(&approve(other.api().with(token), waiting), 403, "no_person");
    }
    is(&approve(&mut bob, waiting + 1), 404, "not_found");
    let checked = bob.ask("POST", &format!("/v1/changes/{waiting}/approve?validate_only"), "", b"");
    assert_eq!((checked.status, &checked.json()["created"]), (200, &json!(1)), "{checked:?}");
    assert_eq!(bob.get(&format!("/v1/changes/{waiting}")).json()["state"], "pending");
    let stale = bob.ask("POST", &format!("/v1/changes/{waiting}/approve"), "if-match: \"99\"\r\n", b"");
    is(&stale, 412, "changed");

    let done = bob.ask("POST", &format!("/v1/changes/{waiting}/approve?note=fine"), "", b"");
    assert_eq!((done.status, &done.json()["created"]), (200, &json!(1)), "{done:?}");
    let revision = done.json()["revision"].as_u64().unwrap();
    one.follows(revision);
    assert_eq!((one.client().get("/a", None).status, other.client().get("/a", None).status), (200, 200));
    let told = ann.get(&format!("/v1/changes/{waiting}")).json();
    let decided = ["state", "decided_by", "reason"].map(|key| told[key].as_str().unwrap().to_owned());
    assert_eq!(decided, ["approved", "bob", "fine"]);
    assert_eq!((&told["revision"], &told["changes"]), (&json!(revision), &json!([])));
    let made = ann.get(&format!("/v1/revisions/{revision}")).json();
    let note = format!("the shop (change {waiting}, approved by bob)");
    assert_eq!((&made["author"], &made["note"]), (&json!("ann"), &json!(note)));
    is(&approve(&mut bob, waiting), 409, "decided");

    // Both persons are in the audit, and its chain is whole. Refused attempts are written beside their answers.
    until("the refused attempts are there", || {
        let page = ann.get("/v1/audit?actor=ann&outcome=refused").json();
        !page["items"].as_array().unwrap().is_empty()
    });
    let audit = ann.get("/v1/audit").json();
    let entries = audit["items"].as_array().unwrap();
    let of = |actor: &str, action: String| {
        let entry = entries.iter().find(|entry| entry["actor"] == actor && entry["action"] == action);
        entry.unwrap_or_else(|| panic!("{actor} {action}: {audit}")).clone()
    };
    assert_eq!(of("ann", "PUT /v1/proxies/a".to_owned())["reason"], format!("change {waiting}: pending"));
    let approval =
        entries.iter().find(|entry| entry["actor"] == "bob" && entry["revision"] == revision).unwrap();
    assert_eq!(approval["changes"][0]["id"], "a", "{approval}");
    assert_eq!(of("ann", format!("POST /v1/changes/{waiting}/approve"))["outcome"], "refused");
    assert_eq!(ann.get("/v1/audit/verify").json()["valid"], true);
    let metrics = other.api().get("/metrics").text;
    assert!(metrics.contains("ferrum_admin_approvals_total{outcome=\"approved\"} 1"), "{metrics}");
}

/// Every way to change objects waits, and does the same as without an approval once it is approved.
#[test]
fn every_write_waits() {
    let (folder, free_folder) = (Folder::new(), Folder::new());
    let (running, free) = (start(&folder, &["*"]), Running::new(&free_folder));
    let behind = target("behind");
    let upstream = json!({ "id": "u", "targets": [{ "host": "127.0.0.1", "port": behind.port() }] });
    let begun = json!({
        "upstreams": [upstream], "proxies": [proxy("a", "/a", behind), proxy("gone", "/gone", behind)],
        "plugin_configs": [key_auth("k", "gone")], "consumers": [consumer("cara", &["cara-key"])],
    });
    forced(&running, "POST", "/v1/batch", &begun);
    free.api().batch(&begun);
    let writes: [(&str, &str, Value); 9] = [
        ("PUT", "/v1/proxies/b", proxy("b", "/b", behind)),
        ("POST", "/v1/plugin_configs", key_auth("ka", "a")),
        ("PATCH", "/v1/proxies/b", json!({ "strip_listen_path": false })),
        ("PUT", "/v1/upstreams/u/targets/127.0.0.1:9", json!({ "weight": 3 })),
        ("DELETE", "/v1/upstreams/u/targets/127.0.0.1:9", Value::Null),
        // Its own plugin config goes with it.
        ("DELETE", "/v1/proxies/gone", Value::Null),
        ("POST", "/v1/batch", json!({ "consumers": [{ "id": "dora", "username": "dora" }] })),
        ("POST", "/v1/import?prune=false", json!({ "proxies": [proxy("c", "/c", behind)] })),
        ("POST", "/v1/revisions/1/rollback", Value::Null),
    ];
    for (method, path, body) in writes {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let mut ann = person(&running, "ann", "admin");
        let before = export(&running);
        let query = if path.contains('?') { '&' } else { '?' };
        let checked = ann.ask(method, &format!("{path}{query}validate_only"), "", bytes.as_bytes());
        if method != "DELETE" {
            assert_eq!(
                (checked.status, &checked.json()["needs_approval"]),
                (200, &json!(true)),
                "{checked:?}"
            );
        }
        let waiting = number(&ann.ask(method, path, "", bytes.as_bytes()));
        assert_eq!(export(&running), before, "{method} {path}");
        let expected = if path.contains("import") || path.contains("rollback") { "admin" } else { "write" };
        assert_eq!(ann.get(&format!("/v1/changes/{waiting}")).json()["role"], expected, "{method} {path}");
        if expected == "admin" {
            is(&approve(&mut person(&running, "bob", "write"), waiting), 403, "forbidden");
        }
        let done = approve(&mut person(&running, "bob", expected), waiting);
        assert_eq!(done.status, 200, "{method} {path}: {done:?}");
        let plain = free.api().ask(method, path, "", bytes.as_bytes());
        assert!((200..300).contains(&plain.status), "{method} {path}: {plain:?}");
        assert_eq!(export(&running), export(&free), "{method} {path}");
    }
    // What changes nothing needs no approval.
    let same = person(&running, "ann", "write").send("PUT", "/v1/proxies/a", &proxy("a", "/a", behind));
    assert_eq!(same.status, 200, "{same:?}");
}

#[test]
fn a_change_whose_objects_have_changed_is_not_applied() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let behind = target("behind");
    forced(&running, "PUT", "/v1/proxies/a", &proxy("a", "/a", behind));
    let (mut ann, mut bob) = (person(&running, "ann", "write"), person(&running, "bob", "write"));
    let patch = |api: &mut Api, id: &str, retries: u64| {
        number(&api.send("PATCH", &format!("/v1/proxies/{id}"), &json!({ "priority": retries })))
    };
    let (first, second) = (patch(&mut ann, "a", 1), patch(&mut ann, "a", 2));
    let beside = number(&ann.send("PUT", "/v1/proxies/b", &proxy("b", "/b", behind)));
    assert_eq!(approve(&mut bob, first).status, 200);
    let before = export(&running);
    is(&approve(&mut bob, second), 409, "base_changed");
    assert_eq!(export(&running), before);
    let shown = bob.get(&format!("/v1/changes/{second}")).json();
    assert_eq!((&shown["state"], &shown["changes"][0]["fits"]), (&json!("pending"), &json!(false)));
    // Other objects may have changed.
    assert_eq!(approve(&mut bob, beside).status, 200);
    // What was made of nothing is not applied to something, nor does it bring back what is gone.
    let again = number(&ann.send("PUT", "/v1/proxies/c", &proxy("c", "/c", behind)));
    let other = number(&bob.send("PUT", "/v1/proxies/c", &proxy("c", "/c2", behind)));
    assert_eq!(approve(&mut ann, other).status, 200);
    is(&approve(&mut bob, again), 409, "base_changed");
    let late = patch(&mut ann, "c", 7);
    let gone = number(&bob.ask("DELETE", "/v1/proxies/c", "", b""));
    assert_eq!(approve(&mut ann, gone).status, 200);
    is(&approve(&mut bob, late), 409, "base_changed");
    // A change that is right by itself may be wrong beside what came meanwhile.
    let (one, two) = (proxy("d", "/same", behind), proxy("e", "/same", behind));
    let one = number(&ann.send("PUT", "/v1/proxies/d", &one));
    let two = number(&ann.send("PUT", "/v1/proxies/e", &two));
    assert_eq!(approve(&mut bob, one).status, 200);
    is(&approve(&mut bob, two), 422, "invalid");
    let metrics = running.api().get("/metrics").text;
    assert!(metrics.contains("ferrum_admin_approvals_total{outcome=\"conflict\"} 3"), "{metrics}");
}

#[test]
fn a_change_outlives_a_restart_and_ends_by_rejection_withdrawal_or_time() {
    let folder = Folder::new();
    let behind = target("behind");
    let running = start(&folder, &["*"]);
    let put = |running: &Running, id: &str| {
        let document = proxy(id, &format!("/{id}"), behind);
        number(&person(running, "ann", "write").send("PUT", &format!("/v1/proxies/{id}"), &document))
    };
    let all = ["a", "b", "c", "d"].map(|id| put(&running, id));
    drop(running);
    let running = start(&folder, &["*"]);
    let (mut ann, mut bob) = (person(&running, "ann", "write"), person(&running, "bob", "write"));
    let end = |api: &mut Api, method: &str, path: String| api.ask(method, &path, "", b"");
    is(&end(&mut ann, "POST", format!("/v1/changes/{}/reject", all[0])), 403, "own_change");
    assert_eq!(end(&mut bob, "POST", format!("/v1/changes/{}/reject?note=no", all[0])).status, 204);
    is(&end(&mut bob, "DELETE", format!("/v1/changes/{}", all[1])), 403, "not_own_change");
    assert_eq!(end(&mut ann, "DELETE", format!("/v1/changes/{}", all[1])).status, 204);
    folder.sql(&format!("UPDATE ferrum_pending SET expires_at = 1 WHERE number = {}", all[2]));
    for (number, state, reason) in
        [(all[0], "rejected", "no"), (all[1], "withdrawn", ""), (all[2], "expired", "")]
    {
        let shown = bob.get(&format!("/v1/changes/{number}")).json();
        assert_eq!((&shown["state"], &shown["reason"]), (&json!(state), &json!(reason)), "{shown}");
        let listed = bob.get(&format!("/v1/changes?state={state}")).json();
        assert_eq!(listed["items"][0]["number"], number, "{listed}");
        is(&approve(&mut bob, number), 409, "decided");
        is(&end(&mut bob, "POST", format!("/v1/changes/{number}/reject")), 409, "decided");
        let forced = format!("/v1/changes/{number}/approve?emergency&note=x");
        is(&end(&mut running.api(), "POST", forced), 409, "decided");
    }
    assert_eq!(export(&running)["proxies"], json!([]));
    assert_eq!(approve(&mut bob, all[3]).status, 200);
    assert_eq!(running.client().get("/d", None).status, 200);
    // Numbers are not used again.
    assert!(put(&running, "e") > all[3]);
}

#[test]
fn changes_that_wait_are_limited() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let behind = target("behind");
    let mut ann = person(&running, "ann", "write");
    for n in 0..50 {
        number(&ann.send(
            "PUT",
            &format!("/v1/proxies/p{n}"),
            &proxy(&format!("p{n}"), &format!("/{n}"), behind),
        ));
    }
    is(&ann.send("PUT", "/v1/proxies/q", &proxy("q", "/q", behind)), 409, "too_many_changes");
    let mut bob = person(&running, "bob", "write");
    let own = number(&bob.send("PUT", "/v1/proxies/q", &proxy("q", "/q", behind)));
    let page = bob.get("/v1/changes?limit=20").json();
    assert_eq!(
        (page["items"].as_array().unwrap().len(), &page["next"]),
        (20, &json!((own - 19).to_string()))
    );
    let consumers: Vec<Value> =
        (0..10_001).map(|n| json!({ "id": format!("c{n}"), "username": format!("c{n}") })).collect();
    is(&bob.send("POST", "/v1/batch", &json!({ "consumers": consumers })), 422, "too_large_to_approve");
}

#[test]
fn only_the_operator_applies_a_change_without_approval() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let behind = target("behind");
    let mut ann = person(&running, "ann", "admin");
    let waiting = number(&ann.send("PUT", "/v1/proxies/a", &proxy("a", "/a", behind)));
    let path = format!("/v1/changes/{waiting}/approve?emergency");
    for api in [&mut ann, &mut person(&running, "bob", "admin"), running.api().with(WRITE)] {
        is(&api.ask("POST", &format!("{path}&note=x"), "", b""), 403, "no_operator");
    }
    is(&running.api().ask("POST", &path, "", b""), 422, "no_reason");
    assert_eq!(running.api().ask("POST", &format!("{path}&note=fire"), "", b"").status, 200);
    assert_eq!(running.client().get("/a", None).status, 200);
    // What was refused before is written beside its answers, and may come last.
    let audit = ann.get("/v1/audit?actor=admin%20token&outcome=allowed").json();
    let note = format!("change {waiting}, applied without approval by admin token: fire");
    assert_eq!(audit["items"][0]["note"], note, "{audit}");
    let metrics = running.api().get("/metrics").text;
    assert!(metrics.contains("ferrum_admin_approvals_total{outcome=\"forced\"} 1"), "{metrics}");
}

/// Only what the patterns cover waits, and what has an effect on it.
#[test]
fn rules_name_objects_and_roles() {
    let folder = Folder::new();
    let mut rules = rules(&["proxies/pay-*", "consumers/*"]);
    rules.roles = ["write"].into();
    let running = start_on(Running::database(folder.location()), rules);
    let behind = target("behind");
    let upstream =
        |id: &str| json!({ "id": id, "targets": [{ "host": "127.0.0.1", "port": behind.port() }] });
    let on = |id: &str, upstream: &str| json!({ "id": id, "listen_path": format!("/{id}"), "backend_scheme": "http", "upstream_id": upstream });
    let begun = json!({
        "upstreams": [upstream("of-pay"), upstream("of-shop")],
        "proxies": [on("pay-card", "of-pay"), on("shop", "of-shop")],
    });
    assert_eq!(running.api().send("POST", "/v1/batch", &begun).status, 200, "the role admin needs none");
    let patch = json!({ "algorithm": "random" });
    for (method, path, body, waits) in [
        ("PATCH", "/v1/proxies/shop", json!({ "priority": 1 }), false),
        ("PATCH", "/v1/proxies/pay-card", json!({ "priority": 1 }), true),
        ("PUT", "/v1/consumers/cara", consumer("cara", &["cara-key"]), true),
        ("PATCH", "/v1/upstreams/of-shop", patch.clone(), false),
        ("PATCH", "/v1/upstreams/of-pay", patch, true),
        ("PUT", "/v1/plugin_configs/k1", key_auth("k1", "shop"), false),
        ("PUT", "/v1/plugin_configs/k2", key_auth("k2", "pay-card"), true),
        (
            "PUT",
            "/v1/plugin_configs/g",
            json!({ "id": "g", "plugin_name": "correlation_id", "scope": "global" }),
            true,
        ),
        ("DELETE", "/v1/proxies/pay-card", Value::Null, true),
        ("DELETE", "/v1/proxies/shop", Value::Null, false),
    ] {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let answer = person(&running, "ann", "write").ask(method, path, "", bytes.as_bytes());
        let expected = if waits { answer.status == 202 } else { [200, 201, 204].contains(&answer.status) };
        assert!(expected, "{method} {path}: {answer:?}");
    }
}

#[test]
fn secrets_of_a_change_are_not_in_the_clear() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let behind = target("behind");
    forced(
        &running,
        "POST",
        "/v1/batch",
        &json!({ "proxies": [proxy("a", "/a", behind)], "plugin_configs": [key_auth("k", "a")] }),
    );
    let mut ann = person(&running, "ann", "write");
    let waiting = number(&ann.send("PUT", "/v1/consumers/cara", &consumer("cara", &["KEY-OF-CARA"])));
    let mut bob = person(&running, "bob", "write");
    let shown = bob.get(&format!("/v1/changes/{waiting}"));
    assert!(!shown.text.contains("KEY-OF-CARA") && !shown.text.contains("key_sha256"), "{shown:?}");
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(11).any(|found| found == b"KEY-OF-CARA"));
    }
    assert_eq!(running.client().get("/a", Some("KEY-OF-CARA")).status, 401);
    assert_eq!(approve(&mut bob, waiting).status, 200);
    assert_eq!(running.client().get("/a", Some("KEY-OF-CARA")).status, 200);
}

/// Grants hold for who sees, approves and rejects, by what a change names and by what it has an effect on.
#[test]
fn grants_bound_approvals() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let behind = target("behind");
    let with = |name: &str, grants: Value| Api {
        client: Client::new(running.admin),
        token: token_of(name, "write", &grants),
    };
    let team = |hosts: Value| json!([{ "objects": ["a-*"], "hosts": hosts }]);
    let mut document = proxy("a-shop", "/", behind);
    document["hosts"] = json!(["a.example"]);
    let waiting =
        number(&with("ann", team(json!(["a.example"]))).send("PUT", "/v1/proxies/a-shop", &document));
    let mut other = with("bob", json!([{ "objects": ["b-*"], "hosts": ["*"] }]));
    is(&other.get(&format!("/v1/changes/{waiting}")), 404, "not_found");
    assert_eq!(other.get("/v1/changes").json()["items"], json!([]));
    is(&approve(&mut other, waiting), 404, "not_found");
    is(&other.ask("POST", &format!("/v1/changes/{waiting}/reject"), "", b""), 404, "not_found");
    // The id is granted, the host is not.
    is(&approve(&mut with("bob", team(json!(["b.example"]))), waiting), 403, "out_of_scope");
    let reader = json!([{ "objects": ["a-*"], "hosts": ["*"], "role": "read" }]);
    is(&approve(&mut with("bob", reader), waiting), 403, "out_of_scope");
    // An author can't go beyond his own grants by proposing.
    let beyond = with("ann", team(json!(["b.example"]))).send("PUT", "/v1/proxies/a-shop", &document);
    is(&beyond, 403, "out_of_scope");
    assert_eq!(approve(&mut with("bob", team(json!(["*"]))), waiting).status, 200);
}

#[cfg(feature = "console")]
#[test]
fn a_person_who_could_approve_as_another_does_not_administer_users() {
    let folder = Folder::new();
    let running = start(&folder, &["*"]);
    let user = json!({ "name": "bob", "role": "write" });
    let mut ann = person(&running, "ann", "admin");
    is(&ann.send("POST", "/v1/users", &user), 403, "operator_needed");
    assert_eq!(running.api().send("POST", "/v1/users", &user).status, 201);
    for (method, path, body) in [
        ("PATCH", "/v1/users/bob", json!({ "reset_password": true })),
        ("DELETE", "/v1/users/bob/totp", Value::Null),
        ("DELETE", "/v1/users/bob", Value::Null),
    ] {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        is(&ann.ask(method, path, "", bytes.as_bytes()), 403, "operator_needed");
        let done = running.api().ask(method, path, "", bytes.as_bytes());
        assert!((200..300).contains(&done.status), "{method} {path}: {done:?}");
    }
    let without = Folder::new();
    let running = Running::new(&without);
    assert_eq!(person(&running, "ann", "admin").send("POST", "/v1/users", &user).status, 201);
}
