//! Writes under conditions: of the whole configuration, of credentials in a rollback, of the schema, of the copy.

use std::path::Path;
use std::thread;

use ferrum_edge::source::database::Database;
use ferrum_edge::store::{Location, Options, Store};
use serde_json::json;

use crate::client::{Answer, target, until};
use crate::database::place::{Api, Folder, Running, WRITE, consumer, protected, proxy, text};

fn ask(api: &mut Api, method: &str, path: &str, tag: &str, body: &serde_json::Value) -> Answer {
    api.ask(method, path, &format!("if-match: {tag}\r\n"), body.to_string().as_bytes())
}

#[test]
fn writes_of_the_whole_configuration_take_if_match() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let target = target("whole");
    let first = api.batch(&protected(target));
    let tag = first.header("etag").unwrap().to_owned();
    let export = api.get("/v1/export");
    assert_eq!(export.header("etag"), Some(tag.as_str()));
    let whole = export.json();
    // Somebody else writes.
    api.good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    let more = json!({ "proxies": [proxy("c", "/c", target)] });
    for (path, body) in
        [("/v1/batch", &more), ("/v1/import", &whole), ("/v1/revisions/1/rollback", &json!({}))]
    {
        let refused = ask(&mut api, "POST", path, &tag, body);
        assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("changed")), "{refused:?}");
        assert_eq!(running.client().get("/b/x", None).status, 200, "{path} changed something");
        let refused = ask(&mut api, "POST", path, "one, two", body);
        assert_eq!(refused.json()["code"], "bad_condition");
    }
    let tag = api.get("/v1/export").header("etag").unwrap().to_owned();
    assert_eq!(ask(&mut api, "POST", "/v1/batch", &tag, &more).status, 200);
    assert_eq!(running.client().get("/c/x", None).status, 200);
    assert_eq!(ask(&mut api, "POST", "/v1/import", "*", &whole).status, 200);
    assert_eq!(running.client().get("/c/x", None).status, 404);
}

#[test]
fn a_rollback_says_whose_credentials_it_revives_and_can_leave_them() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    api.batch(&protected(target("rotated")));
    let rotated = json!({ "credentials": { "key_auth": [{ "key": "new-key" }] } });
    api.good("PATCH", "/v1/consumers/ann", &rotated);
    api.good("PUT", "/v1/consumers/bob", &consumer("bob", &["bob-key"]));
    api.delete("/v1/consumers/bob");
    let status = |key| running.client().get("/a/x", Some(key)).status;
    assert_eq!((status("ann-key"), status("new-key"), status("bob-key")), (401, 200, 401));

    let kept = api.good("POST", "/v1/revisions/1/rollback?keep_credentials&details=true", &json!({}));
    assert_eq!(kept.json()["credentials_restored"], json!([]));
    assert_eq!((&kept.json()["updated"], &kept.json()["changes"]), (&json!(0), &json!([])), "{kept:?}");
    assert_eq!((status("ann-key"), status("new-key")), (401, 200));
    // A consumer that comes back has none.
    let kept = api.good("POST", "/v1/revisions/3/rollback?keep_credentials=true", &json!({}));
    assert_eq!(kept.json()["credentials_restored"], json!([]));
    assert_eq!(api.get("/v1/consumers/bob").status, 200);
    assert_eq!(status("bob-key"), 401);

    let revived = api.good("POST", "/v1/revisions/1/rollback", &json!({}));
    assert_eq!(revived.json()["credentials_restored"], json!(["ann"]));
    assert_eq!((status("ann-key"), status("new-key")), (200, 401));
}

#[test]
fn nothing_is_written_into_a_newer_schema() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    running.api().batch(&protected(target("older")));
    folder.sql("INSERT INTO ferrum_migrations (version, name) VALUES (99, 'of a newer program')");
    let refused = running.api().send("PUT", "/v1/proxies/b", &proxy("b", "/b", target("older")));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(text(&refused.json()["detail"]).contains("schema 99"), "{refused:?}");
    // What is served goes on.
    assert_eq!(running.client().get("/a/x", Some("ann-key")).status, 200);
    folder.sql("DELETE FROM ferrum_migrations WHERE version = 99");
    running.api().good("PUT", "/v1/proxies/b", &proxy("b", "/b", target("older")));
}

/// Damages the file of a database in place, as a failing disk does.
fn damage(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.write_all_at(&vec![0xa5; usize::try_from(length).unwrap()], 0).unwrap();
    drop(std::fs::remove_file(format!("{}-wal", path.display())));
}

