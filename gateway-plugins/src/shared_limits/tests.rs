//! Limits that several gateways share, against Redis servers that each test starts for itself.

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::TaskHandle;
use serde_json::{Value, json};

use super::*;
use crate::redis_link::testing::{READY, folder, free_port, redis, redis_at, start};
use crate::redis_link::{MAX_LATE, MAX_QUEUED};
use crate::testing::Machine;

fn shared_in(config: Value, world: &World) -> Arc<SharedLimits> {
    let mut problems = Problems::default();
    let server = Server::read(serde_json::from_value(config).unwrap(), world, &mut problems);
    assert!(problems.is_empty(), "{problems}");
    Arc::new(SharedLimits::new(server, Gauge::default(), Instant::now()))
}

/// One gateway's side, running.
async fn gateway(config: Value) -> (Arc<SharedLimits>, TaskHandle) {
    let shared = shared_in(config, &World::default());
    let (handle, control) = TaskControl::new();
    tokio::spawn(shared.clone().run(control));
    shared.becomes(true).await;
    (shared, handle)
}

fn at(port: u16) -> Value {
    json!({ "urls": [format!("redis://127.0.0.1:{port}")], "timeout": "10s" })
}

fn rule(rate: u64, per: u64, burst: u64) -> Rule {
    Rule::new(rate, Duration::from_secs(per), burst).unwrap()
}

const TAKE: (Mode, u64) = (Mode::Take, 1);

#[tokio::test]
async fn gateways_share_what_is_allowed() {
    let redis = redis(&[]);
    let (one, _first) = gateway(at(redis.port)).await;
    let (two, _second) = gateway(at(redis.port)).await;
    let rules = [rule(1, 86_400, 50)];
    let asked = (0..200).map(|n| if n % 2 == 0 { &one } else { &two }.ask(7, &rules, TAKE));
    let answers = futures_util::future::join_all(asked).await;
    let passed = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.refused.is_none())).count();
    assert_eq!(passed, 50);
    assert!(one.ask(8, &rules, TAKE).await.unwrap().refused.is_none(), "another key has its own");
}

#[tokio::test]
async fn all_limits_or_none_by_the_clock_of_the_server() {
    let redis = redis(&[]);
    let (shared, _task) = gateway(at(redis.port)).await;
    let rules = [rule(1, 3600, 10), rule(1, 3600, 2)];
    for _ in 0..2 {
        assert_eq!(shared.ask(1, &rules, TAKE).await.unwrap().refused, None);
    }
    let refused = shared.ask(1, &rules, TAKE).await.unwrap();
    assert_eq!(refused.refused, Some(1));
    let hours = |owed: Duration| owed.as_secs_f64() / 3600.0;
    assert!(refused.owed.iter().all(|owed| (1.9..=2.0).contains(&hours(*owed))), "{refused:?}");
    let looked = shared.ask(1, &rules[..1], (Mode::Look, 8)).await.unwrap();
    assert_eq!(looked.refused, None, "looking takes nothing");
    assert_eq!(shared.ask(1, &rules[..1], (Mode::Look, 9)).await.unwrap().refused, Some(0));
    for _ in 0..5 {
        shared.ask(2, &rules, (Mode::Charge, 4)).await.unwrap();
    }
    let charged = shared.ask(2, &rules, (Mode::Look, 1)).await.unwrap();
    assert_eq!(charged.refused, Some(0));
    assert!(
        hours(charged.owed[0]) <= 10.0 && hours(charged.owed[1]) <= 2.0,
        "never more than a burst: {charged:?}"
    );
    // A millisecond's worth comes back while the next round trips are made.
    let fast = [rule(1_000_000, 1, 1)];
    assert!(shared.ask(3, &fast, TAKE).await.unwrap().refused.is_none());
    while shared.ask(3, &fast, TAKE).await.unwrap().refused.is_some() {}
}

#[tokio::test]
async fn a_lost_server_is_noticed_and_found_again() {
    let redis = redis(&[]);
    let port = redis.port;
    let shared = shared_in(at(port), &World::default());
    let (_handle, control) = TaskControl::new();
    let first = tokio::spawn(shared.clone().run(control.clone()));
    shared.becomes(true).await;
    assert!(shared.is_up());
    drop(redis);
    // The loss shows with the next question.
    assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await, Err(Away));
    shared.becomes(false).await;
    assert!(first.await.unwrap().is_err(), "the task says why, and is started again");
    assert!(shared.clone().run(control.clone()).await.is_err(), "nobody listens");
    let _again = redis_at(port, &[]);
    let second = tokio::spawn(shared.clone().run(control));
    shared.becomes(true).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await.is_ok());
    drop(_handle);
    assert_eq!(second.await.unwrap(), Ok(()), "it ends with the plugin");
}

#[tokio::test]
async fn late_answers_open_the_breaker() {
    // Connected as far as anybody knows, and nobody serves the queue.
    let mut config = at(1);
    config["timeout"] = json!(1);
    let shared = shared_in(config, &World::default());
    shared.set_up(true);
    for n in 1..=MAX_LATE {
        assert!(shared.is_up(), "{n}");
        assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await, Err(Away));
    }
    assert!(!shared.is_up());
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let shared = shared_in(at(1), &World::default());
    shared.set_up(true);
    let told = (0..MAX_QUEUED + 10).filter(|_| shared.tell(1, &[rule(1, 1, 1)], TAKE)).count();
    assert_eq!(told, MAX_QUEUED);
    assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await, Err(Away));
}

