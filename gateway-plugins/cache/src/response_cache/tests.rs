//! What is answered from the store, and what never is.

mod ahead;
mod confirmed;
mod disk;
mod hostile;
mod purging;
mod shared;
mod sharing;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, ReceivedRequest, Trial};
use http::Response;
use serde_json::{Value, json};

use super::*;

const PLUGINS: &[Entry] = &[entry::<ResponseCache>()];

/// A target that says these fields, and in its body how often it has answered.
fn trial(config: Value, fields: &'static [(&'static str, &'static str)]) -> Trial {
    answering(config, move |_, n| {
        let mut response = Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(format!("answer {n}").into_bytes().into_body()).unwrap()
    })
}

fn answering(
    config: Value,
    answer: impl Fn(&ReceivedRequest, u32) -> Response<Body> + Send + Sync + 'static,
) -> Trial {
    let count = AtomicU32::new(0);
    Trial::new(PLUGINS, "response_cache", config)
        .answering(move |asked| answer(asked, count.fetch_add(1, Relaxed) + 1))
}

trait IntoBody {
    fn into_body(self) -> Body;
}

impl IntoBody for Vec<u8> {
    fn into_body(self) -> Body {
        Body::full(self)
    }
}

async fn texts(trial: &Trial, requests: &[&[(&str, &str)]]) -> Vec<String> {
    let mut texts = Vec::new();
    for fields in requests {
        texts.push(trial.get("/a", fields).await.text());
    }
    texts
}

fn status(got: &Got) -> &str {
    got.field("cache-status")
}

