//! Messages as datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use gateway_core::config::model::LogServer;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use tokio::net::UdpSocket;
use tokio::sync::Mutex;

/// Sends each line as a datagram.
pub(super) struct UdpSender {
    host: Arc<str>,
    port: u16,
    socket: Mutex<Option<UdpSocket>>,
}

impl UdpSender {
    pub(super) fn new(server: &LogServer) -> Self {
        Self { host: server.host.clone(), port: server.port, socket: Mutex::new(None) }
    }

    async fn open(&self) -> std::io::Result<UdpSocket> {
        let found = tokio::net::lookup_host((&*self.host, self.port)).await?.next();
        let Some(server) = found else { return Err(std::io::ErrorKind::NotFound.into()) };
        let any = match server {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(server).await?;
        Ok(socket)
    }
}

impl Deliver for UdpSender {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let mut kept = self.socket.lock().await;
        let socket = match kept.take() {
            Some(socket) => socket,
            None => self.open().await.map_err(|error| Failed::passing(error.to_string()))?,
        };
        let mut delivered = Delivered::default();
        for message in chunk.bytes.split(|byte| *byte == b'\n') {
            // Those before are gone already: one that can't be sent is not a reason to send all of them again.
            if let Err(error) = socket.send(message).await {
                delivered.refused += 1;
                delivered.why = error.to_string();
            }
        }
        if delivered.refused == 0 {
            *kept = Some(socket);
        }
        Ok(delivered)
    }
}