#[tokio::test]
async fn passwords_and_databases() {
    let redis = redis(&["--requirepass", "open sesame"]);
    let mut config = at(redis.port);
    config["password"] = "open sesame".into();
    config["database"] = json!(3);
    let (shared, _task) = gateway(config.clone()).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await.is_ok());
    config["password"] = "wrong".into();
    let (_handle, control) = TaskControl::new();
    let refused = shared_in(config, &World::default()).run(control).await.unwrap_err();
    assert!(!refused.contains("wrong"), "{refused}");
}

#[tokio::test]
async fn servers_over_tls_are_judged_by_their_roots() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let files = folder();
    let [cert, private] = ["cert.pem", "key.pem"].map(|name| files.join(name).display().to_string());
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&private, key.serialize_pem()).unwrap();
    let port = free_port().to_string();
    let place = folder();
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &port,
        "--bind",
        "127.0.0.1",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &private,
        "--tls-ca-cert-file",
        &cert,
        "--tls-auth-clients",
        "no",
        "--save",
        "",
        "--dir",
        &place.display().to_string(),
    ]
    .map(str::to_owned);
    let redis = start(place, port.parse().unwrap(), &arguments, READY);
    let machine = Machine::default();
    machine.files.put("ca.pem", &certificate.pem());
    let url = format!("rediss://127.0.0.1:{}", redis.port);
    let trusting = json!({ "urls": [&url], "ca_path": "ca.pem", "timeout": "10s" });
    let shared = shared_in(trusting, &machine.world());
    let (_handle, control) = TaskControl::new();
    tokio::spawn(shared.clone().run(control));
    shared.becomes(true).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await.is_ok());
    let (_other, control) = TaskControl::new();
    let distrusting = shared_in(json!({ "urls": [&url] }), &World::default());
    assert!(distrusting.run(control).await.is_err(), "a certificate that nobody vouches for");
    drop(std::fs::remove_dir_all(files));
}

#[tokio::test]
async fn clusters() {
    let bus = free_port().to_string();
    let redis =
        redis(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "1000"]);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let slots: Vec<u16> = (0..16_384).collect();
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(&slots).exec_async(&mut connection).await.unwrap();
    loop {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.unwrap();
        if info.contains("cluster_state:ok") {
            break;
        }
    }
    let mut config = at(redis.port);
    config["mode"] = "cluster".into();
    let (shared, _task) = gateway(config).await;
    for key in 0..50 {
        let both = [rule(1, 3600, 1), rule(1, 60, 1)];
        assert_eq!(shared.ask(key << 50, &both, TAKE).await.unwrap().refused, None, "{key}");
        assert_eq!(shared.ask(key << 50, &both, TAKE).await.unwrap().refused, Some(0));
    }
}

#[tokio::test]
async fn sentinels_know_the_master() {
    let master = redis(&[]);
    let (place, port) = (folder(), free_port());
    let file = place.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {} 1\n",
        place.display(),
        master.port
    );
    std::fs::write(&file, text).unwrap();
    let arguments = [file.display().to_string(), "--sentinel".to_owned()];
    let sentinel = start(place, port, &arguments, "+monitor master m");
    let mut config = at(sentinel.port);
    config["mode"] = "sentinel".into();
    config["master_name"] = "m".into();
    let (shared, _task) = gateway(config.clone()).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE).await.is_ok());
    config["master_name"] = "other".into();
    let (_handle, control) = TaskControl::new();
    assert!(shared_in(config, &World::default()).run(control).await.is_err(), "an unknown master");
}

#[test]
fn keys_are_the_same_on_every_gateway() {
    let shared = shared_in(at(1), &World::default());
    let mut hasher = shared.hasher();
    hasher.write(b"a caller");
    assert_eq!(hasher.finish(), 0x6bff_477c_7050_245f, "gateways of another version count with this one");
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "urls": ["http://a"] }), "config.redis.urls[0]"),
        (json!({ "urls": ["redis://user:secret@a"] }), "config.redis.urls[0]"),
        (json!({ "urls": ["redis://a/3"] }), "config.redis.urls[0]"),
        (json!({ "urls": ["redis://a", "redis://b"] }), "config.redis.urls"),
        (json!({ "urls": ["redis://a", "rediss://b"], "mode": "cluster" }), "config.redis.urls"),
        (json!({ "urls": ["redis://a"], "mode": "cluster", "database": 1 }), "config.redis.database"),
        (json!({ "urls": ["redis://a"], "mode": "sentinel" }), "config.redis.master_name"),
        (json!({ "urls": ["redis://a"], "master_name": "m" }), "config.redis.master_name"),
        (json!({ "urls": ["redis://a"], "username": "u" }), "config.redis.username"),
        (json!({ "urls": ["redis://a"], "ca_path": "ca.pem" }), "config.redis.ca_path"),
        (json!({ "urls": ["rediss://a"], "ca_path": "none.pem" }), "config.redis.ca_path"),
        (json!({ "urls": ["redis://a"], "key_prefix": "a {b}" }), "config.redis.key_prefix"),
    ] {
        let mut problems = Problems::default();
        Server::read(serde_json::from_value(config.clone()).unwrap(), &World::default(), &mut problems);
        assert_eq!(problems.0[0].path, path, "{config}");
        assert!(!problems.to_string().contains("secret"));
    }
}
