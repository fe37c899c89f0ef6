//! Two gateways on one PostgreSQL, and what they do when it goes away or can no longer be read.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ferrum_edge::source::database::Database;
use ferrum_edge::store::{Engine, Location, Options, Store};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};

use crate::client::{TIMEOUT, target, until};
use crate::database::place::{Folder, Running, consumer, protected, proxy, text};
use crate::servers::{Server, shared};

/// A database with tables of its own on this server.
pub(crate) fn database(server: &Server, name: &str) -> Location {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        if server.engine == Engine::Postgres {
            let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
            connection.execute(create).await.unwrap();
            connection.close().await.unwrap();
        } else {
            let mut connection = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
            connection.execute(create).await.unwrap();
            connection.close().await.unwrap();
        }
        let location = Location::parse(Some(&server.url(name)), None).unwrap();
        Store::open(location.clone(), patient()).migrate().await.unwrap();
        location
    })
}

/// Waits for a busy machine as long as it takes.
fn patient() -> Options {
    Options {
        connect_timeout: TIMEOUT,
        busy_timeout: TIMEOUT,
        statement_timeout: TIMEOUT * 2,
        ..Options::default()
    }
}

/// A gateway that waits so long.
pub(crate) fn start(location: &Location) -> Running {
    Running::on(patient_database(location))
}

/// The database of such a gateway.
pub(crate) fn patient_database(location: &Location) -> Database {
    Database { options: patient(), ..Running::database(location.clone()) }
}

/// Doesn't wait long for a server that is away.
fn impatient(location: &Location) -> Database {
    let options = Options { connect_timeout: Duration::from_secs(2), ..Options::default() };
    Database { options, ..Running::database(location.clone()) }
}

#[test]
fn a_write_through_one_is_served_by_the_other() {
    followed(Engine::Postgres);
}

#[test]
fn a_write_through_one_is_served_by_the_other_on_mariadb() {
    followed(Engine::MySql);
}

fn followed(engine: Engine) {
    let location = database(shared(engine), "test_follow");
    let (one, other) = (start(&location), start(&location));
    let target = target("behind");
    let (mut api, mut client) = (one.api(), other.client());
    let revision = |answer: crate::client::Answer| {
        let revision = answer.header("ferrum-revision").unwrap().parse().unwrap();
        other.follows(revision);
        revision
    };
    let first = revision(api.batch(&protected(target)));
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).text, "behind /x ann -");
    revision(api.good("PUT", "/v1/consumers/ann", &consumer("ann", &["new-key"])));
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 401);
    assert_eq!(client.get("/a/x", Some("new-key")).status, 200);
    revision(api.delete("/v1/proxies/a"));
    assert_eq!(client.get("/a/x", Some("new-key")).status, 404);
    revision(api.good("POST", &format!("/v1/revisions/{first}/rollback"), &json!({})));
    assert_eq!(client.get("/a/x", Some("new-key")).status, 401);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    // And the other way around, by whoever comes second.
    let answer = other.api().good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    one.follows(answer.header("ferrum-revision").unwrap().parse().unwrap());
    assert_eq!(one.client().get("/b/x", None).status, 200);
}

#[test]
fn both_write_at_once_and_nothing_is_lost() {
    both_write(&database(shared(Engine::Postgres), "test_both"));
}

#[test]
fn both_write_at_once_and_nothing_is_lost_on_mariadb() {
    both_write(&database(shared(Engine::MySql), "test_both"));
}

#[test]
fn both_write_at_once_and_nothing_is_lost_on_sqlite() {
    let folder = Folder::new();
    both_write(&folder.location());
}

fn both_write(location: &Location) {
    const EACH: usize = 30;
    // Both begin at once, with nothing there yet where that is possible.
    let gateways = thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| start(location))).map(|starting| starting.join().unwrap())
    });
    let target = target("behind");
    gateways[0].api().good("PUT", "/v1/proxies/shared", &named(target, 0));
    thread::scope(|scope| {
        for (writer, gateway) in gateways.iter().enumerate() {
            scope.spawn(move || {
                for n in 0..EACH {
                    let id = format!("p{writer}-{n}");
                    gateway.api().good(
                        "PUT",
                        &format!("/v1/proxies/{id}"),
                        &proxy(&id, &format!("/{id}"), target),
                    );
                    // What was answered is served at once, whoever else writes.
                    assert_eq!(gateway.client().get(&format!("/{id}/x"), None).status, 200);
                    count_up(gateway, target);
                }
            });
        }
    });
    let all: Vec<Value> = gateways.iter().map(|gateway| gateway.api().get("/v1/export").json()).collect();
    assert_eq!(all[0], all[1]);
    let newest =
        gateways[0].api().get("/v1/revisions?limit=1").json()["items"][0]["revision"].as_u64().unwrap();
    for gateway in &gateways {
        gateway.follows(newest);
        assert_eq!(gateway.snapshot_count(), 2 * EACH + 1);
        let shared = gateway.api().get("/v1/proxies/shared").json();
        assert_eq!(text(&shared["name"]), format!("n{}", 2 * EACH), "no update was lost");
        let served = gateway.api().get("/v1/proxies/shared/effective").json();
        assert_eq!(served["name"], shared["name"]);
    }
}

