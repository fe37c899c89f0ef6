//! What is shown to clients: certificates by SNI, read again on reload without touching connections.

use std::collections::HashSet;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use gateway_core::config::model::{CertificateFiles, FrontendTls, TlsVersion};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::key_pair::{Keys, Pair, certified_key};
use super::names::{self, ByName};
use super::pem::PemError;
use super::sessions::Sessions;
use super::stand_in::StandIns;
use super::tickets::Ticketer;
use super::trust::ClientRoots;

pub use super::key_pair::ServerTlsError;

/// Octets a client may send over TCP before its handshake is over; who sends more is cut off. Room for a few requests,
/// as only those without a body are carried out that early. QUIC's flow control sets its own limit.
const MAX_EARLY_DATA: u32 = 16 << 10;

/// The current certificates; swapped whole on reload.
#[derive(Default)]
pub struct Certificates {
    current: ArcSwapOption<ByName<Arc<CertifiedKey>>>,
    /// What is in use, by its files, as they were read last.
    used: Mutex<Keys>,
}

impl Certificates {
    /// Reads all files and, when every one is good, puts them in use. A certificate that the gateway gets by itself may be
    /// missing or of no use: the one that was read from its file before goes on being shown then, or for each of its names
    /// whatever was shown for it before or is stored beside it, as long as that is valid; otherwise nothing.
    ///
    /// # Errors
    /// The first bad file; the certificates in use stay.
    pub fn load(&self, files: &[CertificateFiles]) -> Result<(), ServerTlsError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut given = Keys::new();
        for file in files.iter().filter(|file| file.acme.is_none()) {
            given.insert(pair(file), Arc::new(certified_key(file)?));
        }
        self.show(files, &given, &mut used);
        Ok(())
    }

    /// The same, but a bad file keeps nobody else's from being used: in its place stays what was read from it before. The errors
    /// are those of bad files.
    pub fn refresh(&self, files: &[CertificateFiles]) -> Vec<ServerTlsError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut given, mut errors) = (Keys::new(), Vec::new());
        for file in files.iter().filter(|file| file.acme.is_none()) {
            let pair = pair(file);
            let key = certified_key(file).map(Arc::new).or_else(|error| {
                errors.push(error);
                used.get(&pair).cloned().ok_or(())
            });
            if let Ok(key) = key {
                given.insert(pair, key);
            }
        }
        self.show(files, &given, &mut used);
        errors
    }

    /// Puts in use those that are given, those that the gateway got, and what stands in for those that are not there yet.
    fn show(&self, files: &[CertificateFiles], given: &Keys, used: &mut Keys) {
        let key = |file: &CertificateFiles| match &file.acme {
            None => given.get(&pair(file)).cloned(),
            Some(names) => usable(file, names).or_else(|| used.get(&pair(file)).cloned()),
        };
        let keys: Vec<_> = files.iter().map(|file| (file, key(file))).collect();
        let own = keys.iter().filter_map(|(_, key)| Some(names::names(&key.as_ref()?.cert[0])));
        let own: HashSet<String> = own.flatten().collect();
        let (mut store, mut now_used) = (ByName::default(), Keys::new());
        let mut stand_ins = StandIns::new(used);
        for (file, key) in keys {
            let names = file.acme.iter().flat_map(|names| names.iter());
            names.clone().for_each(|name| store.reserve(name));
            if let Some(key) = key {
                store.add(&key.cert[0], &key);
                now_used.insert(pair(file), key);
                continue;
            }
            for (pair, key, names) in stand_ins.of(file, names.filter(|name| !own.contains(&***name))) {
                store.add_for(&names, &key);
                now_used.insert(pair, key);
            }
        }
        *used = now_used;
        self.current.store(Some(Arc::new(store)));
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

fn pair(file: &CertificateFiles) -> Pair {
    (file.cert_path.clone(), file.key_path.clone())
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
    let held = names::names(&key.cert[0]);
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
/// When the client CA file, or a revocation list, is of no use.
pub fn build(
    rules: &FrontendTls,
    certificates: Arc<dyn ResolvesServerCert>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, ServerTlsError> {
    let versions: &[&rustls::SupportedProtocolVersion] = match rules.min_version {
        TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let unusable = |error: &dyn fmt::Display| ServerTlsError::Unusable(error.to_string());
    let builder = ServerConfig::builder_with_provider(super::provider())
        .with_protocol_versions(versions)
        .map_err(|error| unusable(&error))?;
    let clients = ClientRoots::read(rules)?;
    let asks_for_certificates = clients.is_some();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(roots) => builder.with_client_cert_verifier(roots.verifier()?),
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
        // A client whose certificate is not accepted any more after a reload must not resume: such servers keep keys of their own.
        config.ticketer = match asks_for_certificates {
            true => rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| unusable(&error))?,
            false => Arc::new(Ticketer::new(&config.alpn_protocols)),
        };
    }
    config.send_tls13_tickets = 2;
    Ok(config)
}
