//! Callers whose role counts for some objects only: what they see and change, and what they do not.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferrum_edge::store::Engine;
use serde_json::{Value, json};

use crate::client::{Answer, Client, target};
use crate::database::peers::{self, database};
use crate::database::place::{Api, Folder, JWT, Running, WRITE, proxy};
use crate::servers::shared;

/// A token for this role and these grants; null is none.
fn token(role: &str, grants: &Value) -> String {
    token_of("ann", role, grants)
}

/// The same for this person.
pub(crate) fn token_of(name: &str, role: &str, grants: &Value) -> String {
    let mut claims = json!({ "sub": name, "exp": 4_000_000_000_u64, "role": role, "grants": grants });
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encoded(r#"{"alg":"HS256"}"#), encoded(&claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, JWT.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

/// Grants for the objects of team a, its hosts and its ports.
fn team() -> Value {
    json!([
        { "objects": ["a-*"], "hosts": ["a.example", "*.a.example"], "ports": ["10000-10009"] },
        { "objects": ["shared-*"], "role": "read" },
    ])
}

fn by(running: &Running, role: &str, grants: &Value) -> Api {
    Api { client: Client::new(running.admin), token: token(role, grants) }
}

fn is_out_of_scope(answer: &Answer) {
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(answer.json()["code"], "out_of_scope", "{answer:?}");
}

/// A gateway with objects of two teams and shared ones.
fn start(folder: &Folder) -> Running {
    let running = Running::new(folder);
    begin(&running);
    running
}

fn begin(running: &Running) {
    let target = target("behind");
    let (host, port) = (target.ip().to_string(), target.port());
    let upstream = |id: &str| json!({ "id": id, "targets": [{ "host": host, "port": port }] });
    let of = |id: &str, host: &str, upstream: &str| json!({ "id": id, "hosts": [host], "listen_path": "/", "backend_scheme": "http", "upstream_id": upstream });
    let document = json!({
        "upstreams": [upstream("a-servers"), upstream("a-other"), upstream("b-servers"), upstream("shared-servers")],
        "proxies": [
            of("a-shop", "a.example", "a-servers"), of("a-lent", "x.a.example", "shared-servers"),
            of("b-shop", "b.example", "b-servers"), of("b-lent", "y.b.example", "shared-servers"),
            // Its id is that of a team, its host is not: somebody with more rights made it.
            of("a-misplaced", "b.example.org", "a-other"),
        ],
        "consumers": [{ "id": "a-bob", "username": "bob" }],
    });
    let done = running.api().send("POST", "/v1/batch", &document);
    assert_eq!(done.status, 200, "{done:?}");
}

#[test]
fn a_caller_sees_what_the_grants_cover() {
    let folder = Folder::new();
    let running = start(&folder);
    let mut ann = by(&running, "write", &team());
    let ids = |answer: &Answer| -> Vec<String> {
        let items = answer.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&ann.get("/v1/proxies")), ["a-lent", "a-misplaced", "a-shop"]);
    assert_eq!(ids(&ann.get("/v1/upstreams")), ["a-other", "a-servers", "shared-servers"]);
    assert_eq!(ann.get("/v1/proxies/a-shop").status, 200);
    assert_eq!(ann.get("/v1/upstreams/shared-servers/targets").status, 200);
    for path in [
        "/v1/proxies/b-shop",
        "/v1/proxies/b-shop/effective",
        "/v1/proxies/unknown",
        "/v1/upstreams/b-servers/targets",
        "/v1/consumers",
        "/v1/consumers/a-bob",
        "/v1/sessions",
        "/v1/sessions?proxy=b-shop",
        "/v1/sessions?proxy=a-shop&proxy=b-shop",
        "/v1/sessions?PROXY=a-shop",
    ] {
        is_out_of_scope(&ann.get(path));
    }
    assert_eq!(ann.get("/v1/sessions?proxy=a-shop").status, 200);
    assert_eq!(ann.get("/v1/proxies/a-shop/effective").status, 200);
}

/// A request to change something, and whether it is within the grants of team a.
type Change = (&'static str, &'static str, Value, bool);

fn changes() -> Vec<Change> {
    let behind = target("behind");
    let with_host = |id: &str, hosts: Value| {
        let mut proxy = proxy(id, "/", behind);
        proxy["hosts"] = hosts;
        proxy
    };
    let stream = |id: &str, port: u16| json!({ "id": id, "listen_port": port, "backend_scheme": "tcp", "backend_host": "127.0.0.1", "backend_port": behind.port() });
    let plugin = |id: &str, more: Value| {
        let mut config = json!({ "id": id, "plugin_name": "correlation_id", "config": {} });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    vec![
        ("PUT", "/v1/proxies/a-new", with_host("a-new", json!(["new.a.example"])), true),
        ("PUT", "/v1/proxies/a-port", stream("a-port", 10_001), true),
        ("PATCH", "/v1/proxies/a-shop", json!({ "strip_listen_path": false }), true),
        ("PATCH", "/v1/upstreams/a-servers", json!({ "algorithm": "random" }), true),
        ("PUT", "/v1/plugin_configs/a-plugin", plugin("a-plugin", json!({ "proxy_id": "a-shop" })), true),
        ("PUT", "/v1/plugin_configs/a-many", plugin("a-many", json!({ "scope": "proxy_group" })), true),
        // By id.
        ("PUT", "/v1/proxies/new", with_host("new", json!(["new2.a.example"])), false),
        ("PATCH", "/v1/proxies/b-shop", json!({ "strip_listen_path": false }), false),
        ("DELETE", "/v1/proxies/b-shop", Value::Null, false),
        ("PATCH", "/v1/upstreams/b-servers", json!({ "algorithm": "random" }), false),
        ("PATCH", "/v1/upstreams/shared-servers", json!({ "algorithm": "random" }), false),
        ("PUT", "/v1/upstreams/b-servers/targets/127.0.0.1:9", Value::Null, false),
        // By host and port.
        ("PUT", "/v1/proxies/a-new", with_host("a-new", json!(["c.example"])), false),
        ("PUT", "/v1/proxies/a-new", with_host("a-new", json!(["new.a.example", "*.example"])), false),
        ("PUT", "/v1/proxies/a-new", with_host("a-new", json!([])), false),
        ("PATCH", "/v1/proxies/a-shop", json!({ "hosts": ["b.example.net"] }), false),
        ("PATCH", "/v1/proxies/a-shop", json!({ "hosts": null }), false),
        ("PATCH", "/v1/proxies/a-misplaced", json!({ "strip_listen_path": false }), false),
        ("PATCH", "/v1/upstreams/a-other", json!({ "algorithm": "random" }), false),
        ("PUT", "/v1/proxies/a-port", stream("a-port", 10_010), false),
        // By effect on others.
        ("PUT", "/v1/plugin_configs/a-all", plugin("a-all", json!({ "scope": "global" })), false),
        ("PUT", "/v1/plugin_configs/a-theirs", plugin("a-theirs", json!({ "proxy_id": "b-shop" })), false),
        (
            "PUT",
            "/v1/plugin_configs/a-plugin",
            plugin("a-plugin", json!({ "proxy_id": "a-misplaced" })),
            false,
        ),
        ("PATCH", "/v1/plugin_configs/a-plugin", json!({ "proxy_id": null, "scope": "global" }), false),
        ("PUT", "/v1/consumers/a-bob", json!({ "username": "a-bob" }), false),
        ("DELETE", "/v1/consumers/a-bob", Value::Null, false),
        // All of it or nothing.
        (
            "POST",
            "/v1/batch",
            json!({ "proxies": [with_host("a-both", json!(["both.a.example"])), with_host("b-both", json!(["b2.a.example"]))] }),
            false,
        ),
        ("POST", "/v1/batch", json!({ "delete": { "proxies": ["a-new", "b-shop"] } }), false),
        (
            "POST",
            "/v1/batch",
            json!({ "proxies": [with_host("a-both", json!(["both.a.example"]))], "delete": { "proxies": ["a-port"] } }),
            true,
        ),
        // Only checked is checked as well.
        ("PUT", "/v1/proxies/a-x?validate_only=true", with_host("a-x", json!(["b.example.net"])), false),
        ("DELETE", "/v1/proxies/a-shop", Value::Null, true),
    ]
}

#[test]
fn a_caller_changes_what_the_grants_cover_and_what_affects_nobody_else() {
    let folder = Folder::new();
    let running = start(&folder);
    let ann = || by(&running, "write", &team());
    for (method, path, body, is_allowed) in changes() {
        let before = running.api().get("/v1/export").json();
        let body_text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = ann().ask(method, path, "", body_text.as_bytes());
        if is_allowed {
            assert!((200..300).contains(&answer.status), "{method} {path} {body}: {answer:?}");
        } else {
            is_out_of_scope(&answer);
            assert_eq!(running.api().get("/v1/export").json(), before, "{method} {path} {body}");
        }
    }
    // The role bounds the grants, and grants to read are none to write.
    let refused = by(&running, "read", &team()).send(
        "PATCH",
        "/v1/proxies/a-lent",
        &json!({ "strip_listen_path": false }),
    );
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
}

/// A caller does not learn what others have: neither ids nor which hosts are taken.
#[test]
fn a_refusal_tells_nothing_of_objects_that_the_grants_do_not_cover() {
    let folder = Folder::new();
    let running = start(&folder);
    let behind = target("behind");
    let ask = |hosts: Value, more: Value| {
        let mut document = proxy("a-new", "/", behind);
        document["hosts"] = hosts;
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        by(&running, "write", &team()).send("PUT", "/v1/proxies/a-new", &document)
    };
    let (taken, free) = (ask(json!(["b.example"]), json!({})), ask(json!(["free.example"]), json!({})));
    is_out_of_scope(&taken);
    is_out_of_scope(&free);
    assert_eq!(taken.json()["detail"], free.json()["detail"]);
    // A host within the grants that another team's proxy has, and the name of one.
    let mut lent = proxy("b-squatter", "/", behind);
    (lent["hosts"], lent["name"]) = (json!(["q.a.example"]), json!("Their name"));
    assert_eq!(running.api().send("PUT", "/v1/proxies/b-squatter", &lent).status, 201);
    for answer in [
        ask(json!(["q.a.example"]), json!({})),
        ask(json!(["free.a.example"]), json!({ "name": "Their name" })),
        by(&running, "write", &json!([{ "objects": ["shared-*"], "hosts": ["a.example"] }])).send(
            "PATCH",
            "/v1/upstreams/shared-servers",
            &json!({ "algorithm": "random" }),
        ),
    ] {
        is_out_of_scope(&answer);
        let text = answer.json().to_string();
        assert!(!["b-squatter", "b-lent", "a-lent"].iter().any(|id| text.contains(id)), "{text}");
    }
    // What is wrong with the caller's own objects is told.
    let own = ask(json!(["a.example"]), json!({}));
    assert_eq!(own.status, 422, "{own:?}");
    assert!(own.json().to_string().contains("a-shop"), "{own:?}");
}

/// Every endpoint refuses a caller with grants, unless the table says otherwise.
#[test]
fn each_endpoint_is_for_grants_or_refuses_them() {
    const OPEN: [&str; 6] = ["/livez", "/healthz", "/readyz", "/startupz", "/metrics", "/v1/status"];
    const OWN: [&str; 23] = [
        "/v1/openapi.json",
        "/v1/schema",
        "/v1/plugins",
        "/v1/proxies",
        "/v1/proxies/{id}",
        "/v1/upstreams",
        "/v1/upstreams/{id}",
        "/v1/plugin_configs",
        "/v1/plugin_configs/{id}",
        "/v1/proxies/{id}/effective",
        "/v1/upstreams/{id}/targets",
        "/v1/upstreams/{id}/targets/{target}",
        "/v1/batch",
        "/v1/changes",
        "/v1/changes/{number}",
        "/v1/changes/{number}/approve",
        "/v1/changes/{number}/reject",
        "/v1/users/{name}/password",
        "/v1/users/{name}/totp",
        "/v1/users/{name}/totp/confirm",
        "/v1/users/{name}/passkeys",
        "/v1/users/{name}/passkeys/confirm",
        "/v1/users/{name}/passkeys/{id}",
    ];
    let folder = Folder::new();
    let running = start(&folder);
    let paths = running.api().get("/v1/openapi.json").json()["paths"].as_object().unwrap().clone();
    let mut refused = 0;
    for (path, methods) in &paths {
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            if OPEN.contains(&path.as_str()) || OWN.contains(&path.as_str()) {
                continue;
            }
            let one = path.replace("{id}", "a-bob").replace("{revision}", "1").replace("{name}", "ann");
            let one = one.replace("{plugin}", "response_cache").replace("{action}", "purge");
            let document = json!({ "id": "a-bob", "username": "bob" });
            let body = if ["post", "put", "patch"].contains(&method.as_str()) {
                document.to_string()
            } else {
                String::new()
            };
            let answer =
                by(&running, "write", &team()).ask(&method.to_uppercase(), &one, "", body.as_bytes());
            assert_eq!(answer.status, 403, "{method} {one}: {answer:?}");
            refused += 1;
        }
    }
    assert!(refused > 25, "{refused}");
    // Beside one's own second factor and passkeys, the paths have those of others.
    for path in ["/v1/users/ann/totp", "/v1/users/ann/passkeys/x", "/v1/users/bob/passkeys/x"] {
        let answer = by(&running, "write", &team()).ask("DELETE", path, "", b"");
        assert_eq!(answer.status, 403, "{answer:?}");
    }
}

/// A grant that names a workspace follows it.
#[test]
fn workspaces_are_what_grants_name() {
    let folder = Folder::new();
    let running = start(&folder);
    workspaces(&running, &running);
}

#[test]
fn workspaces_in_postgres_hold_at_each_gateway() {
    workspaces_on(Engine::Postgres);
}

#[test]
fn workspaces_in_mariadb_hold_at_each_gateway() {
    workspaces_on(Engine::MySql);
}

fn workspaces_on(engine: Engine) {
    let location = database(shared(engine), "test_workspaces");
    let one = peers::start(&location);
    begin(&one);
    workspaces(&one, &peers::start(&location));
}

/// Changed at one gateway, in force at the other.
fn workspaces(one: &Running, other: &Running) {
    let named = json!([{ "workspace": "team-a" }, { "workspace": "shared", "role": "read" }]);
    let ann = || by(other, "write", &named);
    let patch =
        |id: &str| ann().send("PATCH", &format!("/v1/proxies/{id}"), &json!({ "strip_listen_path": false }));
    let set = |name: &str, covers: Value| one.api().send("PUT", &format!("/v1/workspaces/{name}"), &covers);
    is_out_of_scope(&ann().get("/v1/proxies/a-shop"));
    assert_eq!(set("team-a", json!({ "objects": ["a-*"], "hosts": ["a.example"] })).status, 200);
    assert_eq!(set("shared", json!({ "objects": ["shared-*", "b-lent"], "hosts": ["*"] })).status, 200);
    assert_eq!((ann().get("/v1/proxies/a-shop").status, patch("a-shop").status), (200, 200));
    assert_eq!(ann().get("/v1/proxies/b-lent").status, 200);
    assert_eq!(ann().get("/v1/sessions?proxy=a-shop").status, 200);
    for id in ["b-lent", "b-shop", "a-lent"] {
        is_out_of_scope(&patch(id));
    }
    is_out_of_scope(&ann().get("/v1/sessions?proxy=b-shop"));
    // What the workspace covers changes, and the token stays as it is.
    assert_eq!(set("team-a", json!({ "objects": ["b-shop"], "hosts": ["b.example"] })).status, 200);
    is_out_of_scope(&patch("a-shop"));
    assert_eq!(patch("b-shop").status, 200);
    for (bad, why) in [
        (json!({ "objects": [] }), "names no object"),
        (json!({ "objects": ["a"], "role": "read" }), "no `role`"),
        (json!({ "objects": ["a"], "hosts": ["A.example"] }), "no host"),
    ] {
        let refused = set("team-a", bad);
        assert!(refused.status == 422 && refused.text.contains(why), "{refused:?}");
    }
    assert_eq!(set("no%20name", json!({ "objects": ["a"] })).status, 422);
    let listed = other.api().get("/v1/workspaces").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    // Callers with grants don't see or change them, nor does the role write.
    for (method, path) in
        [("GET", "/v1/workspaces"), ("PUT", "/v1/workspaces/team-a"), ("DELETE", "/v1/workspaces/team-a")]
    {
        assert_eq!(ann().ask(method, path, "", b"{}").status, 403, "{method}");
        assert_eq!(one.api().with(WRITE).ask(method, path, "", b"{}").status, 403, "{method}");
    }
    assert_eq!(one.api().delete("/v1/workspaces/team-a").status, 204);
    assert_eq!(one.api().delete("/v1/workspaces/team-a").status, 404);
    is_out_of_scope(&patch("b-shop"));
    let audit = one.api().get("/v1/audit?kind=workspaces&id=team-a").json();
    let actions: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["changes"][0]["action"].clone())
        .collect();
    assert_eq!(actions, ["delete", "update", "create"]);
}

