//! gRPC streams, and calls that are cancelled.

use gateway_core::http::body::{Body, GrpcMessage};
use gateway_core::plugin::world::calls::CallError;
use gateway_core::testing::Got;
use http::HeaderMap;
use http_body::Frame;
use tokio::sync::mpsc;

use super::*;
use crate::testing::{Served, served};

/// Asks a server by a stream before a request may pass, and answers what the server says to each message with `more`.
const WATCHES: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (if (call $grpc_stream {{auth}} {{pkg.Service}} {{Watch}} {{map x-a=1}} (i32.const 16)) (then (unreachable)))
    (if (call $grpc_send (i32.load (i32.const 16)) {{hello}} (i32.const 0)) (then (unreachable)))
    (i32.const 1))
  (func (export "proxy_on_grpc_receive_initial_metadata") (param i32 i32 i32)
    (if (i32.eqz (call $get (i32.const 4) {{x-head}} (i32.const 0) (i32.const 4))) (then
      (drop (call $set (i32.const 0) {{x-head}} (i32.load (i32.const 0)) (i32.load (i32.const 4)))))))
  (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
    (if (i32.ne (local.get 1) (i32.load (i32.const 16))) (then (unreachable)))
    (drop (call $buffer (i32.const 5) (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 4)))
    (if (i32.ne (local.get 2) (i32.load (i32.const 4))) (then (unreachable)))
    (drop (call $add (i32.const 0) {{x-message}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (if (i32.eq (local.get 2) (i32.const 2)) (then (drop (call $continue (i32.const 0))) (return)))
    (drop (call $grpc_send (local.get 1) {{more}} (i32.const 1))))
  (func (export "proxy_on_grpc_receive_trailing_metadata") (param i32 i32 i32)
    (drop (call $get (i32.const 5) {{grpc-status}} (i32.const 0) (i32.const 4)))
    (i32.store8 (i32.const 80) (i32.load8_u (i32.load (i32.const 0)))))
  (func (export "proxy_on_grpc_close") (param i32 i32 i32)
    (i32.store8 (i32.const 81) (i32.add (i32.const 48) (i32.div_u (local.get 2) (i32.const 10))))
    (i32.store8 (i32.const 82) (i32.add (i32.const 48) (i32.rem_u (local.get 2) (i32.const 10))))
    (drop (call $call_status (i32.const 8) (i32.const 0) (i32.const 4)))
    (if (i32.ne (local.get 2) (i32.load (i32.const 8))) (then (unreachable)))
    (memory.copy (i32.const 83) (i32.load (i32.const 0)) (i32.load (i32.const 4)))
    (drop (call $reply (i32.const 403) {{}} (i32.const 80) (i32.add (i32.const 3) (i32.load (i32.const 4)))
      {{}} (i32.const -1))))"#;

fn watching(functions: &str, more: Value) -> (Arc<Trial>, mpsc::UnboundedReceiver<Served>) {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module(functions));
    let (world, scripted) = served(disk);
    let mut config = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (Arc::new(of_world(&world, config)), scripted)
}

/// A request under way.
pub(super) fn asking(trial: &Arc<Trial>, path: &'static str) -> tokio::task::JoinHandle<Got> {
    let trial = trial.clone();
    tokio::task::spawn_local(async move { trial.get(path, &[]).await })
}

pub(super) fn message(text: &str) -> Bytes {
    let mut bytes = bytes::BytesMut::new();
    GrpcMessage { compressed: false, payload: Bytes::copy_from_slice(text.as_bytes()) }.write(&mut bytes);
    bytes.freeze()
}

pub(super) fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

/// The next piece of a body; `None` at its end.
pub(super) async fn piece(body: &mut Body) -> Option<Bytes> {
    let frame = std::future::poll_fn(|cx| body.poll_next(cx)).await?;
    Some(frame.expect("no error").into_data().expect("data"))
}

pub(super) async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_request_waits_for_what_a_stream_brings() {
    local(async {
        let (trial, mut scripted) = watching(WATCHES, json!({}));
        let got = asking(&trial, "/");
        let call = scripted.recv().await.unwrap();
        let head = &call.request;
        assert_eq!((head.method().as_str(), head.uri().path()), ("POST", "/pkg.Service/Watch"));
        assert_eq!(
            ["content-type", "te", "x-a"].map(|name| head.headers()[name].to_str().unwrap()),
            ["application/grpc", "trailers", "1"]
        );
        let (mut said, answers) = call.answer(Response::builder().header("x-head", "h").body(()).unwrap());
        assert_eq!(piece(&mut said).await.unwrap(), message("hello"));
        // In two pieces, and two in one.
        let first = message("one");
        answers.send(Frame::data(first.slice(..3))).unwrap();
        answers.send(Frame::data([&first[3..], &message("go")].concat().into())).unwrap();
        assert_eq!(piece(&mut said).await.unwrap(), message("more"));
        assert_eq!(piece(&mut said).await, None, "the guest has ended its direction");
        assert_eq!(got.await.unwrap().status, 200);
        let asked = trial.asked().pop().unwrap();
        let messages: Vec<_> =
            asked.headers.get_all("x-message").iter().map(|message| message.to_str().unwrap()).collect();
        assert_eq!((asked.field("x-head"), messages), ("h", vec!["one", "go"]));
        // The exchange is over, and with it the stream.
        answers.closed().await;
    })
    .await;
}

/// How a server ends a stream, and what the guest answers: trailing status, status, message.
type Ending = (Result<(Response<()>, Vec<Frame<Bytes>>), Cause>, &'static str);

fn endings() -> Vec<Ending> {
    let ok = || Response::new(());
    let refused = fields(&[("grpc-status", "7"), ("grpc-message", "no%20way")]);
    let compressed = Bytes::from_static(b"\x01\0\0\0\x01x");
    let status = |status: u16| Response::builder().status(status).body(()).unwrap();
    vec![
        (Ok((ok(), vec![Frame::trailers(refused)])), "707no way"),
        (Ok((ok(), vec![Frame::trailers(HeaderMap::new())])), "\x0002the stream ended without a status"),
        (Ok((ok(), vec![])), "\x0002the stream ended without a status"),
        (Ok((ok(), vec![Frame::data(compressed)])), "\x0013a message is compressed, which was not asked for"),
        (
            Ok((ok(), vec![Frame::data(Bytes::from_static(b"\x07\0\0\0\x01x"))])),
            "\x0013the body's framing is broken: unknown flag of a gRPC message",
        ),
        (
            Ok((ok(), vec![Frame::data(message(&"x".repeat(65)))])),
            "\x0008the body is larger than the limit of 64 bytes",
        ),
        (
            Ok((
                ok(),
                vec![Frame::data(message("x").slice(..3)), Frame::trailers(fields(&[("grpc-status", "0")]))],
            )),
            "013a message is cut off",
        ),
        (Ok((status(503), vec![])), "\x0014the server answered 503"),
        (Ok((status(404), vec![])), "\x0012the server answered 404"),
        (Err(Cause::ConnectFailed), "\x0014connect_failed"),
    ]
}

#[tokio::test]
async fn the_guest_hears_how_a_stream_ended() {
    for (ending, expected) in endings() {
        local(async {
            let calls = json!({ "calls": { "auth": { "url": "http://auth.test", "max_response": 64 } } });
            let (trial, mut scripted) = watching(WATCHES, calls);
            let got = asking(&trial, "/");
            let call = scripted.recv().await.unwrap();
            match ending {
                Err(cause) => call.end(Err(CallError::new(cause))),
                Ok((head, frames)) => {
                    let (_, answers) = call.answer(head);
                    for frame in frames {
                        answers.send(frame).unwrap();
                    }
                }
            }
            let got = got.await.unwrap();
            assert_eq!((got.status, got.text().as_str()), (403, expected));
        })
        .await;
    }
}

#[tokio::test]
async fn a_head_that_is_all_has_trailing_metadata_alone() {
    local(async {
        let (trial, mut scripted) = watching(WATCHES, json!({}));
        let got = asking(&trial, "/");
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = fields(&[("grpc-status", "5"), ("x-head", "h")]);
        scripted.recv().await.unwrap().end(Ok(response));
        assert_eq!(got.await.unwrap().text(), "505");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_a_deadline() {
    local(async {
        let calls = json!({ "calls": { "auth": { "url": "http://auth.test", "stream_timeout": "5000ms" } } });
        let (trial, mut scripted) = watching(WATCHES, calls);
        let (begun, got) = (tokio::time::Instant::now(), asking(&trial, "/"));
        let (_said, answers) = scripted.recv().await.unwrap().answer(Response::new(()));
        assert_eq!(got.await.unwrap().text(), "\x0004not within its timeout");
        assert_eq!(begun.elapsed().as_secs(), 5);
        answers.closed().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_at_once_is_not_opened_again_and_again() {
    let functions = r#"
      (global $left (mut i32) (i32.const 50))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $open (i32.const 16)))
        (i32.const 1))
      (func (export "proxy_on_grpc_close") (param i32 i32 i32)
        (global.set $left (i32.sub (global.get $left) (i32.const 1)))
        (if (i32.eqz (global.get $left))
          (then (call $says (i32.const 50)))
          (else (drop (call $open (i32.const 16))))))"#;
    local(async {
        let (trial, mut scripted) = watching(&format!("{SAYS}{functions}"), json!({}));
        let (begun, got) = (tokio::time::Instant::now(), asking(&trial, "/"));
        for _ in 0..50 {
            scripted.recv().await.unwrap().end(Err(CallError::new(Cause::ConnectFailed)));
        }
        assert_eq!(got.await.unwrap().text(), "50");
        assert!(begun.elapsed().as_millis() >= 500, "{:?}", begun.elapsed());
    })
    .await;
}

/// Ends the exchange with this many of something in two digits.
const SAYS: &str = r#"
  (func $says (param $n i32)
    (i32.store8 (i32.const 64) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 10))))
    (i32.store8 (i32.const 65) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (drop (call $reply (i32.const 403) {{}} (i32.const 64) (i32.const 2) {{}} (i32.const -1))))
  (func $is (param $status i32) (param $expected i32)
    (if (i32.ne (local.get $status) (local.get $expected)) (then (call $says (local.get $status)) (unreachable))))
  (func $open (param $id i32) (result i32)
    (call $grpc_stream {{auth}} {{pkg.Service}} {{Watch}} {{}} (local.get $id)))"#;

#[tokio::test]
async fn streams_have_a_limit() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (local $n i32)
        (loop $more
          (if (i32.eqz (call $open (i32.const 16))) (then
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br $more))))
        (call $is (call $open (i32.const 16)) (i32.const 10))
        ;; Cancelled ones make room, also a thousand times.
        (call $is (call $grpc_cancel (i32.load (i32.const 16))) (i32.const 0))
        (call $is (call $open (i32.const 16)) (i32.const 0))
        (loop $again
          (call $is (call $grpc_cancel (i32.load (i32.const 16))) (i32.const 0))
          (call $is (call $open (i32.const 16)) (i32.const 0))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $n) (i32.const 1000))))
        (call $says (i32.sub (local.get $n) (i32.const 993)))
        (i32.const 1))"#;
    local(async {
        let more = json!({ "max_calls": 7, "timeout": "1000ms" });
        let (trial, _scripted) = watching(&format!("{SAYS}{functions}"), more);
        let got = trial.get("/", &[]).await;
        assert_eq!((got.status, got.text().as_str()), (403, "07"));
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_done_has_its_status() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $is (call $grpc_stream {{other}} {{S}} {{M}} {{}} (i32.const 16)) (i32.const 4))
        (call $is (call $grpc_stream {{auth}} {{S s}} {{M}} {{}} (i32.const 16)) (i32.const 2))
        (call $is (call $grpc_stream {{auth}} {{S}} {{M}} {{map te=x}} (i32.const 16)) (i32.const 2))
        (call $is (call $grpc_stream {{auth}} {{S}} {{M}} {{}} (i32.const -2)) (i32.const 6))
        (call $is (call $grpc_stream {{auth}} {{S}} {{M}} (i32.const -9) (i32.const 8) (i32.const 16)) (i32.const 6))
        (call $is (call $grpc_send (i32.const 77) {{x}} (i32.const 0)) (i32.const 1))
        (call $is (call $grpc_close (i32.const 77)) (i32.const 1))
        (call $is (call $grpc_cancel (i32.const 77)) (i32.const 1))
        ;; A call takes one message, and is ended by either.
        (call $is (call $grpc_call {{auth}} {{S}} {{M}} {{}} {{ask}} (i32.const 500) (i32.const 20)) (i32.const 0))
        (call $is (call $grpc_send (i32.load (i32.const 20)) {{x}} (i32.const 0)) (i32.const 2))
        (call $is (call $grpc_close (i32.load (i32.const 20))) (i32.const 0))
        (call $is (call $grpc_cancel (i32.load (i32.const 20))) (i32.const 1))
        ;; A call over HTTP is none of gRPC's.
        (call $is (call $http_call {{auth}} {{map :method=GET;:path=/;:authority=auth}} {{}}
          (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 20)) (i32.const 0))
        (call $is (call $grpc_cancel (i32.load (i32.const 20))) (i32.const 1))
        ;; The failed ones above have left no room taken.
        (call $is (call $open (i32.const 16)) (i32.const 0))
        (call $is (call $open (i32.const 24)) (i32.const 10))
        (call $is (call $grpc_send (i32.load (i32.const 16)) (i32.const -2) (i32.const 8) (i32.const 0)) (i32.const 6))
        ;; 5 bytes come before each message, and 32 have room.
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{0123456789012345678901234567}} (i32.const 0)) (i32.const 10))
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{012345678901234567890123456}} (i32.const 0)) (i32.const 0))
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{}} (i32.const 0)) (i32.const 10))
        (call $is (call $grpc_close (i32.load (i32.const 16))) (i32.const 0))
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{}} (i32.const 0)) (i32.const 2))
        (call $is (call $grpc_close (i32.load (i32.const 16))) (i32.const 0))
        (call $is (call $grpc_cancel (i32.load (i32.const 16))) (i32.const 0))
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{x}} (i32.const 0)) (i32.const 1))
        (call $says (i32.const 99))
        (i32.const 1))"#;
    local(async {
        let (trial, _scripted) =
            watching(&format!("{SAYS}{functions}"), json!({ "max_calls": 2, "max_body": 32 }));
        assert_eq!(trial.get("/", &[]).await.text(), "99");
    })
    .await;
}

