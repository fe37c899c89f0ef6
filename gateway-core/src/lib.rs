//! The gateway's mind: what is routed where, which plugins run, which target answers.
//!
//! This crate opens no socket, reads no file and no environment, sees no wall clock and spawns nothing. Traffic
//! comes in through [`http::pipeline::Pipeline`] (requests and responses) and [`stream`] (byte streams and
//! datagrams); it goes out through [`upstream::Upstream`]. A newcomer reads `http/pipeline.rs` first.
#![warn(missing_docs)]

pub mod balance;
pub mod certificate;
pub mod condition;
pub mod config;
pub mod health;
pub mod http;
pub mod limit;
pub mod plugin;
pub mod pool;
pub mod record;
pub mod route;
pub mod snapshot;
pub mod stream;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod upstream;

pub use config::{consumer, network};

// What plugins of other crates implement bodies with.
pub use http_body;