#[test]
fn a_damaged_copy_is_made_anew_and_status_tells_of_it() {
    let folder = Folder::new();
    let copy = folder.path().join("last-good.db");
    let with_copy = || Database { mirror: Some(copy.clone()), ..Running::database(folder.location()) };
    std::fs::write(&copy, "this is no database, ".repeat(1000)).unwrap();
    let running = Running::on(with_copy());
    running.api().batch(&protected(target("copied")));
    let shown = |running: &Running| running.status()["database"]["last_good"].clone();
    let is_at = |running: &Running, revision: u64| {
        let shown = shown(running);
        shown["revision"] == json!(revision) && shown["problem"].is_null()
    };
    until("the configuration is copied", || is_at(&running, 1));
    assert_eq!(shown(&running)["path"], json!(copy.display().to_string()));
    let aside = folder.path().join("last-good.db.damaged");
    assert!(std::fs::read(&aside).unwrap().starts_with(b"this is no database"));
    drop(running);

    // A disk that fails between two runs.
    damage(&copy);
    let running = Running::on(with_copy());
    until("the configuration is copied", || is_at(&running, 1));
    running.api().good("PUT", "/v1/proxies/b", &proxy("b", "/b", target("copied")));
    until("the change is copied", || is_at(&running, 2));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Store::open(Location::sqlite(&copy), Options::default());
    assert_eq!(runtime.block_on(store.count(ferrum_edge::store::ObjectKind::Proxies)).unwrap(), 2);
}

#[test]
fn references_stay_references_and_are_answered_where_that_is_permitted() {
    let folder = Folder::new();
    let text = folder.path().join("text");
    std::fs::write(&text, "from a file\n").unwrap();
    let reference = format!("${{file:{}}}", text.display());
    let answer = |body: &str| {
        json!({
            "id": "answer", "plugin_name": "request_termination", "proxy_id": "a",
            "config": { "status_code": 200, "body": body },
        })
    };
    let with = |permitted: &str| {
        let references = permitted.parse().unwrap();
        Running::on(Database { references, ..Running::database(folder.location()) })
    };
    let running = with(&format!("file:{}", folder.path().display()));
    let mut api = running.api();
    api.good("PUT", "/v1/proxies/a", &proxy("a", "/a", target("referring")));
    api.good("PUT", "/v1/plugin_configs/answer", &answer(&reference));
    assert_eq!(running.client().get("/a/x", None).text, "from a file");
    assert_eq!(api.get("/v1/plugin_configs/answer").json()["config"]["body"], json!(reference));
    assert!(api.get("/v1/export").text.contains("${file:"));
    // Twice the sign is the text itself.
    api.good("PUT", "/v1/plugin_configs/answer", &answer("$${file:x}"));
    assert_eq!(running.client().get("/a/x", None).text, "${file:x}");
    for other in ["${file:/etc/hostname}", "${env:PATH}", "${env:FERRUM_DB_URL}"] {
        let refused = api.send("PUT", "/v1/plugin_configs/answer", &answer(other));
        assert_eq!(refused.status, 422, "{refused:?}");
        assert_eq!(refused.json()["errors"][0]["pointer"], json!("/config/body"), "{refused:?}");
        assert!(refused.text.contains("FERRUM_DB_REFERENCES"), "{refused:?}");
    }
    let keyed = api.send("PUT", "/v1/consumers/ann", &consumer("ann", &[&reference]));
    assert_eq!(keyed.status, 422, "a hash can't be a reference: {keyed:?}");
    api.good("PUT", "/v1/plugin_configs/answer", &answer(&reference));
    // Out of the database and back, references and all.
    let command = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ferrum-edge"));
        command.args(arguments).args(["--admin", &running.admin.to_string()]);
        command.env("FERRUM_ADMIN_TOKEN", crate::database::place::ADMIN).output().unwrap()
    };
    let file = folder.path().join("dump.yaml").display().to_string();
    assert!(command(&["dump", "-o", &file]).status.success());
    assert!(std::fs::read_to_string(&file).unwrap().contains("${file:"));
    let same = command(&["diff", &file, "--keep-references"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let resolved = command(&["diff", &file]);
    assert_eq!(resolved.status.code(), Some(4), "what it refers to is another text: {resolved:?}");
    drop((running, api));
    // A gateway that does not permit it closes what the object would have answered.
    let running = with("");
    assert_eq!(running.client().get("/a/x", None).status, 503);
    assert_eq!(running.broken(), ["plugin_configs/answer", "proxies/a"]);
}

/// Who may write objects must not read the files of the gateway's user, such as the token of whoever may do more.
#[test]
fn files_that_objects_name_are_permitted_by_the_operator() {
    let folder = Folder::new();
    let (public, secret) = (folder.path().join("public"), folder.path().join("secret"));
    for (place, text) in [(&public, "for all"), (&secret, "admin token")] {
        std::fs::create_dir(place).unwrap();
        std::fs::write(place.join("a.txt"), text).unwrap();
    }
    std::os::unix::fs::symlink(&secret, public.join("link")).unwrap();
    let files = |root: &Path| {
        json!({
            "id": "files", "plugin_name": "static_files", "proxy_id": "a",
            "config": { "root": root.display().to_string() },
        })
    };
    let with = |permitted: &str| {
        let references = permitted.parse().unwrap();
        Running::on(Database { references, ..Running::database(folder.location()) })
    };
    let running = with(&format!("file:{}", public.display()));
    let mut api = running.api();
    api.good("PUT", "/v1/proxies/a", &proxy("a", "/a", target("with files")));
    for root in [&secret, &public.join("link"), &public.join("../secret"), folder.path()] {
        let refused = api.with(WRITE).send("PUT", "/v1/plugin_configs/files", &files(root));
        assert_eq!(refused.status, 422, "{refused:?}");
        assert_eq!(refused.json()["errors"][0]["pointer"], json!("/config/root"), "{refused:?}");
        assert!(refused.text.contains("FERRUM_DB_REFERENCES"), "{refused:?}");
    }
    api.with(WRITE).good("PUT", "/v1/plugin_configs/files", &files(&public));
    assert_eq!(running.client().get("/a/a.txt", None).text, "for all");
    drop((running, api));
    // A gateway that does not permit it serves nothing by it.
    let running = with("");
    assert_eq!(running.client().get("/a/a.txt", None).status, 503);
    assert_eq!(running.broken(), ["plugin_configs/files", "proxies/a"]);
}

/// An answer says what its own request wrote, however soon somebody else writes the same object.
#[test]
fn an_answer_says_what_its_request_wrote() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let created = running.api().good("PUT", "/v1/proxies/a", &proxy("a", "/a", target("behind")));
    let since = text(&created.json()["created_at"]).to_owned();
    thread::scope(|scope| {
        for writer in 0..4 {
            let (running, since) = (&running, &since);
            scope.spawn(move || {
                let mut api = running.api();
                for round in 0..10 {
                    let path = format!("/{writer}/{round}");
                    let answer = api.good("PATCH", "/v1/proxies/a", &json!({ "listen_path": path }));
                    let object = answer.json();
                    assert_eq!(text(&object["listen_path"]), path);
                    assert_eq!(answer.header("ferrum-revision").unwrap(), object["revision"].to_string());
                    assert_eq!(text(&object["created_at"]), since);
                }
            });
        }
    });
    let last = running.api().get("/v1/proxies/a").json();
    let same = running.api().good("PATCH", "/v1/proxies/a", &json!({ "listen_path": last["listen_path"] }));
    assert_eq!(same.json(), last, "nothing was changed");
}

