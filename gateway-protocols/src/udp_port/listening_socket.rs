//! The listening socket of a UDP port, and its place among those of the listener.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn_udp::{Transmit, UdpSocketState};
use tokio::io::Interest;

use crate::handover::Gate;
use crate::udp::stray::AddressPair;

/// The listening socket.
pub(super) struct ListeningSocket {
    pub(super) socket: tokio::net::UdpSocket,
    pub(super) state: UdpSocketState,
    pub(super) local: SocketAddr,
}

/// The socket among those of its listener.
pub(super) struct SharedSocket {
    /// Closed while another process reads it.
    pub(super) gate: Arc<Gate>,
    pub(super) number: u8,
    /// Another process reads it.
    pub(super) is_handed: bool,
    /// Its sessions are waited for in a drain: their clients are known to another process, or were.
    pub(super) counts: bool,
}

impl ListeningSocket {
    /// Has to be called within a runtime.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket: tokio::net::UdpSocket::from_std(socket)?, state, local })
    }

    /// Sends to a client, from the address it spoke to.
    pub(super) fn reply(&self, pair: AddressPair, bytes: &[u8]) {
        let transmit = Transmit {
            destination: pair.client,
            ecn: None,
            contents: bytes,
            segment_size: None,
            src_ip: pair.local,
        };
        // A full buffer loses the datagram, as UDP may.
        let _sent =
            self.socket.try_io(Interest::WRITABLE, || self.state.try_send((&self.socket).into(), &transmit));
    }
}
