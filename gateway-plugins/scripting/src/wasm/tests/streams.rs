//! Byte streams through modules: connections, bytes in both directions, their ends.

use std::sync::Mutex;

use gateway_core::config::problem::Problems;
use gateway_core::testing::{Ended, Streaming};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use super::*;

fn spec(config: &Value, proxy: &Value) -> String {
    let mut config = config.clone();
    config["path"] = json!("m.wasm");
    let mut proxies = json!({ "id": "a", "backend_host": "target.test", "backend_port": 80 });
    proxies.as_object_mut().unwrap().extend(proxy.as_object().unwrap().clone());
    json!({
        "proxies": [proxies],
        "plugin_configs": [{ "id": "p0", "plugin_name": "wasm", "config": config, "proxy_id": "a" }],
    })
    .to_string()
}

fn tcp() -> Value {
    json!({ "listen_port": 9999, "backend_scheme": "tcp" })
}

/// A module in front of a TCP proxy; calls are answered with this status.
fn streaming(functions: &str, config: Value, status: u16) -> (Trial, World) {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module(functions));
    let world = world(move |_, _| Ok(Response::builder().status(status).body("".into()).unwrap()), disk);
    (Trial::of_spec(&[WASM], &spec(&config, &tcp()), &world), world)
}

/// What is wrong with a module of these functions for such a proxy.
fn refused(functions: &str, proxy: Value) -> Option<Problems> {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module(functions));
    let world = world(|_, _| Err(Cause::ConnectFailed), disk);
    Trial::try_of_spec(&[WASM], &spec(&json!({}), &proxy), &world).err()
}

/// A session under way.
struct Live {
    client: DuplexStream,
    target: DuplexStream,
    serving: JoinHandle<()>,
    record: Arc<Mutex<Option<Ended>>>,
}

fn live(trial: &Trial) -> Live {
    let Streaming { client, target, serving, record } = trial.stream("a");
    Live { client, target, serving: tokio::spawn(serving), record }
}

impl Live {
    /// Comes when the session is over; both ends are closed then.
    async fn ended(self) -> Ended {
        drop((self.client, self.target));
        self.serving.await.unwrap();
        let record = self.record.lock().unwrap().take();
        record.expect("a record")
    }
}

/// Puts `up:` in front of what the client sends, `down:` in front of what the target sends.
const MARKS: &str = r#"
  (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
    (if (local.get 1) (then (drop (call $replace (i32.const 2) (i32.const 0) (i32.const 0) {{up:}}))))
    (i32.const 0))
  (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)
    (if (local.get 1) (then (drop (call $replace (i32.const 3) (i32.const 0) (i32.const 0) {{down:}}))))
    (i32.const 0))"#;

#[tokio::test]
async fn bytes_are_read_and_changed_both_ways() {
    let (trial, _) = streaming(MARKS, json!({}), 200);
    let mut stream = live(&trial);
    let mut got = [0; 8];
    stream.client.write_all(b"hello").await.unwrap();
    stream.target.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"up:hello");
    stream.target.write_all(b"yes").await.unwrap();
    stream.client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"down:yes");
    // A half-close passes, and so does what comes after it.
    stream.client.shutdown().await.unwrap();
    assert_eq!(stream.target.read(&mut got).await.unwrap(), 0);
    stream.target.write_all(b"end").await.unwrap();
    stream.client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"down:end");
    stream.target.shutdown().await.unwrap();
    assert_eq!(stream.client.read(&mut got).await.unwrap(), 0);
    let ended = stream.ended().await;
    assert_eq!((ended.reason.as_str(), ended.bytes), ("closed", (8, 6)));
}

#[tokio::test]
async fn much_passes_through_unharmed() {
    // It looks at everything and changes nothing.
    let functions = r#"
      (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32) (i32.const 0))
      (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32) (i32.const 0))"#;
    let (trial, _) = streaming(functions, json!({}), 200);
    let stream = live(&trial);
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut client, client_out) = tokio::io::split(stream.client);
    let (mut target, target_out) = tokio::io::split(stream.target);
    let send = |mut out: tokio::io::WriteHalf<DuplexStream>| {
        let sent = sent.clone();
        tokio::spawn(async move {
            out.write_all(&sent).await.unwrap();
            out.shutdown().await.unwrap();
            out
        })
    };
    let (up, down) = (send(client_out), send(target_out));
    let (mut at_target, mut at_client) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(target.read_to_end(&mut at_target), client.read_to_end(&mut at_client));
    assert_eq!((a.unwrap(), b.unwrap()), (sent.len(), sent.len()));
    assert!(at_target == sent && at_client == sent);
    drop((up.await.unwrap(), down.await.unwrap()));
}

/// Holds back what the client sends until there are four bytes.
const FOURS: &str = r#"
  (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
    (i32.lt_u (local.get 1) (i32.const 4)))"#;