/// A token that may read configurations reads none of the secrets that they refer to.
#[test]
fn what_a_reference_stands_for_is_not_shown() {
    let folder = Folder::new();
    let file = folder.path().join("hidden");
    std::fs::write(&file, "the-hidden-text\n").unwrap();
    let references = format!("file:{}", folder.path().display()).parse().unwrap();
    let running = Running::on(Database { references, ..Running::database(folder.location()) });
    let mut api = running.api();
    let reference = format!("${{file:{}}}", file.display());
    api.good("PUT", "/v1/proxies/a", &proxy("a", "/a", target("referring")));
    let config = json!({ "status_code": 200, "body": reference });
    let answer = json!({ "plugin_name": "request_termination", "proxy_id": "a", "config": config });
    api.good("PUT", "/v1/plugin_configs/answer", &answer);
    assert_eq!(running.client().get("/a/x", None).text, "the-hidden-text");
    let served = api.with(crate::database::place::READ).get("/v1/proxies/a/effective");
    assert_eq!(served.json()["plugins"][0]["config"], config);
    assert!(!served.text.contains("the-hidden-text"), "{served:?}");
}

#[test]
fn a_patched_secret_takes_the_place_of_the_stored_one() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    api.batch(&protected(target("behind")));
    let with = |credentials: serde_json::Value| json!({ "credentials": credentials });
    let bob = json!({ "username": "bob", "credentials": {
        "basic_auth": { "password": "one" }, "key_auth": { "key": "bob-one" }, "jwt_auth": { "secret": "x".repeat(32) },
    } });
    api.good("PUT", "/v1/consumers/bob", &bob);
    assert_eq!(running.client().get("/a/x", Some("bob-one")).status, 200);
    let fingerprint =
        |api: &mut Api, name: &str| api.get("/v1/consumers/bob").json()["credentials"][name].to_string();
    let (basic, jwt) = (fingerprint(&mut api, "basic_auth"), fingerprint(&mut api, "jwt_auth"));
    api.good("PATCH", "/v1/consumers/bob", &with(json!({ "basic_auth": { "password": "two" } })));
    assert_ne!(fingerprint(&mut api, "basic_auth"), basic);
    api.good("PATCH", "/v1/consumers/bob", &with(json!({ "jwt_auth": { "secret": "y".repeat(32) } })));
    assert_ne!(fingerprint(&mut api, "jwt_auth"), jwt);
    // By another name of the type it is the same credential.
    for (name, key) in [("key_auth", "bob-two"), ("keyauth", "bob-three")] {
        api.good("PATCH", "/v1/consumers/bob", &with(json!({ name: { "key": key } })));
        assert_eq!(running.client().get("/a/x", Some(key)).status, 200);
        assert_eq!(running.client().get("/a/x", Some("bob-one")).status, 401);
    }
    assert_eq!(running.client().get("/a/x", Some("bob-two")).status, 401);
    api.good("PATCH", "/v1/consumers/bob", &with(json!({ "keyauth": null })));
    assert_eq!(running.client().get("/a/x", Some("bob-three")).status, 401);
    assert_ne!(fingerprint(&mut api, "jwt_auth"), "null", "what a patch does not name stays");
}

