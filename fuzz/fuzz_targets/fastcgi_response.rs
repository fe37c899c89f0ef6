//! See `gateway_protocols::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_protocols::fuzzing::run("fastcgi_response", data));
