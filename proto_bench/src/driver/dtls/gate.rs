//! A socket lent to webrtc-dtls for the handshake and taken back afterwards.

use std::any::Any;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use webrtc_util::{Conn, Error};

type Result<T> = std::result::Result<T, Error>;

/// Passes datagrams until it is closed; then a reader waits for ever, because webrtc-dtls tries again on errors.
pub struct Gate {
    socket: Arc<UdpSocket>,
    /// Datagrams that came before the gate was made.
    early: Mutex<Vec<Vec<u8>>>,
    closed: watch::Sender<bool>,
}

impl Gate {
    /// Lends a connected socket; `early` is delivered first, last one first.
    #[must_use]
    pub fn new(socket: Arc<UdpSocket>, early: Vec<Vec<u8>>) -> Self {
        Self { socket, early: Mutex::new(early), closed: watch::channel(false).0 }
    }

    /// Takes the socket back.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    fn take_early(&self, buffer: &mut [u8]) -> Option<usize> {
        let datagram = self.early.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let count = datagram.len().min(buffer.len());
        buffer[..count].copy_from_slice(&datagram[..count]);
        Some(count)
    }
}

#[async_trait]
impl Conn for Gate {
    async fn connect(&self, address: SocketAddr) -> Result<()> {
        Ok(self.socket.connect(address).await?)
    }

    async fn recv(&self, buffer: &mut [u8]) -> Result<usize> {
        if let Some(count) = self.take_early(buffer) {
            return Ok(count);
        }
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            () = async { drop(closed.wait_for(|closed| *closed).await) } => {}
            received = self.socket.recv(buffer) => return Ok(received?),
        }
        pending().await
    }

    async fn recv_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr)> {
        let count = self.recv(buffer).await?;
        Ok((count, self.socket.peer_addr()?))
    }

    async fn send(&self, datagram: &[u8]) -> Result<usize> {
        Ok(self.socket.send(datagram).await?)
    }

    async fn send_to(&self, datagram: &[u8], _target: SocketAddr) -> Result<usize> {
        self.send(datagram).await
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}
