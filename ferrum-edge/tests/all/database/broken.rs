//! Rows that somebody wrote by hand, and wrongly: each is broken alone.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::target;
use crate::database::place::{Folder, READ, Running, consumer, key_auth, protected, proxy};

/// What can be wrong with any kind of object.
fn wrong(good: &Value, key: &str, out_of_range: Value) -> Vec<String> {
    let with = |key: &str, value: Value| {
        let mut document = good.clone();
        document[key] = value;
        document.to_string()
    };
    vec![
        "{ this is no JSON".to_owned(),
        "[]".to_owned(),
        with("unknown_field", json!(1)),
        with("id", json!("somebody-else")),
        with(key, out_of_range),
    ]
}

#[test]
fn a_broken_row_spoils_only_itself_and_is_mended_by_a_write() {
    let folder = Folder::new();
    let target = target("behind");
    let running = Running::new(&folder);
    let mut api = running.api();
    api.batch(&protected(target));
    let group = json!({ "id": "bad", "targets": [{ "host": "127.0.0.1", "port": 9 }] });
    let rows: Vec<(&str, Value, (&str, Value))> = vec![
        ("proxies", proxy("bad", "/bad", target), ("backend_port", json!(70000))),
        ("consumers", consumer("bad", &["bad-key"]), ("username", json!(""))),
        ("upstreams", group, ("targets", json!([]))),
        ("plugin_configs", key_auth("bad", "other"), ("plugin_name", json!("no_such_plugin"))),
    ];
    api.good("PUT", "/v1/proxies/other", &proxy("other", "/other", target));
    let mut client = running.client();
    for (kind, good, (key, out_of_range)) in rows {
        for document in wrong(&good, key, out_of_range) {
            folder.by_hand(kind, "bad", Some(&document));
            let named = format!("{kind}/bad");
            crate::client::until(&format!("{named} is broken: {document}"), || {
                running.broken() == [named.clone()]
            });
            let answer = client.get("/a/x", Some("ann-key"));
            assert_eq!(answer.status, 200, "{kind} {document}: {answer:?}");
            assert_eq!(client.get("/a/x", None).status, 401, "{kind} {document}");
            // Broken objects don't hinder others' changes.
            api.good("PUT", "/v1/consumers/bob", &consumer("bob", &["bob-key"]));
            api.good("PUT", "/v1/proxies/c", &proxy("c", "/c", target));
            assert!(
                api.delete("/v1/proxies/c").status == 204 && api.delete("/v1/consumers/bob").status == 204
            );
            let shown = api.get(&format!("/v1/{kind}/bad"));
            assert_eq!(shown.status, 200, "a broken row is shown: {shown:?}");
            let path = format!("/v1/{kind}/bad");
            api.good("PUT", &path, &good);
            assert_eq!(running.broken(), Vec::<String>::new(), "mended: {kind} {document}");
            assert_eq!(api.delete(&path).status, 204);
            assert_eq!(client.get("/other/x", None).status, 200, "{kind} {document}");
        }
    }
}

#[test]
fn a_proxy_whose_plugin_is_broken_at_start_is_closed_and_opens_with_the_plugin() {
    let folder = Folder::new();
    let target = target("behind");
    {
        let running = Running::new(&folder);
        running.api().batch(&protected(target));
        running.api().good("PUT", "/v1/proxies/free", &proxy("free", "/free", target));
    }
    let mut bad = key_auth("a-key", "a");
    bad["config"] = json!({ "key_location": "nowhere" });
    folder.by_hand("plugin_configs", "a-key", Some(&bad.to_string()));
    let running = Running::new(&folder);
    let (mut client, mut api) = (running.client(), running.api());
    for key in [None, Some("ann-key")] {
        assert_eq!(client.get("/a/x", key).status, 503);
    }
    assert_eq!(client.get("/free/x", None).status, 200);
    assert_eq!(running.status()["proxies"]["quarantined_count"], 1);
    assert_eq!(running.broken(), ["plugin_configs/a-key", "proxies/a"]);
    api.good("PUT", "/v1/plugin_configs/a-key", &key_auth("a-key", "a"));
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(running.broken(), Vec::<String>::new());
    assert_eq!(running.status()["proxies"]["quarantined_count"], 0);
}

