//! Rates of streams, bodies and callers, and how changes affect open sessions.

use std::time::Duration;

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::Beside;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn spec(config: &Value) -> String {
    json!({
        "proxies": [
            { "id": "tcp", "listen_port": 7000, "backend_scheme": "tcp", "backend_host": "t.test", "backend_port": 1 },
            { "id": "http", "listen_path": "/", "backend_scheme": "http", "backend_host": "t.test", "backend_port": 80 },
        ],
        "plugin_configs": [
            { "id": "caps", "plugin_name": "bandwidth_limit", "scope": "global", "config": config },
        ],
    })
    .to_string()
}

fn trial(config: &Value, world: &World) -> Trial {
    let trial = Trial::of_spec(&[entry::<BandwidthLimit>()], &spec(config), world);
    trial.start(&Beside);
    trial
}

/// Bytes that a target got in so long, of a client that sends as fast as it can.
async fn received(trial: &Trial, connections: usize, time: Duration) -> Vec<u64> {
    received_by(trial, "tcp", connections, time).await
}

async fn received_by(trial: &Trial, proxy: &str, connections: usize, time: Duration) -> Vec<u64> {
    let until = Instant::now() + time;
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let stream = trial.stream(proxy);
            tokio::spawn(async move {
                let (mut client, mut target) = (stream.client, stream.target);
                let sending = async { while client.write_all(&[7; 8192]).await.is_ok() {} };
                let reading = async {
                    let (mut bytes, mut buffer) = (0, vec![0; 65_536]);
                    while let Ok(Ok(length @ 1..)) =
                        tokio::time::timeout_at(until, target.read(&mut buffer)).await
                    {
                        bytes += length as u64;
                    }
                    bytes
                };
                tokio::select! {
                    () = sending => 0,
                    () = stream.serving => 0,
                    bytes = reading => bytes,
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_proxy_share_a_rate_evenly() {
    let trial = trial(&json!({ "upload": "1MB" }), &World::default());
    for connections in [1, 10] {
        let shares = received(&trial, connections, 10 * SECOND).await;
        let all: u64 = shares.iter().sum();
        assert!(all.abs_diff(10_000_000) <= 100_000, "{all}");
        let even = all / connections as u64;
        assert!(shares.iter().all(|share| share.abs_diff(even) <= even / 10), "{shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_envelope_of_an_owner_binds_its_proxies_together() {
    let proxy = |id: &str, port: u16, owner: &str| json!({ "id": id, "owner": owner, "listen_port": port, "backend_scheme": "tcp", "backend_host": "t.test", "backend_port": 1 });
    let spec = json!({
        "proxies": [proxy("a", 7000, "ann"), proxy("b", 7001, "ann"), proxy("c", 7002, "bob")],
        "consumers": [{ "id": "ann", "username": "ann" }, { "id": "bob", "username": "bob" }],
        "plugin_configs": [
            { "id": "anns", "plugin_name": "bandwidth_limit", "scope": "owner", "owner": "ann",
              "config": { "limit_by": "owner", "upload": "1MB" } },
            { "id": "of-a", "plugin_name": "bandwidth_limit", "proxy_id": "a", "config": { "upload": "300kB" } },
        ],
    });
    let trial = Trial::of_spec(&[entry::<BandwidthLimit>()], &spec.to_string(), &World::default());
    trial.start(&Beside);
    let (a, b) =
        tokio::join!(received_by(&trial, "a", 1, 10 * SECOND), received_by(&trial, "b", 1, 10 * SECOND));
    let (a, b) = (a[0], b[0]);
    assert!((a + b).abs_diff(10_000_000) <= 100_000, "the envelope: {a} + {b}");
    assert!(a <= 3_030_000, "the rule of a proxy holds within it: {a}");
    let mut stream = trial.stream("c");
    let serving = tokio::spawn(stream.serving);
    stream.client.write_all(&[7; 4096]).await.unwrap();
    stream.target.read_exact(&mut [0; 4096]).await.unwrap();
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_change_applies_to_running_streams() {
    let world = World::default();
    let slow = trial(&json!({ "upload": "100kB" }), &world);
    let stream = slow.stream("tcp");
    let serving = tokio::spawn(stream.serving);
    let (mut client, mut target) = (stream.client, stream.target);
    let sending = tokio::spawn(async move { while client.write_all(&[7; 8192]).await.is_ok() {} });
    let mut got = async |time: Duration| {
        let (until, mut bytes, mut buffer) = (Instant::now() + time, 0_u64, vec![0; 65_536]);
        while let Ok(Ok(length)) = tokio::time::timeout_at(until, target.read(&mut buffer)).await {
            bytes += length as u64;
        }
        bytes
    };
    let first = got(10 * SECOND).await;
    assert!(first.abs_diff(1_000_000) <= 10_000, "{first}");
    let _fast = trial(&json!({ "upload": "2MB" }), &world);
    let second = got(10 * SECOND).await;
    // The reservation under way is given up within 200 ms.
    assert!(second.abs_diff(20_000_000) <= 500_000, "{second}");
    sending.abort();
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn bodies_take_their_time() {
    let trial = trial(&json!({ "upload": "100kB", "download": "1MB" }), &World::default())
        .answering(|_| Response::new(Body::full(vec![0; 2_000_000])));
    let begun = Instant::now();
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.body.len()), (200, 2_000_000));
    let took = begun.elapsed();
    assert!((Duration::from_millis(1900)..=2 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test]
async fn nothing_and_bursts_out_of_bounds_are_refused() {
    for (config, message) in [
        (json!({}), "nothing is limited"),
        (json!({ "upload": "1MB", "upload_burst": 1 }), "is out of range"),
        (json!({ "upload": "1MB", "download_burst": "1MB" }), "no burst without `download`"),
        (json!({ "upload": "1MB", "on_missing": "deny" }), "has no effect"),
    ] {
        let refused = Trial::try_of_spec(&[entry::<BandwidthLimit>()], &spec(&config), &World::default());
        let problems = refused.err().expect("a problem").to_string();
        assert!(problems.contains(message), "{problems}");
    }
}
