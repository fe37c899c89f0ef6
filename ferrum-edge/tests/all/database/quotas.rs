//! Traffic quotas whose usage is in the database.

use std::net::SocketAddr;

use ferrum_edge::store::Engine;
use serde_json::{Value, json};

use crate::client::{Client, target, until};
use crate::database::crash::{api, start};
use crate::database::peers;
use crate::database::place::{Api, proxy, text};
use crate::process::{Folder, Gateway, ferrum_edge};
use crate::servers::shared;

/// A proxy `p` and a quota `q` of so many bytes to clients.
fn objects(limit: usize, target: SocketAddr) -> Value {
    json!({ "proxies": [proxy("p", "/", target)], "plugin_configs": [quota(limit)] })
}

fn quota(limit: usize) -> Value {
    json!({
        "id": "q", "plugin_name": "traffic_quota", "proxy_id": "p",
        "config": { "limit": limit, "count": "download", "database": true },
    })
}

/// What the proxy has used, as the gateway knows.
fn used(api: &mut Api) -> u64 {
    api.get("/v1/usage").json()["items"][0]["keys"][0]["used"].as_u64().unwrap_or_default()
}

/// Bytes in the history, as the gateway knows it.
fn of_history(api: &mut Api, step: &str) -> u64 {
    let usage = api.get(&format!("/v1/usage?history={step}")).json();
    let history = usage["items"][0]["keys"][0]["history"].as_array().cloned().unwrap_or_default();
    history.iter().filter_map(|entry| entry["bytes"].as_u64()).sum()
}

/// The statuses of so many requests, and the bytes of one answer with 200.
fn ask(http: SocketAddr, times: usize) -> (Vec<u16>, u64) {
    let mut client = Client::new(http);
    let answers: Vec<_> = (0..times).map(|_| client.get("/", None)).collect();
    let length = answers.iter().find(|answer| answer.status == 200).map_or(0, |answer| answer.text.len());
    (answers.iter().map(|answer| answer.status).collect(), length as u64)
}

fn sql(folder: &Folder, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use sqlx::{AssertSqlSafe, Connection, Executor};
        let url = format!("sqlite:{}", folder.path("f.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
        connection.close().await.unwrap();
    });
}

fn end(mut gateway: Gateway) {
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0), "{}", gateway.log());
}

#[test]
fn usage_survives_restarts_rollbacks_and_dead_gateways() {
    let folder = Folder::new();
    let gateway = start(&folder);
    let target = target("behind");
    let (_, length) = {
        api(&gateway).batch(&json!({ "proxies": [proxy("p", "/", target)] }));
        ask(gateway.http, 1)
    };
    assert!(length > 0);
    let limit = usize::try_from(length * 10).unwrap();
    let first = api(&gateway).batch(&objects(limit, target));
    let revision: u64 = first.header("ferrum-revision").unwrap().parse().unwrap();
    assert_eq!(ask(gateway.http, 3).0, [200; 3]);
    end(gateway);

    let gateway = start(&folder);
    let mut admin = api(&gateway);
    assert_eq!(used(&mut admin), 3 * length, "at once after a restart in order");
    until("the history is read", || of_history(&mut admin, "minute") == 3 * length);
    assert_eq!(of_history(&mut admin, "hour"), 3 * length);
    // Neither a change of the limit nor a rollback of the configuration forgives anything.
    admin.good("PUT", "/v1/plugin_configs/q", &quota(limit * 2));
    admin.good("POST", &format!("/v1/revisions/{revision}/rollback"), &json!({}));
    assert_eq!(used(&mut admin), 3 * length);
    assert_eq!(ask(gateway.http, 1).0, [200]);
    until("the request is counted", || used(&mut admin) == 4 * length);
    drop(gateway);

    // A gateway that died had claimed as many bytes as may have passed since its last change.
    let gateway = start(&folder);
    let mut admin = api(&gateway);
    until("what it told is known", || used(&mut admin) >= 3 * length);
    let known = used(&mut admin);
    sql(
        &folder,
        &format!(
            "INSERT INTO ferrum_usage_claims SELECT config, usage_key, period_end, 'dead', {length}, 1 FROM ferrum_usage"
        ),
    );
    until("the claim counts", || used(&mut admin) > known);
    // With everything used, it stays closed from the first request after a restart on.
    until("it is used up", || ask(gateway.http, 1).0 == [429]);
    end(gateway);
    let gateway = start(&folder);
    assert_eq!(ask(gateway.http, 2).0, [429, 429]);
    let usage = ferrum_edge(&folder)
        .args(["usage", "--reset", "--key", "p", "--admin", &gateway.admin.to_string()])
        .env("FERRUM_ADMIN_TOKEN", crate::database::place::ADMIN)
        .output()
        .unwrap();
    assert!(usage.status.success(), "{}", String::from_utf8_lossy(&usage.stderr));
    assert_eq!(ask(gateway.http, 1).0, [200]);
    end(gateway);
    let gateway = start(&folder);
    assert_eq!(used(&mut api(&gateway)), length, "the reset was stored");
}

