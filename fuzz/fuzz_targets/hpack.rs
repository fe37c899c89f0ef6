//! See `gateway_protocols::fuzzing::hpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_protocols::fuzzing::hpack(data));