#[test]
fn an_unreadable_plugin_row_closes_whatever_it_may_have_protected_until_it_is_mended() {
    for mend in ["put", "delete", "by hand"] {
        let folder = Folder::new();
        let target = target("behind");
        {
            let running = Running::new(&folder);
            running.api().batch(&protected(target));
            running.api().good("PUT", "/v1/proxies/free", &proxy("free", "/free", target));
        }
        folder.by_hand("plugin_configs", "a-key", Some("{ this is no JSON"));
        let running = Running::new(&folder);
        let (mut client, mut api) = (running.client(), running.api());
        assert_eq!(client.get("/a/x", None).status, 503);
        match mend {
            "put" => drop(api.good("PUT", "/v1/plugin_configs/a-key", &key_auth("a-key", "a"))),
            "delete" => assert_eq!(api.delete("/v1/plugin_configs/a-key").status, 204),
            _ => {
                folder.by_hand("plugin_configs", "a-key", Some(&key_auth("a-key", "a").to_string()));
                running.follows(4);
            }
        }
        let expected = if mend == "delete" { 200 } else { 401 };
        assert_eq!(client.get("/a/x", None).status, expected, "{mend}");
        assert_eq!(client.get("/free/x", None).status, 200, "{mend}");
        assert_eq!(running.broken(), Vec::<String>::new(), "{mend}");
    }
}

#[test]
fn a_torn_plugin_row_closes_no_more_than_it_tells_of() {
    let row = r#"{"id":"a-key","plugin_name":"key_auth","proxy_id":"a","config":{"key_loc"#;
    for (row, closes, free) in [
        (row.to_owned(), json!({ "proxy": "a" }), 200),
        (
            r#"{"id":"a-key","plugin_name":["key_auth"],"proxy_id":"a"}"#.to_owned(),
            json!({ "proxy": "a" }),
            200,
        ),
        (
            r#"{"id":"a-key","plugin_name":"key_auth","scope":"global"} }"#.to_owned(),
            json!("every proxy"),
            503,
        ),
        (row.replace("proxy_id", "proxy"), json!("every proxy"), 503),
    ] {
        let folder = Folder::new();
        let target = target("behind");
        {
            let running = Running::new(&folder);
            running.api().batch(&protected(target));
            running.api().good("PUT", "/v1/proxies/free", &proxy("free", "/free", target));
        }
        folder.by_hand("plugin_configs", "a-key", Some(&row));
        let running = Running::new(&folder);
        let mut client = running.client();
        assert_eq!(client.get("/a/x", Some("ann-key")).status, 503, "{row}");
        assert_eq!(client.get("/free/x", None).status, free, "{row}");
        let status = running.status();
        let told = &status["database"]["broken"][0];
        assert_eq!((&told["id"], &told["closes"]), (&json!("a-key"), &closes), "{row}");
        let closed = &status["proxies"]["quarantined"][0]["problems"][0];
        assert!(crate::database::place::text(closed).contains("plugin config `a-key`"), "{row}: {closed}");
        running.api().good("PUT", "/v1/plugin_configs/a-key", &key_auth("a-key", "a"));
        assert_eq!(client.get("/a/x", None).status, 401, "{row}");
        assert_eq!(client.get("/free/x", None).status, 200, "{row}");
        assert_eq!(running.broken(), Vec::<String>::new(), "{row}");
    }
}

