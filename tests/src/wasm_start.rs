//! A WebAssembly module begins with its configuration, and needs no request for what it does by itself.

use crate::support::edge::Edge;
use crate::support::h2::origin;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::wire::Port;

/// Calls a server by its timer.
const GUEST: &str = r#"(module
  (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
  (import "env" "proxy_grpc_call"
    (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "authpkg.Servicetick")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 32768))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (drop (call $tick (i32.const 20))) (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_tick") (param i32)
    (drop (call $ask (i32.const 1024) (i32.const 4) (i32.const 1028) (i32.const 11) (i32.const 1039) (i32.const 4)
      (i32.const 0) (i32.const 0) (i32.const 1039) (i32.const 4) (i32.const 5000) (i32.const 20)))))"#;

#[tokio::test]
async fn timers_run_before_the_first_request() {
    let file = std::env::temp_dir().join(format!("ferrum-wasm-start-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(GUEST).unwrap()).unwrap();
    let port = Port::listen(None).await;
    let number = port.address.port();
    let target = Standing::start("o").await;
    let _edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: wasm, scope: proxy_group, config: \
         {{path: '{}', calls: {{auth: {{url: 'http://127.0.0.1:{number}'}}}}}}}}\n",
        target.backend(),
        file.display(),
    ));
    let mut streams = origin(port);
    for _ in 0..2 {
        let (request, _) = soon(streams.recv()).await.unwrap();
        assert_eq!(request.uri().path(), "/pkg.Service/tick");
    }
    assert_eq!(target.served(), 0, "nobody has asked anything");
    drop(std::fs::remove_file(&file));
}
