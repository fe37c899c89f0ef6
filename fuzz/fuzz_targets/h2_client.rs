//! See `gateway_protocols::fuzzing::h2_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_protocols::fuzzing::h2_client(data));