#[tokio::test]
async fn bytes_are_held_back_until_the_module_has_enough() {
    let (trial, _) = streaming(FOURS, json!({}), 200);
    let mut stream = live(&trial);
    let mut got = [0; 16];
    stream.client.write_all(b"abc").await.unwrap();
    // What the target says passes by meanwhile; the module has no function for it.
    stream.target.write_all(b"hi").await.unwrap();
    stream.client.read_exact(&mut got[..2]).await.unwrap();
    stream.client.write_all(b"d").await.unwrap();
    assert_eq!(stream.target.read(&mut got).await.unwrap(), 4, "all at once");
    assert_eq!(&got[..4], b"abcd");
    drop(stream.target);
    drop(stream.client);
}

#[tokio::test]
async fn no_more_is_held_back_than_the_limit() {
    let functions = r#"
      (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32) (i32.const 1))"#;
    let (trial, _) = streaming(functions, json!({ "max_body": 1024 }), 200);
    let mut stream = live(&trial);
    let mut got = Vec::new();
    // Beyond the limit the session ends, whether or not all of it was written.
    drop(stream.client.write_all(&[b'x'; 1025]).await);
    drop(stream.client.write_all(&[b'x'; 40_000]).await);
    stream.target.read_to_end(&mut got).await.unwrap();
    assert!(got.is_empty());
    assert_eq!(stream.ended().await.reason, "wasm_body_too_large");
}

#[tokio::test]
async fn a_connection_can_be_refused_before_a_target_is_asked() {
    let functions = r#"
      (func (export "proxy_on_new_connection") (param i32) (result i32)
        (drop (call $close (i32.const 2)))
        (i32.const 1))"#;
    let (trial, _) = streaming(functions, json!({}), 200);
    let mut stream = live(&trial);
    assert_eq!(stream.client.read(&mut [0; 8]).await.unwrap(), 0);
    let ended = stream.ended().await;
    assert_eq!((ended.reason.as_str(), ended.bytes), ("wasm_closed", (0, 0)));
}

#[tokio::test]
async fn a_connection_waits_for_a_call() {
    let functions = r#"
      (func (export "proxy_on_new_connection") (param i32) (result i32)
        (if (call $http_call {{auth}} {{map :method=GET;:path=/check;:authority=auth}} {{}}
              (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16))
          (then (unreachable)))
        (i32.const 1))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $get (i32.const 6) {{:status}} (i32.const 0) (i32.const 4)))
        (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 50))
          (then (drop (call $continue (i32.const 2))))
          (else (drop (call $close (i32.const 2))))))"#;
    let calls = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    let (trial, _) = streaming(functions, calls.clone(), 200);
    let mut stream = live(&trial);
    let mut got = [0; 2];
    stream.client.write_all(b"ok").await.unwrap();
    stream.target.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ok");
    let (trial, _) = streaming(functions, calls, 403);
    let mut stream = live(&trial);
    assert_eq!(stream.client.read(&mut got).await.unwrap(), 0);
    assert_eq!(stream.ended().await.reason, "wasm_closed");
}

#[tokio::test]
async fn what_a_target_says_waits_for_a_call() {
    let functions = r#"
      (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)
        (if (i32.eqz (local.get 1)) (then (return (i32.const 0))))
        (drop (call $http_call {{auth}} {{map :method=GET;:path=/check;:authority=auth}} {{}}
          (i32.const 0) (i32.const 0) (i32.const 500) (i32.const 16)))
        (i32.const 1))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $replace (i32.const 3) (i32.const 0) (i32.const 0) {{seen }}))
        (drop (call $continue (i32.const 3))))"#;
    let calls = json!({ "calls": { "auth": { "url": "http://auth.test" } } });
    let (trial, _) = streaming(functions, calls, 200);
    let mut stream = live(&trial);
    let mut got = [0; 7];
    stream.target.write_all(b"hi").await.unwrap();
    stream.client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"seen hi");
}

#[tokio::test]
async fn a_module_closes_a_session_in_the_middle() {
    let functions = r#"
      (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)
        (drop (call $close (i32.const 3)))
        (i32.const 1))"#;
    let (trial, _) = streaming(functions, json!({}), 200);
    let mut stream = live(&trial);
    stream.target.write_all(b"secret").await.unwrap();
    let mut got = Vec::new();
    stream.client.read_to_end(&mut got).await.unwrap();
    assert!(got.is_empty(), "{got:?}");
    assert_eq!(stream.ended().await.reason, "wasm_closed");
}

