//! Messages as datagrams.

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
        let socket = server.socket().await.map_err(Failed::passing)?;
        let mut delivered = Delivered::default();
        for (number, message) in chunk.bytes.split(|byte| *byte == b'\n').enumerate() {
            pace(number, chunk.items).await;
            // Those before are gone already: one that can't be sent is not a reason to send all of them again.
            if let Err(error) = socket.send(message).await {
                delivered.refused += 1;
                delivered.why = error.to_string();
            }
        }
        if delivered.refused > 0 {
            server.close();
        }
        Ok(delivered)
    }
}
