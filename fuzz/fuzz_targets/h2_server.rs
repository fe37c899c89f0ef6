//! See `gateway_protocols::fuzzing::h2_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_protocols::fuzzing::h2_server(data));