/// What a torn row names answers 503, and never what is meant for everything else.
#[test]
fn a_torn_proxy_row_closes_what_it_names() {
    for (row, closed, open) in [
        (r#"{"id":"a","listen_path":"/a","backend_scheme":"http","backend_ho"#, "/a/x", "/b"),
        (r#"{"id":"a","backend_port":"eighty","hosts":5,"listen_path":"/a"}"#, "/a/x", "/b"),
        (r#"{"id":"a","hosts":["a.example"],"listen_pa"#, "http://a.example/any", "/a/x"),
        (r#"{"id":"a","hosts":["a.example"],"listen_path":"no slash"}"#, "http://a.example/any", "/a/x"),
        (r#"{"id":"a","hosts":["a.example"],"listen_path":7,"backend_"#, "http://a.example/any", "/a/x"),
        (r#"{"id":"a","listen_path":"/a","listen_port":{},"#, "/a/x", "/b"),
    ] {
        let folder = Folder::new();
        let target = target("catch-all");
        {
            let running = Running::new(&folder);
            running.api().batch(&protected(target));
            running.api().good("PUT", "/v1/proxies/rest", &proxy("rest", "/", target));
        }
        folder.by_hand("proxies", "a", Some(row));
        let running = Running::new(&folder);
        let mut client = running.client();
        let refused = client.get(closed, Some("ann-key"));
        assert_eq!(refused.status, 503, "{row}: {refused:?}");
        assert_eq!(client.get(open, None).status, 200, "{row}");
        assert_eq!(running.broken(), ["proxies/a"], "{row}");
        assert_eq!(running.status()["proxies"]["quarantined"][0]["id"], "a", "{row}");
        running.api().good("PUT", "/v1/proxies/a", &proxy("a", "/a", target));
        assert_eq!(client.get("/a/x", None).status, 401, "{row}");
        assert_eq!(running.broken(), Vec::<String>::new(), "{row}");
    }
}

#[test]
fn a_broken_row_of_a_proxy_hinders_no_change_of_what_it_refers_to() {
    let folder = Folder::new();
    let (left, right) = (target("left"), target("right"));
    let running = Running::new(&folder);
    let (mut client, mut api) = (running.client(), running.api());
    let group =
        |to: SocketAddr| json!({ "id": "group", "targets": [{ "host": "127.0.0.1", "port": to.port() }] });
    let shared = json!({ "id": "shared", "plugin_name": "key_auth", "scope": "proxy_group" });
    let row = json!({
        "id": "a", "listen_path": "/a", "backend_scheme": "http", "upstream_id": "group",
        "plugins": [{ "plugin_config_id": "shared" }],
    });
    api.batch(&json!({
        "upstreams": [group(left)], "plugin_configs": [shared], "proxies": [row],
        "consumers": [consumer("ann", &["ann-key"])],
    }));
    folder.by_hand("proxies", "a", Some("{ this is no JSON"));
    running.follows(2);
    assert_eq!(running.broken(), ["proxies/a"]);
    // What it refers to changes, and it follows.
    api.good("PUT", "/v1/upstreams/group", &group(right));
    assert!(client.get("/a/x", Some("ann-key")).text.starts_with("right"));
    let mut elsewhere = shared.clone();
    elsewhere["config"] = json!({ "key_location": "query:key" });
    api.good("PUT", "/v1/plugin_configs/shared", &elsewhere);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 401);
    assert_eq!(client.get("/a/x?key=ann-key", None).status, 200);
    api.good("PUT", "/v1/plugin_configs/shared", &shared);
    // What is for all is for it as well.
    let stop = json!({
        "id": "stop", "plugin_name": "request_termination", "scope": "global", "config": { "status_code": 418 },
    });
    api.good("PUT", "/v1/plugin_configs/stop", &stop);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 418);
    assert_eq!(api.delete("/v1/plugin_configs/stop").status, 204);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    // What it needs stays.
    for path in ["/v1/upstreams/group", "/v1/plugin_configs/shared"] {
        let refused = api.delete(path);
        assert!(refused.status == 422 && refused.text.contains("the proxy `a` needs it"), "{refused:?}");
    }
    assert_eq!(running.broken(), ["proxies/a"]);
    // Changed by hand it is followed as well; what it needs and lost closes it.
    folder.by_hand("upstreams", "group", Some(&group(left).to_string()));
    crate::client::until("the target is the left one", || {
        client.get("/a/x", Some("ann-key")).text.starts_with("left")
    });
    // Both at once, and it is no different.
    folder.by_hand("proxies", "a", Some("{ this is no JSON either"));
    folder.by_hand("upstreams", "group", Some(&group(right).to_string()));
    crate::client::until("the target is the right one", || {
        client.get("/a/x", Some("ann-key")).text.starts_with("right")
    });
    folder.by_hand("upstreams", "group", None);
    crate::client::until("it is closed", || client.get("/a/x", Some("ann-key")).status == 503);
    api.good("PUT", "/v1/upstreams/group", &group(right));
    api.good("PUT", "/v1/proxies/a", &row);
    assert_eq!(client.get("/a/x", None).status, 401);
    assert!(client.get("/a/x", Some("ann-key")).text.starts_with("right"));
    assert_eq!(running.broken(), Vec::<String>::new());
}

#[test]
fn a_proxy_without_a_place_gets_it_when_it_is_free() {
    let folder = Folder::new();
    let (left, right) = (target("left"), target("right"));
    let running = Running::new(&folder);
    let (mut client, mut api) = (running.client(), running.api());
    for leave in ["delete", "move", "by hand", "replace"] {
        api.good("PUT", "/v1/proxies/first", &proxy("first", "/a", left));
        let revision = running.gateway.snapshot().revision;
        folder.by_hand("proxies", "second", Some(&proxy("second", "/a", right).to_string()));
        running.follows(revision + 1);
        assert_eq!(running.broken(), ["proxies/second"], "{leave}");
        assert!(client.get("/a/x", None).text.starts_with("left"), "{leave}");
        // It hinders nobody else meanwhile.
        api.good("PUT", "/v1/proxies/first", &proxy("first", "/a", left));
        assert_eq!(running.broken(), ["proxies/second"], "{leave}");
        match leave {
            "delete" => assert_eq!(api.delete("/v1/proxies/first").status, 204),
            "move" => drop(api.good("PUT", "/v1/proxies/first", &proxy("first", "/b", left))),
            "by hand" => folder.by_hand("proxies", "first", None),
            _ => {
                // Somebody else takes the place in the same moment, and leaves it later.
                api.batch(&json!({
                    "delete": { "proxies": ["first"] }, "proxies": [proxy("third", "/a", left)],
                }));
                assert_eq!(running.broken(), ["proxies/second"], "{leave}");
                assert_eq!(api.delete("/v1/proxies/third").status, 204);
            }
        }
        crate::client::until(leave, || client.get("/a/x", None).text.starts_with("right"));
        assert_eq!(running.broken(), Vec::<String>::new(), "{leave}");
        assert_eq!(api.delete("/v1/proxies/second").status, 204);
    }
    // What was without a place at the start waits, too.
    api.good("PUT", "/v1/proxies/first", &proxy("first", "/a", left));
    folder.by_hand("proxies", "second", Some(&proxy("second", "/a", right).to_string()));
    drop(running);
    let running = Running::new(&folder);
    assert_eq!(running.broken(), ["proxies/second"]);
    assert_eq!(running.api().delete("/v1/proxies/first").status, 204);
    assert!(running.client().get("/a/x", None).text.starts_with("right"));
}

#[test]
fn what_breaks_while_it_serves_goes_on_as_it_was() {
    let folder = Folder::new();
    let target = target("behind");
    let running = Running::new(&folder);
    running.api().batch(&protected(target));
    let mut client = running.client();
    for (revision, (kind, id)) in
        [("plugin_configs", "a-key"), ("proxies", "a"), ("consumers", "ann")].into_iter().enumerate()
    {
        folder.by_hand(kind, id, Some("{ this is no JSON"));
        running.follows(2 + revision as u64);
        assert_eq!(client.get("/a/x", None).status, 401, "{kind}");
        assert_eq!(client.get("/a/x", Some("ann-key")).status, 200, "{kind}");
    }
    assert_eq!(running.broken(), ["plugin_configs/a-key", "proxies/a", "consumers/ann"]);
    // A start finds no older version to go on with.
    drop(running);
    let running = Running::new(&folder);
    assert_ne!(running.client().get("/a/x", None).status, 200);
    running.api().batch(&protected(target));
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(running.broken(), Vec::<String>::new());
}

#[test]
fn what_a_plugin_row_leaves_by_hand_it_leaves_at_once() {
    let folder = Folder::new();
    let target = target("behind");
    let running = Running::new(&folder);
    let mut shared = protected(target);
    shared["plugin_configs"] = json!([{ "id": "group", "plugin_name": "key_auth", "scope": "proxy_group" }]);
    shared["proxies"][0]["plugins"] = json!([{ "plugin_config_id": "group" }]);
    running.api().batch(&shared);
    folder.by_hand("plugin_configs", "group", None);
    running.follows(2);
    let mut client = running.client();
    // The proxy names what isn't there any more, so it's closed rather than open.
    assert_eq!(client.get("/a/x", None).status, 503);
    running.api().good("PUT", "/v1/plugin_configs/group", &shared["plugin_configs"][0]);
    assert_eq!(client.get("/a/x", None).status, 401);
    // A row with an id no object can have comes and goes.
    folder.by_hand("proxies", "not an id/", Some("{}"));
    running.follows(4);
    assert_eq!(running.broken(), ["proxies/not an id/"]);
    folder.by_hand("proxies", "not an id/", None);
    running.follows(5);
    assert_eq!(running.broken(), Vec::<String>::new());
}

#[test]
fn what_a_broken_row_holds_is_told_to_nobody() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let with = |credentials: Value| {
        json!({ "id": "bad", "username": "bad", "credentials": credentials }).to_string()
    };
    let rows = [
        "SECRET {".to_owned(),
        "\"SECRET\"".to_owned(),
        "{ \"id\": \"bad\", \"credentials\": { \"key_auth\": [ { \"key\": \"SECRET\" }".to_owned(),
        with(json!("SECRET")),
        with(json!(["SECRET"])),
        with(json!({ "key_auth": [["SECRET"]] })),
        with(json!({ "key_auth": [{ "key": "SECRET", "more": "SECRET" }] })),
        with(json!({ "key_auth": [{ "key_sha256": "SECRET" }] })),
        with(json!({ "basic_auth": [{ "sealed": "v1:x:SECRET" }] })),
        with(json!({ "basic_auth": [{ "password": ["SECRET"] }] })),
        with(json!({ "jwt_auth": "SECRET", "unknown": "SECRET" })),
    ];
    for (revision, row) in (1..).zip(&rows) {
        folder.by_hand("consumers", "bad", Some(row));
        running.follows(revision);
        assert_eq!(running.broken(), ["consumers/bad"], "{row}");
        for path in [
            "/v1/status",
            "/v1/consumers",
            "/v1/consumers/bad",
            "/v1/export",
            &format!("/v1/revisions/{revision}"),
            "/v1/diff?from=0",
        ] {
            let answer = api.with(READ).get(path);
            assert!(answer.status == 200 && !answer.text.contains("SECRET"), "{row}: {path} {answer:?}");
        }
    }
}

#[test]
fn a_restored_backup_is_served_whatever_its_revision() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let target = target("behind");
    running.api().batch(&protected(target));
    folder.sql("CREATE TABLE backup AS SELECT * FROM ferrum_objects;");
    for n in 0..3 {
        running.api().good("PUT", "/v1/proxies/b", &proxy("b", &format!("/b{n}"), target));
    }
    assert_eq!(running.api().delete("/v1/plugin_configs/a-key").status, 204);
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 200);
    let restore = "BEGIN IMMEDIATE;
        DELETE FROM ferrum_objects; INSERT INTO ferrum_objects SELECT * FROM backup;
        DELETE FROM ferrum_changes WHERE revision > 1; DELETE FROM ferrum_revisions WHERE revision > 1;
        UPDATE ferrum_store SET revision = 1, changes = (SELECT changes FROM ferrum_revisions);
        COMMIT;";
    folder.sql(restore);
    crate::client::until("the backup is served", || running.gateway.snapshot().revision == 1);
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(client.get("/b2/x", None).status, 404);
    // A write right after it comes on top of the backup, too.
    running.api().good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    running.api().good("PUT", "/v1/proxies/b", &proxy("b", "/bb", target));
    folder.sql(restore);
    running.api().good("PUT", "/v1/proxies/c", &proxy("c", "/c", target));
    assert_eq!(client.get("/bb/x", None).status, 404);
    assert_eq!(client.get("/c/x", None).status, 200);
    assert_eq!(client.get("/a/x", None).status, 401);
}

#[test]
fn a_restored_backup_that_was_written_up_to_the_served_revision_is_noticed() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let target = target("behind");
    running.api().batch(&protected(target));
    folder.sql("CREATE TABLE backup AS SELECT * FROM ferrum_objects;");
    let restore = |document: &str| {
        format!(
            "BEGIN IMMEDIATE;
             DELETE FROM ferrum_objects; INSERT INTO ferrum_objects SELECT * FROM backup;
             DELETE FROM ferrum_changes WHERE revision > 1; DELETE FROM ferrum_revisions WHERE revision > 1;
             INSERT INTO ferrum_objects VALUES ('proxies', 'b', '{document}', 0, 0, 2);
             INSERT INTO ferrum_changes VALUES (2, 'proxies', 'b', NULL);
             INSERT INTO ferrum_revisions
               SELECT 2, 0, 'other', 'sql', '', 'other-' || random(), 1, 0, 0, changes + 1
               FROM ferrum_revisions WHERE revision = 1;
             UPDATE ferrum_store
               SET revision = 2, changes = (SELECT changes FROM ferrum_revisions WHERE revision = 2);
             COMMIT;"
        )
    };
    // The very change that is served is lost with everything after the backup.
    assert_eq!(running.api().delete("/v1/plugin_configs/a-key").status, 204);
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 200);
    assert_eq!(running.gateway.snapshot().revision, 2);
    folder.sql(&restore(&proxy("b", "/b", target).to_string()));
    crate::client::until("the other history is served", || client.get("/a/x", None).status == 401);
    assert_eq!(running.gateway.snapshot().revision, 2);
    assert_eq!(client.get("/b/x", None).status, 200);
    // A write that comes right after such a restore is made to it, too.
    folder.sql(&restore(&proxy("b", "/bb", target).to_string()));
    running.api().good("PUT", "/v1/proxies/c", &proxy("c", "/c", target));
    for (path, status) in [("/b/x", 404), ("/bb/x", 200), ("/c/x", 200), ("/a/x", 401)] {
        assert_eq!(client.get(path, None).status, status, "{path}");
    }
    assert_eq!(running.gateway.snapshot().revision, 3);
}

