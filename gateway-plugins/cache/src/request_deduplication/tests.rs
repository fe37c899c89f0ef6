//! What is carried out once, what is refused, and that each option does something.

mod gateways;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::BodyError;
use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::metric;
use http::HeaderValue;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;

/// What is stored is kept by plugin config: each trial has one of its own.
fn trial_in(config: Value, world: &World) -> Trial {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    trial_as(&format!("once-{}", NEXT.fetch_add(1, Relaxed)), config, world)
}

/// The same with a plugin config of this id, by which gateways that share a store know it.
fn trial_as(id: &str, config: Value, world: &World) -> Trial {
    let spec = json!({
        "gateway": { "redis": { "main": { "urls": ["redis://127.0.0.1:1"] } } },
        "proxies": [
            { "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "auth_mode": "multi",
              "plugins": [{ "plugin_config_id": id }] },
            { "id": "b", "listen_path": "/b", "backend_host": "t", "backend_port": 80,
              "plugins": [{ "plugin_config_id": id }] },
        ],
        "consumers": [
            { "id": "u", "username": "u", "credentials": { "key_auth": "of-u" } },
            { "id": "v", "username": "v", "credentials": { "key_auth": "of-v" } },
            { "id": "w", "username": "nobody" },
        ],
        "plugin_configs": [
            { "id": id, "plugin_name": "request_deduplication", "scope": "proxy_group", "config": config },
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "a", "config": { "anonymous": "nobody" } },
        ],
    });
    let entries = [gateway_auth::KEY_AUTH, entry::<RequestDeduplication>()];
    let count = AtomicUsize::new(0);
    Trial::of_spec(&entries, &spec.to_string(), world).answering(move |_| {
        let n = count.fetch_add(1, Relaxed) + 1;
        let answer = Response::builder().status(201).header("x-number", n).header("set-cookie", "a=1");
        answer
            .body(format!("answer {n}").into_bytes().into())
            .map(|body: Response<Bytes>| body.map(Body::full))
            .unwrap()
    })
}

fn trial(config: Value) -> Trial {
    trial_in(config, &World::default())
}

async fn post(trial: &Trial, path: &str, key: &str, body: &str) -> Got {
    trial.request("POST", path, &[("idempotency-key", key)], body.to_owned()).await
}

/// A body that comes when the test says so; dropped, it is cut off.
fn later() -> (oneshot::Sender<&'static str>, Body) {
    struct Later(oneshot::Receiver<&'static str>, bool);
    impl http_body::Body for Later {
        type Data = Bytes;
        type Error = BodyError;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            if self.1 {
                return std::task::Poll::Ready(None);
            }
            std::pin::Pin::new(&mut self.0).poll(cx).map(|came| {
                self.1 = true;
                Some(came.map(|text| Frame::data(text.into())).map_err(|_| BodyError::Incomplete))
            })
        }
    }
    let (sender, receiver) = oneshot::channel();
    (sender, Body::stream(Later(receiver, false)))
}

/// Answers with these bodies, one after the other.
fn answers(
    bodies: Vec<Body>,
) -> impl Fn(&gateway_core::testing::ReceivedRequest) -> Response<Body> + Send + Sync {
    let bodies = Mutex::new(bodies.into_iter());
    move |_| Response::new(bodies.lock().unwrap().next().unwrap_or_else(|| "more".into()))
}

#[tokio::test]
async fn the_first_answer_is_given_again() {
    let world = World::default();
    let trial = trial_in(json!({}), &world);
    let first = post(&trial, "/pay?x=1", "k1", "ten").await;
    assert_eq!(
        (first.status, first.text(), first.field("idempotent-replayed")),
        (201, "answer 1".into(), "")
    );
    let again = post(&trial, "/pay?x=1", "\"k1\"", "ten").await;
    assert_eq!((again.status, again.text(), again.field("x-number")), (201, "answer 1".into(), "1"));
    assert_eq!((again.field("idempotent-replayed"), again.field("set-cookie")), ("true", "a=1"));
    assert_eq!(post(&trial, "/pay?x=1", "k2", "ten").await.text(), "answer 2", "another key");
    assert_eq!(trial.asked().len(), 2);
    assert_eq!(trial.asked()[0].field("idempotency-key"), "k1", "targets get it as well");
    let records = trial.records();
    assert_eq!((records[1].reason, records[1].is_error), (Some("idempotent_replay"), false));
    let count = |outcome| metric(&world, REQUESTS.name, &[&format!("outcome=\"{outcome}\"")]);
    assert_eq!((count("first"), count("replayed")), (2, 1));
    assert_eq!(metric(&world, ANSWERS.name, &["outcome=\"stored\""]), 2);
    assert_eq!(metric(&world, KEYS.name, &[]), 2);
    assert!(metric(&world, BYTES.name, &[]) > 512);
}

