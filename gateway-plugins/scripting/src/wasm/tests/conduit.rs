//! Modules of Conduit's small interface.

use super::*;

const IMPORTS: &str = r#"
  (import "conduit" "get_method" (func $method (param i32 i32) (result i32)))
  (import "conduit" "get_path" (func $path (param i32 i32) (result i32)))
  (import "conduit" "get_query" (func $query (param i32 i32) (result i32)))
  (import "conduit" "get_uri" (func $uri (param i32 i32) (result i32)))
  (import "conduit" "get_client_ip" (func $client (param i32 i32) (result i32)))
  (import "conduit" "get_request_id" (func $id (param i32 i32) (result i32)))
  (import "conduit" "get_header" (func $get (param i32 i32 i32 i32) (result i32)))
  (import "conduit" "get_header_count" (func $count (result i32)))
  (import "conduit" "get_header_names" (func $names (param i32 i32) (result i32)))
  (import "conduit" "get_plugin_config" (func $config (param i32 i32) (result i32)))
  (import "conduit" "set_request_header" (func $set (param i32 i32 i32 i32)))
  (import "conduit" "remove_request_header" (func $remove (param i32 i32)))
  (import "conduit" "set_response_status" (func $status (param i32)))
  (import "conduit" "set_response_header" (func $answer (param i32 i32 i32 i32)))
  (import "conduit" "set_response_body" (func $body (param i32 i32)))
  (import "conduit" "abort_with_redirect" (func $redirect (param i32 i32)))
  (import "conduit" "log" (func $log (param i32 i32 i32)))
  (import "conduit" "get_response_status" (func $got (result i32)))
  (import "conduit" "get_response_header" (func $response (param i32 i32 i32 i32) (result i32)))
  (import "conduit" "remove_response_header" (func $drop (param i32 i32)))
  (memory (export "memory") 1)
"#;

fn guest(functions: &str) -> Vec<u8> {
    let (mut text, mut data, mut at) = (String::new(), String::new(), 1024);
    let mut rest = functions;
    while let Some((before, after)) = rest.split_once("{{") {
        let (quoted, after) = after.split_once("}}").expect("an end");
        data += format!("(data (i32.const {at}) \"{quoted}\")\n").as_str();
        text += before;
        text += format!("(i32.const {at}) (i32.const {})", quoted.len()).as_str();
        at += quoted.len();
        rest = after;
    }
    let source = format!("(module {IMPORTS} {text} {rest} {data})");
    wat::parse_str(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn small(functions: &str, config: Value) -> Trial {
    calling(guest(functions), config, |_, _| Err(Cause::ConnectFailed)).0
}

/// Copies what a function gives into a header of the request.
fn copy(function: &str, header: &str) -> String {
    format!("(call $set {{{{{header}}}}} (i32.const 0) (call {function} (i32.const 0) (i32.const 100)))")
}

#[tokio::test]
async fn requests_are_read_and_changed() {
    let all = [
        copy("$method", "x-method"),
        copy("$path", "x-path"),
        copy("$query", "x-query"),
        copy("$uri", "x-uri"),
        copy("$client", "x-client"),
        copy("$config", "x-config"),
    ]
    .concat();
    let functions = format!(
        r#"(func (export "on_request") (result i32)
            {all}
            (call $set {{{{x-copy}}}} (i32.const 0) (call $get {{{{x-in}}}} (i32.const 0) (i32.const 3)))
            (if (i32.eq (call $get {{{{x-none}}}} (i32.const 0) (i32.const 3)) (i32.const -1))
              (then (call $set {{{{x-none}}}} {{{{none}}}})))
            (call $set {{{{content-length}}}} {{{{99}}}})
            (call $remove {{{{x-gone}}}})
            (call $log (i32.const 2) {{{{seen}}}})
            (i32.const 0))"#
    );
    let trial = small(&functions, json!({ "settings": {"a": 1} }));
    assert_eq!(trial.get("/p?q=1", &[("x-in", "12345"), ("x-gone", "1")]).await.status, 200);
    let asked = trial.asked().pop().unwrap();
    let names = ["x-method", "x-path", "x-query", "x-uri", "x-client", "x-config", "x-copy", "x-none"];
    assert_eq!(
        names.map(|name| asked.field(name)),
        ["GET", "/p", "q=1", "/p?q=1", "192.0.2.1", "{\"a\":1}", "123", "none"]
    );
    assert!(!asked.headers.contains_key("x-gone") && asked.field("content-length").is_empty());
}

#[tokio::test]
async fn a_result_other_than_zero_ends_the_exchange() {
    let trial = small(
        r#"(func (export "on_request") (result i32)
            (call $status (i32.const 418)) (call $answer {{x-a}} {{b}}) (call $body {{tea}}) (i32.const 1))"#,
        json!({}),
    );
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.field("x-a"), got.text().as_str()), (418, "b", "tea"));
    assert!(trial.asked().is_empty());
    let silent = small(r#"(func (export "on_request") (result i32) (i32.const -1))"#, json!({}));
    assert_eq!(silent.get("/", &[]).await.status, 500);
    let moved = small(
        r#"(func (export "on_request") (result i32) (call $redirect {{/new}}) (i32.const 1))"#,
        json!({}),
    );
    let got = moved.get("/", &[]).await;
    assert_eq!((got.status, got.field("location")), (302, "/new"));
}