#[tokio::test]
async fn a_failure_ends_the_session_or_the_session_goes_on_without_the_module() {
    for functions in [
        r#"(func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32) (unreachable))"#,
        r#"(func (export "proxy_on_new_connection") (param i32) (result i32) (unreachable))"#,
    ] {
        let (trial, world) = streaming(functions, json!({}), 200);
        let mut stream = live(&trial);
        drop(stream.client.write_all(b"hello").await);
        let mut got = Vec::new();
        stream.client.read_to_end(&mut got).await.unwrap();
        assert_eq!(stream.ended().await.reason, "wasm_failed");
        let metrics = world.meters().text();
        assert!(metrics.contains("ferrum_wasm_failures_total{plugin_config=\"p0\"} 1"), "{metrics}");
        let (trial, _) = streaming(functions, json!({ "on_error": "open" }), 200);
        let mut stream = live(&trial);
        let mut got = [0; 5];
        stream.client.write_all(b"hello").await.unwrap();
        stream.target.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");
        stream.target.write_all(b"there").await.unwrap();
        stream.client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"there");
    }
    // What it has held back is not known any more: the session can't go on without it.
    let functions = r#"
      (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
        (if (i32.gt_u (local.get 1) (i32.const 2)) (then (unreachable)))
        (i32.const 1))"#;
    let (trial, _) = streaming(functions, json!({ "on_error": "open" }), 200);
    let mut stream = live(&trial);
    stream.client.write_all(b"ab").await.unwrap();
    // The answer shows that the first bytes were seen on their own.
    let mut got = [0; 1];
    stream.target.write_all(b"x").await.unwrap();
    stream.client.read_exact(&mut got).await.unwrap();
    drop(stream.client.write_all(b"cd").await);
    assert_eq!(stream.client.read(&mut got).await.unwrap(), 0);
    assert_eq!(stream.ended().await.reason, "wasm_failed");
}

/// Counts by who closed: `down1` is the gateway for the client's connection, `up2` the target itself.
const CLOSES: &str = r#"
  (func $count (param $at i32) (param $peer i32)
    (i32.store8 (i32.const 64) (i32.add (i32.const 48) (local.get $peer)))
    (i32.store8 (i32.const 60) (local.get $at))
    (i32.store8 (i32.const 61) (i32.add (i32.const 48) (local.get $peer)))
    (drop (call $metric (i32.const 0) (i32.const 60) (i32.const 2) (i32.const 16)))
    (drop (call $increment (i32.load (i32.const 16)) (i64.const 1))))
  (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_downstream_connection_close") (param i32 i32)
    (call $count (i32.const 100) (local.get 1)))
  (func (export "proxy_on_upstream_connection_close") (param i32 i32)
    (call $count (i32.const 117) (local.get 1)))"#;

#[tokio::test]
async fn the_module_hears_who_closed() {
    let (trial, world) = streaming(CLOSES, json!({}), 200);
    let mut stream = live(&trial);
    stream.client.shutdown().await.unwrap();
    assert_eq!(stream.target.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(stream.ended().await.reason, "closed");
    let metrics = world.meters().text();
    let counted = |name: &str| {
        metrics.contains(&format!("ferrum_wasm_counter_total{{plugin_config=\"p0\",name=\"{name}\"}} 1"))
    };
    assert!(counted("d2") && counted("u2") && !counted("d1") && !counted("u1"), "{metrics}");
}

#[tokio::test]
async fn what_belongs_to_http_is_not_there() {
    let functions = r#"
      (func $status (param $n i32) (i32.store8 (i32.const 64) (i32.add (i32.const 48) (local.get $n)))
        (drop (call $replace (i32.const 2) (i32.const 1000) (i32.const 0) (i32.const 64) (i32.const 1))))
      (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
        (if (i32.eqz (local.get 1)) (then (return (i32.const 0))))
        (call $status (call $get (i32.const 0) {{:path}} (i32.const 0) (i32.const 4)))
        (call $status (call $buffer (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 4)))
        (call $status (call $property {{request\0path}} (i32.const 0) (i32.const 4)))
        (call $status (i32.eq (i32.const 12) (call $reply (i32.const 403) {{}} {{}} {{}} (i32.const -1))))
        (drop (call $property {{source\0address}} (i32.const 0) (i32.const 4)))
        (drop (call $replace (i32.const 2) (i32.const 1000) (i32.const 0)
          (i32.load (i32.const 0)) (i32.load (i32.const 4))))
        (i32.const 0))"#;
    let (trial, _) = streaming(functions, json!({}), 200);
    let mut stream = live(&trial);
    stream.client.write_all(b"x").await.unwrap();
    let expected = b"x1111192.0.2.1:4000";
    let mut got = vec![0; expected.len()];
    stream.target.read_exact(&mut got).await.unwrap();
    assert_eq!(String::from_utf8(got).unwrap().as_bytes(), expected);
}

#[test]
fn a_module_is_refused_where_it_sees_nothing() {
    let http = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))"#;
    let both = format!("{FOURS} {http}");
    let web = json!({ "listen_path": "/", "backend_scheme": "http" });
    let udp = json!({ "listen_port": 9999, "backend_scheme": "udp" });
    for (functions, proxy, is_taken) in [
        (FOURS, tcp(), true),
        (FOURS, web.clone(), false),
        (FOURS, udp.clone(), false),
        (http, tcp(), false),
        (http, web.clone(), true),
        (&both, tcp(), true),
        (&both, web, true),
        (&both, udp, false),
    ] {
        let problems = refused(functions, proxy.clone());
        assert_eq!(problems.is_none(), is_taken, "{proxy} {problems:?}");
        if let Some(problems) = problems {
            assert!(problems.to_string().contains("does nothing for"), "{problems}");
        }
    }
}
