//! See `gateway_waf::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_waf::fuzzing::run("waf_graphql", data));
