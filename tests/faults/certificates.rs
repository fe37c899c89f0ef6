//! The gateway's certificate for https, which is exchanged while it runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::gateway::LONG;

/// A CA, and the certificate that the gateway has to show.
pub(crate) struct Certificates {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The one it shows, and one that it may show meanwhile.
    shown: Vec<CertificateDer<'static>>,
}

/// A certificate and its key as PEM.
struct Pair {
    der: CertificateDer<'static>,
    cert: String,
    key: String,
}

impl Certificates {
    /// Puts a first one in place.
    pub(crate) fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut it = Self { issuer, shown: Vec::new() };
        let first = it.pair();
        std::fs::write(folder.join("cert.pem"), &first.cert).unwrap();
        std::fs::write(folder.join("key.pem"), &first.key).unwrap();
        it.shown.push(first.der);
        it
    }

    fn pair(&self) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Pair { der: cert.der().clone(), cert: cert.pem(), key: key.serialize_pem() }
    }

    /// Puts another one in place, as programs do that renew certificates: one file after the other. Until it is
    /// [settled](Self::settle) either may be shown.
    pub(crate) fn exchange(&mut self, folder: &Path, between: impl FnOnce()) {
        let next = self.pair();
        self.shown.push(next.der);
        std::fs::write(folder.join("cert.pem"), &next.cert).unwrap();
        between();
        std::fs::write(folder.join("key.pem"), &next.key).unwrap();
    }

    /// Leaves half a file, or nothing, in the place of the certificate.
    pub(crate) fn tear(folder: &Path, keep: usize) {
        let path = folder.join("cert.pem");
        let text = std::fs::read(&path).unwrap();
        std::fs::write(path, &text[..keep.min(text.len())]).unwrap();
    }

    /// Puts the newest one in place whole.
    pub(crate) fn renew(&mut self, folder: &Path) {
        self.exchange(folder, || ());
    }

    /// Whether the newest one is shown; then it is the only one that may be.
    pub(crate) fn settle(&mut self, https: SocketAddr) -> bool {
        let newest = self.shown.last().cloned();
        let is_shown = self.look(https).is_some_and(|shown| Some(shown) == newest);
        if is_shown {
            self.shown.drain(..self.shown.len() - 1);
        }
        is_shown
    }

    /// Whether one is shown that may be.
    pub(crate) fn is_served(&self, https: SocketAddr) -> bool {
        self.look(https).is_some_and(|shown| self.shown.contains(&shown))
    }

    /// What a client that trusts the CA alone is shown.
    fn look(&self, https: SocketAddr) -> Option<CertificateDer<'static>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).ok()?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?;
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let handshake = async {
                let tcp = TcpStream::connect(https).await.ok()?;
                let name = ServerName::try_from("localhost").ok()?;
                let tls = TlsConnector::from(config).connect(name, tcp).await.ok()?;
                tls.get_ref().1.peer_certificates()?.first().map(|leaf| leaf.clone().into_owned())
            };
            tokio::time::timeout(LONG, handshake).await.ok().flatten()
        })
    }
}