#[test]
fn a_deletion_of_nothing_is_told() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    api.batch(&protected(target("behind")));
    let gone = json!({ "delete": { "plugin_configs": ["a-key"], "consumers": ["an"] } });
    let refused = api.send("POST", "/v1/batch", &gone);
    assert_eq!((refused.status, refused.text.contains("`an`")), (404, true), "{refused:?}");
    assert_eq!(api.get("/v1/plugin_configs/a-key").status, 200, "nothing is written");
}

#[test]
fn targets_that_register_at_the_same_time_all_get_in() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let group = json!({ "id": "g", "targets": [{ "host": "127.0.0.1", "port": 9 }] });
    let first = api.good("POST", "/v1/upstreams", &group);
    let tag = first.header("etag").unwrap().to_owned();
    thread::scope(|scope| {
        for server in 0..8_u16 {
            let mut api = running.api();
            scope.spawn(move || {
                for port in 0..4 {
                    let path = format!("/v1/upstreams/g/targets/127.0.0.1:{}", 1000 + 10 * server + port);
                    api.good("PUT", &path, &json!({}));
                    if port == 3 {
                        api.good("DELETE", &path, &json!({}));
                    }
                }
            });
        }
    });
    let targets = api.get("/v1/upstreams/g/targets").json();
    assert_eq!(targets["items"].as_array().unwrap().len(), 1 + 8 * 3, "{targets}");
    // Who makes a condition is held to it.
    let path = "/v1/upstreams/g/targets/127.0.0.1:1000";
    let refused = ask(&mut api, "PUT", path, &tag, &json!({}));
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("changed")), "{refused:?}");
    let tag = api.get("/v1/upstreams/g").header("etag").unwrap().to_owned();
    assert_eq!(ask(&mut api, "PUT", path, &tag, &json!({ "weight": 2 })).status, 200);
    let none = api.ask("PUT", path, "if-none-match: *\r\n", b"");
    assert_eq!((none.status, &none.json()["code"]), (400, &json!("bad_condition")), "{none:?}");
    let missing = api.delete("/v1/upstreams/g/targets/127.0.0.1:7");
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!("not_found")), "{missing:?}");
}