#[tokio::test]
async fn a_key_belongs_to_one_request() {
    let trial = trial(json!({ "methods": ["POST", "PUT"] }));
    post(&trial, "/pay", "k", "ten").await;
    for (method, path, fields, body) in [
        ("POST", "/pay", &[][..], "eleven"),
        ("POST", "/pay?", &[][..], "ten"),
        ("POST", "/other", &[][..], "ten"),
        ("PUT", "/pay", &[][..], "ten"),
        ("POST", "/pay", &[("content-type", "a/b")][..], "ten"),
        ("POST", "/pay", &[("host", "other.test")][..], "ten"),
    ] {
        let fields: Vec<_> = [("idempotency-key", "k")].iter().chain(fields).copied().collect();
        let got = trial.request(method, path, &fields, body).await;
        assert_eq!(
            (got.status, got.json()["code"].as_str()),
            (422, Some("idempotency_key_reused")),
            "{method} {path} {body}"
        );
    }
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn a_key_belongs_to_one_caller() {
    let trial = trial(json!({}));
    let as_ = |key: &'static str| [("idempotency-key", "k"), ("x-api-key", key)];
    assert_eq!(trial.request("POST", "/", &as_("of-u"), "").await.text(), "answer 1");
    assert_eq!(trial.request("POST", "/", &as_("of-v"), "").await.text(), "answer 2");
    assert_eq!(trial.request("POST", "/", &as_("of-u"), "").await.text(), "answer 1");
    assert_eq!(post(&trial, "/b", "k", "").await.text(), "answer 3", "another proxy");
    let trial = trial_of_scope(json!("header:x-tenant"), "deny");
    let got = post(&trial, "/", "k", "").await;
    assert_eq!((got.status, trial.records()[0].reason), (403, Some("idempotency_scope_missing")));
    let trial = trial_of_scope(json!(["header:x-tenant"]), "allow");
    for expected in ["answer 1", "answer 2"] {
        assert_eq!(post(&trial, "/", "k", "").await.text(), expected, "nothing is stored");
    }
    let trial = trial_of_scope(json!("consumer"), "address");
    assert_eq!(post(&trial, "/b", "k", "").await.text(), "answer 1");
    assert_eq!(post(&trial, "/b", "k", "").await.text(), "answer 1", "by address");
    let trial = trial.from_client([192, 0, 2, 77].into(), None);
    assert_eq!(post(&trial, "/b", "k", "").await.text(), "answer 2", "another address");
}

/// A target may go by credentials that no plugin here knows: its answer is for that caller only.
#[tokio::test]
async fn other_credentials_do_not_get_the_answer() {
    let trial = trial(json!({}));
    let of = |name: &'static str, value: &'static str| [("idempotency-key", "k"), (name, value)];
    let status =
        async |path: &str, fields: &[(&str, &str)]| trial.request("POST", path, fields, "").await.status;
    for (n, name) in ["authorization", "cookie", "x-api-key", "api-key", "x-auth-token"].iter().enumerate() {
        let path = format!("/b/{n}");
        let key = format!("k{n}");
        let fields = |value| [("idempotency-key", key.as_str()), (*name, value)];
        assert_eq!(status(&path, &fields("of alice")).await, 201);
        assert_eq!(status(&path, &fields("of alice")).await, 201, "{name}");
        assert_eq!(status(&path, &fields("of bob")).await, 422, "{name}");
        assert_eq!(status(&path, &[("idempotency-key", &key)]).await, 422, "{name}");
    }
    assert_eq!(trial.asked().len(), 5);
    // Nobody has recognised the anonymous consumer. A caller that was recognised by its key may have a new token at the second attempt.
    assert_eq!(status("/", &of("cookie", "of alice")).await, 201);
    assert_eq!(status("/", &of("cookie", "of bob")).await, 422);
    let known = |token| [("idempotency-key", "k"), ("x-api-key", "of-u"), ("authorization", token)];
    assert_eq!(status("/", &known("old")).await, 201);
    assert_eq!(status("/", &known("new")).await, 201);
    assert_eq!(trial.asked().len(), 7);
}

fn trial_of_scope(scope: Value, on_missing: &str) -> Trial {
    trial(json!({ "scope": scope, "on_missing": on_missing }))
}

#[tokio::test]
async fn keys_are_wanted_well_formed() {
    let trial = trial(json!({ "required": true, "header_name": "X-Once" }));
    let long = "k".repeat(256);
    let ask = |key: Option<String>| {
        let trial = &trial;
        async move {
            let fields: Vec<_> = key.iter().map(|key| ("x-once", key.as_str())).collect();
            trial.request("POST", "/", &fields, "").await
        }
    };
    for bad in ["", "\"\"", "a b", "a,b", "\"a", "\"a\"b", &long] {
        let got = ask(Some(bad.to_owned())).await;
        assert_eq!(
            (got.status, got.json()["code"].as_str()),
            (400, Some("idempotency_key_invalid")),
            "{bad}"
        );
    }
    let twice = trial.request("POST", "/", &[("x-once", "a"), ("x-once", "a")], "").await;
    assert_eq!(twice.status, 400);
    assert_eq!(ask(None).await.json()["code"], "idempotency_key_missing");
    assert!(trial.asked().is_empty());
    assert_eq!(ask(Some("k".repeat(255))).await.status, 201);
    assert_eq!(ask(Some("\"with a space\"".to_owned())).await.status, 201);
    assert_eq!(trial.request("PUT", "/", &[], "").await.status, 201, "not one of the methods");
    assert_eq!(trial.get("/", &[("x-once", "a b")]).await.status, 201);
}

#[tokio::test]
async fn a_second_request_is_refused_or_waits_while_the_first_is_under_way() {
    for (config, expected) in [
        (json!({}), (409, "idempotency_conflict")),
        (json!({ "concurrent": "wait" }), (200, "late")),
        (json!({ "concurrent": "wait", "wait_timeout": "1ms" }), (409, "idempotency_conflict")),
    ] {
        let (sender, body) = later();
        let trial = trial(config.clone()).answering(answers(vec![body]));
        let second = async {
            // The first one is read on by a task of its own.
            tokio::task::yield_now().await;
            let got = match config["wait_timeout"].is_null() && !config["concurrent"].is_null() {
                true => {
                    let (got, ()) = tokio::join!(post(&trial, "/", "k", "b"), async {
                        tokio::task::yield_now().await;
                        sender.send("late").unwrap();
                    });
                    got
                }
                false => {
                    let got = post(&trial, "/", "k", "b").await;
                    sender.send("late").unwrap();
                    got
                }
            };
            if got.status == 409 {
                assert_eq!((got.field("retry-after"), got.json()["code"].as_str()), ("1", Some(expected.1)));
            } else {
                assert_eq!((got.text().as_str(), got.field("idempotent-replayed")), (expected.1, "true"));
            }
            got.status
        };
        let (first, second) = tokio::join!(post(&trial, "/", "k", "b"), second);
        assert_eq!((first.status, first.text(), second), (200, "late".into(), expected.0), "{config}");
        assert_eq!(trial.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_is_stored_when_its_client_is_gone() {
    let (sender, body) = later();
    let trial = trial(json!({ "concurrent": "wait" })).answering(answers(vec![body]));
    {
        let first = post(&trial, "/", "k", "b");
        tokio::pin!(first);
        assert!(futures_util::FutureExt::now_or_never(&mut first).is_none(), "the answer is under way");
    }
    sender.send("whole").unwrap();
    let again = post(&trial, "/", "k", "b").await;
    assert_eq!((again.text().as_str(), again.field("idempotent-replayed")), ("whole", "true"));
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_leaves_the_outcome_open() {
    for (config, expected) in [(json!({}), 409), (json!({ "on_unknown": "retry" }), 200)] {
        let world = World::default();
        let (sender, body) = later();
        drop(sender);
        let trial = trial_in(config.clone(), &world).answering(answers(vec![body]));
        let first = post(&trial, "/", "k", "b").await;
        assert_eq!((first.status, first.json()["code"].as_str()), (502, Some("upstream_closed")));
        let again = post(&trial, "/", "k", "b").await;
        assert_eq!(again.status, expected, "{config}");
        match expected {
            409 => assert_eq!(again.json()["code"], "idempotency_outcome_unknown"),
            _ => assert_eq!(post(&trial, "/", "k", "b").await.field("idempotent-replayed"), "true"),
        }
        assert_eq!(metric(&world, ANSWERS.name, &["unknown"]), 1);
        assert_eq!(post(&trial, "/", "k", "c").await.status, 422, "it is still that request's key");
    }
}

#[tokio::test]
async fn some_answers_free_the_key() {
    let statuses = Mutex::new(vec![404, 503, 500, 429].into_iter().rev().collect::<Vec<u16>>());
    let trial = trial(json!({ "unstored_statuses": ["429", "503", "404"] })).answering(move |_| {
        let status = statuses.lock().unwrap().pop().unwrap_or(200);
        Response::builder().status(status).body("x".into()).unwrap()
    });
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(post(&trial, "/", "k", "").await.status);
    }
    assert_eq!(got, [404, 503, 500, 500], "an error that is none of these is stored");
    assert_eq!(trial.asked().len(), 3);
}

#[tokio::test]
async fn what_is_too_long_is_not_stored() {
    let trial = trial(json!({ "max_response": 10, "max_body": 5 }));
    let got = post(&trial, "/", "k", "123456").await;
    assert_eq!((got.status, got.json()["code"].as_str()), (413, Some("idempotency_body_too_large")));
    for (body, kind) in [
        (Body::from("a text that is longer"), "text/plain"),
        (Body::stream(Body::from("one of a length that is not known")), "text/plain"),
        (Body::from("data: a"), "text/event-stream; x=y"),
    ] {
        let body = Mutex::new(Some(body));
        let trial = trial_of_kind(kind, move || body.lock().unwrap().take().unwrap_or_default());
        let first = post(&trial, "/", "k", "").await;
        assert_eq!((first.status, first.cut, first.body.is_empty()), (200, None, false), "it passes whole");
        let again = post(&trial, "/", "k", "").await;
        assert_eq!(
            (again.status, again.json()["code"].as_str()),
            (409, Some("idempotency_answer_not_stored"))
        );
        assert_eq!(trial.asked().len(), 1);
    }
}

fn trial_of_kind(kind: &'static str, body: impl Fn() -> Body + Send + Sync + 'static) -> Trial {
    trial(json!({ "max_response": 10 })).answering(move |_| {
        let mut response = Response::new(body());
        response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
        response
    })
}

#[tokio::test(start_paused = true)]
async fn keys_are_forgotten_after_a_while() {
    let trial = trial(json!({ "ttl": "1m" }));
    for expected in ["answer 1", "answer 1"] {
        assert_eq!(post(&trial, "/", "k", "").await.text(), expected);
    }
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(post(&trial, "/", "k", "").await.text(), "answer 1");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(post(&trial, "/", "k", "").await.text(), "answer 2");
}

#[tokio::test]
async fn memory_is_bounded() {
    let world = World::default();
    let small = json!({ "max_size": "64KiB", "max_response": "30KiB" });
    let large = |_: &gateway_core::testing::ReceivedRequest| Response::new(Body::full(vec![b'x'; 25 << 10]));
    let trial = trial_in(small.clone(), &world).answering(large);
    for key in ["1", "2", "3"] {
        post(&trial, "/", key, "").await;
    }
    assert!(metric(&world, BYTES.name, &[]) <= 64 << 10);
    assert_eq!((metric(&world, EVICTED.name, &[]), metric(&world, KEYS.name, &[])), (1, 2));
    assert_eq!(post(&trial, "/", "2", "").await.field("idempotent-replayed"), "true");
    assert_eq!(post(&trial, "/", "1", "").await.field("idempotent-replayed"), "", "the oldest was forgotten");
    let mut full = small;
    full["on_full"] = "refuse".into();
    let trial = trial_in(full, &World::default()).answering(large);
    for key in ["1", "2", "3"] {
        post(&trial, "/", key, "").await;
    }
    assert_eq!(post(&trial, "/", "1", "").await.field("idempotent-replayed"), "true");
    let third = post(&trial, "/", "3", "").await;
    assert_eq!(third.json()["code"], "idempotency_answer_not_stored", "there was no room for its answer");
    let mut refused = 0;
    for key in 4..200 {
        let got = post(&trial, "/", &key.to_string(), "").await;
        refused += usize::from(got.status == 503 && got.field("retry-after") == "1");
    }
    assert!(refused > 100, "{refused}");
}

#[tokio::test]
async fn calls_of_grpc() {
    let codes = Mutex::new(vec!["0", "14"]);
    let trial = trial(json!({})).answering(move |_| {
        let code = codes.lock().unwrap().pop().unwrap_or("9");
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(code));
        Response::new(Body::full_with_trailers("message", trailers))
    });
    let call = |body: &'static str| {
        let fields = [("content-type", "application/grpc"), ("te", "trailers"), ("idempotency-key", "k")];
        let trial = &trial;
        async move { trial.request("POST", "/s.S/M", &fields, body).await }
    };
    let status =
        |got: &Got| got.trailers.as_ref().unwrap_or(&got.headers)["grpc-status"].to_str().unwrap().to_owned();
    assert_eq!(status(&call("a").await), "14", "UNAVAILABLE frees the key");
    assert_eq!(status(&call("a").await), "0");
    let again = call("a").await;
    assert_eq!(
        (again.text(), status(&again), again.field("idempotent-replayed")),
        ("message".into(), "0".into(), "true")
    );
    let refused = call("b").await;
    assert_eq!((refused.status, status(&refused)), (200, "3".to_owned()));
    assert_eq!(trial.asked().len(), 2);
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "header_name": "a b" }), "config.header_name"),
        (json!({ "methods": [] }), "config.methods"),
        (json!({ "methods": ["POST", "GET"] }), "config.methods[1]"),
        (json!({ "methods": ["A B"] }), "config.methods[0]"),
        (json!({ "scope": "ip" }), "config.scope"),
        (json!({ "scope": ["route", "ip"] }), "config.scope[1]"),
        (json!({ "ttl": "1ms" }), "config.ttl"),
        (json!({ "concurrent": "some" }), "config.concurrent"),
        (json!({ "unstored_statuses": ["9xx"] }), "config.unstored_statuses[0]"),
        (json!({ "max_size": 10 }), "config.max_size"),
        (json!({ "max_size": "1MiB" }), "config.max_response"),
        (json!({ "redis": {} }), "config.redis"),
    ] {
        let entries = [entry::<RequestDeduplication>()];
        let problems = Trial::refused(&entries, "request_deduplication", &config);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}

