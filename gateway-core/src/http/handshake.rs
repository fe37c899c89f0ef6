//! The handshake of a TLS connection that carries requests before it is over (RFC 8470).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The handshake of a connection that carries requests before it is over.
#[derive(Debug, Default)]
pub struct Handshake {
    over: AtomicBool,
    told: Notify,
}

impl Handshake {
    /// The client has proven that it is there: nothing that came before is a repetition.
    pub fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for its end. Never ends when the handshake fails: the connection and what waits for it are dropped then.
    pub async fn over(&self) {
        let told = self.told.notified();
        // The notification counts from its making on, so none is missed between the look and the wait.
        if !self.is_over() {
            told.await;
        }
    }
}
