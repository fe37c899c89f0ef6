//! UDP: one datagram out, the same datagram back. Nothing is sent twice: a lost datagram is a fault.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use tokio::net::UdpSocket;

use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::Plan;

/// Opens connected datagram sockets.
pub struct Udp {
    address: SocketAddr,
    pattern: Rc<Pattern>,
}

/// One connected socket.
pub struct Socket {
    socket: UdpSocket,
    pattern: Rc<Pattern>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// Larger payloads do not fit a datagram over IPv4.
pub const LARGEST: usize = 65_507;

impl Udp {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        if plan.message.payload > LARGEST {
            return Err(Fault::protocol(format!("a datagram holds {LARGEST} bytes at most")));
        }
        Ok(Self { address: plan.address(), pattern: Rc::new(Pattern::new(plan.message.payload.max(1))) })
    }
}

impl Driver for Udp {
    type Lane = Socket;

    async fn connect(&self) -> Result<NewConnection<Socket>, Fault> {
        let socket = connected_socket(self.address).await?;
        let size = self.pattern.size();
        let lane = Socket {
            socket,
            pattern: Rc::clone(&self.pattern),
            sent: vec![0; size],
            received: vec![0; size + 1],
        };
        Ok(NewConnection { lanes: vec![lane], negotiated: None })
    }
}

/// A socket of its own port that hears this address only.
pub(super) async fn connected_socket(address: SocketAddr) -> Result<UdpSocket, Fault> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await.map_err(Fault::Connect)?;
    socket.connect(address).await.map_err(Fault::Connect)?;
    Ok(socket)
}

impl Lane for Socket {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        self.pattern.write(stamp, &mut self.sent);
        self.socket.send(&self.sent).await?;
        let count = self.socket.recv(&mut self.received).await?;
        self.pattern.check(stamp, &self.received[..count])?;
        Ok(VerifiedAnswer::message(count))
    }
}
