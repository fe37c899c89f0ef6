//! See `gateway_import::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway_import::fuzzing::run("import_caddy_json", data));