#[test]
fn tokens_with_grants_that_can_not_be_read_are_none() {
    let folder = Folder::new();
    let running = start(&folder);
    for (role, grants) in [
        ("write", json!([])),
        ("write", json!("a-*")),
        ("write", json!([{ "objects": [] }])),
        ("write", json!([{ "objects": ["a-*"], "colour": "red" }])),
        ("admin", team()),
    ] {
        let answer = by(&running, role, &grants).get("/v1/proxies");
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("unauthorized")), "{role} {grants}");
    }
    assert_eq!(by(&running, "admin", &Value::Null).get("/v1/export").status, 200);
}

#[cfg(feature = "console")]
#[test]
fn users_have_grants() {
    let folder = Folder::new();
    let running = start(&folder);
    let mut api = running.api();
    let made = api.send("POST", "/v1/users", &json!({ "name": "ann", "role": "write", "grants": team() }));
    assert_eq!((made.status, &made.json()["grants"]), (201, &team()), "{made:?}");
    let refused = api.send("PATCH", "/v1/users/ann", &json!({ "role": "admin" }));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("the role admin is for everything"),
        "{refused:?}"
    );
    let narrower = json!([{ "objects": ["a-shop"], "role": "read" }]);
    let changed = api.send("PATCH", "/v1/users/ann", &json!({ "grants": narrower }));
    assert_eq!((changed.status, &changed.json()["grants"]), (200, &narrower));
    let role = api.send("PATCH", "/v1/users/ann", &json!({ "role": "read" }));
    assert_eq!((role.status, &role.json()["grants"]), (200, &narrower), "they stay as they are");
    let gone = api.send("PATCH", "/v1/users/ann", &json!({ "grants": null, "role": "admin" }));
    assert_eq!((gone.status, &gone.json()["grants"]), (200, &Value::Null));
    let audit = api.get("/v1/audit?kind=users").json();
    assert!(audit.to_string().contains("a-shop"), "{audit}");
    let bad = api.send(
        "POST",
        "/v1/users",
        &json!({ "name": "bob", "role": "write", "grants": [{ "objects": ["*"], "ports": ["x"] }] }),
    );
    assert_eq!(bad.status, 422, "{bad:?}");
}

