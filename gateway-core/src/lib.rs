//! What is routed where, which plugins run, which target answers.
//!
//! This crate opens no socket, reads no file and no environment, sees no wall clock and spawns nothing. Traffic
//! comes in through [`http::pipeline::Pipeline`] (requests and responses) and [`stream`] (byte streams and
//! datagrams); it goes out through [`upstream::Upstream`]. A newcomer reads `http/pipeline.rs` first.
//!
//! # Where things are
//!
//! - `http/`: the pipeline, exchange, body and headers of requests. `guard.rs` checks what is the same for every version, `path.rs`
//!   normalises paths, `headers.rs` removes hop-by-hop and identity headers, `names.rs` lists what clients may not send,
//!   `forwarding.rs` writes what targets learn about the client, `reply.rs` is the table from cause to HTTP status, gRPC status and
//!   reason, `retry.rs` and `hedging.rs` decide about further attempts, `early.rs` about early data, `challenge.rs` answers ACME.
//!   `credentials.rs` is the list of fields and parameters that contain credentials, and the redactor for everything that leaves the gateway.
//! - `stream/`: sessions, their pipeline and relay. `between.rs` holds plugins that see bytes, `websocket.rs` both ends of a WebSocket,
//!   `revocation.rs` ends what is no longer authorised, `sessions.rs` lists open sessions, `flow.rs` accounts for datagrams, `table.rs`
//!   selects the proxy of a port, `sniff.rs` reads server names, `proxy_protocol.rs` PROXY headers.
//! - `http/holds.rs`: whether a [`condition`] holds for a request. Routes, plugins, log filters and cache rules ask it; there is no second
//!   matching language.
//! - `http/template/`: fills in templates such as `${request.header.x-a:-none}`, and encodes for each place.
//! - `route/`: `table.rs` has the order of precedence, `matcher.rs` finds rules that tie, `paths.rs` and `bucket.rs` the routes of a host
//!   and of a path, `shapes.rs` paths with names, `regexes.rs` runs the expressions of a host as one set, `rewrite.rs` makes the forwarded path.
//! - `plugin/`: hooks, the chain that runs them, the registry, and `world/`, which is everything that a plugin can reach outside.
//! - `balance/`: one algorithm a file behind one trait. `Field::is_open` checks health, priority, slow start, limits, subsets and breakers
//!   in one place. `queue.rs` is where exchanges wait for a full target, `affinity.rs` makes the sticky cookie.
//! - `health/`: active and passive checks and the circuit breaker, as state machines fed with results and instants.
//! - `limit/`: bucket, window, concurrency, overload, retry budget, backoff.
//! - `pool/`: `key.rs` says which connections can stand in for each other; `idle.rs`, `multiplex.rs`.
//! - `snapshot/`: the compiled configuration that traffic reads; `compile/` makes the next one of changes.
//! - [`config`] is the crate `ferrum-gateway-config`: what users write and what it means.
//! - `record.rs`: the access record. `metrics.rs`: the walk over all metrics, their names and their text formats. `trace.rs`: the IDs of a trace.
//! - `certificate.rs`: names and ends of certificates.
//! - `testing/` (feature `testing`): the real pipeline with a closure as the target, for tests of plugins.
#![warn(missing_docs)]

pub mod balance;
pub mod certificate;
pub mod condition;
pub mod health;
pub mod http;
pub mod limit;
pub mod metrics;
pub mod plugin;
pub mod pool;
pub mod reason;
pub mod record;
pub mod route;
pub mod snapshot;
pub mod stream;
pub use http::template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod upstream;

pub use gateway_config as config;
pub use gateway_config::{consumer, network};

// What plugins of other crates implement bodies with.
pub use http_body;
