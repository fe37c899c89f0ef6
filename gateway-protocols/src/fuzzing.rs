//! Entry points for the fuzzers in `fuzz/`, and the replay of their corpus; nothing else may use them.
//!
//! A target is one row in [`TARGETS`], one file in `fuzz/fuzz_targets` with its row in `fuzz/Cargo.toml`, and one folder
//! in `fuzz/corpus`. What must hold is asserted in the target itself, so that the replay in our tests, which needs no
//! fuzzer, finds what the fuzzer would find.

mod config;
mod h1;
mod h2;
mod h3;
mod oracle;
mod pieces;
mod qpack;
mod stream;

/// What a fuzzer calls.
pub type Target = fn(&[u8]);

/// Each target, by the name its folder in `fuzz/corpus` has.
pub const TARGETS: [(&str, Target); 14] = [
    ("config", config::config),
    ("dtls_hello", crate::udp::fuzzing::dtls_hello),
    ("fastcgi_response", crate::upstream::fastcgi::fuzzing::response),
    ("h1_request", h1::request),
    ("h1_response", h1::response),
    ("h2_client", h2::h2_client),
    ("h2_server", h2::h2_server),
    ("h3_control", h3::control),
    ("h3_request", h3::request),
    ("hpack", h2::hpack),
    ("proxy_protocol", stream::proxy_protocol),
    ("qpack", qpack::qpack),
    ("quic_initial", crate::udp::fuzzing::quic_initial),
    ("sniff", stream::sniff),
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
