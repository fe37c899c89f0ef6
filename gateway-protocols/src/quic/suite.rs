//! Which cipher suite a client's handshake over QUIC has chosen. quinn does not tell, so this stands between quinn and rustls and
//! looks: the length of the traffic secret tells the hash, and how often a key may be used tells the cipher.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn::{ConnectionId, Side};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;

thread_local! {
    /// Bytes of the secret that rustls has derived last on this thread.
    static SECRET: Cell<usize> = const { Cell::new(0) };
}

/// What rustls tells of its secrets; no more than their length is looked at.
#[derive(Debug)]
pub(super) struct SecretLengths;

impl rustls::KeyLog for SecretLengths {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "SERVER_HANDSHAKE_TRAFFIC_SECRET" {
            SECRET.set(secret.len());
        }
    }
}

/// What is known of a handshake.
pub(crate) struct Handshake {
    /// The name the client asked for.
    pub(crate) server_name: Option<String>,
    /// The suite's name in IANA's registry.
    pub(crate) suite: Option<&'static str>,
}

/// rustls' side of QUIC, looked at.
pub(super) struct Watched(pub(super) Arc<QuicServerConfig>);

impl ServerConfig for Watched {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let session = self.0.clone().start_session(version, params);
        Box::new(WatchedSession { session, secret: 0, suite: None })
    }
}

struct WatchedSession {
    session: Box<dyn Session>,
    secret: usize,
    suite: Option<&'static str>,
}

impl WatchedSession {
    /// Does a step of the handshake, and keeps the length of the secret if it was derived in it.
    fn step<T>(&mut self, work: impl FnOnce(&mut dyn Session) -> T) -> T {
        SECRET.set(0);
        let done = work(self.session.as_mut());
        self.secret = self.secret.max(SECRET.get());
        done
    }
}

/// The suite with a secret of this length and this key.
fn suite(secret: usize, key: &dyn PacketKey) -> Option<&'static str> {
    // RFC 9001 §6.6: there is no such limit for ChaCha20-Poly1305.
    match (secret, key.confidentiality_limit() < 1 << 62) {
        (48, _) => Some("TLS_AES_256_GCM_SHA384"),
        (32, true) => Some("TLS_AES_128_GCM_SHA256"),
        (32, false) => Some("TLS_CHACHA20_POLY1305_SHA256"),
        _ => None,
    }
}

impl Session for WatchedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let known = self.session.handshake_data()?.downcast::<HandshakeData>().ok()?;
        Some(Box::new(Handshake { server_name: known.server_name, suite: self.suite }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.step(|session| session.read_handshake(buf))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.step(|session| session.write_handshake(buf));
        if let Some(keys) = &keys {
            self.suite = self.suite.or_else(|| suite(self.secret, keys.packet.local.as_ref()));
        }
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}
