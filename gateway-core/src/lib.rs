//! What is routed where, which plugins run, which target answers.
//!
//! This crate opens no socket, reads no file and no environment, sees no wall clock and spawns nothing. Traffic comes in through
//! [`pipeline::http::Pipeline`] (requests and responses) and [`pipeline::stream`] (byte streams and datagrams); it goes out through
//! [`http::upstream::Upstream`]. A newcomer reads `pipeline/http.rs` first.
//!
//! # Where things are
//!
//! From the top down; each module imports only from those below it:
//!
//! - `testing/` (feature `testing`): the real pipeline with a closure as the target, for tests of plugins.
//! - `pipeline/`: the way of every exchange (`http.rs`) and every session (`stream.rs`). `http/forwarding.rs` adds what targets learn about
//!   the client, `between.rs` runs plugins that see bytes, `websocket.rs` carries both ends of a WebSocket, `revocation.rs` ends what is no
//!   longer authorised, `flow.rs` accounts for datagrams.
//! - `snapshot/`: the compiled configuration that traffic reads; `compile/` makes the next one of changes, `streams.rs` selects the proxy
//!   of a port.
//! - `plugin/`: hooks, the chain that runs them, the registry, and `world/`, which is everything that a plugin can reach outside.
//! - `condition/`: whether a condition holds for a request. Routes, plugins, log filters and cache rules ask it; there is no second
//!   matching language.
//! - `cgi/`: the variables and scripts of a FastCGI request. `template/`: fills in templates such as `${request.header.x-a:-none}`, and
//!   encodes for each place.
//! - `record.rs`: the access record. `proxy_state/`: a proxy with what is counted of its traffic, as plugins and records see it.
//! - `stream/`: sessions and their relay. `sessions.rs` lists open sessions, `sniff.rs` reads server names, `proxy_protocol.rs` PROXY
//!   headers, `pacer.rs` and `metered.rs` hold bytes to their limits.
//! - `http/`: exchange, body and headers of requests, and both ways out: `downstream.rs` to the client, `upstream.rs` to the target.
//!   `guard.rs` checks what is the same for every version, `path.rs` normalises paths, `headers.rs` removes hop-by-hop and identity headers,
//!   `names.rs` lists what clients may not send, `reply.rs` is the table from cause to HTTP status, gRPC status and reason, `retry.rs`
//!   decides about further attempts, `early.rs` about early data, `challenge.rs` answers ACME.
//! - `trace.rs`: the IDs of a trace.
//! - `route/`: `table.rs` has the order of precedence, `paths.rs` and `bucket.rs` the routes of a host and of a path, `shapes.rs` paths with
//!   names, `regexes.rs` runs the expressions of a host as one set, `rewrite.rs` makes the forwarded path.
//! - `balance/`: one algorithm a file behind one trait. `Field::is_open` checks health, priority, slow start, limits, subsets and breakers
//!   in one place. `queue.rs` is where exchanges wait for a full target, `affinity.rs` makes the sticky cookie.
//! - `health/`: active and passive checks and the circuit breaker, as state machines fed with results and instants.
//! - `request_values.rs`: single values of a request's head: a header, a cookie, a query parameter.
//! - `pool/`: `key.rs` says which connections can stand in for each other; `idle.rs`, `multiplex.rs`.
//! - `limit/`: bucket, window, concurrency, overload, retry budget, backoff, hedging.
//! - `metrics/`: the walk over all metrics, their names and their text formats. `reason.rs`: what went wrong, in words for people.
//!   `certificate.rs`: names and ends of certificates.
//! - [`config`] is the crate `ferrum-gateway-config`: what users write and what it means.
#![warn(missing_docs)]

pub mod balance;
pub mod certificate;
pub mod cgi;
pub mod condition;
pub mod health;
pub mod http;
pub mod limit;
pub mod metrics;
pub mod pipeline;
pub mod plugin;
pub mod pool;
pub mod proxy_state;
pub mod reason;
pub mod record;
pub mod request_values;
pub mod route;
pub mod snapshot;
pub mod stream;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;

pub use gateway_config as config;
pub use gateway_config::{consumer, network};

// What plugins of other crates implement bodies with.
pub use http_body;
