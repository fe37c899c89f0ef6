//! Who sends requests over a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::HeaderValue;

use super::super::handshake::Handshake;
use crate::certificate::CertificateNames;

/// The client's end of a connection; one for all its exchanges.
#[derive(Debug)]
pub struct Client {
    /// The other end of the socket, or what a trusted PROXY protocol header said.
    pub peer: SocketAddr,
    /// Our end of the socket, or what a trusted PROXY protocol header said.
    pub local: SocketAddr,
    /// The port that the gateway listens on, whatever a PROXY protocol header said.
    pub port: u16,
    /// The peer's address as text, ready to be appended to `X-Forwarded-For`.
    pub peer_text: HeaderValue,
    /// Whether the peer is a trusted proxy, whose forwarding headers are believed.
    pub trusted: bool,
    /// TLS facts; `None` on plain connections.
    pub tls: Option<ClientTls>,
    /// The handshake, where requests may come before it is over.
    pub handshake: Option<Arc<Handshake>>,
    /// The names in the client's certificate, read when they are first asked for.
    names: OnceLock<Option<Box<CertificateNames>>>,
}

/// What the TLS handshake told.
#[derive(Debug, Clone, Default)]
pub struct ClientTls {
    /// The name the client asked for.
    pub server_name: Option<Arc<str>>,
    /// `TLSv1.2` or `TLSv1.3`; of datagrams `DTLSv1.2` or `DTLSv1.3`.
    pub version: &'static str,
    /// IANA name; empty for DTLS.
    pub cipher: &'static str,
    /// The client's verified leaf certificate, DER.
    pub certificate: Option<Arc<[u8]>>,
    /// What the client sent after its leaf, DER, in its order. Only those that lead to a trusted root were verified.
    pub chain: Box<[Arc<[u8]>]>,
    /// Whether its certificate has lost the gateway's trust since the handshake; `None` without one.
    pub withdrawn: Option<Arc<AtomicBool>>,
}

impl Client {
    /// The client at the other end of a socket.
    pub fn new(peer: SocketAddr, local: SocketAddr, trusted: bool, tls: Option<ClientTls>) -> Self {
        let peer_text = HeaderValue::from_str(&canonical(peer.ip()).to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let port = local.port();
        Self { peer, local, port, peer_text, trusted, tls, handshake: None, names: OnceLock::new() }
    }

    /// The same, which came to this port of the gateway.
    #[must_use]
    pub fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Whether its handshake is still under way.
    pub fn is_early(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| !handshake.is_over())
    }

    /// The names in its certificate; `None` without one, or with one that can't be read.
    pub fn certificate_names(&self) -> Option<&CertificateNames> {
        let certificate = self.tls.as_ref()?.certificate.as_ref()?;
        self.names.get_or_init(|| CertificateNames::read(certificate).map(Box::new)).as_deref()
    }

    /// Whether its certificate has lost the gateway's trust, which ends the connection.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let withdrawn = self.tls.as_ref().and_then(|tls| tls.withdrawn.as_ref());
        withdrawn.is_some_and(|withdrawn| withdrawn.load(Ordering::Relaxed))
    }

    /// The scheme of this very connection, `https` or `http`; [`Exchange::scheme`](super::Exchange::scheme) is the client's.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// IPv4 addresses that arrive through an IPv6 socket, as IPv4.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}
