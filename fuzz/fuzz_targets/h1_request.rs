//! See `gateway_protocols::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_protocols::fuzzing::run("h1_request", data));
