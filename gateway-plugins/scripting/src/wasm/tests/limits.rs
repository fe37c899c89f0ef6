//! What a module may take.

use super::*;

#[tokio::test]
async fn a_module_that_leaks_stays_within_its_memory() {
    // Takes a page with each request and never gives it back.
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then (unreachable)))
        (i32.const 0))"#;
    let trial = trial(functions, json!({ "max_memory": 16 * 65536 }));
    for n in 0..500 {
        assert_eq!(trial.get("/", &[]).await.status, 200, "{n}");
    }
}

#[tokio::test]
async fn a_hundred_thousand_requests_through_a_leaking_module_stay_within_its_memory() {
    // Keeps 4 KiB of each request for ever, and answers with the pages that it has. The machine may be busy: its time is long.
    let functions = r#"
      (global $at (mut i32) (i32.const 65536))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (global.set $at (i32.add (global.get $at) (i32.const 4096)))
        (if (i32.gt_u (global.get $at) (i32.mul (memory.size) (i32.const 65536))) (then
          (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then (unreachable)))))
        (i32.store (i32.sub (global.get $at) (i32.const 4)) (i32.const 1))
        (i32.store8 (i32.const 64) (i32.add (i32.const 48) (memory.size)))
        (drop (call $reply (i32.const 200) {{}} (i32.const 64) (i32.const 1) {{}} (i32.const -1)))
        (i32.const 1))"#;
    let (trial, world) =
        calling(module(functions), json!({ "max_memory": 8 * 65536, "timeout": "1s" }), |_, _| {
            Err(Cause::ConnectFailed)
        });
    let (mut most, mut fewer, mut before) = (0, 0, 0);
    for n in 0..100_000 {
        let got = trial.get("/", &[]).await;
        assert_eq!(got.status, 200, "{n}");
        let pages = got.text().as_bytes()[0] - b'0';
        (most, fewer) = (most.max(pages), fewer + u32::from(pages < before));
        before = pages;
        trial.forget();
    }
    assert!(most <= 8, "{most} pages");
    assert!(fewer >= 100, "{fewer} instances were replaced");
    let metrics = world.meters().text();
    assert!(metrics.contains("ferrum_wasm_failures_total{plugin_config=\"p0\"} 0"), "{metrics}");
}

#[tokio::test]
async fn a_module_that_takes_all_at_once_fails_alone() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eq (memory.grow (i32.const 1000)) (i32.const -1)) (then (unreachable)))
        (i32.const 0))"#;
    let trial = trial(functions, json!({ "max_memory": 16 * 65536 }));
    assert_eq!(trial.get("/", &[]).await.status, 500);
}

#[tokio::test]
async fn a_body_that_is_held_back_has_a_limit() {
    let trial = trial(REPLACES_BODY, json!({ "max_body": 8 }));
    assert_eq!(trial.request("POST", "/", &[], "12345678").await.status, 200);
    let mut request = Request::post("/").body(gateway_core::http::body::Body::empty()).unwrap();
    *request.body_mut() = gateway_core::http::body::Body::from("12345").transform(Twice);
    assert_eq!(trial.send(request).await.status, 413);
}

/// A body that comes in two pieces.
pub(super) struct Twice;

impl gateway_core::http::body::Transform for Twice {
    fn data(
        &mut self,
        data: Bytes,
        out: &mut gateway_core::http::body::TransformOutput,
    ) -> Result<(), gateway_core::http::body::BodyError> {
        out.data(data.clone());
        out.data(data);
        Ok(())
    }
}

#[tokio::test]
async fn a_body_that_comes_in_pieces_is_streamed_through_the_module() {
    let trial = trial(REPLACES_BODY, json!({}));
    let mut request = Request::post("/").body(gateway_core::http::body::Body::empty()).unwrap();
    *request.body_mut() = gateway_core::http::body::Body::from("12345").transform(Twice);
    assert_eq!(trial.send(request).await.status, 200);
    let asked = trial.asked().pop().unwrap();
    assert_eq!((&asked.body[..], asked.field("content-length")), (&b"changed"[..], ""));
}

#[tokio::test]
async fn a_length_that_was_announced_is_kept_to() {
    // Changes the body without taking its length away.
    let functions = r#"
      (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (drop (call $replace (i32.const 0) (i32.const 0) (i32.const -1) {{longer than before}}))
        (i32.const 0))"#;
    let trial = trial(functions, json!({}));
    assert_eq!(trial.request("POST", "/", &[("content-length", "3")], "abc").await.status, 500);
}

#[tokio::test]
async fn calls_under_way_have_a_limit() {
    let functions = r#"
      (func $ask (result i32)
        (call $http_call {{auth}} {{map :method=GET;:path=/;:authority=auth}} {{}}
          (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16)))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $ask) (then (unreachable)))
        (if (call $ask) (then (unreachable)))
        (if (i32.ne (call $ask) (i32.const 10)) (then (unreachable)))
        (i32.const 0))"#;
    let config = json!({ "max_calls": 2, "calls": { "auth": { "url": "http://auth.test" } } });
    let (trial, _) = calling(module(functions), config, |_, _| Ok(Response::new("".into())));
    assert_eq!(trial.get("/", &[]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_module_held_back_is_never_left_out() {
    // Holds the first piece back and fails at the second.
    let functions = r#"
      (global $pieces (mut i32) (i32.const 0))
      (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (global.set $pieces (i32.add (global.get $pieces) (i32.const 1)))
        (if (i32.gt_s (global.get $pieces) (i32.const 1)) (then (unreachable)))
        (i32.const 1))"#;
    let trial = trial(functions, json!({ "on_error": "open" }));
    let mut request = Request::post("/").body(gateway_core::http::body::Body::empty()).unwrap();
    *request.body_mut() = gateway_core::http::body::Body::from("12345").transform(Twice);
    assert_eq!(trial.send(request).await.status, 500);
    assert_eq!(trial.request("POST", "/", &[], "whole").await.status, 504, "held back without an end");
}
