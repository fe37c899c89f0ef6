//! Bytes to core types and back: the sockets, TLS and the HTTP versions of the gateway.
//!
//! Clients come in through [`downstream`], targets are reached through [`upstream`]; between them stands the pipeline
//! of `gateway-core`, which never learns which version either side speaks. A [`worker`] is one thread with its own
//! sockets and its own pools.
//!
//! # Where things are
//!
//! - `serving.rs`: what a worker does with its listeners. `worker.rs`: one thread, one runtime, its sockets and its pools;
//!   `worker/order.rs` is what it is told, `worker/shared.rs` what all workers share. `supervise.rs` restarts tasks that must keep running. `recorder.rs` counts connections.
//! - `downstream/`: accepting, TLS and the choice of a protocol, then `h1`, `h2`, `h3` and `tcp`. `entrance.rs`: what a
//!   port speaks. `registry.rs` lets a drain reach every connection.
//! - `upstream/`: `dial.rs`, `socket.rs` (Unix sockets), `h1`, `h2`, `h3`, `stream`; `shared.rs` chooses among shared connections,
//!   `alternative.rs` moves to HTTP/3, `recall.rs` takes back idle connections that another worker needs, `placed.rs` counts a session's own.
//! - `udp/`: `port.rs` is the loop of a worker and port, `arrive.rs` decides about clients without a session, `cookie.rs` proves their
//!   address, `initial.rs` reads server names from QUIC, `leg.rs` and `dtls.rs` run DTLS within a session, `ready.rs` is the epoll set.
//! - `quic.rs`: endpoints. `quic/tokens.rs` lets a token prove an address once, `quic/demultiplexer.rs` gives a packet to the worker that knows its connection.
//! - `h1/`: HTTP/1.1 on the wire, both directions. Files go out by `sendfile` where nothing is encrypted.
//! - `h2/`: HTTP/2 as a state machine without sockets: `connection.rs` has octets in, messages out, octets to write. `flood.rs` bounds what a
//!   client may do for nothing, `head.rs` says which messages are malformed, for HTTP/3 as well. `hpack/`: header compression.
//! - `h3/`: HTTP/3 over quinn's streams. `qpack/`: field compression with the static table.
//! - `tls/`: `server.rs`, `names.rs` (certificates by server name), `challenge.rs` (ACME by TLS), `early.rs`, `sessions.rs` (each resumed
//!   once), `client.rs` (how targets are verified), `pem.rs`.
//! - `dns.rs`, `timer.rs` (deadlines as values), `probe.rs` (health probes), `link.rs`, `starttls.rs` (plain text before TLS).
//! - `fuzzing/`: what the fuzzers call, and what must hold. Not part of the gateway.

mod buffer;
pub mod calls;
mod date;
pub mod dns;
pub mod downstream;
pub mod entrance;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod h1;
mod h2;
mod h3;
pub mod handover;
mod hpack;
pub mod link;
mod load;
pub mod outgoing;
pub mod probe;
mod qpack;
pub mod quic;
pub mod recorder;
mod registry;
mod serving;
mod starttls;
pub mod supervise;
pub mod timer;
pub mod tls;
pub mod udp;
mod udp_port;
pub mod upstream;
pub mod worker;