#[tokio::test]
async fn streams_of_other_exchanges_are_out_of_reach() {
    // The first exchange opens one; the second is told its number.
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eqz (i32.load (i32.const 16))) (then
          (drop (call $open (i32.const 16)))
          (return (i32.const 1))))
        (call $is (call $grpc_send (i32.load (i32.const 16)) {{x}} (i32.const 0)) (i32.const 1))
        (call $is (call $grpc_close (i32.load (i32.const 16))) (i32.const 1))
        (call $is (call $grpc_cancel (i32.load (i32.const 16))) (i32.const 1))
        (call $says (i32.const 99))
        (i32.const 1))
      (func (export "proxy_on_grpc_receive") (param i32 i32 i32) (drop (call $continue (i32.const 0))))"#;
    local(async {
        let (trial, mut scripted) = watching(&format!("{SAYS}{functions}"), json!({}));
        let first = asking(&trial, "/");
        let (_said, answers) = scripted.recv().await.unwrap().answer(Response::new(()));
        assert_eq!(trial.get("/", &[]).await.text(), "99");
        answers.send(Frame::data(message(""))).unwrap();
        assert_eq!(first.await.unwrap().status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_ends_and_is_not_told_of() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $grpc_call {{auth}} {{S}} {{M}} {{}} {{ask}} (i32.const 500) (i32.const 20)))
        (drop (call $open (i32.const 16)))
        (i32.const 1))
      (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
        (if (i32.eq (local.get 1) (i32.load (i32.const 20))) (then (unreachable)))
        (call $is (call $grpc_cancel (i32.load (i32.const 20))) (i32.const 0))
        (drop (call $continue (i32.const 0))))
      (func (export "proxy_on_grpc_close") (param i32 i32 i32) (unreachable))"#;
    local(async {
        let (trial, mut scripted) = watching(&format!("{SAYS}{functions}"), json!({}));
        let got = asking(&trial, "/");
        let (one, other) = (scripted.recv().await.unwrap(), scripted.recv().await.unwrap());
        let is_stream = one.request.uri().path().starts_with("/pkg");
        let (stream, call) = if is_stream { (one, other) } else { (other, one) };
        let (_said, answers) = stream.answer(Response::new(()));
        answers.send(Frame::data(message("stop"))).unwrap();
        assert_eq!(got.await.unwrap().status, 200);
        assert!(call.is_given_up());
    })
    .await;
}

