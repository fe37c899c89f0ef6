//! TLS between control planes and edges: TLS 1.3, with certificates of the fleet's authority on both sides.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme, version,
};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{
    CertificateDer, InvalidDnsNameError, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime,
};

use crate::authority::{Authority, AuthorityError, SERVER_NAME, fingerprint, read_edge, signing_request};

const ALPN: &[u8] = b"h2";

/// Why control plane and edges can't speak TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetTlsError {
    /// The authority issues nothing, or what it issues can't be read.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A certificate or key in PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate or key that TLS can't use.
    #[error(transparent)]
    Tls(#[from] Error),
    /// A root that can't verify anything.
    #[error(transparent)]
    Roots(#[from] VerifierBuilderError),
    /// The name that control planes go by.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// The authority's certificates would be refused by the other side.
    #[error("certificates that it issues for {of} are not valid: {error}")]
    Issued {
        /// Whose they are.
        of: &'static str,
        /// Why.
        #[source]
        error: Error,
    },
    /// The authority's chain is empty.
    #[error("it issues nothing")]
    NothingIssued,
}

/// Which certificates of edges are accepted.
pub trait Acceptance: Send + Sync + fmt::Debug {
    /// What the control plane knows of this edge and this certificate of it.
    fn membership(&self, edge: &str, serial: &str) -> Membership;
}

/// What a control plane knows of an edge's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// The edge is enrolled with it.
    Enrolled,
    /// The edge is revoked.
    Revoked,
    /// It is new to this control plane: another one may have signed it a moment ago, so the edge tries again.
    Unknown,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The certificate that a control plane shows; another one takes its place while connections go on.
#[derive(Debug, Clone)]
pub struct ServerCertificate(Arc<RwLock<Arc<CertifiedKey>>>);

impl ServerCertificate {
    /// A new one of this authority.
    ///
    /// # Errors
    /// When it can't be issued.
    pub fn issue(authority: &Authority) -> Result<Self, FleetTlsError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(certified(authority)?)))))
    }

    /// Shows another one from now on.
    ///
    /// # Errors
    /// When it can't be issued; the one before stays.
    pub fn renew(&self, authority: &Authority) -> Result<(), FleetTlsError> {
        let certified = Arc::new(certified(authority)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }
}

fn certified(authority: &Authority) -> Result<CertifiedKey, FleetTlsError> {
    let (chain, key) = authority.issue_server()?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// What a control plane accepts connections by. A client without a certificate may only enrol.
///
/// # Errors
/// When the authority's certificate can't be a root.
pub fn server_config(
    authority: &Authority,
    certificate: ServerCertificate,
    acceptance: Arc<dyn Acceptance>,
) -> Result<Arc<ServerConfig>, FleetTlsError> {
    let inner = edge_verifier(authority)?;
    let verifier = Arc::new(EdgeVerifier { inner, acceptance });
    let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]);
    let mut config = config?.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would not be verified again, and might have been revoked meanwhile.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn trusted(authority: &Authority) -> Result<Arc<RootCertStore>, FleetTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in authority.trusted() {
        roots.add(certificate.clone())?;
    }
    Ok(roots.into())
}

fn edge_verifier(authority: &Authority) -> Result<Arc<dyn ClientCertVerifier>, FleetTlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted(authority)?, provider());
    Ok(verifier.allow_unauthenticated().build()?)
}

/// Whether edges and control planes accept what an authority issues: its key may be of a kind that TLS lacks, and its certificate
/// may constrain names.
///
/// # Errors
/// In words for the operator.
pub fn check_issues(authority: &Authority) -> Result<(), FleetTlsError> {
    let (chain, _) = authority.issue_server()?;
    let (_, request) = signing_request()?;
    let edge = authority.issue_edge("check", "check", &request)?;
    let edge = CertificateDer::from_pem_slice(edge.certificate.as_bytes())?;
    let now = UnixTime::now();
    let invalid = |of| move |error| FleetTlsError::Issued { of, error };
    edge_verifier(authority)?.verify_client_cert(&edge, &[], now).map_err(invalid("edges"))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(trusted(authority)?, provider());
    let name = ServerName::try_from(SERVER_NAME)?;
    let first = chain.first().ok_or(FleetTlsError::NothingIssued)?;
    let verified = verifier.build()?.verify_server_cert(first, &[], &name, &[], now);
    verified.map(drop).map_err(invalid("control planes"))
}

/// Accepts certificates of the authority that are not revoked.
#[derive(Debug)]
struct EdgeVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    acceptance: Arc<dyn Acceptance>,
}

impl ClientCertVerifier for EdgeVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let edge = read_edge(end_entity).map_err(|_| Error::from(CertificateError::BadEncoding))?;
        match self.acceptance.membership(&edge.edge, &edge.serial) {
            Membership::Enrolled => Ok(verified),
            Membership::Revoked => Err(CertificateError::Revoked.into()),
            Membership::Unknown => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// What an enrolled edge connects by: its certificate chain and key, and the roots of the fleet, all in PEM.
///
/// # Errors
/// When they can't be read.
pub fn client_config(certificate: &str, key: &str, roots: &str) -> Result<Arc<ClientConfig>, FleetTlsError> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        store.add(root?)?;
    }
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]);
    let mut config = config?.with_root_certificates(store).with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// What an invited edge connects by: it knows the authority by the invitation's pin alone.
///
/// # Errors
/// When TLS can't be set up.
pub fn enrolment_config(pin: &str) -> Result<Arc<ClientConfig>, FleetTlsError> {
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]);
    let verifier = Arc::new(PinVerifier { pin: pin.to_owned(), provider: provider() });
    let mut config = config?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts a certificate that the pinned authority, which has to come with it, has issued for a control plane.
#[derive(Debug)]
struct PinVerifier {
    pin: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned = intermediates.iter().find(|certificate| fingerprint(certificate) == self.pin);
        let unknown = || Error::from(CertificateError::UnknownIssuer);
        let mut roots = RootCertStore::empty();
        roots.add(pinned.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone());
        let verifier = verifier.build().map_err(|_| unknown())?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
