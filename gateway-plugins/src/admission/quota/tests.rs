//! What passes, what clients are told, what survives, and that each option does something.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use gateway_core::plugin::entry;
use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::redis_link::testing::{link, redis};
use gateway_plugin_common::testing::{Machine, metric};
use serde_json::{Value, json};

use super::*;

thread_local! {
    /// What time it is for the test of this thread.
    pub(super) static NOW: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sun, 22 Nov 2026 11:40:00 GMT.
const NOON: u64 = 1_795_347_600;
const DAY: u64 = 86_400;

fn at(now: u64) {
    NOW.set(Some(now));
}

fn spec(id: &str, config: &Value) -> String {
    json!({
        "gateway": { "redis": { "main": { "urls": ["redis://127.0.0.1:1"] } } },
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "auth_mode": "multi",
            "plugins": [{ "plugin_config_id": id }] }],
        "consumers": [
            { "id": "u", "username": "u", "credentials": { "key_auth": "of-u" }, "acl_groups": ["g"] },
            { "id": "v", "username": "v", "credentials": { "key_auth": "of-v" }, "acl_groups": ["g"] },
            { "id": "w", "username": "nobody" },
        ],
        "plugin_configs": [
            { "id": id, "plugin_name": "quota", "scope": "proxy_group", "config": config },
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "a", "config": { "anonymous": "nobody" } },
        ],
    })
    .to_string()
}

fn trial_in(id: &str, config: Value, world: &World) -> Trial {
    Trial::of_spec(&[gateway_auth::KEY_AUTH, entry::<Quota>()], &spec(id, &config), world)
}

fn trial(mut config: Value) -> Trial {
    config["path"] = "/quotas".into();
    trial_in("q", config, &Machine::default().world())
}

async fn statuses(trial: &Trial, requests: &[&str]) -> Vec<u16> {
    let mut got = Vec::new();
    for key in requests {
        got.push(ask(trial, key).await.status);
    }
    got
}

async fn ask(trial: &Trial, key: &str) -> Got {
    trial.get("/", &[("x-api-key", key)]).await
}

#[tokio::test]
async fn a_quota_lasts_until_midnight() {
    at(NOON);
    let trial = trial(json!({ "limits": [{ "limit": 2, "per": "day" }] }));
    assert_eq!(statuses(&trial, &["of-u", "of-u", "of-u", "of-v"]).await, [200, 200, 429, 200]);
    let refused = ask(&trial, "of-u").await;
    assert_eq!(
        (refused.field("retry-after"), refused.json()["code"].as_str()),
        ("44400", Some("quota_exhausted"))
    );
    assert_eq!(refused.field("ratelimit"), "\"2-per-day\";r=0;t=44400");
    assert_eq!(trial.asked().len(), 3);
    at(NOON + 44_399);
    assert_eq!(ask(&trial, "of-u").await.field("retry-after"), "1");
    at(NOON + 44_400);
    assert_eq!(statuses(&trial, &["of-u", "of-u", "of-u"]).await, [200, 200, 429]);
}

#[tokio::test]
async fn every_quota_must_have_room_and_a_refusal_takes_from_none() {
    at(NOON);
    let trial = trial(json!({ "limits": [
        { "limit": 3, "per": "month", "name": "month" },
        { "limit": 2, "per": 60 },
    ] }));
    assert_eq!(statuses(&trial, &["of-u"; 4]).await, [200, 200, 429, 429]);
    at(NOON + 60);
    let third = ask(&trial, "of-u").await;
    assert_eq!(third.status, 200);
    // The first of December is eight and a half days away.
    assert_eq!(third.field("ratelimit"), format!("\"month\";r=0;t={}", 44_400 - 60 + 8 * DAY));
    assert_eq!(third.field("ratelimit-policy"), "\"month\";q=3;w=2592000, \"2-per-60s\";q=2;w=60");
    let fourth = ask(&trial, "of-u").await;
    assert_eq!(
        (fourth.status, fourth.field("retry-after")),
        (429, "735540"),
        "the month's, not the minute's"
    );
    at(NOON + 44_400 + 8 * DAY);
    assert_eq!(ask(&trial, "of-u").await.status, 200);
}