#[cfg(feature = "console")]
#[test]
fn a_workspace_with_another_name_keeps_its_users() {
    let folder = Folder::new();
    let running = start(&folder);
    let mut api = running.api();
    let set =
        api.send("PUT", "/v1/workspaces/team-a", &json!({ "objects": ["a-*"], "hosts": ["a.example"] }));
    assert_eq!(set.status, 200, "{set:?}");
    let grants = json!([{ "workspace": "team-a", "role": "read" }, { "objects": ["shared-*"] }]);
    let made = api.send("POST", "/v1/users", &json!({ "name": "ann", "role": "write", "grants": grants }));
    assert_eq!(made.status, 201, "{made:?}");
    let listed = api.get("/v1/workspaces").json();
    assert_eq!(
        listed["items"][0]["used_by"]["users"],
        json!([{ "name": "ann", "role": "read" }]),
        "{listed}"
    );
    for (body, status) in [
        (json!({ "name": "no name" }), 422),
        (json!({ "name": "team-a" }), 409),
        (json!({ "name": "x", "objects": [] }), 422),
        (json!({}), 422),
    ] {
        let refused = api.send("PATCH", "/v1/workspaces/team-a", &body);
        assert_eq!(refused.status, status, "{refused:?}");
    }
    assert_eq!(api.send("PATCH", "/v1/workspaces/other", &json!({ "name": "x" })).status, 404);
    let renamed = api.send("PATCH", "/v1/workspaces/team-a", &json!({ "name": "crew-a" }));
    assert_eq!((renamed.status, &renamed.json()["name"]), (200, &json!("crew-a")), "{renamed:?}");
    let listed = api.get("/v1/workspaces").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["items"][0]["objects"], json!(["a-*"]), "{listed}");
    let users = api.get("/v1/users").json();
    let ann = users["items"].as_array().unwrap().iter().find(|user| user["name"] == "ann").unwrap().clone();
    assert_eq!(
        ann["grants"],
        json!([{ "workspace": "crew-a", "role": "read" }, { "objects": ["shared-*"] }])
    );
    let audit = api.get("/v1/audit?kind=workspaces&id=crew-a").json();
    assert_eq!(audit["items"][0]["changes"][0]["action"], "delete", "{audit}");
    assert_eq!(audit["items"][0]["changes"][1]["id"], "crew-a", "{audit}");
}
