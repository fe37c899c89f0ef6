//! See `gateway_plugins::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../memory.rs"]
mod memory;

fuzz_target!(|data: &[u8]| memory::bounded(data, |data| gateway_plugins::fuzzing::run("plugin_grpc_json", data)));