#[test]
fn gateways_share_usage_on_postgresql() {
    share(Engine::Postgres);
}

#[test]
fn gateways_share_usage_on_mariadb() {
    share(Engine::MySql);
}

fn share(engine: Engine) {
    let location = peers::database(shared(engine), "test_quotas");
    let (one, other) = (peers::start(&location), peers::start(&location));
    let target = target("behind");
    one.api().batch(&json!({ "proxies": [proxy("p", "/", target)] }));
    let (_, length) = ask(one.http, 1);
    let limit = usize::try_from(length * 6).unwrap();
    let answer = one.api().batch(&objects(limit, target));
    other.follows(answer.header("ferrum-revision").unwrap().parse().unwrap());
    assert_eq!(ask(one.http, 3).0, [200; 3]);
    until("the other knows", || used(&mut other.api()) == 3 * length);
    assert_eq!(ask(other.http, 3).0, [200; 3]);
    until("one knows", || ask(one.http, 1).0 == [429]);
    until("the other's history has all", || of_history(&mut other.api(), "hour") == 6 * length);
    let reset = other.api().good("POST", "/v1/plugins/traffic_quota/actions/reset", &json!({}));
    assert!(text(&reset.json()["results"][0]["plugin_config"]) == "q", "{}", reset.text);
    until("it is open again", || ask(one.http, 1).0 == [200]);
}

#[test]
fn a_gateway_of_a_file_refuses_it() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "
proxies:
  - { id: p, listen_path: /, backend_host: 127.0.0.1, backend_port: 9 }
plugin_configs:
  - { id: q, plugin_name: traffic_quota, proxy_id: p, config: { limit: 1GB, database: true } }
",
    );
    let checked = ferrum_edge(&folder).arg("check").output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.code() == Some(3) && said.contains("only gateways in database mode"), "{said}");
}

/// `top` shows the keys with the highest usage: an operator looks for the customer that fills the line.
#[test]
fn the_keys_that_have_used_most_come_first() {
    let folder = Folder::new();
    let gateway = start(&folder);
    let target = target("behind");
    let quota = json!({ "id": "q", "plugin_name": "traffic_quota", "scope": "global", "config": { "limit": "1GB", "database": true } });
    let proxies = [proxy("a", "/a", target), proxy("b", "/b", target), proxy("c", "/c", target)];
    let mut admin = api(&gateway);
    admin.batch(&json!({ "proxies": proxies, "plugin_configs": [quota] }));
    let mut client = Client::new(gateway.http);
    for path in ["/a", "/b", "/b", "/b", "/c", "/c"] {
        assert_eq!(client.get(path, None).status, 200);
    }
    let printed = |top: &str| {
        let mut command = ferrum_edge(&folder);
        command.args(["usage", "--top", top, "--admin", &gateway.admin.to_string()]);
        let output = command.env("FERRUM_ADMIN_TOKEN", crate::database::place::ADMIN).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let keys = lines.lines().filter_map(|line| line.split([' ', ':']).nth(1));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    for (top, keys) in [("1", vec!["b"]), ("2", vec!["b", "c"]), ("1000", vec!["b", "c", "a"])] {
        let mut shown = || {
            let usage = admin.get(&format!("/v1/usage?top={top}")).json();
            let keys = usage["items"][0]["keys"].as_array().unwrap().clone();
            keys.iter().map(|key| text(&key["key"]).to_owned()).collect::<Vec<_>>()
        };
        until("the requests are counted", || shown() == keys);
        assert_eq!(printed(top), keys);
    }
    for wrong in ["0", "1001", "many", "-1"] {
        assert_eq!(admin.get(&format!("/v1/usage?top={wrong}")).status, 400, "{wrong}");
        assert_eq!(printed(wrong), Vec::<String>::new(), "{wrong}");
    }
}
