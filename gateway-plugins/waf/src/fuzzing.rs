//! Entry points for the fuzzers in `fuzz/`, and the replay of their corpus; nothing else may use them.
//!
//! A target is one row in [`TARGETS`], one file in `fuzz/fuzz_targets` with its row in `fuzz/Cargo.toml`, and one folder in
//! `fuzz/corpus`. What must hold is asserted in the target itself.

mod bodies;
mod request;
mod transforms;

/// What a fuzzer calls.
pub type Target = fn(&[u8]);

/// Each target, by the name its folder in `fuzz/corpus` has.
pub const TARGETS: [(&str, Target); 10] = [
    ("waf_form", bodies::form),
    ("waf_graphql", bodies::graphql),
    ("waf_grpc", bodies::grpc),
    ("waf_json", bodies::json),
    ("waf_multipart", bodies::multipart),
    ("waf_request", request::request),
    ("waf_rules", request::rules),
    ("waf_text", bodies::text),
    ("waf_transforms", transforms::transforms),
    ("waf_xml", bodies::xml),
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
#[path = "../../../fuzz/replay.rs"]
mod replay;
