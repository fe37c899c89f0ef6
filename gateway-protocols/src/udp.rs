//! Sessions over UDP: which client and target each has, how DTLS begins, and what is encrypted. [`crate::udp_port`] serves them.

mod certificate_list;
mod cipher_suites;
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
pub(crate) mod transcript;

pub(crate) use questions::QUEUE;
pub use questions::{DatagramId, DatagramSession, DatagramSum, PortAnswer, Question, Wanted};
pub(crate) use stray::SessionOwners;
