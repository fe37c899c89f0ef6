//! TLS for drivers and backends. The provider is named everywhere: webrtc-dtls brings ring into the tree, and with two
//! providers rustls refuses to choose by itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

/// Why TLS could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    #[error("cannot read certificates of {path}: {source}")]
    Roots { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// A self-made certificate for localhost and 127.0.0.1.
#[derive(Debug)]
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: Vec<u8>,
    certificate_pem: String,
    key_pem: String,
}

#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

/// The provider of every handshake here: aws-lc-rs with X25519 only. A hybrid post-quantum exchange costs more, and
/// peers on an older library would not have it, so rows with it would not do the same work.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    Arc::new(provider)
}

/// Names the provider to libraries that ask the process for one (webrtc-dtls does).
pub fn install_process_provider() {
    // A second call finds a provider installed, which is what it wanted.
    drop(aws_lc_rs::default_provider().install_default());
}

/// A client configuration; without `roots` any certificate is taken. Sessions are never resumed, so that each
/// connection does a full handshake.
///
/// # Errors
/// Unreadable roots.
pub fn client_config(alpn: &[&[u8]], roots: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let mut config = match roots {
        Some(path) => builder.with_root_certificates(read_roots(path)?).with_no_client_auth(),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// A client configuration with a certificate of the client's. Any server certificate is accepted.
///
/// # Errors
/// A key that rustls refuses.
pub fn client_config_of(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    alpn: &[&[u8]],
) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// A server configuration with this identity.
///
/// # Errors
/// A key that rustls refuses.
pub fn server_config(identity: &Identity, alpn: &[&[u8]]) -> Result<ServerConfig, TlsError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.clone()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], key)?;
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// What a handshake agreed on, in words.
#[must_use]
pub fn negotiated(session: &rustls::ClientConnection) -> String {
    let version = session.protocol_version().map_or_else(String::new, |version| format!("{version:?}"));
    let suite =
        session.negotiated_cipher_suite().map_or_else(String::new, |suite| format!(" {:?}", suite.suite()));
    let group = session
        .negotiated_key_exchange_group()
        .map_or_else(String::new, |group| format!(" {:?}", group.name()));
    format!("{version}{suite}{group}")
}

impl Identity {
    /// Makes a new P-256 key and its certificate.
    ///
    /// # Errors
    /// Whatever the crypto library refuses.
    pub fn generate() -> Result<Self, TlsError> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
            certificate_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
        })
    }

    /// The private key as PKCS#8 DER.
    #[must_use]
    pub fn key_der(&self) -> &[u8] {
        &self.key
    }

    /// Writes `cert.pem`, `key.pem` and `both.pem` (as HAProxy wants it) into a directory.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_to(&self, directory: &Path) -> Result<(), TlsError> {
        let both = format!("{}{}", self.certificate_pem, self.key_pem);
        for (name, text) in
            [("cert.pem", &self.certificate_pem), ("key.pem", &self.key_pem), ("both.pem", &both)]
        {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(|source| TlsError::Write { path, source })?;
        }
        Ok(())
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let fail = |source| TlsError::Roots { path: path.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(fail)? {
        roots.add(certificate.map_err(fail)?)?;
    }
    Ok(roots)
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
