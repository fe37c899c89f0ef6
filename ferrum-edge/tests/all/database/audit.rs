//! The audit: every change and every refused attempt, chained, on each engine.

use ferrum_edge::source::database::Database;
use ferrum_edge::store::{Engine, Location, Options};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

use crate::client::{Client, target, until};
use crate::database::peers::{database, start};
use crate::database::place::{ADMIN, Api, Folder, READ, Running, WRITE, consumer, protected, proxy, text};
use crate::servers::shared;

fn entries(api: &mut Api, query: &str) -> Vec<Value> {
    let token = std::mem::replace(&mut api.token, READ.to_owned());
    let page = api.good("GET", &format!("/v1/audit?{query}"), &Value::Null).json();
    api.token = token;
    page["items"].as_array().unwrap().clone()
}

fn verified(api: &mut Api) -> Value {
    api.good("GET", "/v1/audit/verify", &Value::Null).json()
}

/// What refused attempts leave is written beside the answer.
fn waits_for(api: &mut Api, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    until("the entries are there", || {
        found = entries(api, "limit=1000");
        found.len() >= count
    });
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

fn told(entry: &Value) -> [&str; 3] {
    ["actor", "outcome", "action"].map(|name| text(&entry[name]))
}

fn sql(location: &str, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let statement = AssertSqlSafe(statement.to_owned());
    runtime.block_on(async {
        if location.starts_with("sqlite:") {
            SqliteConnection::connect(location).await.unwrap().execute(statement).await.unwrap();
        } else if location.starts_with("postgres") {
            PgConnection::connect(location).await.unwrap().execute(statement).await.unwrap();
        } else {
            MySqlConnection::connect(location).await.unwrap().execute(statement).await.unwrap();
        }
    });
}

fn who_did_what(running: &Running, url: &str) {
    let (target, mut api) = (target("behind"), running.api());
    api.batch(&protected(target));
    api.with(WRITE).good("PUT", "/v1/consumers/ann?note=a+new+key", &consumer("ann", &["SECRET-two"]));
    api.with(ADMIN);
    // What changes nothing, only checks or only reads has no entry.
    api.good("PUT", "/v1/proxies/a", &proxy("a", "/a", target));
    api.good("PUT", "/v1/proxies/a?validate_only", &proxy("a", "/other", target));
    assert_eq!(api.send("PUT", "/v1/proxies/a?validate_only", &json!({ "listen_pat": 1 })).status, 422);
    assert_eq!(api.get("/v1/proxies/nobody").status, 404);
    assert_eq!(entries(&mut api, "").len(), 2);

    assert_eq!(Client::new(running.admin).ask("DELETE", "/v1/proxies/a", "", b"").status, 401);
    assert_eq!(api.with(READ).delete("/v1/proxies/a").status, 403);
    assert_eq!(api.with(WRITE).send("POST", "/v1/proxies", &proxy("a", "/a", target)).status, 409);
    assert_eq!(api.ask("DELETE", "/v1/proxies/a", "if-match: \"99\"\r\n", b"").status, 412);
    assert_eq!(api.send("PUT", "/v1/proxies/a", &json!({ "listen_pat": "SECRET" })).status, 422);
    assert_eq!(api.ask("GET", "/v1/proxies", "origin: https://evil.example\r\n", b"").status, 403);
    assert_eq!(api.delete("/v1/proxies/a").status, 204);
    let mut all = waits_for(&mut api, 9);
    all.sort_by_key(|entry| entry["seq"].as_u64());
    let mut ended: Vec<_> = all.iter().map(told).collect();
    ended.sort_unstable();
    assert_eq!(
        ended,
        [
            ["admin token", "allowed", "POST /v1/batch"],
            ["read token", "refused", "DELETE /v1/proxies/a"],
            ["unknown", "refused", "DELETE /v1/proxies/a"],
            ["unknown", "refused", "GET /v1/proxies"],
            ["write token", "allowed", "DELETE /v1/proxies/a"],
            ["write token", "allowed", "PUT /v1/consumers/ann"],
            ["write token", "refused", "DELETE /v1/proxies/a"],
            ["write token", "refused", "POST /v1/proxies"],
            ["write token", "refused", "PUT /v1/proxies/a"],
        ]
    );
    let mut reasons: Vec<_> = all.iter().filter_map(|entry| entry["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["changed", "exists", "forbidden", "foreign_site", "invalid", "unauthorized"]);
    for (n, entry) in all.iter().enumerate() {
        assert_eq!(entry["seq"], n + 1);
        assert!(text(&entry["peer"]).starts_with("127.0.0.1:"), "{entry}");
    }
    let update = &all[1];
    assert_eq!(
        (&update["note"], &update["revision"], &update["role"]),
        (&json!("a new key"), &json!(2), &json!("write"))
    );
    let change = &update["changes"][0];
    assert_eq!((&change["kind"], &change["action"]), (&json!("consumers"), &json!("update")));
    let credential = |side: &str| change[side]["credentials"]["key_auth"][0]["fingerprint"].clone();
    assert!(credential("before").is_string() && credential("before") != credential("after"), "{change}");
    let gone = entries(&mut api, "kind=plugin_configs&outcome=allowed&actor=write%20token");
    assert_eq!(gone.len(), 1, "the proxy's own plugin went with it");
    assert_eq!(gone[0]["changes"].as_array().unwrap().len(), 2);
    assert!(!format!("{all:?}").contains("SECRET"));

    // In pages, and the chain holds until somebody touches it.
    let page = api.get("/v1/audit?limit=4").json();
    assert_eq!(page["next"], "6");
    assert_eq!(entries(&mut api, "limit=4&before=6")[0]["seq"], 5);
    for unknown in ["outcome=maybe", "source=foo", "kind=foo", "kind=proxy", "kind=", "source=File"] {
        assert_eq!(api.get(&format!("/v1/audit?{unknown}")).status, 400, "{unknown}");
    }
    assert_eq!(api.get("/v1/audit?since=yesterday").status, 400);
    assert_eq!(entries(&mut api, "until=2000-01-01T00:00:00Z"), [Value::Null; 0]);
    assert_eq!(entries(&mut api, "since=2000-01-01T00:00:00Z&id=ann").len(), 2);
    let whole = verified(&mut api);
    assert_eq!((&whole["valid"], &whole["entries"]), (&json!(true), &json!(9)), "{whole}");
    sql(url, "UPDATE ferrum_audit SET entry = REPLACE(entry, 'write token', 'admin token') WHERE seq = 2");
    let broken = verified(&mut api);
    assert_eq!((&broken["valid"], &broken["broken"]["seq"]), (&json!(false), &json!(2)), "{broken}");
    sql(url, "DELETE FROM ferrum_audit WHERE seq = 2");
    assert_eq!(verified(&mut api)["broken"]["seq"], 3);
}

#[test]
fn who_did_what_is_written_on_sqlite() {
    let folder = Folder::new();
    who_did_what(&Running::new(&folder), &format!("sqlite:{}", folder.database().display()));
}

#[test]
fn who_did_what_is_written_on_postgres() {
    let server = shared(Engine::Postgres);
    let location = database(server, "test_audit");
    who_did_what(&start(&location), &server.url("test_audit"));
}

#[test]
fn who_did_what_is_written_on_mariadb() {
    let server = shared(Engine::MySql);
    let location = database(server, "test_audit");
    who_did_what(&start(&location), &server.url("test_audit"));
}

fn keeping(location: Location, options: Options) -> Running {
    Running::on(Database { options, ..Running::database(location) })
}

#[test]
fn old_entries_go_and_the_rest_still_holds() {
    let folder = Folder::new();
    let options = Options { keep_audit: 3, ..Options::default() };
    let running = keeping(folder.location(), options);
    let mut api = running.api();
    for n in 0..6 {
        api.good("PUT", &format!("/v1/consumers/c{n}"), &consumer(&format!("c{n}"), &[&format!("key-{n}")]));
    }
    let kept = entries(&mut api, "");
    assert_eq!(kept.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [6, 5, 4]);
    let whole = verified(&mut api);
    assert_eq!((&whole["valid"], &whole["first"], &whole["last"]), (&json!(true), &json!(4), &json!(6)));
    // By age as well: what was written an hour ago, at the age of a minute.
    drop((running, api));
    folder.sql("UPDATE ferrum_audit SET at = at - 3600000");
    let options = Options { keep_audit_for: std::time::Duration::from_secs(60), ..Options::default() };
    let running = keeping(folder.location(), options);
    running.api().good("PUT", "/v1/consumers/late", &consumer("late", &["late-key"]));
    let kept = entries(&mut running.api(), "");
    assert_eq!(kept.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [7]);
}

#[test]
fn an_entry_is_written_with_the_change_or_not_at_all() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    folder.sql("ALTER TABLE ferrum_audit RENAME TO elsewhere");
    let answer = api.send("PUT", "/v1/consumers/ann", &consumer("ann", &["ann-key"]));
    assert_eq!(answer.status, 503, "no change without its entry: {answer:?}");
    folder.sql("ALTER TABLE elsewhere RENAME TO ferrum_audit");
    until("the database answers again", || {
        api.send("PUT", "/v1/consumers/bob", &consumer("bob", &["bob-key"])).status < 300
    });
    assert_eq!(api.get("/v1/consumers/ann").status, 404);
    let allowed = entries(&mut api, "outcome=allowed");
    assert_eq!(allowed.len(), 1, "{allowed:#?}");
    assert!(verified(&mut api)["valid"] == true);
}

#[test]
fn a_flood_of_refused_attempts_is_counted_and_does_not_fill_the_table() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut nobody = Client::new(running.admin);
    for _ in 0..300 {
        assert_eq!(nobody.get("/v1/proxies", None).status, 401);
    }
    let mut api = running.api();
    api.good("PUT", "/v1/consumers/ann", &consumer("ann", &["ann-key"]));
    let metrics = nobody.get("/metrics", None).text;
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let suppressed = value("ferrum_audit_suppressed_total");
    assert!((200..300).contains(&suppressed), "{suppressed}");
    until("those that are not suppressed are there", || {
        entries(&mut api, "outcome=refused&limit=1000").len() as u64 == 300 - suppressed
    });
}
