//! Responses that gateways share, against a Redis that the test starts.

use super::disk::beside;
use super::*;
use gateway_plugin_common::redis_link::testing::{Redis, at, redis, redis_at, servers};
use gateway_plugin_common::testing::{metric, until, until_async};

const LOOKUPS: &str = "ferrum_response_cache_tier_lookups_total";
const WRITES: &str = "ferrum_response_cache_tier_writes_total";
const FRESH: &[(&str, &str)] =
    &[("cache-control", "max-age=600"), ("vary", "accept-language"), ("cache-tag", "t")];

struct Side {
    trial: Trial,
    world: World,
}

/// A gateway of this name, whose target's answers have the name in them.
async fn side(redis: &Redis, name: &'static str, more: Value) -> Side {
    let world = World::default();
    world.use_redis(Some(&servers(&at(redis.port))));
    let mut config = json!({ "redis": { "name": "main", "max_object": 50_000 } });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    let trial = beside(&world, &config, move |asked, n| {
        let mut response = Response::builder();
        if asked.path.starts_with("/probe") {
            response = response.header("cache-control", "no-store");
        }
        for (name, value) in FRESH.iter().filter(|_| !asked.path.starts_with("/probe")) {
            response = response.header(*name, *value);
        }
        let text = if asked.path == "/big" { "x".repeat(50_001) } else { format!("{name} {n}") };
        response.body(text.into_bytes().into_body()).unwrap()
    });
    let side = Side { trial, world };
    side.is_up().await;
    side
}

impl Side {
    /// Waits until Redis is asked.
    async fn is_up(&self) {
        let misses = || metric(&self.world, LOOKUPS, &["redis", "miss"]);
        let before = misses();
        until_async("Redis is asked", async || {
            self.trial.get(&format!("/probe/{}", fastrand::u64(..)), &[]).await;
            misses() > before
        })
        .await;
    }

    async fn writes(&self, outcome: &str, count: i64) {
        until(outcome, || metric(&self.world, WRITES, &["redis", outcome]) >= count).await;
    }

    fn written(&self) -> i64 {
        metric(&self.world, WRITES, &["redis", "written"])
    }

    /// Has a response stored for all.
    async fn store(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let before = self.written();
        let text = self.trial.get(path, fields).await.text();
        self.writes("written", before + 1).await;
        text
    }
}

#[tokio::test]
async fn one_gateway_answers_with_what_another_fetched() {
    let redis = redis(&[]);
    let one = side(&redis, "one", json!({})).await;
    let two = side(&redis, "two", json!({})).await;
    let text = one.store("/a", &[]).await;
    let german = one.store("/a", &[("accept-language", "de")]).await;
    let got = two.trial.get("/a", &[]).await;
    assert_eq!(got.text(), text);
    assert!(
        status(&got).contains("; hit; ttl=") && status(&got).ends_with("; detail=redis"),
        "{}",
        status(&got)
    );
    assert_eq!(two.trial.get("/a", &[("accept-language", "de")]).await.text(), german);
    let french = two.trial.get("/a", &[("accept-language", "fr")]).await.text();
    assert!(french.starts_with("two "), "{french}");
    assert!(status(&two.trial.get("/a", &[]).await).ends_with("; detail=memory"));
    // What is too large stays with the gateway that fetched it.
    one.trial.get("/big", &[]).await;
    assert!(!status(&two.trial.get("/big", &[]).await).contains("hit"));
}

#[tokio::test]
async fn purges_and_invalidations_reach_redis_and_the_other_gateways() {
    let redis = redis(&[]);
    let one = side(&redis, "one", json!({})).await;
    let two = side(&redis, "two", json!({})).await;
    let asks = async |side: &Side, path: &str| {
        side.trial.get(path, &[("cache-control", "only-if-cached")]).await.status
    };
    for (path, purge) in [
        ("/url", json!({ "url": "http://client.test/url" })),
        ("/prefix", json!({ "prefix": "http://client.test/pre" })),
        ("/tag", json!({ "tag": "t" })),
        ("/all", json!({ "all": true })),
    ] {
        one.store(path, &[]).await;
        assert_eq!(asks(&two, path).await, 200, "{path}");
        one.trial.act("response_cache", "purge", &purge).unwrap();
        assert_eq!(asks(&one, path).await, 504, "{path}");
        // The other one hears of it within a second.
        until_async(path, async || asks(&two, path).await == 504).await;
        one.store(path, &[]).await;
        let third = side(&redis, "three", json!({})).await;
        assert_eq!(asks(&third, path).await, 200, "{path}: what is stored after it is used");
    }
    one.store("/post", &[]).await;
    one.trial.request("POST", "/post", &[], "").await;
    let third = side(&redis, "three", json!({})).await;
    assert_eq!(asks(&third, "/post").await, 504);
}

#[tokio::test]
async fn an_evicted_invalidation_brings_nothing_back() {
    let redis = redis(&[]);
    let one = side(&redis, "one", json!({})).await;
    one.store("/post", &[]).await;
    one.trial.request("POST", "/post", &[], "").await;
    let two = side(&redis, "two", json!({})).await;
    let only_stored = [("cache-control", "only-if-cached")];
    assert_eq!(two.trial.get("/post", &only_stored).await.status, 504);
    // What Redis does when it is full: the states of places go, the responses stay.
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        ::redis::cmd("KEYS").arg("*:cache:{*}").query_async(&mut connection).await.unwrap();
    assert!(!keys.is_empty());
    let gone: usize = ::redis::cmd("DEL").arg(&keys).query_async(&mut connection).await.unwrap();
    assert_eq!(gone, keys.len());
    let third = side(&redis, "three", json!({})).await;
    assert_eq!(third.trial.get("/post", &only_stored).await.status, 504);
    // It goes on with what is fetched then.
    let text = one.store("/post", &[]).await;
    assert_eq!(third.trial.get("/post", &only_stored).await.text(), text);
}

#[tokio::test]
async fn without_redis_requests_go_on_and_no_purge_is_lost() {
    let redis = redis(&[]);
    let one = side(&redis, "one", json!({})).await;
    one.store("/a", &[]).await;
    redis.freeze(true);
    // Nobody waits for long, and what is in memory is served.
    assert!(status(&one.trial.get("/a", &[]).await).ends_with("; detail=memory"));
    one.trial.act("response_cache", "purge", &json!({ "url": "http://client.test/a" })).unwrap();
    let got = one.trial.get("/a", &[]).await;
    assert_eq!((got.status, status(&got)), (200, "ferrum-edge; fwd=uri-miss; stored"));
    assert!(metric(&one.world, LOOKUPS, &["redis", "away"]) > 0);
    let fetched = got.text();
    redis.freeze(false);
    let two = side(&redis, "two", json!({})).await;
    until_async("what was purged is served no more", async || {
        let got = two.trial.get("/a", &[("cache-control", "only-if-cached")]).await;
        got.status == 504 || got.text() == fetched
    })
    .await;
    let port = redis.port;
    drop(redis);
    assert_eq!(one.trial.get("/b", &[]).await.status, 200);
    // Another server has another history: nothing of the one before counts.
    let again = redis_at(port, &[]);
    one.is_up().await;
    let three = side(&again, "three", json!({})).await;
    let mut n = 0;
    // It hears of the other history within a second.
    until_async("what one stores is found by three", async || {
        n += 1;
        // Each is stored once, and looked for while it is written.
        let path = format!("/c{}", n / 20);
        one.trial.get(&path, &[]).await;
        three.trial.get(&path, &[("cache-control", "only-if-cached")]).await.status == 200
    })
    .await;
}