fn named(target: SocketAddr, count: usize) -> Value {
    let mut proxy = proxy("shared", "/shared", target);
    proxy["name"] = json!(format!("n{count}"));
    proxy
}

/// Reads and writes back what nobody changed in between.
fn count_up(gateway: &Running, target: SocketAddr) {
    loop {
        let before = gateway.api().get("/v1/proxies/shared");
        let tag = before.header("etag").unwrap_or_else(|| panic!("{before:?}")).to_owned();
        let count: usize = text(&before.json()["name"]).trim_start_matches('n').parse().unwrap();
        let body = named(target, count + 1).to_string();
        let head = format!("if-match: {tag}\r\n");
        match gateway.api().ask("PUT", "/v1/proxies/shared", &head, body.as_bytes()).status {
            200 => return,
            412 => {}
            status => panic!("{status}"),
        }
    }
}

#[test]
fn traffic_goes_on_while_the_database_is_away_and_everybody_catches_up() {
    let mut server = Server::start(Engine::Postgres);
    let location = database(&server, "test_away");
    let folder = Folder::new();
    let target = target("behind");
    let copied = folder.path().join("last-good.db");
    let with_copy = || Database { mirror: Some(copied.clone()), ..impatient(&location) };
    let one = Running::on(impatient(&location));
    let late = Running::on(with_copy());
    one.api().batch(&protected(target));
    late.follows(1);
    is_copied(&copied, 1);
    drop(late);
    server.kill();

    // Nobody notices but those who write and read.
    let mut client = one.client();
    for _ in 0..20 {
        assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
        assert_eq!(client.get("/a/x", None).status, 401);
    }
    let refused = one.api().send("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(!refused.text.contains("hush-hush"), "{refused:?}");
    assert_eq!(one.api().get("/v1/proxies").status, 503);
    assert_eq!(client.get("/b/x", None).status, 404);
    until("it is told", || one.status()["database"]["answers"] == json!(false));

    // Who starts now starts from what was last good, and says so at once.
    let late = Running::on(with_copy());
    let status = late.status();
    assert_eq!(status["database"]["answers"], json!(false), "{status}");
    assert!(status["database"]["away_because"].is_string(), "{status}");
    assert!(!status.to_string().contains("hush-hush"), "{status}");
    assert_eq!(late.client().get("/a/x", None).status, 401);
    assert_eq!(late.client().get("/a/x", Some("ann-key")).text, "behind /x ann -");
    // One without a copy does not start, nor does one with the copy of another database.
    let settings =
        || ferrum_edge::core::config::model::Settings { http: None, https: None, ..Default::default() };
    let other = Location::parse(Some(&server.url("another")), None).unwrap();
    for database in [impatient(&location), Database { mirror: Some(copied.clone()), ..impatient(&other) }] {
        let started =
            ferrum_edge::Gateway::start_database(settings().into(), database, ferrum_edge::plugins());
        assert!(started.is_err());
    }

    assert!(server.run());
    until("it answers again", || one.status()["database"]["answers"] == json!(true));
    let answer = one.api().good("PUT", "/v1/proxies/b", &proxy("b", "/b", target));
    late.follows(answer.header("ferrum-revision").unwrap().parse().unwrap());
    assert_eq!(late.client().get("/b/x", None).status, 200);
    until("it answers again", || late.status()["database"]["answers"] == json!(true));
    let answer = late.api().delete("/v1/proxies/b");
    let revision = answer.header("ferrum-revision").unwrap().parse().unwrap();
    one.follows(revision);
    assert_eq!(client.get("/b/x", None).status, 404);
    is_copied(&copied, revision);
}

/// Waits until the copy is one of this revision.
fn is_copied(copy: &std::path::Path, revision: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Store::open(Location::sqlite(copy), Options::default());
    until("the configuration is copied", || {
        let newest = runtime.block_on(store.revisions(None, 1)).unwrap_or_default();
        newest.first().is_some_and(|newest| newest.note.starts_with(&format!("{revision}:")))
    });
}

#[test]
fn a_copy_that_is_no_database_does_not_hinder_a_start() {
    let location = database(shared(Engine::Postgres), "test_copy");
    let folder = Folder::new();
    let path = folder.path().join("copy.db");
    std::fs::write(&path, "this is no database, ".repeat(1000)).unwrap();
    let patient = Database { options: patient(), ..Running::database(location) };
    let running = Running::on(Database { mirror: Some(path), ..patient });
    running.api().batch(&protected(target("behind")));
    assert_eq!(running.client().get("/a/x", None).status, 401);
}

/// Whoever can't read what others have written serves what was deleted and revoked since: that must be seen from outside.
#[test]
fn changes_that_cannot_be_read_are_told_as_a_database_that_is_away() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    running.api().good("PUT", "/v1/consumers/ann", &consumer("ann", &["ann-key"]));
    folder.sql(
        "ALTER TABLE ferrum_changes RENAME TO elsewhere; UPDATE ferrum_store SET revision = revision + 1",
    );
    until("it is told", || running.status()["database"]["answers"] == json!(false));
    let status = running.status();
    let why = text(&status["database"]["away_because"]);
    assert!(why.starts_with("its changes can't be read: "), "{status}");
    folder.sql("ALTER TABLE elsewhere RENAME TO ferrum_changes");
    until("it answers again", || running.status()["database"]["answers"] == json!(true));
}
