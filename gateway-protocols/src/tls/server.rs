//! What is shown to clients: certificates by SNI, read again on reload without touching connections.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Those that the gateway got by itself, by their files, as they were read last.
    got: Mutex<HashMap<PathBuf, Arc<CertifiedKey>>>,
}

impl Certificates {
    /// Reads all files and, when every one is good, puts them in use. A certificate that the gateway gets by itself may be
    /// missing or of no use: the one that was read from its file before goes on being shown then, or nothing for its names,
    /// whatever is shown to everybody else.
    ///
    /// # Errors
    /// The first bad file; the certificates in use stay.
    pub fn load(&self, files: &[CertificateFiles]) -> Result<(), ServerTlsError> {
        let mut store = ByName::default();
        let mut known = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all_got = HashMap::new();
        for file in files {
            let key = match &file.acme {
                None => Arc::new(certified_key(file)?),
                Some(names) => {
                    names.iter().for_each(|name| store.reserve(name));
                    let Some(key) = usable(file, names).or_else(|| known.get(&file.cert_path).cloned())
                    else {
                        continue;
                    };
                    all_got.insert(file.cert_path.clone(), key.clone());
                    key
                }
            };
            store.add(&key.cert[0], &key);
        }
        *known = all_got;
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

/// A certificate that the gateway got by itself, where it can be used; why not is logged.
fn usable(file: &CertificateFiles, names: &[Box<str>]) -> Option<Arc<CertifiedKey>> {
    let read = got(file, names).unwrap_or_else(|error| {
        tracing::error!(%error, "a stored certificate can't be used");
        None
    });
    read.map(Arc::new)
}

/// A certificate that the gateway got by itself; `None` while there is none.
///
/// # Errors
/// When the file can't be used, or what it holds is not for all of these names.
pub fn got(file: &CertificateFiles, names: &[Box<str>]) -> Result<Option<CertifiedKey>, ServerTlsError> {
    let key = match certified_key(file) {
        Ok(key) => key,
        Err(ServerTlsError::Pem(PemError::Unreadable { source, .. })) if source.kind() == NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let held = super::names::names(&key.cert[0]);
    match names.iter().find(|name| held.binary_search_by(|held| (**held).cmp(name)).is_err()) {
        None => Ok(Some(key)),
        Some(name) => {
            let file = file.cert_path.display();
            Err(ServerTlsError::Unusable(format!("{file}: the certificate is not for `{name}`")))
        }
    }
}

/// Builds the server's side of TLS.
///
/// # Errors
/// When the client CA file is of no use.
pub fn build(
    rules: &FrontendTls,
    certificates: Arc<dyn ResolvesServerCert>,
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
