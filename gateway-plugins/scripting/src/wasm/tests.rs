//! The plugin through the real pipeline, with modules written in WebAssembly's text format.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::http::reply::Cause;
use gateway_core::plugin::World;
use gateway_core::testing::Trial;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::WASM;
use crate::testing::{Disk, world};

mod calls;
mod compilers;
mod conduit;
mod failures;
mod grpc;
mod limits;
mod streams;

/// What every module of these tests begins with: everything it may import, and an allocator that always gives the same place.
const PRELUDE: &str = r#"
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response" (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_http_call"
    (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_call"
    (func $grpc_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_stream"
    (func $grpc_stream (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_send" (func $grpc_send (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_close" (func $grpc_close (param i32) (result i32)))
  (import "env" "proxy_grpc_cancel" (func $grpc_cancel (param i32) (result i32)))
  (import "env" "proxy_get_status" (func $call_status (param i32 i32 i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_close_stream" (func $close (param i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
  (import "env" "proxy_get_shared_data" (func $shared_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $shared_set (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_register_shared_queue" (func $queue (param i32 i32 i32) (result i32)))
  (import "env" "proxy_enqueue_shared_queue" (func $push (param i32 i32 i32) (result i32)))
  (import "env" "proxy_dequeue_shared_queue" (func $pop (param i32 i32 i32) (result i32)))
  (import "env" "proxy_define_metric" (func $metric (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
  (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 32768))
"#;

/// A module of these functions. `{{text}}` in them is the place and length of the text; `{{map a=1;b=2}}` of a map.
pub(super) fn module(functions: &str) -> Vec<u8> {
    let (mut text, mut data, mut at) = (String::new(), String::new(), 1024);
    let mut rest = functions;
    while let Some((before, after)) = rest.split_once("{{") {
        let (quoted, after) = after.split_once("}}").expect("an end");
        let bytes = match quoted.strip_prefix("map ") {
            Some(pairs) => map(pairs),
            None => quoted.replace("\\0", "\0").into_bytes(),
        };
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        data += format!("(data (i32.const {at}) \"{escaped}\")\n").as_str();
        text += before;
        text += format!("(i32.const {at}) (i32.const {})", bytes.len()).as_str();
        at += bytes.len();
        rest = after;
    }
    let source = format!("(module {PRELUDE} {text} {rest} {data})");
    wat::parse_str(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn map(pairs: &str) -> Vec<u8> {
    let pairs: Vec<(&str, &str)> =
        pairs.split(';').map(|pair| pair.trim().split_once('=').expect("a pair")).collect();
    let mut bytes = u32::try_from(pairs.len()).unwrap().to_le_bytes().to_vec();
    for length in pairs.iter().flat_map(|(name, value)| [name.len(), value.len()]) {
        bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
    }
    for part in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(part.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// A module, as the plugin `wasm` of the only proxy, with these settings besides, and servers that answer so.
pub(super) fn calling(
    module: Vec<u8>,
    config: Value,
    answer: impl Fn(&str, &Request<Bytes>) -> Result<Response<gateway_core::http::body::Body>, Cause>
    + Send
    + Sync
    + 'static,
) -> (Trial, World) {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module);
    let world = world(answer, disk);
    (of_world(&world, config), world)
}

/// The plugin `wasm` of the only proxy in this world, whose disk has the module.
pub(super) fn of_world(world: &World, config: Value) -> Trial {
    let mut config = config;
    config["path"] = json!("m.wasm");
    let spec = json!({
        "proxies": [{
            "id": "a", "listen_path": "/", "strip_listen_path": false,
            "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
        }],
        "plugin_configs": [{ "id": "p0", "plugin_name": "wasm", "config": config, "proxy_id": "a" }],
    });
    Trial::of_spec(&[WASM], &spec.to_string(), world)
}

/// The same, with nobody to call.
pub(super) fn trial(functions: &str, config: Value) -> Trial {
    calling(module(functions), config, |_, _| Err(Cause::ConnectFailed)).0
}

#[tokio::test]
async fn heads_are_read_and_changed() {
    let trial = trial(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $get (i32.const 0) {{:path}} (i32.const 0) (i32.const 4)))
            (drop (call $set (i32.const 0) {{x-path}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (drop (call $add (i32.const 0) {{x-a}} {{2}}))
            (drop (call $remove (i32.const 0) {{x-gone}}))
            (drop (call $set (i32.const 0) {{:path}} {{/new?x=1}}))
            (drop (call $set (i32.const 0) {{:authority}} {{other.test}}))
            (drop (call $set (i32.const 0) {{:method}} {{PUT}}))
            (drop (call $property {{source\0address}} (i32.const 0) (i32.const 4)))
            (drop (call $set (i32.const 0) {{x-from}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (i32.const 0))
           (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (drop (call $get (i32.const 2) {{:status}} (i32.const 0) (i32.const 4)))
            (drop (call $set (i32.const 2) {{x-status}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (drop (call $set (i32.const 2) {{:status}} {{203}}))
            (i32.const 0))"#,
        json!({}),
    );
    let got = trial.get("/old?y=1", &[("x-a", "1"), ("x-gone", "1")]).await;
    assert_eq!((got.status, got.field("x-status"), got.text().as_str()), (203, "200", "ok"));
    let asked = trial.asked().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("PUT", "/new?x=1"));
    assert_eq!(
        ["x-path", "host", "x-from"].map(|name| asked.field(name)),
        ["/old?y=1", "other.test", "192.0.2.1:4000"]
    );
    assert_eq!(asked.headers.get_all("x-a").iter().count(), 2);
    assert!(!asked.headers.contains_key("x-gone"));
}

#[tokio::test]
async fn a_module_answers_itself() {
    let trial = trial(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $reply (i32.const 429) {{details}} {{slow down}}
              {{map retry-after=5;content-length=1;x-a=b}} (i32.const -1)))
            (i32.const 1))"#,
        json!({}),
    );
    let got = trial.get("/", &[]).await;
    assert_eq!(
        (got.status, got.text().as_str(), got.field("content-type")),
        (429, "slow down", "text/plain")
    );
    assert_eq!([got.field("retry-after"), got.field("x-a"), got.field("content-length")], ["5", "b", ""]);
    assert_eq!((trial.asked().len(), trial.records()[0].reason), (0, Some("wasm")));
}

#[tokio::test]
async fn a_grpc_client_gets_the_status_that_a_module_says() {
    let functions = |status: i32| {
        format!(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
                (drop (call $reply (i32.const 403) {{{{}}}} {{{{100% aborted}}}} {{{{map x-a=b}}}} (i32.const {status})))
                (i32.const 1))"#
        )
    };
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    for (status, expected) in [(10, "10"), (-1, "7")] {
        let trial = trial(&functions(status), json!({}));
        let got = trial.request("POST", "/", &grpc, "").await;
        assert_eq!(
            (got.status, got.field("grpc-status"), got.field("grpc-message"), got.field("x-a")),
            (200, expected, "100%25 aborted", "b")
        );
        assert_eq!((trial.get("/", &[]).await.status, trial.asked().len()), (403, 0));
    }
}

#[tokio::test]
async fn waiting_for_events_comes_back_at_once() {
    // A clock, and reading from a descriptor.
    let trial = trial(
        r#"(func $is (param i32) (if (i32.eqz (local.get 0)) (then (unreachable))))
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (i64.store (i32.const 256) (i64.const 7))
             (i64.store (i32.const 304) (i64.const 8))
             (i32.store8 (i32.const 312) (i32.const 1))
             (call $is (i32.eqz (call $poll (i32.const 256) (i32.const 512) (i32.const 2) (i32.const 640))))
             (call $is (i32.eq (i32.load (i32.const 640)) (i32.const 2)))
             (call $is (i64.eq (i64.load (i32.const 512)) (i64.const 7)))
             (call $is (i32.eqz (i32.load (i32.const 520))))
             (call $is (i64.eq (i64.load (i32.const 544)) (i64.const 8)))
             (call $is (i32.eq (i32.load16_u (i32.const 552)) (i32.const 8)))
             (call $is (i32.eq (i32.load8_u (i32.const 554)) (i32.const 1)))
             (call $is (i32.eq (call $poll (i32.const 256) (i32.const 512) (i32.const 0) (i32.const 640)) (i32.const 28)))
             (call $is (i32.eq (call $poll (i32.const 256) (i32.const 512) (i32.const 65) (i32.const 640)) (i32.const 28)))
             (call $is (i32.eq (call $poll (i32.const -2) (i32.const 512) (i32.const 1) (i32.const 640)) (i32.const 21)))
             (i32.const 0))"#,
        json!({}),
    );
    assert_eq!(trial.get("/", &[]).await.status, 200);
}

/// Holds the body back until it has all of it, and puts something else in its place.
const REPLACES_BODY: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $remove (i32.const 0) {{content-length}}))
    (i32.const 0))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
    (drop (call $buffer (i32.const 0) (i32.const 0) (i32.const 1000) (i32.const 0) (i32.const 4)))
    (drop (call $set (i32.const 0) {{x-body}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (drop (call $replace (i32.const 0) (i32.const 0) (i32.const -1) {{changed}}))
    (i32.const 0))"#;

#[tokio::test]
async fn a_body_is_held_back_and_changed() {
    let trial = trial(REPLACES_BODY, json!({}));
    trial.request("POST", "/", &[("content-length", "3")], "abc").await;
    let asked = trial.asked().pop().unwrap();
    assert_eq!(
        (&asked.body[..], asked.field("x-body"), asked.field("content-length")),
        (&b"changed"[..], "abc", "7")
    );
}

#[tokio::test]
async fn a_body_passes_in_pieces() {
    let trial = trial(
        r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
             (drop (call $remove (i32.const 2) {{content-length}}))
             (i32.const 0))
           (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
             (drop (call $replace (i32.const 1) (i32.const -1) (i32.const 0) {{.}}))
             (i32.const 0))
           (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
             (drop (call $add (i32.const 3) {{x-trailer}} {{1}}))
             (i32.const 0))"#,
        json!({}),
    )
    .answering(|_| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-own", http::HeaderValue::from_static("0"));
        Response::new(gateway_core::http::body::Body::full_with_trailers("one", trailers))
    });
    let got = trial.get("/", &[("te", "trailers")]).await;
    assert_eq!((got.status, got.text().as_str(), got.cut), (200, "one.", None));
    let trailers = got.trailers.expect("trailers");
    assert_eq!(
        (&trailers["x-own"], &trailers["x-trailer"]),
        (&"0".parse::<http::HeaderValue>().unwrap(), &"1".parse::<http::HeaderValue>().unwrap())
    );
}

#[tokio::test]
async fn what_a_module_does_not_look_at_passes_as_it_is() {
    let trial = trial("", json!({}));
    let got = trial.request("POST", "/x?y", &[("x-a", "1")], "body").await;
    assert_eq!((got.status, got.text().as_str()), (200, "ok"));
    let asked = trial.asked().pop().unwrap();
    assert_eq!((asked.path.as_str(), &asked.body[..]), ("/x?y", &b"body"[..]));
}

#[tokio::test]
async fn settings_reach_the_module() {
    let functions = r#"
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $buffer (i32.const 7) (i32.const 0) (i32.const 1000) (i32.const 0) (i32.const 4)))
        (drop (call $shared_set {{settings}} (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 0)))
        (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $shared_get {{settings}} (i32.const 0) (i32.const 4) (i32.const 8)))
        (drop (call $set (i32.const 0) {{x-settings}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
        (drop (call $property {{plugin_root_id}} (i32.const 0) (i32.const 4)))
        (drop (call $set (i32.const 0) {{x-root}} (i32.load (i32.const 0)) (i32.load (i32.const 4))))
        (i32.const 0))"#;
    for (settings, expected) in [(json!("plain"), "plain"), (json!({ "a": [1] }), r#"{"a":[1]}"#)] {
        let trial = trial(functions, json!({ "settings": settings, "root_id": "r" }));
        trial.get("/", &[]).await;
        let asked = trial.asked().pop().unwrap();
        assert_eq!((asked.field("x-settings"), asked.field("x-root")), (expected, "r"));
    }
}
