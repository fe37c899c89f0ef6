//! An SQLite file that is full, locked or damaged while the gateway runs.

use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use ferrum_edge::source::database::Database;
use ferrum_edge::store::Options;
use serde_json::json;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::client::{target, until};
use crate::database::place::{Folder, Running, protected, proxy};

/// Whether the protected route serves as it should.
fn serves(running: &Running) {
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).text, "behind /x ann -");
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let folder = Folder::new();
    let options = Options { max_bytes: Some(1 << 20), ..Options::default() };
    let running = Running::on(Database { options, ..Running::database(folder.location()) });
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    let mut large = proxy("large", "/large", target);
    large["hosts"] = (0..100).map(|n| json!(format!("host-{n}.of.a.rather.long.name.example.org"))).collect();
    let mut refused = None;
    for n in 0..600 {
        large["listen_path"] = json!(format!("/large-{n}"));
        let answer = api.send("PUT", &format!("/v1/proxies/large-{n}"), &without_id(&large));
        if answer.status != 201 {
            refused = Some((n, answer));
            break;
        }
    }
    let (n, answer) = refused.unwrap();
    assert_eq!((answer.status, &answer.json()["code"]), (507, &json!("full")), "{answer:?}");
    serves(&running);
    assert_eq!(api.get(&format!("/v1/proxies/large-{n}")).status, 404);
    assert_eq!(api.get("/v1/proxies/a").status, 200);
    let served = api.get(&format!("/v1/proxies/large-{n}/effective"));
    assert_eq!(served.status, 404, "what is not written is not served");
}

fn without_id(object: &serde_json::Value) -> serde_json::Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("id");
    object
}

#[test]
fn a_locked_database_refuses_writes_until_it_is_free() {
    let folder = Folder::new();
    let options = Options { busy_timeout: Duration::from_millis(200), ..Options::default() };
    let running = Running::on(Database { options, ..Running::database(folder.location()) });
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", folder.database().display());
    let mut holder = runtime.block_on(SqliteConnection::connect(&url)).unwrap();
    runtime.block_on(holder.execute("BEGIN IMMEDIATE")).unwrap();
    let answer = api.send("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("busy")), "{answer:?}");
    serves(&running);
    assert_eq!(api.get("/v1/proxies/a").status, 200, "readers wait for nobody");
    assert_eq!(running.client().get("/b/x", None).status, 404);
    runtime.block_on(holder.execute("ROLLBACK")).unwrap();
    api.good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    assert_eq!(running.client().get("/b/x", None).status, 200);
}

#[test]
fn a_damaged_file_refuses_writes_and_nothing_else() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", folder.database().display());
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
        connection.close().await.unwrap();
    });
    let length = std::fs::metadata(folder.database()).unwrap().len();
    let mut file = std::fs::OpenOptions::new().write(true).open(folder.database()).unwrap();
    file.seek(SeekFrom::Start(100)).unwrap();
    file.write_all(&vec![0x5a; usize::try_from(length).unwrap() - 100]).unwrap();
    file.sync_all().unwrap();
    for n in 0..3 {
        let answer = api.send(
            "PUT",
            &format!("/v1/proxies/b{n}"),
            &proxy(&format!("b{n}"), &format!("/b{n}"), target),
        );
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        serves(&running);
        assert_eq!(running.client().get(&format!("/b{n}/x"), None).status, 404);
    }
    assert_eq!(api.get("/livez").status, 200);
    assert_eq!(running.status()["proxies"]["count"], 1);
}

/// The next change of the configuration may be weeks away.
#[test]
fn a_copy_that_could_not_be_saved_is_saved_once_it_can_be() {
    let folder = Folder::new();
    let copy = folder.path().join("last-good.db");
    let running =
        Running::on(Database { mirror: Some(copy.clone()), ..Running::database(folder.location()) });
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    let last_good = || running.status()["database"]["last_good"].clone();
    until("the first revision is saved", || last_good()["revision"] == 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", copy.display());
    let mut holder = runtime.block_on(SqliteConnection::connect(&url)).unwrap();
    runtime.block_on(holder.execute("BEGIN IMMEDIATE")).unwrap();
    api.good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    until("it can't be saved", || !last_good()["problem"].is_null());
    let problems = running.status()["problems"]["list"].to_string();
    assert!(problems.contains("last_good_unsaved"), "{problems}");
    runtime.block_on(holder.execute("ROLLBACK")).unwrap();
    until("it is saved without another change", || last_good()["revision"] == 2);
    assert!(last_good()["problem"].is_null());
}