#[tokio::test(start_paused = true)]
async fn a_fresh_response_is_served_until_it_is_stale() {
    let trial = trial(json!({}), &[("cache-control", "max-age=60"), ("x-kept", "yes")]);
    let first = trial.get("/a?x=1", &[]).await;
    assert_eq!((first.text().as_str(), status(&first)), ("answer 1", "ferrum-edge; fwd=uri-miss; stored"));
    tokio::time::advance(Duration::from_secs(59)).await;
    let hit = trial.get("/a?x=1", &[]).await;
    assert_eq!((hit.text().as_str(), hit.field("x-kept"), hit.field("age")), ("answer 1", "yes", "59"));
    assert_eq!(status(&hit), "ferrum-edge; hit; ttl=1");
    assert!(!hit.field("date").is_empty(), "a stored response has a date");
    assert_eq!(hit.headers.get("x-cache"), None);
    for (path, fields) in
        [("/a", &[][..]), ("/a?x=2", &[]), ("/b?x=1", &[]), ("/a?x=1", &[("host", "other.test")])]
    {
        assert_ne!(trial.get(path, fields).await.text(), "answer 1", "{path} {fields:?}");
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let stale = trial.get("/a?x=1", &[]).await;
    assert_eq!((stale.text().as_str(), status(&stale)), ("answer 6", "ferrum-edge; fwd=stale; stored"));
    let record = &trial.records()[1];
    assert_eq!((record.reason, record.is_error), (Some("cache_hit"), false));
}

#[tokio::test]
async fn head_conditions_and_ranges_are_answered_from_the_store() {
    let trial = trial(
        json!({}),
        &[
            ("cache-control", "max-age=60"),
            ("etag", "\"v1\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-type", "text/plain"),
        ],
    );
    let miss = trial.request("HEAD", "/a", &[], "").await;
    assert_eq!(
        status(&miss),
        "ferrum-edge; fwd=bypass; detail=HEAD",
        "an answer to HEAD has no body to store"
    );
    trial.get("/a", &[]).await;
    let head = trial.request("HEAD", "/a", &[], "").await;
    assert_eq!((head.status, head.field("content-length"), head.text().as_str()), (200, "8", ""));
    for fields in [
        &[("if-none-match", "W/\"v1\"")][..],
        &[("if-none-match", "\"x\", \"v1\"")],
        &[("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")],
    ] {
        let got = trial.get("/a", fields).await;
        assert_eq!((got.status, got.text().as_str(), got.field("etag")), (304, "", "\"v1\""), "{fields:?}");
        assert_eq!(got.headers.get("content-type"), None);
    }
    assert_eq!(trial.get("/a", &[("if-none-match", "\"v2\"")]).await.status, 200);
    for (range, condition, status, content_range, text) in [
        ("bytes=0-5", None, 206, "bytes 0-5/8", "answer"),
        ("bytes=-1", Some("\"v1\""), 206, "bytes 7-7/8", "2"),
        ("bytes=0-1", Some("\"v2\""), 200, "", "answer 2"),
        ("bytes=0-1,4-5", None, 200, "", "answer 2"),
        ("bytes=8-", None, 416, "bytes */8", ""),
    ] {
        let mut fields = vec![("range", range)];
        fields.extend(condition.map(|condition| ("if-range", condition)));
        let got = trial.get("/a", &fields).await;
        assert_eq!(
            (got.status, got.field("content-range"), got.text().as_str()),
            (status, content_range, text),
            "{range}"
        );
    }
    assert_eq!(trial.asked().len(), 2);
    let range = trial.get("/b", &[("range", "bytes=0-1")]).await;
    assert_eq!(status(&range), "ferrum-edge; fwd=bypass; detail=RANGE");
    assert_eq!(trial.asked()[2].field("range"), "bytes=0-1");
}

#[tokio::test]
async fn a_client_that_has_what_is_fetched_gets_304() {
    let trial = trial(json!({}), &[("cache-control", "max-age=60"), ("etag", "\"v1\"")]);
    let got = trial.get("/a", &[("if-none-match", "\"v1\"")]).await;
    assert_eq!((got.status, got.text().as_str()), (304, ""));
    assert_eq!(trial.asked()[0].field("if-none-match"), "", "the target was asked for all of it");
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 1");
    let other = trial.get("/a", &[("if-match", "\"v1\"")]).await;
    assert_eq!(status(&other), "ferrum-edge; fwd=bypass; detail=PRECONDITION", "only the target can say");
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_validated() {
    let trial = answering(json!({ "x_cache": true }), |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=10").header("etag", "\"v1\"");
        match asked.field("if-none-match") {
            "\"v1\"" if n < 3 => {
                let response =
                    response.status(304).header("x-round", n.to_string()).header("set-cookie", "a=b");
                response.body(Body::empty()).unwrap()
            }
            _ => response.body(format!("answer {n}").into_bytes().into_body()).unwrap(),
        }
    });
    let first = trial.get("/a", &[]).await;
    assert_eq!(first.field("x-cache"), "MISS");
    tokio::time::advance(Duration::from_secs(11)).await;
    let second = trial.get("/a", &[("if-none-match", "\"other\"")]).await;
    assert_eq!((second.status, second.text().as_str(), second.field("x-round")), (200, "answer 1", "2"));
    assert_eq!(status(&second), "ferrum-edge; fwd=stale; fwd-status=304; stored; ttl=10");
    assert_eq!((second.field("x-cache"), second.field("set-cookie")), ("REVALIDATED", "a=b"));
    assert_eq!(trial.asked()[1].field("if-none-match"), "\"v1\"");
    let third = trial.get("/a", &[]).await;
    assert_eq!((third.field("x-cache"), third.field("x-round"), third.field("set-cookie")), ("HIT", "2", ""));
    tokio::time::advance(Duration::from_secs(11)).await;
    let fourth = trial.get("/a", &[("if-none-match", "\"v1\"")]).await;
    assert_eq!(
        (fourth.status, fourth.field("x-cache")),
        (304, "EXPIRED"),
        "the new response has the client's tag"
    );
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 3");
}

