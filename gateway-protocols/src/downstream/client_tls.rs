//! What is known of a client by its TLS handshake.

use std::io;
use std::sync::Arc;

use gateway_core::http::exchange::ClientTls;
use rustls::{CipherSuite, HandshakeKind};

use crate::tls::trust::{Generation, Trusted};
use crate::worker::Worker;

/// What the handshake said.
pub(super) fn facts(session: &rustls::ServerConnection) -> ClientTls {
    ClientTls {
        server_name: session.server_name().map(Arc::from),
        version: match session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "unknown",
        },
        cipher: session.negotiated_cipher_suite().map_or("unknown", |suite| registered(suite.suite())),
        ..shown(session.peer_certificates().unwrap_or_default())
    }
}

/// Keeps watch over the certificate that was shown in the handshake, if there is one.
///
/// # Errors
/// When it is not good any more: who resumes a session does not show it again.
pub(super) fn trust(
    worker: &Worker,
    session: &rustls::ServerConnection,
    facts: &mut ClientTls,
    since: Generation,
) -> io::Result<Option<Trusted>> {
    let is_verified = session.handshake_kind().is_some_and(|kind| kind != HandshakeKind::Resumed);
    let trusted = worker.shared().client_trust.enter(facts, is_verified, since);
    trusted.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A cipher suite by the name it has in IANA's registry; rustls names those of TLS 1.3 otherwise.
fn registered(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}

/// The certificates that a client showed.
pub(super) fn shown(certificates: &[rustls_pki_types::CertificateDer<'_>]) -> ClientTls {
    let mut all = certificates.iter().map(|certificate| Arc::from(certificate.as_ref()));
    ClientTls { certificate: all.next(), chain: all.collect(), ..ClientTls::default() }
}
