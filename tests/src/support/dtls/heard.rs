//! A client that keeps what it hashes: every message of its handshake as it heard it.

use std::sync::{Arc, Mutex, PoisonError};

use dimpl::Config;
use dimpl::crypto::{CryptoProvider, aws_lc_rs};
use tokio::net::UdpSocket;

use super::super::tls;
use super::hashes::Hashes;
use super::{Offer, Peer};

/// The transcripts of all such clients.
static HEARD: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Hashes as they come, and keeps them.
static NOTING: Hashes = Hashes(|data| {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(data.to_vec());
    None
});

impl Peer {
    /// A client whose messages can be asked for with [`heard`], before its handshake.
    pub(crate) fn client_noting(socket: UdpSocket, offer: Offer) -> Self {
        let provider = CryptoProvider { hash_provider: &NOTING, ..aws_lc_rs::default_provider() };
        let config = Config::builder().with_crypto_provider(provider).mtu(1200).max_queue_rx(100);
        let config = config.require_client_certificate(false).build().expect("a configuration");
        Self::client_with(socket, offer, Arc::new(config), tls::localhost())
    }
}

/// Whether a client heard this as a part of its handshake.
pub(crate) fn heard(bytes: &[u8]) -> bool {
    let heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    heard.iter().any(|transcript| transcript.windows(bytes.len()).any(|part| part == bytes))
}