#[tokio::test(start_paused = true)]
async fn requests_say_how_they_want_to_be_answered() {
    let fields = &[("cache-control", "max-age=60"), ("etag", "\"v\"")];
    let trial = trial(json!({}), fields);
    let absent = trial.get("/a", &[("cache-control", "only-if-cached")]).await;
    assert_eq!((absent.status, trial.asked().len()), (504, 0));
    let unstored = trial.get("/a", &[("cache-control", "no-store")]).await;
    assert_eq!(status(&unstored), "ferrum-edge; fwd=bypass; detail=NO_STORE");
    assert_eq!(texts(&trial, &[&[], &[], &[("cache-control", "only-if-cached")]]).await, ["answer 2"; 3]);
    tokio::time::advance(Duration::from_secs(20)).await;
    for (directive, text) in [
        ("max-age=20", "answer 2"),
        ("max-age=19", "answer 3"),
        ("min-fresh=60", "answer 3"),
        ("no-cache", "answer 4"),
        ("min-fresh=61", "answer 5"),
    ] {
        assert_eq!(trial.get("/a", &[("cache-control", directive)]).await.text(), text, "{directive}");
    }
    assert_eq!(trial.get("/a", &[("pragma", "no-cache")]).await.text(), "answer 6");
    tokio::time::advance(Duration::from_secs(70)).await;
    assert_eq!(trial.get("/a", &[("cache-control", "max-stale=10")]).await.text(), "answer 6");
    assert_eq!(trial.get("/a", &[("cache-control", "max-stale=9")]).await.text(), "answer 7");

    let deaf = self::trial(json!({ "client_directives": false }), fields);
    assert_eq!(
        texts(&deaf, &[&[], &[("cache-control", "no-cache")], &[("pragma", "no-cache")]]).await,
        ["answer 1"; 3]
    );
}

#[tokio::test]
async fn what_varies_is_told_apart() {
    let trial = answering(json!({ "max_variants": 2 }), |asked, n| {
        let text = format!("{n} {}", asked.field("accept-language"));
        let response =
            Response::builder().header("cache-control", "max-age=60").header("vary", "Accept-Language");
        response.body(text.into_bytes().into_body()).unwrap()
    });
    let get = async |language: &str| trial.get("/a", &[("accept-language", language)]).await.text();
    assert_eq!((get("de").await, get("en").await), ("1 de".into(), "2 en".into()));
    assert_eq!((get("de").await, get("en").await), ("1 de".into(), "2 en".into()));
    assert_eq!(trial.get("/a", &[]).await.text(), "3 ", "none is another value");
    assert_eq!(
        (get("en").await, get("de").await),
        ("2 en".into(), "4 de".into()),
        "two are kept, the latest"
    );
}

#[tokio::test]
async fn codings_have_few_spellings() {
    let trial = answering(json!({}), |asked, n| {
        let text = format!("{n} {}", asked.field("accept-encoding"));
        let response =
            Response::builder().header("cache-control", "max-age=60").header("vary", "accept-encoding");
        response.body(text.into_bytes().into_body()).unwrap()
    });
    for (sent, text) in [
        ("gzip, deflate, br", "1 gzip, br"),
        ("br;q=0.9, gzip", "1 gzip, br"),
        ("x, gzip", "2 gzip"),
        ("identity", "3 "),
        ("", "3 "),
    ] {
        assert_eq!(trial.get("/a", &[("accept-encoding", sent)]).await.text(), text, "{sent}");
    }
    assert_eq!(trial.get("/a", &[]).await.text(), "3 ");
    assert!(trial.asked()[2].headers.get("accept-encoding").is_none());
}

#[tokio::test]
async fn what_changes_a_resource_removes_its_responses() {
    let trial = answering(json!({}), |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=60");
        let response = match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", _) => response,
            (_, "/fails") => response.status(500),
            _ => response.header("location", "/list").header("content-location", "http://other.test/kept"),
        };
        response.body(format!("{n}").into_bytes().into_body()).unwrap()
    });
    let mut before = Vec::new();
    for path in ["/item", "/list", "/kept", "/fails"] {
        before.push(trial.get(path, &[]).await.text());
    }
    trial.request("POST", "/item", &[("content-type", "application/grpc")], "x").await;
    trial.request("DELETE", "/fails", &[], "").await;
    trial.request("OPTIONS", "/kept", &[], "").await;
    assert_ne!(trial.get("/item", &[]).await.text(), before[0]);
    assert_ne!(trial.get("/list", &[]).await.text(), before[1], "`Location` at the same host");
    assert_eq!(trial.get("/kept", &[]).await.text(), before[2], "another host's, and a safe method");
    assert_eq!(trial.get("/fails", &[]).await.text(), before[3], "an error changed nothing");
}

