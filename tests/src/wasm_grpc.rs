//! A WebAssembly module's gRPC, to a server that speaks HTTP/2 on a real socket.

use bytes::{BufMut as _, BytesMut};
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use tokio::sync::mpsc;

use crate::support::edge::Edge;
use crate::support::h2::{Stream, data, origin, send};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::wire::Port;

/// Opens a stream for each request, has it pass when the server says `go`, and asks once with a call when the stream has ended.
const GUEST: &str = r#"(module
  (import "env" "proxy_grpc_stream" (func $stream (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_send" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_call"
    (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "authpkg.Servicehellomoreanswer")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 32768))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (if (call $stream (i32.const 1024) (i32.const 4) (i32.const 1028) (i32.const 11) (i32.const 1039) (i32.const 5)
          (i32.const 0) (i32.const 0) (i32.const 16)) (then (unreachable)))
    (if (call $send (i32.load (i32.const 16)) (i32.const 1039) (i32.const 5) (i32.const 0)) (then (unreachable)))
    (i32.const 1))
  (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
    (drop (call $buffer (i32.const 5) (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 4)))
    (drop (call $add (i32.const 0) (i32.const 1048) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (if (i32.eq (local.get 2) (i32.const 2))
      (then (drop (call $continue (i32.const 0))))
      (else (drop (call $send (local.get 1) (i32.const 1044) (i32.const 4) (i32.const 0))))))
  (func (export "proxy_on_grpc_close") (param i32 i32 i32)
    (i32.store8 (i32.const 64) (i32.add (i32.const 48) (local.get 2)))
    (drop (call $add (i32.const 0) (i32.const 1048) (i32.const 6) (i32.const 64) (i32.const 1)))
    (drop (call $ask (i32.const 1024) (i32.const 4) (i32.const 1028) (i32.const 11) (i32.const 1044) (i32.const 4)
      (i32.const 0) (i32.const 0) (i32.const 1039) (i32.const 5) (i32.const 5000) (i32.const 20)))))"#;

/// A gateway with the module in front of a target, and the streams of the server that the module talks to.
struct Stand {
    edge: Edge,
    target: Standing,
    streams: mpsc::UnboundedReceiver<Stream>,
    file: std::path::PathBuf,
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.file));
    }
}

impl Stand {
    async fn new(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("ferrum-{name}-{}.wasm", std::process::id()));
        std::fs::write(&file, wat::parse_str(GUEST).unwrap()).unwrap();
        let port = Port::listen(None).await;
        let number = port.address.port();
        let target = Standing::start("o").await;
        let edge = Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
             plugin_configs:\n  - {{id: p, plugin_name: wasm, scope: proxy_group, config: \
             {{path: '{}', calls: {{auth: {{url: 'http://127.0.0.1:{number}'}}}}}}}}\n",
            target.backend(),
            file.display(),
        ));
        Self { edge, target, streams: origin(port), file }
    }

    /// The server's side of the next stream or call.
    async fn serve(&mut self) -> (http::Request<h2::RecvStream>, SendStream<bytes::Bytes>) {
        let (request, mut respond) = soon(self.streams.recv()).await.unwrap();
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        (request, respond.send_response(head, false).unwrap())
    }
}

fn message(text: &[u8]) -> BytesMut {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(text.len()).unwrap());
    framed.extend_from_slice(text);
    framed
}

fn status(code: u16) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(code))])
}

#[tokio::test]
async fn a_stream_goes_both_ways_and_ends_with_its_exchange() {
    let mut stand = Stand::new("wasm-stream").await;
    let wire = stand.edge.wire().await;
    let asking = tokio::spawn(async move {
        let mut wire = wire;
        wire.send(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await;
        wire.rest().await
    });
    let (request, mut answers) = stand.serve().await;
    assert_eq!(request.uri().path(), "/pkg.Service/hello");
    let mut said = request.into_body();
    assert_eq!(data(&mut said).await.unwrap().unwrap(), message(b"hello"));
    send(&mut answers, &message(b"one"), false).await.unwrap();
    assert_eq!(data(&mut said).await.unwrap().unwrap(), message(b"more"));
    send(&mut answers, &message(b"go"), false).await.unwrap();
    let got = String::from_utf8_lossy(&asking.await.unwrap()).into_owned();
    assert!(got.contains("answer: one\n") && got.contains("answer: go\n"), "{got}");
    let reason = soon(std::future::poll_fn(|cx| answers.poll_reset(cx))).await.unwrap();
    assert_eq!(reason, Reason::CANCEL);
    assert_eq!(stand.target.served(), 1);
}

#[tokio::test]
async fn a_stream_that_has_ended_is_told_of_and_a_call_takes_its_place() {
    let mut stand = Stand::new("wasm-call").await;
    let wire = stand.edge.wire().await;
    let asking = tokio::spawn(async move {
        let mut wire = wire;
        wire.send(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await;
        wire.rest().await
    });
    let (_request, mut answers) = stand.serve().await;
    answers.send_trailers(status(7)).unwrap();
    let (request, mut answers) = stand.serve().await;
    assert_eq!(request.uri().path(), "/pkg.Service/more");
    assert_eq!(request.headers()["grpc-timeout"], "5000m");
    let mut said = request.into_body();
    assert_eq!(data(&mut said).await.unwrap().unwrap(), message(b"hello"));
    assert_eq!(data(&mut said).await.unwrap(), None);
    send(&mut answers, &message(b"go"), false).await.unwrap();
    answers.send_trailers(status(0)).unwrap();
    let got = String::from_utf8_lossy(&asking.await.unwrap()).into_owned();
    assert!(got.contains("answer: 7\n") && got.contains("answer: go\n"), "{got}");
}