#[test]
fn secrets_that_are_not_known_do_not_go_to_another_server() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let config = json!({
        "introspection_url": "http://127.0.0.1:9/i", "client_id": "me", "client_secret": "SECRET-1",
    });
    let object =
        json!({ "id": "i", "plugin_name": "oauth2_introspection", "scope": "global", "config": config });
    api.good("POST", "/v1/plugin_configs", &object);
    let tracing = json!({ "id": "t", "plugin_name": "otel_tracing", "scope": "global", "config":
        { "exporter": { "endpoint": "http://127.0.0.1:9", "headers": { "x-honeycomb-team": "SECRET-2" } } } });
    api.good("POST", "/v1/plugin_configs", &tracing);
    for path in ["/v1/plugin_configs", "/v1/export", "/v1/audit"] {
        assert!(!api.get(path).text.contains("SECRET"), "{path}");
    }
    let stored = std::fs::read(folder.database()).unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains("SECRET"));
    api.with(WRITE);
    let path = "/v1/plugin_configs/i";
    let other = json!({ "config": { "introspection_url": "http://127.0.0.1:10/i" } });
    let mut whole = api.get(path).json();
    // What is about no server may change, and the secret stays.
    whole["enabled"] = json!(true);
    whole = api.good("PUT", path, &whole).json();
    whole["config"]["introspection_url"] = json!("http://127.0.0.1:10/i");
    for refused in [api.send("PATCH", path, &other), api.send("PUT", path, &whole)] {
        assert_eq!(refused.status, 422, "{refused:?}");
        assert_eq!(refused.json()["errors"][0]["pointer"], "/config/client_secret", "{refused:?}");
    }
    let headers = json!({ "config": { "exporter": { "endpoint": "http://127.0.0.1:10" } } });
    assert_eq!(api.send("PATCH", "/v1/plugin_configs/t", &headers).status, 422);
    let known =
        json!({ "config": { "introspection_url": "http://127.0.0.1:10/i", "client_secret": "SECRET-3" } });
    api.good("PATCH", path, &known);
    // A fingerprint of something else is a mistake in the setting, not in a consumer.
    let wrong = json!({ "config": { "client_secret": { "fingerprint": "000000000000" } } });
    let refused = api.send("PATCH", path, &wrong);
    assert_eq!(refused.status, 422, "{refused:?}");
    let error = &refused.json()["errors"][0];
    assert_eq!(error["pointer"], "/config/client_secret", "{error}");
    assert!(!refused.text.contains("consumer"), "{refused:?}");
}

/// Who is not understood changes nothing.
#[test]
fn what_a_write_is_told_counts_or_is_refused() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let target = target("whole");
    api.batch(&protected(target));
    api.good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    let before = api.get("/v1/export").json();
    let only_b = json!({ "proxies": [proxy("b", "/b", target)] });
    for prune in ["False", "FALSE", "no", "off", "xyz", "", "false&prune=true"] {
        let refused = api.send("POST", &format!("/v1/import?prune={prune}"), &only_b);
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("bad_query")), "{prune}");
    }
    for path in ["/v1/import", "/v1/batch", "/v1/revisions/1/rollback"] {
        let sent = if path.contains("rollback") { json!({}) } else { only_b.clone() };
        for twice in ["validate_only=true&validate_only=false", "details&details", "note=a&note=b"] {
            let refused = api.send("POST", &format!("{path}?{twice}"), &sent);
            assert_eq!(
                (refused.status, &refused.json()["code"]),
                (400, &json!("bad_query")),
                "{path} {twice}"
            );
        }
    }
    for (method, path) in [
        ("POST", "/v1/revisions/1/rollback"),
        ("DELETE", "/v1/proxies/b"),
        ("DELETE", "/v1/sessions?proxy=b"),
    ] {
        for sent in [json!({ "validate_only": true }), json!([]), json!({ "note": "x".repeat(1000) })] {
            let refused = api.send(method, path, &sent);
            let told = (refused.status, refused.json()["code"].clone());
            assert_eq!(told, (400, json!("unexpected_body")), "{method} {path}");
        }
    }
    assert_eq!(api.get("/v1/export").json(), before);
    assert_eq!(api.send("POST", "/v1/import?prune=false", &only_b).status, 200);
    assert_eq!(api.get("/v1/export").json(), before, "the others stay");
    assert_eq!(api.send("POST", "/v1/import?prune=true", &only_b).json()["deleted"], 3);
}

#[test]
fn unknown_captures_reject_a_write() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let rule = |name: &str| {
        json!({ "id": "p", "plugin_name": "request_transformer", "proxy_id": "a", "config": { "rules": [
            { "operation": "set", "target": "header", "key": "x-team", "value": format!("${{capture.{name}}}") },
        ] } })
    };
    let at = target("behind");
    let batch =
        |name: &str, path: &str| json!({ "proxies": [proxy("a", path, at)], "plugin_configs": [rule(name)] });
    let refused = api.send("POST", "/v1/batch", &batch("taem", "/teams/{team}"));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.text.contains("did you mean `${capture.team}`?"), "{refused:?}");
    assert_eq!(api.send("POST", "/v1/batch", &batch("team", "/teams/{team}")).status, 200);
    assert_eq!(api.send("PUT", "/v1/plugin_configs/p", &rule("taem")).status, 422);
    let renamed = api.send("PATCH", "/v1/proxies/a", &json!({ "listen_path": "/teams/{group}" }));
    assert_eq!(renamed.status, 422, "{renamed:?}");
    assert_eq!(running.client().get("/teams/x", None).status, 200);
}
