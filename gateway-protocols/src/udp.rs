//! Datagrams: sessions by client address, in one loop a worker and port, without a task or a buffer a session.
//!
//! Datagrams of clients arrive in batches on the listening socket; those of targets on one connected socket a session.
//! The latter wait in an epoll set of their own, whose descriptor the runtime watches: however many sessions there are,
//! the runtime knows one source, and only sockets with something in them are looked at.

mod arrive;
mod asked;
mod certificate_list;
mod client_table;
mod connections;
mod cookie;
pub mod dtls;
mod flight;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod greet;
mod handover;
mod headers;
mod hello;
mod initial;
mod leg;
mod offer;
mod peer_chain;
mod port;
mod proxied;
mod questions;
mod ready;
mod restart;
mod retry;
mod session;
mod stray;
mod transcript;
mod trust;

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use thiserror::Error;

use crate::worker::Worker;
use dtls::DtlsRules;
use port::Port;
pub(crate) use questions::QUEUE;
pub use questions::{DatagramId, DatagramSession, DatagramSum, PortAnswer, Question, Wanted};
pub(crate) use stray::SessionOwners;

/// Why datagrams of a port can't be served.
#[derive(Debug, Error)]
#[error("port {number}: {error}")]
pub(crate) struct PortError {
    number: u16,
    error: io::Error,
}

/// Serves a port until the task is ended.
///
/// # Errors
/// When its sockets can't be used; it may be started again.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    socket: Arc<UdpSocket>,
    number: u16,
    dtls: Arc<DtlsRules>,
) -> Result<(), PortError> {
    let failed = |error| PortError { number, error };
    let port = Port::new(worker, socket.try_clone().map_err(failed)?, number, dtls).map_err(failed)?;
    port.run().await;
    Ok(())
}
