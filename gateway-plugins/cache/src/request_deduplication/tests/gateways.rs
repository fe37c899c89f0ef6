//! Keys that several gateways share, against a Redis that the test starts.

use futures_util::FutureExt as _;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHandle};
use gateway_plugin_common::redis_link::testing::{at, link, main_connection, redis, servers};
use gateway_plugin_common::testing::until_async;

use super::*;
use crate::request_deduplication::shared::SharedClaim;

/// One gateway's side, running.
async fn gateway(port: u16) -> (Arc<SharedKeys>, TaskHandle) {
    let shared = Arc::new(SharedKeys::new(link(port)));
    let (handle, control) = TaskControl::new();
    tokio::spawn(shared.link.clone().run(control));
    shared.link.becomes(true).await;
    (shared, handle)
}

const HOUR: Duration = Duration::from_secs(3600);

async fn claim(shared: &Arc<SharedKeys>, key: u8, print: u8, within: Duration, retries: bool) -> SharedClaim {
    shared.claim([key; 32], [print; 32], within, HOUR, retries).await.unwrap_or_else(|_| panic!("no answer"))
}

async fn first(shared: &Arc<SharedKeys>, key: u8) -> shared::Claim {
    match claim(shared, key, 0, HOUR, false).await {
        SharedClaim::First(claim) => claim,
        _ => panic!("it is not the first"),
    }
}

fn saved() -> Saved {
    let mut headers = HeaderMap::new();
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_bytes(b"\xff").unwrap());
    headers.insert("content-length", HeaderValue::from_static("9"));
    Saved::new(StatusCode::CREATED, headers.clone(), Bytes::from_static(b"\x00body"), Some(headers))
}

#[tokio::test]
async fn gateways_give_each_others_answers() {
    let redis = redis(&[]);
    let (one, _first) = gateway(redis.port).await;
    let (two, _second) = gateway(redis.port).await;
    let mine = first(&one, 1).await;
    assert!(matches!(claim(&two, 1, 0, HOUR, true).await, SharedClaim::Pending));
    assert!(matches!(claim(&two, 1, 9, HOUR, true).await, SharedClaim::Held(KeyStatus::Other)));
    mine.settle(&RequestOutcome::Answered(Arc::new(saved())));
    let answered = loop {
        match claim(&two, 1, 0, HOUR, false).await {
            SharedClaim::Held(KeyStatus::Answered(answered)) => break answered,
            SharedClaim::Pending => {}
            _ => panic!("neither under way nor answered"),
        }
    };
    assert_eq!(*answered, saved());
    assert!(matches!(claim(&two, 1, 9, HOUR, false).await, SharedClaim::Held(KeyStatus::Other)));
}

#[tokio::test]
async fn every_outcome_is_known_to_all() {
    let redis = redis(&[]);
    let (one, _task) = gateway(redis.port).await;
    let settled = |key, outcome: RequestOutcome| {
        let one = one.clone();
        async move {
            first(&one, key).await.settle(&outcome);
            while matches!(claim(&one, key, 9, HOUR, false).await, SharedClaim::Pending) {}
            loop {
                let found = claim(&one, key, 0, HOUR, false).await;
                if !matches!(found, SharedClaim::Pending) {
                    return found;
                }
            }
        }
    };
    assert!(matches!(settled(1, RequestOutcome::Unknown).await, SharedClaim::Held(KeyStatus::Unknown)));
    assert!(matches!(settled(2, RequestOutcome::Spent).await, SharedClaim::Held(KeyStatus::Spent)));
    assert!(matches!(claim(&one, 1, 0, HOUR, true).await, SharedClaim::First(_)), "it is tried again");
    first(&one, 3).await.settle(&RequestOutcome::Free);
    while !matches!(claim(&one, 3, 0, HOUR, false).await, SharedClaim::First(_)) {}
}

