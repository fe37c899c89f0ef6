//! Entry points for the fuzzers in `fuzz/`, and the replay of their corpus; nothing else may use them.
//!
//! A target is one row in [`TARGETS`], one file in `fuzz/fuzz_targets` with its row in `fuzz/Cargo.toml`, and one folder in
//! `fuzz/corpus`. What must hold is asserted in the target itself, what it may take of memory in the fuzzer's program.

/// What a fuzzer calls.
pub type Target = fn(&[u8]);

/// Each target, by the name its folder in `fuzz/corpus` has.
pub const TARGETS: [(&str, Target); 3] = [
    ("plugin_graphql", crate::security::graphql_limits::fuzz),
    ("plugin_grpc_json", crate::transformation::grpc_json_transcoding::fuzz),
    ("plugin_json_schema", crate::security::request_validation::fuzz),
];

/// Runs the target of this name on `data`.
///
/// # Panics
/// When something that must hold does not, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => target(data),
        None => panic!("no fuzz target is called {name}"),
    }
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;