#[tokio::test]
async fn responses_are_changed() {
    let trial = small(
        r#"(func (export "on_request") (result i32) (i32.const 0))
           (func (export "on_response") (param i32) (result i32)
            (if (i32.eq (local.get 0) (i32.const 200)) (then (call $answer {{x-seen}} {{200}})))
            (call $answer {{x-kind}} (i32.const 0) (call $response {{x-in}} (i32.const 0) (i32.const 9)))
            (call $drop {{x-in}})
            (call $body {{another}})
            (i32.const 7))"#,
        json!({}),
    )
    .answering(|_| {
        let response =
            Response::builder().header("x-in", "v").header("etag", "\"1\"").header("content-length", "2");
        response.body(gateway_core::http::body::Body::full("ok")).unwrap()
    });
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.text().as_str()), (200, "another"));
    assert_eq!(
        ["x-seen", "x-kind", "x-in", "etag", "content-length"].map(|name| got.field(name)),
        ["200", "v", "", "", "7"]
    );
}

/// Loops, traps, places outside of memory, too much memory, and functions of the other phase: each costs one exchange.
#[tokio::test]
async fn failures_cost_one_exchange() {
    for body in [
        "(loop $l (br $l)) (i32.const 0)",
        "unreachable",
        "(call $set (i32.const 65530) (i32.const 100) (i32.const 0) (i32.const 0)) (i32.const 0)",
        "(call $drop {{x-a}}) (i32.const 0)",
        "(call $status (i32.const 99)) (i32.const 1)",
        "(call $set {{x a}} {{b}}) (i32.const 0)",
        "(if (i32.eq (memory.grow (i32.const 100)) (i32.const -1)) (then unreachable)) (i32.const 0)",
    ] {
        let function = format!(r#"(func (export "on_request") (result i32) {body})"#);
        let config = json!({"max_memory": "1 MiB"});
        let closed = small(&function, config.clone());
        assert_eq!(closed.get("/", &[]).await.status, 500, "{body}");
        let mut config = config;
        config["on_error"] = json!("open");
        let open = small(&function, config);
        assert_eq!(open.get("/", &[]).await.status, 200, "{body}");
    }
}

/// A global that counts up starts at its first value with each exchange.
#[tokio::test]
async fn nothing_is_kept_between_exchanges() {
    let trial = small(
        r#"(global $n (mut i32) (i32.const 0))
           (func (export "on_request") (result i32)
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (i32.ne (global.get $n) (i32.const 1)))"#,
        json!({}),
    );
    for _ in 0..3 {
        assert_eq!(trial.get("/", &[]).await.status, 200);
    }
}

/// Memory comes from a pool: the next call finds it as the module has it, whatever the last one wrote, and wherever.
#[tokio::test]
async fn memory_is_new_for_each_exchange() {
    let trial = small(
        r#"(data (i32.const 60000) "7")
           (func $dirty (param i32) (result i32)
            (local $old i32)
            (local.set $old (i32.load8_u (local.get 0)))
            (i32.store8 (local.get 0) (i32.const 255))
            (local.get $old))
           (func (export "on_request") (result i32)
            (if (i32.ne (memory.grow (i32.const 9)) (i32.const 1)) (then (return (i32.const 1))))
            (if (i32.ne (call $dirty (i32.const 60000)) (i32.const 55)) (then (return (i32.const 2))))
            (if (call $dirty (i32.const 0)) (then (return (i32.const 3))))
            (if (call $dirty (i32.const 131071)) (then (return (i32.const 4))))
            (if (call $dirty (i32.const 655359)) (then (return (i32.const 5))))
            (i32.const 0))"#,
        json!({}),
    );
    for _ in 0..3 {
        assert_eq!(trial.get("/", &[]).await.status, 200);
    }
}

#[test]
fn what_can_not_run_is_refused() {
    let says = |module: Vec<u8>, config: Value| {
        let disk = Arc::<Disk>::default();
        disk.write("m.wasm", module);
        let world = world(|_, _| Err(Cause::ConnectFailed), disk);
        let mut config = config;
        config["path"] = json!("m.wasm");
        let spec = json!({
            "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80}],
            "plugin_configs": [{ "id": "p0", "plugin_name": "wasm", "config": config, "proxy_id": "a" }],
        });
        match Trial::try_of_spec(&[WASM], &spec.to_string(), &world) {
            Ok(_) => panic!("taken"),
            Err(problems) => format!("{problems:?}"),
        }
    };
    let runs = r#"(func (export "on_request") (result i32) (i32.const 0))"#;
    for (module, config, expected) in [
        (guest(runs), json!({"root_id": "x"}), "root_id"),
        (guest(runs), json!({"calls": {"a": {"url": "http://a"}}}), "no effect"),
        (guest(runs), json!({"interface": "proxy_wasm"}), "Proxy-Wasm"),
        (module(""), json!({"interface": "conduit"}), "on_request"),
        (guest(r#"(func (export "on_request") (param i32) (result i32) (i32.const 0))"#), json!({}), "does not start"),
        (
            wat::parse_str(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
              (memory (export "memory") 1) (func (export "on_request") (result i32) (i32.const 0)))"#).unwrap(),
            json!({}),
            "fd_write",
        ),
    ] {
        let said = says(module, config);
        assert!(said.contains(expected), "{said}");
    }
}

/// What the gateway refuses to a module is what the log says, not where in the module it happened.
#[test]
fn why_a_call_failed_is_told() {
    let engine = wasmtime::Engine::default();
    let mut store = wasmtime::Store::new(&engine, ());
    let host = wasmtime::Func::wrap(&mut store, || -> wasmtime::Result<()> {
        Err(wasmtime::Error::msg("99999 is not a status"))
    });
    let text = r#"(module (import "a" "b" (func $host)) (func (export "run") (call $host)))"#;
    let module = wasmtime::Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let instance = wasmtime::Instance::new(&mut store, &module, &[host.into()]).unwrap();
    let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
    let error = run.call(&mut store, ()).unwrap_err();
    assert_eq!(super::super::guest_error::GuestError::from(error).to_string(), "99999 is not a status");
}