#[tokio::test]
async fn callers_have_quotas_of_their_own() {
    at(NOON);
    let one = json!([{ "limit": 1, "per": "week" }]);
    let by_group = trial(json!({ "limits": one, "limit_by": "group" }));
    assert_eq!(statuses(&by_group, &["of-u", "of-v"]).await, [200, 429]);
    let by_template = trial(json!({ "limits": one, "limit_by": "template:${request.path}" }));
    let mut got = Vec::new();
    for path in ["/a", "/b", "/a"] {
        got.push(by_template.get(path, &[("x-api-key", "of-u")]).await.status);
    }
    assert_eq!(got, [200, 200, 429]);
    let strict = trial(json!({ "limits": one, "limit_by": "header:x-t", "on_missing": "deny" }));
    assert_eq!(statuses(&strict, &["of-u"]).await, [403]);
    assert_eq!(strict.records()[0].reason, Some("quota_key_missing"));
    let lax = trial(json!({ "limits": one, "limit_by": "header:x-t", "on_missing": "allow" }));
    assert_eq!(statuses(&lax, &["of-u", "of-u"]).await, [200, 200]);
}

#[tokio::test]
async fn each_option_has_its_effect() {
    at(NOON);
    let limits = json!([{ "limit": 5, "per": "1h" }]);
    let costly = trial(json!({ "limits": limits, "cost": 2 }));
    assert_eq!(statuses(&costly, &["of-u"; 3]).await, [200, 200, 429]);
    let last = ask(&costly, "of-u").await;
    assert_eq!((last.field("ratelimit"), last.field("retry-after")), ("\"5-per-3600s\";r=1;t=1200", "1200"));
    let one = json!([{ "limit": 1, "per": "1h" }]);
    let quiet = trial(json!({ "limits": one, "headers": "none", "status_code": 402 }));
    assert_eq!(statuses(&quiet, &["of-u"; 2]).await, [200, 402]);
    let got = ask(&quiet, "of-u").await;
    assert_eq!((got.headers.get("ratelimit"), got.field("retry-after")), (None, "1200"));
    let old = ask(&trial(json!({ "limits": one, "headers": "x_ratelimit" })), "of-u").await;
    let fields =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| old.field(name));
    assert_eq!((fields, old.headers.get("ratelimit")), (["1", "0", "1200"], None));
    let both = ask(&trial(json!({ "limits": one, "headers": "both" })), "of-u").await;
    assert!(both.headers.contains_key("ratelimit-policy") && both.headers.contains_key("x-ratelimit-limit"));
    let world = Machine::default().world();
    let dry = trial_in("dry", json!({ "limits": one, "dry_run": true, "path": "/q" }), &world);
    assert_eq!(statuses(&dry, &["of-u"; 2]).await, [200, 200]);
    assert_eq!(dry.records()[1].fields[0].0, "quota.would_refuse");
    assert_eq!(metric(&world, REQUESTS.name, &["would_refuse"]), 1);
}

/// Runs the task that writes the file, as at the end of the plugin.
async fn save(world: &World, id: &str, config: &Value) {
    let owner = gateway_core::plugin::world::Owner { plugin: "quota", config: id.parse().unwrap() };
    let config = serde_json::from_value(config.clone()).unwrap();
    let plugin = Quota::build(config, &world.owned_by(owner)).unwrap();
    let (handle, control) = TaskControl::new();
    drop(handle);
    plugin.file.clone().unwrap().keep(plugin.table.clone(), control).await.unwrap();
}

