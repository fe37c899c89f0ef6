//! Calls to other servers, the timer, shared data, queues, metrics.

use std::time::Duration;

use super::*;

/// Asks `auth` before a request may pass.
const ASKS: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (if (call $http_call {{auth}} {{map :method=GET;:path=/check;:authority=auth;x-a=1}} {{hello}}
          (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16))
      (then (unreachable)))
    (i32.const 1))
  (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
    (if (i32.ne (local.get 1) (i32.load (i32.const 16))) (then (unreachable)))
    (if (i32.eqz (local.get 2)) (then
      (drop (call $reply (i32.const 503) {{}} {{down}} {{}} (i32.const -1)))
      (return)))
    (drop (call $get (i32.const 6) {{:status}} (i32.const 0) (i32.const 4)))
    (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 50)) (then
      (drop (call $buffer (i32.const 4) (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 4)))
      (drop (call $set (i32.const 0) {{x-user}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
      (drop (call $continue (i32.const 0)))
      (return)))
    (drop (call $reply (i32.const 403) {{}} {{no}} {{}} (i32.const -1))))"#;

#[tokio::test]
async fn a_request_waits_for_a_call() {
    let config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    for (answer, expected) in [(Some(200), (200, "ok")), (Some(401), (403, "no")), (None, (503, "down"))] {
        let (trial, _) = calling(module(ASKS), config.clone(), move |host, request| {
            let about = (host, request.method().as_str(), request.uri().path(), &request.headers()["x-a"]);
            assert_eq!(about, ("auth.test", "GET", "/check", &"1".parse::<http::HeaderValue>().unwrap()));
            assert_eq!(request.body(), "hello");
            match answer {
                Some(status) => Ok(Response::builder().status(status).body("ann".into()).unwrap()),
                None => Err(Cause::ConnectFailed),
            }
        });
        let got = trial.request("POST", "/", &[], "kept").await;
        assert_eq!((got.status, got.text().as_str()), expected);
        if let Some(asked) = trial.asked().pop() {
            assert_eq!((asked.field("x-user"), &asked.body[..]), ("ann", &b"kept"[..]));
        }
    }
}

#[tokio::test]
async fn no_body_lets_a_head_pass_that_is_held_back() {
    // As SDKs do, it has functions for bodies that let everything pass.
    let bodies = r#"
      (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
      (func (export "proxy_on_request_trailers") (param i32 i32) (result i32) (i32.const 0))"#;
    for (status, expected) in [(401, 403), (200, 200)] {
        let disk = Arc::<Disk>::default();
        disk.write("m.wasm", module(&format!("{ASKS}{bodies}")));
        let (world, mut scripted) = crate::testing::served(disk);
        let config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
        let trial = Arc::new(of_world(&world, config));
        grpc::local(async {
            let asking = {
                let trial = trial.clone();
                tokio::task::spawn_local(async move {
                    let mut request =
                        Request::post("/").body(gateway_core::http::body::Body::empty()).unwrap();
                    *request.body_mut() =
                        gateway_core::http::body::Body::from("12345").transform(limits::Twice);
                    trial.send(request).await
                })
            };
            let call = scripted.recv().await.unwrap();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!asking.is_finished() && trial.asked().is_empty(), "it waits for the answer");
            call.end(Ok(Response::builder().status(status).body("ann".into()).unwrap()));
            assert_eq!(asking.await.unwrap().status, expected);
            let bodies: Vec<_> = trial.asked().iter().map(|asked| asked.body.clone()).collect();
            assert_eq!(bodies, vec!["1234512345"; usize::from(status == 200)]);
        })
        .await;
    }
}

#[tokio::test]
async fn a_response_waits_for_several_calls() {
    let functions = r#"
      (global $left (mut i32) (i32.const 3))
      (func $ask (drop (call $http_call {{auth}} {{map :method=GET;:path=/;:authority=auth}} {{}}
        (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16))))
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (call $ask) (call $ask) (call $ask)
        (i32.const 1))
      (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (global.set $left (i32.sub (global.get $left) (i32.const 1)))
        (if (i32.eqz (global.get $left)) (then
          (drop (call $add (i32.const 2) {{x-asked}} {{3}}))
          (drop (call $continue (i32.const 1))))))"#;
    let config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    let (trial, _) = calling(module(functions), config, |_, _| Ok(Response::new("".into())));
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.field("x-asked"), got.text().as_str()), (200, "3", "ok"));
}

