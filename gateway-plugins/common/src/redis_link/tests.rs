//! Clusters, Sentinel and servers that are slow or dead, against what each test starts for itself.

use std::process::Command as Process;
use std::sync::LazyLock;
use std::time::Duration;

use gateway_core::plugin::world::tasks::TaskHandle;
use redis::Script;
use serde_json::json;
use tokio::time::Instant;

use super::testing::{Redis, at, folder, free_port, main_connection, redis, servers, start};
use super::*;
use crate::testing::{metric, until_async};

mod hostile;

/// Counts.
static COUNT: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('INCR', KEYS[1])"));

async fn count(link: &RedisLink, key: &str) -> Result<i64, Away> {
    let counted = link.ask(Command::new(&COUNT, vec![key.to_owned()])).await?;
    redis::from_redis_value(counted).map_err(|_| Away)
}

/// A plugin's side of this connection, running.
fn running(settings: &serde_json::Value) -> (Arc<RedisLink>, World, TaskHandle) {
    let world = World::default();
    world.use_redis(Some(&servers(settings)));
    let link = Arc::new(RedisLink::new(&main_connection(), &world));
    let (handle, control) = TaskControl::new();
    tokio::spawn(link.clone().run(control));
    (link, world, handle)
}

async fn asked(port: u16, words: &[&str]) -> redis::RedisResult<Value> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let (name, arguments) = words.split_first().unwrap();
    redis::cmd(name).arg(arguments).query_async(&mut connection).await
}

async fn cluster() -> Vec<Redis> {
    let nodes: Vec<Redis> = (0..3)
        .map(|_| {
            let bus = free_port().to_string();
            redis(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1000",
                "--cluster-require-full-coverage",
                "no",
            ])
        })
        .collect();
    let mut create = Process::new("redis-cli");
    create.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
    let created = create.arg("--cluster-yes").output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    // Each node has to hear from the others that the slots are taken.
    for node in &nodes {
        until_async("the cluster is whole", async || match asked(node.port, &["CLUSTER", "INFO"]).await {
            Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).contains("cluster_state:ok"),
            Ok(Value::VerbatimString { text, .. }) => text.contains("cluster_state:ok"),
            _ => false,
        })
        .await;
    }
    nodes
}

#[tokio::test]
async fn a_cluster_is_asked_at_the_node_that_has_the_key() {
    let nodes = cluster().await;
    let mut settings = at(nodes[2].port);
    settings["mode"] = "cluster".into();
    let (link, _world, _task) = running(&settings);
    link.becomes(true).await;
    for round in 1..=2 {
        for n in 0..50 {
            assert_eq!(count(&link, &format!("k{n}")).await, Ok(round), "{n}");
        }
    }
    for node in &nodes {
        let size = asked(node.port, &["DBSIZE"]).await.unwrap();
        assert!(matches!(size, Value::Int(keys) if keys > 0), "every node has some");
    }
}

/// The other nodes' keys are asked for as if nothing were.
#[tokio::test]
async fn a_node_of_a_cluster_that_is_away_is_not_the_others_business() {
    let mut nodes = cluster().await;
    let mut settings = at(nodes[0].port);
    settings["mode"] = "cluster".into();
    let (link, world, _task) = running(&settings);
    link.becomes(true).await;
    for n in 0..60 {
        assert_eq!(count(&link, &format!("k{n}")).await, Ok(1), "{n}");
    }
    let dead = nodes.pop().unwrap();
    let gone: Vec<String> = redis::from_redis_value(asked(dead.port, &["KEYS", "*"]).await.unwrap()).unwrap();
    assert!(!gone.is_empty() && gone.len() < 60);
    drop(dead);
    for n in (0..60).map(|n| format!("k{n}")).filter(|key| !gone.contains(key)) {
        let (lost, found) = tokio::join!(count(&link, &gone[0]), count(&link, &n));
        assert_eq!((lost, found), (Err(Away), Ok(2)), "{n}");
        assert_eq!(metric(&world, "ferrum_redis_up", &["main"]), 1);
    }
}