#[tokio::test]
async fn a_failure_in_a_stream_costs_its_exchange() {
    let functions = r#"
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $open (i32.const 16)))
        (i32.const 1))
      (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
        (if (local.get 2) (then (unreachable)))
        (drop (call $continue (i32.const 0))))"#;
    for (on_error, expected) in [("closed", 500), ("open", 200)] {
        local(async {
            let (trial, mut scripted) =
                watching(&format!("{SAYS}{functions}"), json!({ "on_error": on_error }));
            for (text, expected) in [("", 200), ("fail", expected), ("", 200)] {
                let got = asking(&trial, "/");
                let (_said, answers) = scripted.recv().await.unwrap().answer(Response::new(()));
                answers.send(Frame::data(message(text))).unwrap();
                assert_eq!(got.await.unwrap().status, expected, "{on_error} {text}");
                answers.closed().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_module_itself_has_streams_for_as_long_as_its_instance() {
    let functions = r#"
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $open (i32.const 16)))
        (drop (call $grpc_send (i32.load (i32.const 16)) {{hello}} (i32.const 0)))
        (i32.const 1))
      (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
        (drop (call $buffer (i32.const 5) (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 4)))
        (drop (call $shared_set {{told}} (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 0)))
        (drop (call $grpc_send (local.get 1) {{thanks}} (i32.const 0))))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $get (i32.const 0) {{:path}} (i32.const 0) (i32.const 4)))
        (if (i32.eq (i32.load (i32.const 4)) (i32.const 2)) (then (unreachable)))
        (if (i32.eqz (call $shared_get {{told}} (i32.const 0) (i32.const 4) (i32.const 8))) (then
          (drop (call $set (i32.const 0) {{x-told}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))))
        (i32.const 0))"#;
    local(async {
        let (trial, mut scripted) = watching(&format!("{SAYS}{functions}"), json!({}));
        // The instance that was started to see whether the module takes its settings opens none.
        assert!(scripted.try_recv().is_err());
        assert_eq!(trial.get("/", &[]).await.status, 200);
        let (mut said, answers) = scripted.recv().await.unwrap().answer(Response::new(()));
        assert_eq!(piece(&mut said).await.unwrap(), message("hello"));
        answers.send(Frame::data(message("news"))).unwrap();
        assert_eq!(piece(&mut said).await.unwrap(), message("thanks"));
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert_eq!(trial.asked().pop().unwrap().field("x-told"), "news");
        // A failure ends the instance, and the next one has a stream of its own.
        assert_eq!(trial.get("/x", &[]).await.status, 500);
        answers.closed().await;
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert_eq!(scripted.recv().await.unwrap().request.uri().path(), "/pkg.Service/Watch");
    })
    .await;
}
