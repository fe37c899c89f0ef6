//! When quotas end sessions, what usage survives, and what operators see.

use std::cell::Cell;

use gateway_core::limit::meter::Admitted;
use gateway_core::plugin::entry;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHandle};
use gateway_core::testing::Trial;
use gateway_plugin_common::redis_link::testing::{link, redis};
use gateway_plugin_common::testing::Beside;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

thread_local! {
    pub(super) static NOW: Cell<Option<u64>> = const { Cell::new(None) };
}

const BEGUN: u64 = 1_800_000_000;

fn spec(config: &Value) -> String {
    let proxy = |id: &str, port: u16, scheme: &str| json!({ "id": id, "listen_port": port, "backend_scheme": scheme, "backend_host": "t.test", "backend_port": 1 });
    json!({
        "proxies": [
            proxy("tcp", 7000, "tcp"),
            proxy("udp", 7001, "udp"),
            { "id": "http", "listen_path": "/", "backend_scheme": "http", "backend_host": "t.test", "backend_port": 80 },
        ],
        "plugin_configs": [
            { "id": "quota", "plugin_name": "traffic_quota", "scope": "global", "config": config },
        ],
    })
    .to_string()
}

fn trial(config: Value, world: &World) -> Trial {
    NOW.set(Some(BEGUN));
    let mut config = config;
    config["path"] = "/tmp".into();
    let trial = Trial::of_spec(&[entry::<TrafficQuota>()], &spec(&config), world);
    trial.start(&Beside);
    trial
}

/// Sends as much as passes; says how much the target got, and why it ended.
async fn pour(trial: &Trial, most: usize) -> (usize, String) {
    let mut stream = trial.stream("tcp");
    let serving = tokio::spawn(stream.serving);
    let sending = async {
        drop(stream.client.write_all(&vec![7; most]).await);
        drop(stream.client);
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(sending, stream.target.read_to_end(&mut got));
    read.unwrap();
    drop(stream.target);
    serving.await.unwrap();
    let reason = stream.record.lock().unwrap().clone().expect("a record").reason;
    (got.len(), reason)
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_last_byte_of_its_quota() {
    let trial = trial(json!({ "limit": 100_000, "limit_by": "route" }), &World::default());
    assert_eq!(pour(&trial, 60_000).await, (60_000, "closed".into()));
    assert_eq!(pour(&trial, 60_000).await, (40_000, "quota_exceeded".into()));
    assert_eq!(pour(&trial, 60_000).await, (0, "quota_exceeded".into()));
    let usage = trial.act("traffic_quota", "usage", &json!({ "history": "hour" })).unwrap();
    assert_eq!(usage["keys"][0]["key"], "tcp");
    assert_eq!(
        (&usage["keys"][0]["used"], &usage["keys"][0]["closed"]),
        (&json!(100_000), &json!("quota_exceeded"))
    );
    assert_eq!(usage["keys"][0]["history"], json!([{ "at": BEGUN / 3600 * 3600, "bytes": 100_000 }]));
    assert_eq!(trial.act("traffic_quota", "reset", &json!({ "key": "tcp" })).unwrap(), json!({ "reset": 1 }));
    assert_eq!(pour(&trial, 60_000).await.0, 60_000);
    assert_eq!(trial.act("traffic_quota", "reset", &json!({ "key": "nobody" })).unwrap()["reset"], 0);
    assert!(trial.act("traffic_quota", "usage", &json!({ "colour": 1 })).is_err());
}

#[tokio::test(start_paused = true)]
async fn datagrams_and_bodies_count_too() {
    let trial =
        trial(json!({ "limit": 1000, "limit_by": "gateway", "count": "download" }), &World::default())
            .answering(|_| Response::new(Body::full(vec![0; 400])));
    let (mut flow, _record) = trial.flow("udp").await.unwrap();
    assert_eq!(flow.admit(Direction::Up, 5000), Admitted::Yes, "only what goes to clients counts");
    assert_eq!(flow.admit(Direction::Down, 300), Admitted::Yes);
    assert_eq!(trial.get("/", &[]).await.body.len(), 400);
    assert_eq!(flow.admit(Direction::Down, 301), Admitted::Ended("quota_exceeded"));
    assert_eq!(flow.admit(Direction::Down, 300), Admitted::Yes);
    let refused = trial.get("/", &[]).await;
    assert_eq!((refused.status, trial.records()[1].reason), (429, Some("quota_exceeded")));
    assert_eq!(trial.flow("udp").await.err(), Some("quota_exceeded"));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_limit_and_a_date_apply_to_what_runs() {
    let world = World::default();
    let first = trial(json!({ "limit": 1000 }), &world);
    let (mut flow, _record) = first.flow("udp").await.unwrap();
    assert_eq!(flow.admit(Direction::Up, 1000), Admitted::Yes);
    assert_eq!(flow.admit(Direction::Up, 1), Admitted::Ended("quota_exceeded"));
    let _more = trial(json!({ "limit": 2000 }), &world);
    assert_eq!(flow.admit(Direction::Up, 1), Admitted::Yes);
    let _expired = trial(json!({ "limit": 2000, "expires": "2027-01-15" }), &world);
    assert_eq!(flow.admit(Direction::Up, 1), Admitted::Ended("quota_expired"));
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "path": "/tmp" }), "config.limit"),
        (json!({ "limit": 1 }), "config.path"),
        (json!({ "limit": 1, "path": "/tmp", "per": "year" }), "config.per"),
        (json!({ "limit": 1, "path": "/tmp", "per": "month", "rolling": true }), "config.per"),
        (json!({ "limit": 1, "path": "/tmp", "per": "week", "anchor_day": 3 }), "config.anchor_day"),
        (json!({ "limit": 1, "path": "/tmp", "expires": "tomorrow" }), "config.expires"),
        (json!({ "limit": 1, "redis": { "name": "x" }, "rolling": true, "per": "1d" }), "config.rolling"),
    ] {
        let problems = Trial::refused(&[entry::<TrafficQuota>()], "traffic_quota", &config);
        assert!(problems.0.iter().any(|problem| problem.path == path), "{path}: {problems}");
    }
}

