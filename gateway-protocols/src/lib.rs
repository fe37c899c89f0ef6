//! Bytes to core types and back: the sockets, TLS and the HTTP versions of the gateway.
//!
//! Clients come in through [`downstream`], targets are reached through [`upstream`]; between them stands the pipeline
//! of `gateway-core`, which never learns which version either side speaks. A [`worker`] is one thread with its own
//! sockets and its own pools.

mod buffer;
pub mod calls;
mod date;
pub mod dns;
pub mod downstream;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod h1;
mod h2;
mod h3;
mod hpack;
pub mod link;
mod load;
pub mod probe;
mod qpack;
pub mod quic;
pub mod recorder;
pub mod supervise;
pub mod timer;
pub mod tls;
pub mod udp;
pub mod upstream;
pub mod worker;
