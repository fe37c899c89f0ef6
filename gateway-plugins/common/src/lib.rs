//! What several families of plugins need.
//!
//! # Where things are
//!
//! - Settings: `parse.rs` reads templates, regexes, paths and header names, `statuses.rs` classes of statuses, `response_origin.rs` where responses come from, `wildcard.rs` paths with `*`,
//!   `one_or_many.rs` texts and lists, `server_url.rs` a server by its URL, `watched.rs` files that are read again when they change.
//! - Messages: `headers.rs` framing and streams, `list_fields.rs` fields that are lists, `accept.rs` quality values, `conditional.rs` and
//!   `range.rs` the requests of RFC 9110 with conditions and ranges, `query.rs`, `origin.rs`, `html.rs`, `strict_json.rs`, `flat_json.rs`, `envoy.rs`.
//! - Codings: `coding.rs` with its encoders `gzip.rs` and `zstandard.rs`; `reused_encoders.rs` keeps them for the next body.
//! - Callers and what is kept of them: `caller_key.rs` tells callers apart, `facts.rs` is what templates know, `redis_link.rs` asks Redis or
//!   Valkey; `set_associative.rs` and `generations.rs` are tables in bounded memory without a sweep.
//! - `testing.rs` (feature `testing`): files, servers and threads for tests of plugins; `redis_link/testing.rs` starts a Redis.

pub mod accept;
pub mod caller_key;
pub mod coding;
pub mod conditional;
pub mod envoy;
pub mod facts;
pub mod flat_json;
pub mod generations;
mod gzip;
pub mod headers;
pub mod hex;
pub mod html;
pub mod list_fields;
pub mod one_or_many;
pub mod origin;
pub mod parse;
pub mod query;
pub mod range;
pub mod redis_link;
pub mod response_origin;
mod reused_encoders;
pub mod server_url;
pub mod set_associative;
pub mod statuses;
pub mod strict_json;
pub mod watched;
pub mod wildcard;
mod zstandard;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
