//! Messages as datagrams.

use std::io;

use gateway_core::config::model::LogServer;
use gateway_core::plugin::World;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use tokio::sync::Mutex;

use crate::export::datagram::{DatagramServer, pace};

/// Sends each line as a datagram.
pub(super) struct UdpSender(Mutex<DatagramServer>);

impl UdpSender {
    pub(super) fn new(server: &LogServer, world: &World) -> Self {
        Self(Mutex::new(DatagramServer::new(&server.host, server.port, world)))
    }
}

impl Deliver for UdpSender {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let mut server = self.0.lock().await;
        let socket = server.socket().await.map_err(|error| Failed::passing(error.to_string()))?;
        let mut delivered = Delivered::default();
        let mut refused = |error: &io::Error| {
            delivered.refused += 1;
            delivered.why = error.to_string();
        };
        for (number, message) in chunk.bytes.split(|byte| *byte == b'\n').enumerate() {
            pace(number, chunk.items).await;
            let sent = match socket.send(message).await {
                // This tells of the one before, which nobody took. The message itself was not sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    refused(&error);
                    socket.send(message).await
                }
                sent => sent,
            };
            // Those before are gone already: one that can't be sent is not a reason to send all of them again.
            if let Err(error) = sent {
                refused(&error);
            }
        }
        // Of the last one, the kernel may know already that nobody took it.
        if let Ok(Some(error)) = socket.take_error() {
            refused(&error);
        }
        if delivered.refused > 0 {
            server.close();
        }
        Ok(delivered)
    }
}