#[tokio::test]
async fn a_grpc_call_is_answered_with_its_message() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $grpc_call {{auth}} {{pkg.Service}} {{Check}} {{}} {{ask}} (i32.const 500) (i32.const 16))
          (then (unreachable)))
        (i32.const 1))
      (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
        (drop (call $buffer (i32.const 5) (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 4)))
        (drop (call $set (i32.const 0) {{x-message}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
        (drop (call $continue (i32.const 0))))
      (func (export "proxy_on_grpc_close") (param i32 i32 i32)
        (if (i32.eqz (local.get 2)) (then (unreachable)))
        (drop (call $reply (i32.const 403) {{}} {{}} {{}} (i32.const -1))))"#;
    let config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    for (status, expected) in [("0", 200), ("7", 403)] {
        let (trial, _) = calling(module(functions), config.clone(), move |_, request| {
            assert_eq!(
                (request.uri().path(), &request.body()[..]),
                ("/pkg.Service/Check", &b"\0\0\0\0\x03ask"[..])
            );
            assert_eq!(request.headers()["content-type"], "application/grpc");
            assert_eq!(request.headers()["grpc-timeout"], "500m");
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", status.parse().unwrap());
            let body =
                gateway_core::http::body::Body::full_with_trailers(&b"\0\0\0\0\x06answer"[..], trailers);
            Ok(Response::new(body))
        });
        assert_eq!(trial.get("/", &[]).await.status, expected);
        assert!(trial.asked().iter().all(|asked| asked.field("x-message") == "answer"));
    }
}

#[tokio::test]
async fn a_call_to_a_server_that_is_not_configured_is_refused() {
    let trial = trial(ASKS, json!({}));
    assert_eq!(trial.get("/", &[]).await.status, 500, "the module takes it for a failure");
}

#[tokio::test(start_paused = true)]
async fn the_timer_calls_the_module() {
    let functions = r#"
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $tick (i32.const 100)))
        (drop (call $metric (i32.const 0) {{ticks}} (i32.const 16)))
        (i32.const 1))
      (func (export "proxy_on_tick") (param i32) (drop (call $increment (i32.load (i32.const 16)) (i64.const 1))))"#;
    let (trial, world) = calling(module(functions), json!({}), |_, _| Err(Cause::ConnectFailed));
    // An instance begins with the first exchange of its worker.
    trial.get("/", &[]).await;
    for _ in 0..5 {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(101)).await;
    }
    tokio::task::yield_now().await;
    let metrics = world.meters().text();
    assert!(
        metrics.contains("ferrum_wasm_counter_total{plugin_config=\"p0\",name=\"ticks\"} 5"),
        "{metrics}"
    );
}

#[tokio::test]
async fn data_is_shared_and_changed_only_by_who_knows_it() {
    let trial = trial(
        r#"(func $status (param $n i32) (i32.store8 (i32.const 64) (i32.add (i32.const 48) (local.get $n))))
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $status (call $shared_get {{k}} (i32.const 0) (i32.const 4) (i32.const 8)))
             (drop (call $add (i32.const 0) {{x-s}} (i32.const 64) (i32.const 1)))
             (call $status (call $shared_set {{k}} {{v}} (i32.const 9)))
             (drop (call $add (i32.const 0) {{x-s}} (i32.const 64) (i32.const 1)))
             (call $status (call $shared_set {{k}} {{v}} (i32.load (i32.const 8))))
             (drop (call $add (i32.const 0) {{x-s}} (i32.const 64) (i32.const 1)))
             (i32.const 0))"#,
        json!({}),
    );
    for expected in [["1", "8", "0"], ["0", "8", "0"]] {
        trial.get("/", &[]).await;
        let asked = trial.asked().pop().unwrap();
        let said: Vec<&str> =
            asked.headers.get_all("x-s").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(said, expected, "not found, another number, the right number");
    }
}

