//! What operators' code adds to the thinking of one request, without sockets: on one thread, in slices in turns.
//!
//! ```sh
//! cargo run --release -p ferrum-gateway-scripting --all-features --example costs [REQUESTS] [ROW]
//! ```
//!
//! A ROW is a part of the name of the only row to run, such as for callgrind.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::Nowhere;
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::{Reach, blocking};
use gateway_core::testing::Trial;
use gateway_scripting::{SCRIPT, WASM};
use serde_json::{Value, json};

/// Sets one header of each request, for Proxy-Wasm.
const ONE_HEADER: &str = r#"(module
  (import "env" "proxy_replace_header_map_value" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "x-tiergold")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 32768))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $set (i32.const 0) (i32.const 1024) (i32.const 6) (i32.const 1030) (i32.const 4)))
    (i32.const 0)))"#;

/// The same for Conduit's interface: an instance for each request, which may have up to 1 MiB of memory.
const ONE_HEADER_ALONE: &str = r#"(module
  (import "conduit" "set_request_header" (func $set (param i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "x-tiergold")
  (func (export "on_request") (result i32)
    (call $set (i32.const 1024) (i32.const 6) (i32.const 1030) (i32.const 4))
    (i32.const 0)))"#;

/// 50 operations, as the engine counts them, and a header.
const SCRIPT_TEXT: &str = r#"fn on_request(request) { let n = 0; for i in 0..9 { n += i; } request.set_header("x-tier", "gold"); }"#;

/// The modules, by path.
struct Modules;

impl Files for Modules {
    fn read(&self, path: &Path, _limit: u64) -> io::Result<Bytes> {
        let text = match path.to_str() {
            Some("one.wasm") => ONE_HEADER,
            Some("alone.wasm") => ONE_HEADER_ALONE,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        wat::parse_str(text).map(Bytes::from).map_err(io::Error::other)
    }

    fn modified(&self, _path: &Path) -> io::Result<u128> {
        Ok(0)
    }

    fn list(&self, _folder: &Path, _limit: usize) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn trial(plugin: Option<(&str, Value)>) -> Trial {
    let world = World::new(Reach {
        gateway: Arc::from("ferrum-edge"),
        calls: Arc::new(Nowhere),
        files: Arc::new(Modules),
        blocking: Arc::new(blocking::Inline),
        meters: Meters::default(),
        variables: Default::default(),
    });
    let configs: Vec<Value> = plugin
        .map(|(name, config)| json!({ "id": "p", "plugin_name": name, "config": config, "proxy_id": "a" }))
        .into_iter()
        .collect();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "target.test", "backend_port": 80 }],
        "plugin_configs": configs,
    });
    Trial::of_spec(&[SCRIPT, WASM], &spec.to_string(), &world)
}

/// Requests between two looks at the clock.
const SLICE: u32 = 1000;
const FIELDS: &[(&str, &str)] = &[("user-agent", "costs"), ("accept", "*/*"), ("cookie", "a=1; b=2")];

fn main() {
    let asked = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let slices = asked.unwrap_or(100_000_u32).div_ceil(SLICE);
    let rows = [
        ("no plugin", None),
        ("wasm, one header", Some(("wasm", json!({ "path": "one.wasm" })))),
        (
            "wasm for Conduit, one header",
            Some(("wasm", json!({ "path": "alone.wasm", "max_memory": 1_048_576 }))),
        ),
        ("script, 50 operations", Some(("script", json!({ "source": SCRIPT_TEXT, "timeout": "1000ms" })))),
    ];
    let only = std::env::args().nth(2).unwrap_or_default();
    let rows = rows.into_iter().filter(|(name, _)| name.contains(&only));
    let mut rows: Vec<_> = rows.map(|(name, plugin)| (name, trial(plugin), Vec::new())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..slices {
            for (name, trial, times) in &mut rows {
                let begun = Instant::now();
                for _ in 0..SLICE {
                    let got = trial.get("/shop?x=1", FIELDS).await;
                    assert_eq!(got.status, 200, "{name}");
                }
                times.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(SLICE));
                trial.forget();
            }
        }
    });
    let mut without = 0.0;
    for (name, _, times) in &mut rows {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if without == 0.0 {
            without = median;
        }
        println!("{name:30} {median:7.2} us  {:+7.2}", median - without);
    }
}
