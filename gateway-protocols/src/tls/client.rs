//! How targets are judged, and what is shown to them.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use dashmap::DashMap;
use gateway_core::config::model::{BackendHttp, BackendTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::own_root::TargetVerifier;
use super::pem::{self, PemError};

/// Why a proxy's TLS rules can't be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file is of no use.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Certificate and key don't go together, or a name is none.
    #[error("{0}")]
    Unusable(String),
}

/// The built configurations, one for each set of rules; session tickets live in them, so they are kept.
#[derive(Default)]
pub struct ClientConfigs {
    built: DashMap<(BackendTls, Option<BackendHttp>), Built>,
}

/// A configuration and what its files were like when it was made.
struct Built {
    config: Arc<ClientConfig>,
    files: Vec<FileState>,
}

/// When a file was last written, how long it is, and its number, by which one put in its place within the same tick of the
/// clock is told apart; `None` when it can't be seen.
type FileState = Option<(SystemTime, u64, u64)>;

/// Counts how often files that decide about targets' trust have changed. Part of every encrypted connection's pool key,
/// so that a connection made under the old files serves nobody new. One for the process: several gateways in one
/// process at worst make a handshake too many.
static EDITION: AtomicU64 = AtomicU64::new(0);

/// The current edition of files that decide about targets' trust.
pub(crate) fn edition() -> u64 {
    EDITION.load(Ordering::Relaxed)
}

fn states(rules: &BackendTls) -> Vec<FileState> {
    let pair = rules.client_cert.iter().flat_map(|(cert, key)| [cert, key]);
    let files = rules.ca_path.iter().chain(pair);
    files
        .map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len(), about.ino()))
        })
        .collect()
}

/// Sets of rules kept at the most; beyond that they are built anew for each connection.
const MAX_BUILT: usize = 10_000;

impl ClientConfigs {
    /// The configuration for these rules; `http` says what ALPN offers, nothing for other protocols.
    ///
    /// # Errors
    /// When a file they name is of no use.
    pub fn of(
        &self,
        rules: &BackendTls,
        http: Option<BackendHttp>,
    ) -> Result<Arc<ClientConfig>, ClientTlsError> {
        let key = (rules.clone(), http);
        if let Some(built) = self.built.get(&key) {
            return Ok(built.config.clone());
        }
        // Looked at before they are read: a change in between is then seen as one.
        let files = states(rules);
        let config = Arc::new(build(rules, http)?);
        if self.built.len() < MAX_BUILT {
            self.built.insert(key, Built { config: config.clone(), files });
        }
        Ok(config)
    }

    /// Puts files in use that have changed since they were read, and forgets those of rules that nobody uses any more.
    /// Connections made under those before take no new exchanges. Where new files are of no use, those before stay in use; says
    /// why.
    pub fn refresh(&self, is_used: impl Fn(&BackendTls) -> bool) -> Vec<ClientTlsError> {
        let changed = self.built.iter().filter(|built| states(&built.key().0) != built.files);
        let changed: Vec<_> = changed.map(|built| built.key().clone()).collect();
        let (mut errors, mut replaced) = (Vec::new(), false);
        for (rules, http) in changed {
            if !is_used(&rules) {
                self.built.remove(&(rules, http));
                replaced = true;
                continue;
            }
            let files = states(&rules);
            match build(&rules, http) {
                Ok(config) => {
                    self.built.insert((rules, http), Built { config: Arc::new(config), files });
                    replaced = true;
                }
                Err(error) => errors.push(error),
            }
        }
        if replaced {
            EDITION.fetch_add(1, Ordering::Relaxed);
        }
        errors
    }
}

/// Builds a configuration from its rules and files.
///
/// # Errors
/// When a file is of no use.
pub fn build(rules: &BackendTls, http: Option<BackendHttp>) -> Result<ClientConfig, ClientTlsError> {
    let provider = super::provider();
    let versions = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientTlsError::Unusable(error.to_string()))?;
    let judged = if rules.verify {
        match &rules.ca_path {
            Some(path) => {
                let verifier = TargetVerifier::read(path, provider)?;
                versions.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            None => versions.with_root_certificates(public_roots()),
        }
    } else {
        versions.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    };
    let mut config = match &rules.client_cert {
        None => judged.with_no_client_auth(),
        Some((cert, key)) => judged
            .with_client_auth_cert(pem::chain(cert)?, pem::key(key)?)
            .map_err(|error| ClientTlsError::Unusable(format!("{}: {error}", cert.display())))?,
    };
    config.alpn_protocols = match http {
        None => Vec::new(),
        Some(BackendHttp::Auto | BackendHttp::Http3 | BackendHttp::Same) => {
            vec![b"h2".to_vec(), b"http/1.1".to_vec()]
        }
        // FastCGI is not spoken over TLS.
        Some(BackendHttp::FastCgi) => Vec::new(),
        Some(BackendHttp::Http1) => vec![b"http/1.1".to_vec()],
        Some(BackendHttp::Http2) => vec![b"h2".to_vec()],
    };
    Ok(config)
}

pub(crate) fn public_roots() -> Arc<RootCertStore> {
    static ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
        let mut store = RootCertStore::empty();
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        Arc::new(store)
    });
    ROOTS.clone()
}

/// The name to send and check.
///
/// # Errors
/// When it is neither a name nor an address.
pub fn server_name(rules: &BackendTls, host: &str) -> Result<ServerName<'static>, ClientTlsError> {
    let name = rules.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| ClientTlsError::Unusable(format!("{name} is not a valid server name")))
}

/// Takes any certificate, where the operator said so. Signatures are still checked: the peer holds the key it shows.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
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
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