#[tokio::test]
async fn what_was_used_survives_a_restart() {
    at(NOON);
    let machine = Machine::default();
    let config = json!({ "limits": [{ "limit": 2, "per": "day" }], "path": "/quotas" });
    let world = machine.world();
    let before = trial_in("q", config.clone(), &world);
    assert_eq!(statuses(&before, &["of-u"; 3]).await, [200, 200, 429]);
    save(&world, "q", &config).await;
    drop(before);
    let after = trial_in("q", config.clone(), &machine.world());
    assert_eq!(statuses(&after, &["of-u", "of-v"]).await, [429, 200]);
    let other = trial_in("other", config.clone(), &machine.world());
    assert_eq!(statuses(&other, &["of-u"]).await, [200], "another plugin config has a file of its own");
    at(NOON + DAY);
    assert_eq!(statuses(&trial_in("q", config, &machine.world()), &["of-u"]).await, [200]);
}

#[tokio::test]
async fn what_was_used_survives_a_change_of_settings() {
    at(NOON);
    let world = Machine::default().world();
    let config = |limit: u64, keys: u64| json!({ "limits": [{ "limit": limit, "per": "day" }], "path": "/q", "max_keys": keys });
    let before = trial_in("q", config(2, 10), &world);
    assert_eq!(statuses(&before, &["of-u"; 3]).await, [200, 200, 429]);
    let after = trial_in("q", config(3, 500), &world);
    drop(before);
    assert_eq!(
        statuses(&after, &["of-u"; 2]).await,
        [200, 429],
        "the limit is another one, what was used is not"
    );
}

#[tokio::test]
async fn the_file_is_written_now_and_then_and_failures_are_counted() {
    tokio::time::pause();
    at(NOON);
    let machine = Machine::default();
    let config = json!({ "limits": [{ "limit": 9, "per": "day" }], "path": "/q", "save_interval": "10s" });
    let world = machine.world();
    let owner = gateway_core::plugin::world::Owner { plugin: "quota", config: "q".parse().unwrap() };
    let plugin =
        Quota::build(serde_json::from_value(config.clone()).unwrap(), &world.owned_by(owner)).unwrap();
    let (_handle, control) = TaskControl::new();
    let writing = plugin.file.clone().unwrap().keep(plugin.table.clone(), control);
    let asking = async {
        let trial = trial_in("q", config, &world);
        ask(&trial, "of-u").await;
        machine.files.refuse(true);
    };
    let (failed, ()) = tokio::join!(writing, asking);
    assert!(failed.unwrap_err().to_string().contains("/q/q.quota"));
    assert_eq!(metric(&world, FAILED.name, &[]), 1);
    machine.files.refuse(false);
    let (_again, control) = TaskControl::new();
    let writing = plugin.file.clone().unwrap().keep(plugin.table.clone(), control);
    assert!(tokio::time::timeout(Duration::from_secs(11), writing).await.is_err());
    assert!(
        world.files().read("/q/q.quota".as_ref(), 1 << 20).is_ok(),
        "what could not be written is not lost"
    );
}

#[test]
fn a_damaged_file_is_refused() {
    let machine = Machine::default();
    machine.files.put("/q/.quota", "something else");
    let config = json!({ "limits": [{ "limit": 9, "per": "day" }], "path": "/q" });
    let Err(problems) = Quota::build(serde_json::from_value(config).unwrap(), &machine.world()) else {
        panic!("it is taken")
    };
    assert_eq!(problems.0[0].path, "config.path");
}

#[tokio::test]
async fn many_callers_share_a_fixed_table() {
    at(NOON);
    let world = Machine::default().world();
    let config = json!({ "limits": [{ "limit": 9, "per": "day" }], "path": "/q", "max_keys": 4, "limit_by": "header:x-k" });
    let trial = trial_in("q", config, &world);
    for n in 0..9 {
        assert_eq!(trial.get("/", &[("x-k", &n.to_string())]).await.status, 200);
    }
    assert_eq!(metric(&world, EVICTED.name, &[]), 1);
}

/// One gateway's side of shared quotas, running.
async fn gateway(port: u16) -> (SharedQuotas, gateway_core::plugin::world::tasks::TaskHandle) {
    let link = Arc::new(link(port));
    let (handle, control) = TaskControl::new();
    tokio::spawn(link.clone().run(control));
    link.becomes(true).await;
    let counter = Counter::default;
    (SharedQuotas { link, asked: counter(), local: counter(), allowed: counter(), denied: counter() }, handle)
}