/// A sentinel that watches this master, and has seen so many replicas of it.
async fn sentinel(master: u16, replicas: usize) -> Redis {
    let (place, port) = (folder(), free_port());
    let file = place.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds m 300\nsentinel failover-timeout m 2000\n",
        place.display(),
    );
    std::fs::write(&file, text).unwrap();
    let arguments = [file.display().to_string(), "--sentinel".to_owned()];
    let sentinel = start(place, port, &arguments, "+monitor master m");
    loop {
        let seen = asked(port, &["SENTINEL", "REPLICAS", "m"]).await.unwrap();
        if matches!(seen, Value::Array(seen) if seen.len() >= replicas) {
            return sentinel;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sentinels_say_who_the_master_is_also_after_it_died() {
    let master = redis(&[]);
    let port = master.port.to_string();
    let replica = redis(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = sentinel(master.port, 1).await;
    let mut settings = at(sentinel.port);
    settings["mode"] = "sentinel".into();
    settings["master_name"] = "m".into();
    let (link, _world, _task) = running(&settings);
    link.becomes(true).await;
    assert_eq!(count(&link, "k").await, Ok(1));
    assert_eq!(asked(master.port, &["GET", "k"]).await.unwrap(), Value::BulkString(b"1".to_vec()));
    drop(master);
    // Decided without it meanwhile, and counted again by the one that took its place.
    let since = Instant::now();
    while count(&link, "after").await.is_err() {
        assert!(since.elapsed() < Duration::from_secs(30), "no failover");
        tokio::task::yield_now().await;
    }
    let counted = asked(replica.port, &["GET", "after"]).await.unwrap();
    assert!(matches!(counted, Value::BulkString(_)), "{counted:?}");
    settings["master_name"] = "other".into();
    let (other, _world, _task) = running(&settings);
    let up = tokio::time::timeout(Duration::from_millis(500), other.becomes(true)).await;
    assert!(up.is_err(), "an unknown master");
}

#[tokio::test]
async fn a_slow_server_costs_five_waits_and_then_none() {
    let redis = redis(&[]);
    let mut settings = at(redis.port);
    settings["timeout"] = json!("50ms");
    let (link, world, _task) = running(&settings);
    link.becomes(true).await;
    assert_eq!(count(&link, "k").await, Ok(1));
    redis.freeze(true);
    for _ in 0..MAX_LATE {
        assert!(link.is_up());
        let since = Instant::now();
        assert_eq!(count(&link, "k").await, Err(Away));
        assert!(since.elapsed() < Duration::from_secs(2), "no longer than it may");
    }
    assert!(!link.is_up(), "the breaker is open");
    assert_eq!(metric(&world, "ferrum_redis_breaker_opened_total", &[]), 1);
    redis.freeze(false);
    while count(&link, "k").await.is_err() || !link.is_up() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_dead_server_is_not_waited_for() {
    let (link, world, _task) = running(&at(free_port()));
    assert!(!link.is_up());
    assert!(!link.tell(Command::new(&COUNT, vec!["k".into()])));
    assert_eq!(metric(&world, "ferrum_redis_up", &["main"]), 0);
}

#[tokio::test]
async fn a_server_without_memory_is_kept() {
    let redis = redis(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let (link, world, _task) = running(&at(redis.port));
    link.becomes(true).await;
    assert_eq!(metric(&world, "ferrum_redis_up", &["main"]), 1);
    assert_eq!(count(&link, "k").await, Err(Away));
    assert!(link.is_up(), "it answers");
    let shows = async |up: i64| {
        until_async("the metric shows it", async || metric(&world, "ferrum_redis_up", &["main"]) == up).await;
    };
    shows(0).await;
    asked(redis.port, &["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(count(&link, "k").await, Ok(1));
    shows(1).await;
}
