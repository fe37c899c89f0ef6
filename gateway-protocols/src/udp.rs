//! Datagrams: sessions by client address, in one loop a worker and port, without a task or a buffer a session.
//!
//! Datagrams of clients arrive in batches on the listening socket; those of targets on one connected socket a session.
//! The latter wait in an epoll set of their own, whose descriptor the runtime watches: however many sessions there are,
//! the runtime knows one source, and only sockets with something in them are looked at.

mod certificate_list;
pub(crate) mod client_table;
pub(crate) mod connections;
pub(crate) mod cookie;
pub mod dtls;
pub(crate) mod flight;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod headers;
pub(crate) mod hello;
pub(crate) mod initial;
pub(crate) mod leg;
mod offer;
pub(crate) mod peer_chain;
pub(crate) mod questions;
pub(crate) mod ready;
pub(crate) mod retry;
pub(crate) mod session;
pub(crate) mod stray;
mod suites;
pub(crate) mod transcript;

pub(crate) use questions::QUEUE;
pub use questions::{DatagramId, DatagramSession, DatagramSum, PortAnswer, Question, Wanted};
pub(crate) use stray::SessionOwners;