#[tokio::test]
async fn keys_have_what_the_settings_add() {
    let config =
        json!({ "key": { "headers": ["x-tenant"], "cookies": ["lang"] }, "ignore_query": ["utm_*", "ref"] });
    let trial = answering(config, |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=60");
        response.body(format!("{n} {}", asked.path).into_bytes().into_body()).unwrap()
    });
    for (path, fields, text) in [
        ("/a?utm_source=x&b=1&ref=y", &[][..], "1 /a?b=1"),
        ("/a?b=1&utm_medium=z", &[], "1 /a?b=1"),
        ("/a?b=1&%75tm_x=z", &[], "1 /a?b=1"),
        ("/a?b=1&refx=z", &[], "2 /a?b=1&refx=z"),
        ("/a?b=1", &[("x-tenant", "t1")], "3 /a?b=1"),
        ("/a?b=1", &[("x-tenant", "")], "4 /a?b=1"),
        ("/a?b=1", &[("cookie", "x=1; lang=de")], "5 /a?b=1"),
        ("/a?b=1", &[("cookie", "lang=de; x=2")], "5 /a?b=1"),
        ("/a?b=1", &[("cookie", "lang=en")], "6 /a?b=1"),
        ("/a?b=1", &[("x-tenant", "t1")], "3 /a?b=1"),
        ("/a?b=1", &[], "1 /a?b=1"),
    ] {
        assert_eq!(trial.get(path, fields).await.text(), text, "{path} {fields:?}");
    }
    // What changes the resource removes all of them.
    trial.request("PUT", "/a?b=1&ref=y", &[], "x").await;
    assert_eq!(trial.asked().last().unwrap().path, "/a?b=1&ref=y", "only what is looked up loses parameters");
    for fields in [&[][..], &[("x-tenant", "t1")], &[("cookie", "lang=de")]] {
        let text = trial.get("/a?b=1", fields).await.text();
        assert!(!["1 /a?b=1", "3 /a?b=1", "5 /a?b=1"].contains(&text.as_str()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_say_how_long() {
    let trial = trial(json!({ "default_ttl": 10, "max_ttl": 5 }), &[]);
    assert_eq!(texts(&trial, &[&[], &[]]).await, ["answer 1"; 2]);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(texts(&trial, &[&[]]).await, ["answer 2"]);

    let not_found = |config| {
        answering(config, |_, n| {
            Response::builder().status(404).body(format!("{n}").into_bytes().into_body()).unwrap()
        })
    };
    let negative = not_found(json!({ "negative_ttl": 10, "negative_statuses": [404] }));
    assert_eq!(texts(&negative, &[&[], &[]]).await, ["1", "1"]);
    assert_eq!(negative.get("/a", &[]).await.status, 404);
    assert!(!negative.records()[2].is_error, "it is the target's error, not the gateway's");
    assert_eq!(texts(&not_found(json!({})), &[&[], &[]]).await, ["1", "2"]);
    let other = not_found(json!({ "negative_ttl": 10, "negative_statuses": [410] }));
    assert_eq!(texts(&other, &[&[], &[]]).await, ["1", "2"]);

    for status in [500, 502, 503, 504] {
        let count = AtomicU32::new(0);
        let failing = Trial::new(
            PLUGINS,
            "response_cache",
            json!({ "negative_ttl": 10, "negative_statuses": [status] }),
        )
        .answering(move |_| {
            let n = count.fetch_add(1, Relaxed) + 1;
            Response::builder().status(status).body(format!("{n}").into_bytes().into_body()).unwrap()
        });
        assert_eq!(texts(&failing, &[&[], &[]]).await, ["1", "1"], "{status}");
    }

    let heuristic =
        self::trial(json!({ "heuristic_max": "1h" }), &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]);
    assert_eq!(texts(&heuristic, &[&[], &[]]).await, ["answer 1"; 2]);
    let statuses = self::trial(json!({ "statuses": [301] }), &[("cache-control", "max-age=60")]);
    assert_eq!(texts(&statuses, &[&[], &[]]).await, ["answer 1", "answer 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_served_while_it_is_fetched_anew() {
    let trial = trial(json!({ "stale_while_revalidate": 30 }), &[("cache-control", "max-age=10")]);
    trial.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(15)).await;
    let stale = trial.send_alone(request("/a")).await;
    assert_eq!((stale.text().as_str(), status(&stale)), ("answer 1", "ferrum-edge; hit; ttl=-5"));
    let another = trial.send_alone(request("/a")).await;
    assert_eq!(
        (another.text().as_str(), trial.asked().len()),
        ("answer 1", 1),
        "nobody waits for the target"
    );
    trial.carry_on().await;
    assert_eq!(trial.asked().len(), 2, "one request for all of them");
    let fresh = trial.get("/a", &[]).await;
    assert_eq!((fresh.text().as_str(), status(&fresh)), ("answer 2", "ferrum-edge; hit; ttl=10"));
    tokio::time::advance(Duration::from_secs(41)).await;
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 3", "too stale");
    // HEAD may have it fetched as well.
    tokio::time::advance(Duration::from_secs(11)).await;
    trial.request("HEAD", "/a", &[("range", "bytes=0-1")], "").await;
    let asked = trial.asked();
    assert_eq!((asked[3].method.as_str(), asked[3].field("range")), ("GET", ""));
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 4");
}

fn request(path: &str) -> http::Request<Body> {
    http::Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_stands_in_for_errors() {
    let trial = answering(json!({ "stale_if_error": 30 }), |_, n| {
        let status = if n == 1 { 200 } else { 503 };
        let response = Response::builder().status(status).header("cache-control", "max-age=10");
        response.body(format!("answer {n}").into_bytes().into_body()).unwrap()
    });
    trial.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(20)).await;
    let stale = trial.get("/a", &[]).await;
    assert_eq!((stale.status, stale.text().as_str(), trial.asked().len()), (200, "answer 1", 2));
    assert_eq!((trial.records()[1].reason, trial.records()[1].is_error), (Some("cache_stale"), false));
    tokio::time::advance(Duration::from_secs(20)).await;
    let error = trial.get("/a", &[]).await;
    assert_eq!((error.status, status(&error)), (503, "ferrum-edge; fwd=stale; detail=FAILED"));
}

#[tokio::test]
async fn what_is_stored_is_bounded() {
    let large = |config| {
        answering(config, |asked, _| {
            let size = asked.path.trim_start_matches("/?").parse().unwrap();
            Response::builder()
                .header("cache-control", "max-age=60")
                .body(vec![b'x'; size].into_body())
                .unwrap()
        })
    };
    let trial = large(json!({ "max_object": 1000, "max_size": "64KiB" }));
    for (path, asked) in [("/?1000", 1), ("/?1001", 2), ("/?1000", 2), ("/?1001", 3)] {
        trial.get(path, &[]).await;
        assert_eq!(trial.asked().len(), asked, "{path}");
    }
    let trial = large(json!({ "max_object": 1000, "max_size": "64KiB" }));
    for n in 0..1000 {
        trial.get(&format!("/?{}", 900 + n % 100), &[]).await;
    }
    assert!(trial.asked().len() > 200, "a hundred responses of 900 bytes don't fit");
}

#[test]
fn what_can_not_be_enforced_is_refused() {
    for (config, path) in [
        (json!({ "max_size": 1000 }), "config.max_size"),
        (json!({ "max_size": "1MiB", "max_object": "1MiB" }), "config.max_object"),
        (json!({ "max_object": 0 }), "config.max_object"),
        (json!({ "statuses": [206] }), "config.statuses[0]"),
        (json!({ "statuses": [200, 404] }), "config.statuses[1]"),
        (json!({ "statuses": [] }), "config.statuses"),
        (json!({ "negative_statuses": [200] }), "config.negative_statuses[0]"),
        (json!({ "key": { "headers": ["a b"] } }), "config.key.headers[0]"),
        (json!({ "key": { "cookies": ["a=b"] } }), "config.key.cookies[0]"),
        (json!({ "ignore_query": ["*"] }), "config.ignore_query[0]"),
        (json!({ "ignore_query": ["a*b"] }), "config.ignore_query[0]"),
        (json!({ "max_variants": 0 }), "config.max_variants"),
        (json!({ "lock_timeout": "1h" }), "config.lock_timeout"),
    ] {
        let problems = Trial::refused(PLUGINS, "response_cache", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}

#[tokio::test]
async fn the_example_does_what_it_says() {
    let spec = include_str!("../../../../specs/caching.yaml");
    let trial = Trial::of_spec(PLUGINS, spec, &World::default())
        .answering(|_| Response::builder().header("cache-control", "max-age=60").body("ok".into()).unwrap());
    assert_eq!(trial.get("/a?utm_source=mail", &[]).await.field("x-cache"), "MISS");
    assert_eq!(trial.get("/a?gclid=1", &[]).await.field("x-cache"), "HIT");
}