#[tokio::test]
async fn a_gateway_that_is_gone_leaves_the_outcome_open() {
    let redis = redis(&[]);
    let (one, _task) = gateway(redis.port).await;
    drop(first(&one, 1).await);
    assert!(matches!(claim(&one, 1, 0, HOUR, false).await, SharedClaim::Pending), "nobody knows yet");
    // As if the time for the request and more had passed.
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let value: Vec<u8> = redis::cmd("GET").arg(&keys[0]).query_async(&mut connection).await.unwrap();
    let past = [&value[..49], b"1000000"].concat();
    redis::cmd("SET").arg(&keys[0]).arg(past).exec_async(&mut connection).await.unwrap();
    assert!(matches!(claim(&one, 1, 0, HOUR, false).await, SharedClaim::Held(KeyStatus::Unknown)));
    let SharedClaim::First(again) = claim(&one, 1, 0, HOUR, true).await else { panic!("it is tried again") };
    again.settle(&RequestOutcome::Answered(Arc::new(saved())));
    while !matches!(claim(&one, 1, 0, HOUR, false).await, SharedClaim::Held(KeyStatus::Answered(_))) {}
    let ttl: i64 = redis::cmd("PTTL").arg(&keys[0]).query_async(&mut connection).await.unwrap();
    assert!((3_000_000..=3_600_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn without_the_store_it_goes_as_configured() {
    for (on_error, outcome, expected) in
        [("local", "local", [201, 201]), ("allow", "allowed", [201, 201]), ("deny", "denied", [503, 503])]
    {
        let world = World::default();
        let redis = json!({ "name": "main", "on_error": on_error });
        let trial = trial_in(json!({ "redis": redis }), &world);
        let got = [post(&trial, "/", "k", "").await, post(&trial, "/", "k", "").await];
        assert_eq!(got.each_ref().map(|got| got.status), expected, "{on_error}");
        assert_eq!(got[1].field("idempotent-replayed") == "true", on_error == "local");
        assert_eq!(metric(&world, SHARED.name, &[outcome]), 2);
    }
}

/// A gateway that waits for the store no longer than a moment, and the world it is in.
async fn hasty(port: u16) -> (Arc<SharedKeys>, World, TaskHandle) {
    let mut settings = at(port);
    settings["timeout"] = json!("50ms");
    let world = World::default();
    world.use_redis(Some(&servers(&settings)));
    let shared = Arc::new(SharedKeys::new(RedisLink::new(&main_connection(), &world)));
    let (handle, control) = TaskControl::new();
    tokio::spawn(shared.link.clone().run(control));
    shared.link.becomes(true).await;
    (shared, world, handle)
}

/// The store carries it out after all: the key must not stay taken by a request that was never sent.
#[tokio::test]
async fn claims_that_nobody_waited_for_are_given_back() {
    let redis = redis(&[]);
    let (one, _task) = gateway(redis.port).await;
    let (hasty, _world, _other) = hasty(redis.port).await;
    redis.freeze(true);
    let Err(Some(late)) = hasty.claim([1; 32], [0; 32], HOUR, HOUR, false).await else { panic!("no answer") };
    late.settle(&RequestOutcome::Free);
    // A client that leaves meanwhile ends the wait as well.
    let mut left = Box::pin(hasty.claim([2; 32], [0; 32], HOUR, HOUR, false));
    assert!(left.as_mut().now_or_never().is_none());
    drop(left);
    let Err(Some(carried_out)) = hasty.claim([3; 32], [0; 32], HOUR, HOUR, false).await else {
        panic!("no answer")
    };
    redis.freeze(false);
    for key in [1, 2] {
        until_async("the key is free", async || {
            matches!(claim(&one, key, 0, HOUR, false).await, SharedClaim::First(_))
        })
        .await;
    }
    carried_out.settle(&RequestOutcome::Answered(Arc::new(saved())));
    until_async("the answer is known", async || {
        matches!(claim(&one, 3, 0, HOUR, false).await, SharedClaim::Held(KeyStatus::Answered(_)))
    })
    .await;
}

#[tokio::test]
async fn what_a_gateway_did_by_itself_is_known_when_the_store_is_back() {
    let redis = redis(&[]);
    let (_one, mine, _task) = hasty(redis.port).await;
    let (_two, others, _other) = hasty(redis.port).await;
    let config = |on_error: &str| json!({ "redis": { "name": "main", "on_error": on_error } });
    let (here, there) =
        (trial_as("once-here", config("local"), &mine), trial_as("once-here", config("deny"), &others));
    redis.freeze(true);
    assert_eq!(post(&here, "/", "k", "").await.status, 201, "it goes on by itself");
    assert_eq!(post(&there, "/", "refused", "").await.status, 503);
    redis.freeze(false);
    for (trial, key) in [(&here, "k"), (&there, "k")] {
        until_async("the stored answer", async || {
            let got = post(trial, "/", key, "").await;
            got.status == 201 && got.field("idempotent-replayed") == "true"
        })
        .await;
    }
    assert_eq!((here.asked().len(), there.asked().len()), (1, 0));
    until_async("what was refused is sent when it comes again", async || {
        post(&there, "/", "refused", "").await.status == 201
    })
    .await;
}
