//! An accepted connection before anything is known of it, and the record of one that never comes to a request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway_core::config::model::Settings;
use gateway_core::pipeline::stream;
use gateway_core::stream::session::Session;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::proxied::Addresses;
use crate::entrance::UNIX_ADDRESS;
use crate::tls::handshake_failure;
use crate::worker::Worker;

/// An accepted connection.
pub(super) struct TcpConnection {
    pub(super) tcp: TcpStream,
    pub(super) ends: Addresses,
}

impl TcpConnection {
    /// `None` when the client is gone already.
    pub(super) fn of(tcp: TcpStream, peer: SocketAddr, settings: &Settings) -> Option<Self> {
        let local = match tcp.local_addr() {
            Ok(local) if tcp.set_nodelay(true).is_ok() => local,
            // A Unix socket has neither.
            Err(_) if peer == UNIX_ADDRESS => UNIX_ADDRESS,
            _ => return None,
        };
        Some(Self { tcp, ends: Addresses::new(peer, local, settings) })
    }
}

/// Records a connection that never came to a request.
pub(super) fn refused(worker: &Worker, ends: Addresses, reason: &'static str, accepted: Instant) {
    let client = Arc::new(ends.client(None));
    let mut session = Session::new(client);
    session.started = accepted;
    stream::refuse(worker.recorder().as_ref(), "http", session, reason);
}

/// Records a failed TLS handshake. A client that only connects and leaves, as health checks do, is no failure.
pub(super) fn failed(worker: &Worker, ends: Addresses, error: &io::Error, accepted: Instant) {
    tracing::debug!(peer = %ends.peer, %error, "TLS handshake failed");
    if let Some(reason) = handshake_failure(error) {
        refused(worker, ends, reason, accepted);
    }
}
