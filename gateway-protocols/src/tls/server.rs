//! What is shown to clients: certificates by SNI, read again on reload without touching connections.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use gateway_core::config::model::{CertificateFiles, FrontendTls, TlsVersion};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use super::names::ByName;
use super::pem::{self, PemError};
use super::sessions::Sessions;

/// Octets a client may send over TCP before its handshake is over; who sends more is cut off. Room for a few requests,
/// as only those without a body are carried out that early. QUIC's flow control sets its own limit.
const MAX_EARLY_DATA: u32 = 16 << 10;

/// Why a frontend's certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// A file is of no use.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Certificate and key don't go together, or the rules contradict each other.
    #[error("{0}")]
    Unusable(String),
}

/// The current certificates; swapped whole on reload.
#[derive(Default)]
pub struct Certificates {
    current: ArcSwapOption<ByName<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// Reads all files and, when every one is good, puts them in use.
    ///
    /// # Errors
    /// The first bad file; the certificates in use stay.
    pub fn load(&self, files: &[CertificateFiles]) -> Result<(), ServerTlsError> {
        let mut store = ByName::default();
        for file in files {
            let key = Arc::new(certified_key(file)?);
            store.add(&key.cert[0], &key);
        }
        self.current.store(Some(Arc::new(store)));
        Ok(())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        // rustls hands names over in lower case and without a trailing dot.
        let mut found = current.as_ref()?.find(hello.server_name());
        let first = found.next()?;
        // Of several certificates with the same name, the first with a key the client can check. Where there is none
        // the handshake fails whichever is shown.
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        std::iter::once(first).chain(found).find(usable).or(Some(first)).cloned()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(…)")
    }
}

fn certified_key(file: &CertificateFiles) -> Result<CertifiedKey, ServerTlsError> {
    let chain = pem::chain(&file.cert_path)?;
    let key = pem::key(&file.key_path)?;
    CertifiedKey::from_der(chain, key, &super::provider()).map_err(|error| {
        let (cert, key) = (file.cert_path.display(), file.key_path.display());
        ServerTlsError::Unusable(format!("{cert} and {key}: {error}"))
    })
}

/// Builds the server's side of TLS.
///
/// # Errors
/// When the client CA file is of no use.
pub fn build(
    rules: &FrontendTls,
    certificates: Arc<Certificates>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, ServerTlsError> {
    let provider = super::provider();
    let versions: &[&rustls::SupportedProtocolVersion] = match rules.min_version {
        TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let unusable = |error: &dyn fmt::Display| ServerTlsError::Unusable(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| unusable(&error))?;
    let builder = match &rules.client_ca_path {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(pem::roots(path)?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            if !rules.client_cert_required {
                verifier = verifier.allow_unauthenticated();
            }
            builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
        }
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    if rules.early_data {
        config.max_early_data_size = MAX_EARLY_DATA;
        // A request that came early is answered early.
        config.send_half_rtt_data = true;
        config.session_storage = Arc::new(Sessions::default());
    } else if !rules.certificates.is_empty() {
        // Tickets resume on any worker and need no memory for each client; the keys rotate by themselves. Without a
        // certificate no handshake gets that far, and gathering entropy for the keys is most of the CPU of a start.
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| unusable(&error))?;
    }
    config.send_tls13_tickets = 2;
    Ok(config)
}