/// Behind a server that lets requests in without naming the caller.
fn behind_forward_auth(scope: Value) -> (Trial, gateway_plugin_common::testing::Machine) {
    let machine = gateway_plugin_common::testing::Machine::default();
    machine
        .net
        .serve(|_| gateway_plugin_common::testing::net::Served::Response(Response::new(Body::empty())));
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80 }],
        "plugin_configs": [
            { "id": "f", "plugin_name": "forward_auth", "proxy_id": "a", "config": { "url": "https://auth.test/" } },
            { "id": "d", "plugin_name": "request_deduplication", "proxy_id": "a", "config": { "scope": scope } },
        ],
    });
    let entries = [gateway_auth::FORWARD_AUTH, entry::<RequestDeduplication>()];
    let count = AtomicUsize::new(0);
    let trial = Trial::of_spec(&entries, &spec.to_string(), &machine.world())
        .answering(move |_| Response::new(Body::full(format!("answer {}", count.fetch_add(1, Relaxed) + 1))));
    (trial, machine)
}

#[tokio::test]
async fn whoever_another_server_let_in_gets_no_answer_of_somebody_else() {
    for scope in [json!("route"), json!(["route", "consumer"])] {
        for field in ["authorization", "cookie", "x-api-key", "x-session", "x-acme-user"] {
            let (trial, _machine) = behind_forward_auth(scope.clone());
            let key = ("idempotency-key", "k");
            let ann = [key, (field, "ann=1"), ("traceparent", "00-1"), ("user-agent", "a")];
            assert_eq!(trial.request("POST", "/", &ann, "x").await.text(), "answer 1");
            let again = [key, (field, "ann=1"), ("traceparent", "00-2"), ("user-agent", "b")];
            assert_eq!(trial.request("POST", "/", &again, "x").await.text(), "answer 1", "{field}");
            let bob = trial.request("POST", "/", &[key, (field, "bob=1")], "x").await;
            assert_eq!(bob.status, 422, "{field} {}", bob.text());
        }
    }
}

#[tokio::test]
async fn every_credential_tells_callers_apart() {
    for name in gateway_core::http::credentials::CREDENTIAL_FIELDS {
        if ["set-cookie", "set-cookie2", "proxy-authorization"].contains(name) || name.contains('_') {
            continue;
        }
        let trial = trial(json!({}));
        let key = ("idempotency-key", "k");
        assert_eq!(trial.request("POST", "/b", &[key, (name, "ann=1")], "x").await.status, 201, "{name}");
        assert_eq!(trial.request("POST", "/b", &[key, (name, "bob=1")], "x").await.status, 422, "{name}");
    }
}