/// Another gateway of the database, or a command, writes what only other machines can apply, together with a guard.
#[test]
fn a_revision_with_socket_settings_of_other_machines_is_served_whole() {
    let folder = Folder::new();
    let target = target("behind");
    let running = Running::new(&folder);
    running.api().batch(&json!({ "proxies": [proxy("a", "/a", target)] }));
    assert_eq!(running.client().get("/a/x", None).status, 200);
    let mut elsewhere = proxy("elsewhere", "/elsewhere", target);
    // RFC 5737: no machine has the address.
    elsewhere["backend_source_address"] = json!("192.0.2.1");
    let refused = running.api().send("POST", "/v1/proxies", &elsewhere);
    assert_eq!(refused.status, 409, "whoever writes to this machine learns that it can't: {refused:?}");
    let file = json!({ "proxies": [elsewhere], "plugin_configs": [key_auth("key", "a")] });
    let process = crate::process::Folder::new();
    process.write("objects.yaml", &file.to_string());
    let database = format!("sqlite:{}", folder.database().display());
    let applied = crate::process::ferrum_edge(&process)
        .args(["apply", "objects.yaml", "--db-url", &database])
        .output()
        .unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    running.follows(2);
    assert_eq!(running.client().get("/a/x", None).status, 401, "the guard of the same revision is served");
    assert_eq!(running.client().get("/elsewhere/x", None).status, 502);
    // A change of another object, and of a plugin of all proxies, is not refused because of it.
    let everywhere = json!({ "id": "ids", "plugin_name": "correlation_id", "scope": "global" });
    running.api().good("POST", "/v1/plugin_configs", &everywhere);
    drop(running);
    let again = Running::new(&folder);
    assert_eq!(again.client().get("/a/x", None).status, 401, "it starts with such a proxy");
}