#[tokio::test]
async fn gateways_share_quotas() {
    let redis = redis(&[]);
    let (one, _first) = gateway(redis.port).await;
    let (two, _second) = gateway(redis.port).await;
    let asks = [Ask { id: 1, end: 1060, limit: 50 }, Ask { id: 2, end: 2000, limit: 70 }];
    let asked = (0..200).map(|n| if n % 2 == 0 { &one } else { &two }.take(7, &asks, 1, 1000));
    let answers = futures_util::future::join_all(asked).await;
    let passed = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|(_, refused)| refused.is_none()));
    assert_eq!(passed.count(), 50);
    let refused = one.take(7, &asks, 1, 1000).await.unwrap();
    assert_eq!(refused, (vec![50, 50], Some(0)), "a refusal takes from none");
    let next = [Ask { end: 1120, ..asks[0] }, asks[1]];
    assert_eq!(two.take(7, &next, 1, 1061).await.unwrap(), (vec![1, 51], None), "the next period");
    assert_eq!(two.take(8, &asks, 1, 1000).await.unwrap(), (vec![1, 1], None), "another caller");
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("*quota:0000000000000002:*").query_async(&mut connection).await.unwrap();
    let left: i64 = redis::cmd("TTL").arg(&keys[0]).query_async(&mut connection).await.unwrap();
    assert!((900..=1060).contains(&left), "gone some time after its period: {left}");
}

#[tokio::test]
async fn without_the_shared_store_it_goes_as_configured() {
    at(NOON);
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    for (on_error, expected, outcome) in
        [("local", [200, 429], "local"), ("allow", [200, 200], "allowed"), ("deny", [503, 503], "denied")]
    {
        let world = World::default();
        let redis = json!({ "name": "main", "on_error": on_error });
        let config = json!({ "limits": [{ "limit": 1, "per": "day" }], "redis": redis });
        let trial = trial_in(&format!("q{}", NEXT.fetch_add(1, Relaxed)), config, &world);
        assert_eq!(statuses(&trial, &["of-u"; 2]).await, expected, "{on_error}");
        assert_eq!(metric(&world, SHARED.name, &[outcome]), 2);
    }
}

#[test]
fn bad_settings_are_refused() {
    let limits = json!([{ "limit": 1, "per": "day" }]);
    for (config, path) in [
        (json!({ "path": "/q" }), "config.limits"),
        (json!({ "limits": limits }), "config.path"),
        (json!({ "path": "/q", "limits": [{ "limit": 0, "per": "day" }] }), "config.limits[0].limit"),
        (json!({ "path": "/q", "limits": [{ "limit": 1, "per": "year" }] }), "config.limits[0].per"),
        (json!({ "path": "/q", "limits": [{ "limit": 1, "per": 0 }] }), "config.limits[0].per"),
        (
            json!({ "path": "/q", "limits": [{ "limit": 1, "per": "day" }, { "limit": 2, "per": "day" }] }),
            "config.limits[1]",
        ),
        (
            json!({ "path": "/q", "limits": [{ "limit": 1, "per": "day", "name": "a b" }] }),
            "config.limits[0].name",
        ),
        (json!({ "path": "/q", "limits": limits, "cost": 2 }), "config.limits[0].limit"),
        (json!({ "path": "/q", "limits": limits, "limit_by": "ip" }), "config.limit_by"),
        (json!({ "path": "/q", "limits": limits, "max_keys": 0 }), "config.max_keys"),
        (json!({ "path": "/q", "limits": limits, "status_code": 200 }), "config.status_code"),
        (json!({ "path": "/q", "limits": limits, "save_interval": "1ms" }), "config.save_interval"),
        (json!({ "limits": limits, "redis": {} }), "config.redis"),
    ] {
        let problems = Trial::refused(&[entry::<Quota>()], "quota", &config);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}
