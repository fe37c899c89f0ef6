//! What gets in at a time, and that every ending gives its place back.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use gateway_core::http::body::BodyError;
use gateway_core::http::exchange::Client;
use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::metric;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::*;

const A_PROXY: CountedProxy<'_> = CountedProxy { id: "a", owner: None };
use crate::content::response_mock::ResponseMock;

/// A body that ends when its sender goes.
struct Held(Receiver<()>);

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_unpin(cx).map(|_| None)
    }
}

/// A trial whose target holds back the end of each response to `/slow`.
struct Slow {
    trial: Trial,
    ends: Arc<Mutex<Vec<Sender<()>>>>,
}

fn spec(config: &Value) -> String {
    // What is counted is kept by plugin config: each trial has one of its own.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("places-{}", NEXT.fetch_add(1, Relaxed));
    json!({
        "proxies": [{
            "id": "a", "listen_path": "/", "strip_listen_path": false,
            "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "plugin_configs": [
            { "id": id, "plugin_name": "concurrency_limiting", "config": config, "proxy_id": "a" },
            { "id": "t", "plugin_name": "response_mock", "proxy_id": "a",
              "config": { "rules": [{ "path": "/stop", "status_code": 204 }], "passthrough_on_no_match": true } },
        ],
    })
    .to_string()
}

fn slow_in(config: Value, world: &World) -> Slow {
    let ends: Arc<Mutex<Vec<Sender<()>>>> = Arc::default();
    let kept = ends.clone();
    let entries = [entry::<ConcurrencyLimiting>(), entry::<ResponseMock>()];
    let trial = Trial::of_spec(&entries, &spec(&config), world).answering(move |asked| {
        if asked.path != "/slow" {
            return Response::new("ok".into());
        }
        let (end, ended) = oneshot::channel();
        kept.lock().unwrap().push(end);
        Response::new(Body::stream(Held(ended)))
    });
    Slow { trial, ends }
}

fn slow(config: Value) -> Slow {
    slow_in(config, &World::default())
}

impl Slow {
    /// Has the oldest slow response end.
    fn end_one(&self) {
        drop(self.ends.lock().unwrap().remove(0));
    }

    async fn status(&self, path: &str) -> u16 {
        self.trial.get(path, &[]).await.status
    }
}

/// Polls once.
fn begin(request: Pin<&mut impl Future<Output = Got>>) {
    assert!(request.now_or_never().is_none(), "it is over already");
}

#[tokio::test]
async fn beyond_the_limit_requests_are_refused_until_one_ends() {
    let slow = slow(json!({ "max_concurrent": 2, "retry_after": 7 }));
    let mut first = pin!(slow.trial.get("/slow", &[]));
    let mut second = pin!(slow.trial.get("/slow", &[]));
    begin(first.as_mut());
    begin(second.as_mut());
    let got = slow.trial.get("/", &[]).await;
    assert_eq!((got.status, got.field("retry-after")), (503, "7"));
    assert_eq!(slow.trial.records()[0].reason, Some("too_many_under_way"));
    slow.end_one();
    assert_eq!(first.await.status, 200);
    assert_eq!(slow.status("/").await, 200);
    assert_eq!(slow.status("/").await, 200, "what ended gave its place back");
}

#[tokio::test]
async fn every_ending_gives_its_place_back() {
    let slow = slow(json!({ "max_concurrent": 1 }));
    {
        let mut gone = pin!(slow.trial.get("/slow", &[]));
        begin(gone.as_mut());
        assert_eq!(slow.status("/").await, 503);
    }
    assert_eq!(slow.status("/").await, 200, "a client that goes away");
    assert_eq!(slow.status("/stop").await, 204);
    assert_eq!(slow.status("/").await, 200, "an answer of another plugin");
    let request = http::Request::post("/").body(Body::stream(Body::full("too long").limited(3))).unwrap();
    assert_eq!(slow.trial.send(request).await.status, 413);
    assert_eq!(slow.status("/").await, 200, "a failure on the way to the target");
}

#[tokio::test]
async fn those_who_wait_get_in_when_one_ends() {
    let slow = slow(json!({ "max_concurrent": 1, "max_waiting": 1, "max_wait": "30s" }));
    let mut first = pin!(slow.trial.get("/slow", &[]));
    begin(first.as_mut());
    let mut second = pin!(slow.trial.get("/", &[]));
    begin(second.as_mut());
    assert_eq!(slow.status("/").await, 503, "one may wait");
    slow.end_one();
    assert_eq!(first.await.status, 200);
    assert_eq!(second.await.status, 200);
    assert_eq!(slow.status("/").await, 200);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_at_its_deadline() {
    let slow = slow(json!({ "max_concurrent": 1, "max_waiting": 5, "max_wait": "2s", "status_code": 429 }));
    let mut first = pin!(slow.trial.get("/slow", &[]));
    begin(first.as_mut());
    let begun = Instant::now();
    assert_eq!(slow.status("/").await, 429);
    assert_eq!(begun.elapsed().as_secs(), 2);
    slow.end_one();
    first.await;
    assert_eq!(slow.status("/").await, 200);
}

#[tokio::test]
async fn callers_have_places_of_their_own() {
    let slow = slow(
        json!({ "max_concurrent": 1, "limit_by": "header:x-a", "on_missing": "deny", "status_code": 429 }),
    );
    let mut first = pin!(slow.trial.get("/slow", &[("x-a", "1")]));
    begin(first.as_mut());
    assert_eq!(slow.trial.get("/", &[("x-a", "1")]).await.status, 429);
    assert_eq!(slow.trial.get("/", &[("x-a", "2")]).await.status, 200);
    assert_eq!(slow.status("/").await, 403);
    assert_eq!(slow.trial.records()[2].reason, Some("concurrency_limit_key_missing"));
    let open = self::slow(json!({ "max_concurrent": 1, "limit_by": "header:x-a", "on_missing": "allow" }));
    let mut first = pin!(open.trial.get("/slow", &[]));
    begin(first.as_mut());
    assert_eq!(open.status("/").await, 200);
}

#[tokio::test]
async fn prefixes_make_one_caller_of_a_network() {
    for (config, first, second, status) in [
        (json!({ "max_concurrent": 1, "ipv4_prefix": 24 }), "192.0.2.1", "192.0.2.9", 503),
        (json!({ "max_concurrent": 1 }), "192.0.2.1", "192.0.2.9", 200),
        (json!({ "max_concurrent": 1, "ipv6_prefix": 32 }), "2001:db8:1::1", "2001:db8:2::1", 503),
        (json!({ "max_concurrent": 1 }), "2001:db8:1::1", "2001:db8:2::1", 200),
    ] {
        let world = World::default();
        let text = spec(&config);
        let build =
            || Trial::of_spec(&[entry::<ConcurrencyLimiting>(), entry::<ResponseMock>()], &text, &world);
        let (_end, ended) = oneshot::channel::<()>();
        let body = Mutex::new(Some(Held(ended)));
        let one =
            build().answering(move |_| Response::new(Body::stream(body.lock().unwrap().take().unwrap())));
        let one = one.from_client(first.parse().unwrap(), None);
        let mut under_way = pin!(one.get("/", &[]));
        begin(under_way.as_mut());
        let other = build().from_client(second.parse().unwrap(), None);
        assert_eq!(other.get("/", &[]).await.status, status, "{config}");
    }
}

#[tokio::test]
async fn a_dry_run_counts_and_lets_all_in() {
    let world = World::default();
    let slow = slow_in(json!({ "max_concurrent": 1, "dry_run": true }), &world);
    let mut first = pin!(slow.trial.get("/slow", &[]));
    begin(first.as_mut());
    assert_eq!(slow.status("/").await, 200);
    assert_eq!(slow.trial.records()[0].fields, [("concurrency_limiting.would_limit", true.into())]);
    assert_eq!(metric(&world, REQUESTS.name, &["would_limit"]), 1);
}

#[tokio::test]
async fn more_callers_than_keys_are_refused_and_counted() {
    let world = World::default();
    let config = json!({ "max_concurrent": 5, "limit_by": "header:x-a", "max_keys": 1 });
    let slow = slow_in(config, &world);
    let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    let fields: Vec<_> = names.iter().map(|name| [("x-a", name.as_str())]).collect();
    let mut held: Vec<_> = fields.iter().map(|fields| Box::pin(slow.trial.get("/slow", fields))).collect();
    held.iter_mut().for_each(|request| begin(request.as_mut()));
    assert_eq!(slow.trial.get("/", &[("x-a", "new")]).await.status, 503);
    assert_eq!(
        (metric(&world, REQUESTS.name, &["no_room"]), metric(&world, REQUESTS.name, &["accepted"])),
        (1, 8)
    );
}

#[tokio::test(start_paused = true)]
async fn the_limit_follows_failures_and_latency() {
    let config = json!({ "max_concurrent": 100, "limit_by": "route",
        "adaptive": { "initial_concurrent": 10, "min_concurrent": 2, "interval": "10ms", "min_samples": 1 } });
    let slow = slow(config);
    let plugin = build(json!({ "max_concurrent": 50, "adaptive": {} }));
    assert_eq!(plugin.limiter.peak(), 0);
    let mut held: Vec<_> = (0..11).map(|_| Box::pin(slow.trial.get("/slow", &[]))).collect();
    held.iter_mut().take(10).for_each(|request| begin(request.as_mut()));
    assert_eq!(held.pop().unwrap().await.status, 503, "ten at the start");
    slow.end_one();
    tokio::time::advance(Duration::from_millis(20)).await;
    // The window is over: a tenth with all in use, so there is room for more.
    assert_eq!(held.remove(0).await.status, 200);
    assert_eq!(slow.status("/").await, 200);
    let mut more: Vec<_> = (0..2).map(|_| Box::pin(slow.trial.get("/slow", &[]))).collect();
    begin(more[0].as_mut());
    assert!(more[1].as_mut().now_or_never().is_some() || slow.trial.asked().len() > 11);
}

#[tokio::test(start_paused = true)]
async fn the_limit_waits_for_as_many_responses_as_the_settings_say() {
    for (min_samples, grows) in [(1, true), (90, false)] {
        let adaptive = json!({ "initial_concurrent": 50, "min_concurrent": 2, "interval": "10ms", "min_samples": min_samples });
        let slow = slow(json!({ "max_concurrent": 100, "limit_by": "route", "adaptive": adaptive }));
        let mut held: Vec<_> = (0..50).map(|_| Box::pin(slow.trial.get("/slow", &[]))).collect();
        held.iter_mut().for_each(|request| begin(request.as_mut()));
        slow.end_one();
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!(held.remove(0).await.status, 200);
        let mut more: Vec<_> = (0..5).map(|_| Box::pin(slow.trial.get("/slow", &[]))).collect();
        let refused = more.iter_mut().filter_map(|request| request.as_mut().now_or_never()).count();
        let under_way = held.len() + more.len() - refused;
        assert_eq!(under_way > 50, grows, "{min_samples}: {under_way} under way");
    }
}

fn build(config: Value) -> Arc<ConcurrencyLimiting> {
    Arc::new(ConcurrencyLimiting::build(serde_json::from_value(config).unwrap(), &World::default()).unwrap())
}

#[tokio::test]
async fn streams_hold_places_too() {
    let plugin = build(json!({ "max_concurrent": 1, "max_waiting": 1 }));
    let session = || {
        let client = Client::new(([192, 0, 2, 1], 1).into(), ([127, 0, 0, 1], 1).into(), false, None);
        Session::new(Arc::new(client))
    };
    let Admission::Held(permit) = plugin.connect(&mut session(), A_PROXY) else { panic!("no place") };
    let Admission::Line(waiting) = plugin.connect(&mut session(), A_PROXY) else { panic!("no line") };
    assert!(matches!(plugin.connect(&mut session(), A_PROXY), Admission::Refused(LIMITED)));
    drop(permit);
    assert!(plugin.waited(waiting).await.is_some());
    let dry = build(json!({ "max_concurrent": 1, "dry_run": true }));
    let _held = dry.connect(&mut session(), A_PROXY);
    let mut second = session();
    assert!(matches!(dry.connect(&mut second, A_PROXY), Admission::Free));
    assert_eq!(second.fields, [("concurrency_limiting.would_limit", true.into())]);
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({}), "config.max_concurrent"),
        (json!({ "max_concurrent": 0 }), "config.max_concurrent"),
        (json!({ "max_concurrent": 1, "status_code": 404 }), "config.status_code"),
        (json!({ "max_concurrent": 1, "max_wait": "31s" }), "config.max_wait"),
        (json!({ "max_concurrent": 1, "limit_by": "x" }), "config.limit_by"),
        (json!({ "max_concurrent": 1, "max_waiting": 1, "dry_run": true }), "config.max_waiting"),
        (json!({ "max_concurrent": 1, "max_keys": 0 }), "config.max_keys"),
        (
            json!({ "max_concurrent": 1, "adaptive": { "min_concurrent": 2 } }),
            "config.adaptive.min_concurrent",
        ),
        (
            json!({ "max_concurrent": 5, "adaptive": { "initial_concurrent": 6 } }),
            "config.adaptive.initial_concurrent",
        ),
        (
            json!({ "max_concurrent": 5, "adaptive": { "algorithm": "aimd" } }),
            "config.adaptive.target_latency",
        ),
        (
            json!({ "max_concurrent": 5, "adaptive": { "algorithm": "aimd", "tolerance": 2, "target_latency": "1ms" } }),
            "config.adaptive.tolerance",
        ),
        (
            json!({ "max_concurrent": 5, "adaptive": { "target_latency": "1ms" } }),
            "config.adaptive.target_latency",
        ),
        (json!({ "max_concurrent": 5, "adaptive": { "interval": "1ms" } }), "config.adaptive.interval"),
    ] {
        let problems = Trial::refused(&[entry::<ConcurrencyLimiting>()], "concurrency_limiting", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}