#[tokio::test]
async fn a_queue_is_announced_and_has_a_length() {
    let functions = r#"
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $queue {{q}} (i32.const 16)))
        (drop (call $metric (i32.const 0) {{taken}} (i32.const 20)))
        (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $push (i32.load (i32.const 16)) {{1}}))
        (drop (call $push (i32.load (i32.const 16)) {{2}}))
        (i32.ne (i32.const 10) (call $push (i32.load (i32.const 16)) {{3}})))
      (func (export "proxy_on_queue_ready") (param i32 i32)
        (loop $more
          (if (i32.eqz (call $pop (local.get 1) (i32.const 0) (i32.const 4))) (then
            (drop (call $increment (i32.load (i32.const 20)) (i64.const 1)))
            (br $more)))))"#;
    let config = json!({ "max_queue_length": 2 });
    let (trial, world) = calling(module(functions), config, |_, _| Err(Cause::ConnectFailed));
    assert_eq!(trial.get("/", &[]).await.status, 200);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let metrics = world.meters().text();
    assert!(
        metrics.contains("ferrum_wasm_counter_total{plugin_config=\"p0\",name=\"taken\"} 2"),
        "{metrics}"
    );
}

/// Asks `auth` and lets the request pass at once.
const ASKS_BESIDE: &str = r#"
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $metric (i32.const 0) {{told}} (i32.const 20)))
    (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $http_call {{auth}} {{map :method=GET;:path=/;:authority=auth}} {{}}
      (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16)))
    (i32.const 0))"#;

/// A request to it, and the call that it makes.
fn beside(
    functions: &str,
) -> (Arc<Trial>, tokio::sync::mpsc::UnboundedReceiver<crate::testing::Served>, World) {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module(&format!("{ASKS_BESIDE}{functions}")));
    let (world, scripted) = crate::testing::served(disk);
    let config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    (Arc::new(of_world(&world, config)), scripted, world)
}

#[tokio::test]
async fn nothing_waits_for_a_call_that_the_module_does_not_wait_for() {
    let seen = r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))"#;
    for functions in ["", seen] {
        let (trial, mut scripted, _) = beside(functions);
        for body in ["", "kept"] {
            let got = trial.request("POST", "/", &[], body).await;
            assert_eq!((got.status, &trial.asked().pop().unwrap().body[..]), (200, body.as_bytes()));
            let call = scripted.recv().await.unwrap();
            tokio::task::yield_now().await;
            assert!(call.is_given_up(), "it ends with its exchange");
        }
    }
}

#[tokio::test]
async fn the_answer_to_such_a_call_finds_an_exchange_that_goes_on() {
    let answered = |what: &str| {
        format!(
            r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
               (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
                 (drop (call $increment (i32.load (i32.const 20)) (i64.const 1)))
                 {what})"#
        )
    };
    for (what, expected) in [
        (
            r"(drop (call $add (i32.const 2) {{x-asked}} {{1}})) (drop (call $continue (i32.const 1)))",
            (200, "1"),
        ),
        ("(drop (call $reply (i32.const 403) {{}} {{no}} {{}} (i32.const -1)))", (403, "")),
        ("(unreachable)", (500, "")),
    ] {
        let (trial, mut scripted, world) = beside(&answered(what));
        grpc::local(async {
            let asking = {
                let trial = trial.clone();
                tokio::task::spawn_local(async move { trial.get("/", &[]).await })
            };
            let call = scripted.recv().await.unwrap();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!asking.is_finished() && trial.asked().len() == 1, "the response is held back: {what}");
            call.end(Ok(Response::new("".into())));
            let got = asking.await.unwrap();
            assert_eq!((got.status, got.field("x-asked")), expected, "{what}");
        })
        .await;
        let metrics = world.meters().text();
        assert!(metrics.contains("name=\"told\"} 1"), "{what}: {metrics}");
    }
}

#[tokio::test]
async fn calls_made_for_such_an_answer_are_made() {
    let chained = r#"
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (if (i32.eqz (i32.load (i32.const 24)))
          (then
            (i32.store (i32.const 24) (i32.const 1))
            (drop (call $http_call {{auth}} {{map :method=GET;:path=/second;:authority=auth}} {{}}
              (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16))))
          (else (drop (call $continue (i32.const 1))))))"#;
    let (trial, mut scripted, _) = beside(chained);
    grpc::local(async {
        let asking = {
            let trial = trial.clone();
            tokio::task::spawn_local(async move { trial.get("/", &[]).await })
        };
        for path in ["/", "/second"] {
            let call = scripted.recv().await.unwrap();
            assert_eq!(call.request.uri().path(), path);
            call.end(Ok(Response::new("".into())));
        }
        assert_eq!(asking.await.unwrap().status, 200);
    })
    .await;
}