/// A gateway's side of a quota in a real Redis.
async fn sharing(port: u16) -> (SharedAccounts, Accounts, TaskHandle) {
    let link = Arc::new(link(port));
    let (handle, control) = TaskControl::new();
    tokio::spawn(link.clone().run(control));
    link.becomes(true).await;
    let billing = calendar::Billing::Month { anchor: 1 };
    let terms = Terms { limit: 1000, billing, expires: None, max_keys: 9 };
    (SharedAccounts::new(link), Accounts::new(terms, unix_now()), handle)
}

#[tokio::test]
async fn gateways_share_usage_and_resets_in_redis() {
    let redis = redis(&[]);
    let (one, a, _first) = sharing(redis.port).await;
    let (two, b, _second) = sharing(redis.port).await;
    let pass = |accounts: &Accounts, bytes| accounts.quota(7, || "k".to_owned(), unix_now()).add(bytes);
    let used = || [&a, &b].map(|accounts| accounts.list(|_| true)[0].used);
    let exchange = async || {
        for (shared, accounts) in [(&one, &a), (&two, &b), (&one, &a)] {
            accounts.advance(unix_now());
            shared.exchange(accounts).await.unwrap();
        }
    };
    // More digits than Lua writes by default.
    pass(&a, 4_000_000_000_000_000);
    pass(&b, 500);
    exchange().await;
    assert_eq!(used(), [4_000_000_000_000_500; 2]);
    exchange().await;
    assert_eq!(used(), [4_000_000_000_000_500; 2], "nothing counts twice");
    assert_eq!(b.reset(Some("k"), unix_now()), 1);
    pass(&b, 3);
    two.exchange(&b).await.unwrap();
    exchange().await;
    assert_eq!(used(), [3, 3], "the other gateway has forgotten, too");
    pass(&a, 20);
    exchange().await;
    assert_eq!(used(), [23, 23]);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    pass(&b, 7);
    exchange().await;
    exchange().await;
    assert_eq!(used(), [30, 30], "a server that lost its data learns it again");
}
