//! Writes under conditions: of the whole configuration, of credentials in a rollback, of the schema, of the copy.

use std::path::Path;

use ferrum_edge::source::database::Database;
use ferrum_edge::store::{Location, Options, Store};
use serde_json::json;

use crate::client::{Answer, target, until};
use crate::place::{Api, Folder, Running, consumer, protected, proxy, text};

fn ask(api: &mut Api, (method, path): (&str, &str), tag: &str, body: &serde_json::Value) -> Answer {
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
    for (what, body) in [
        (("POST", "/v1/batch"), &more),
        (("POST", "/v1/import"), &whole),
        (("POST", "/v1/revisions/1/rollback"), &json!({})),
    ] {
        let refused = ask(&mut api, what, &tag, body);
        assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("changed")), "{refused:?}");
        assert_eq!(running.client().get("/b/x", None).status, 200, "{what:?} changed something");
        let refused = ask(&mut api, what, "one, two", body);
        assert_eq!(refused.json()["code"], "bad_condition");
    }
    let tag = api.get("/v1/export").header("etag").unwrap().to_owned();
    assert_eq!(ask(&mut api, ("POST", "/v1/batch"), &tag, &more).status, 200);
    assert_eq!(running.client().get("/c/x", None).status, 200);
    assert_eq!(ask(&mut api, ("POST", "/v1/import"), "*", &whole).status, 200);
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

    let kept = api.good("POST", "/v1/revisions/1/rollback?keep_credentials", &json!({}));
    assert_eq!(kept.json()["credentials_restored"], json!([]));
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
    assert_eq!(runtime.block_on(store.count(ferrum_edge::store::Kind::Proxies)).unwrap(), 2);
}
