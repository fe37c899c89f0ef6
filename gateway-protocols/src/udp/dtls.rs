//! DTLS rules made ready: what is shown to clients and asked of them, and how targets are judged.

mod verify;

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use dimpl::{Config, Dtls, DtlsCertificate};
use gateway_core::config::model::{BackendTls, CertificateFiles, FrontendTls, TlsVersion};
use rustls_pki_types::CertificateDer;

use super::certificate_list::CertificateList;
use super::{certificate_list, cookie, flight};
use crate::tls::client::ClientTlsError;
use crate::tls::names::ByName;
use crate::tls::pem;
pub(crate) use verify::Verifier;

/// DTLS for the gateway's UDP ports. Certificates are read again on reload; sessions keep theirs,
/// but end where their client's CA is not trusted any more.
#[derive(Default)]
pub struct DtlsRules {
    /// None until something has been loaded; an error where the settings can't be carried out over DTLS.
    current: ArcSwapOption<Result<Rules, String>>,
}

/// Settings that DTLS can carry out.
struct Rules {
    certificates: ByName<Arc<Shown>>,
    /// Checks clients' certificates, without which nobody gets in.
    clients: Option<Verifier>,
    only_13: bool,
}

/// A certificate as the engine has it, and its chain where there is one.
struct Shown {
    leaf: DtlsCertificate,
    chain: Option<Chain>,
}

/// A certificate with others behind it, for either version.
struct Chain {
    /// The message of DTLS 1.2.
    message: Arc<[u8]>,
    /// The list of DTLS 1.3, and what the engine is given for it; `None` where it is too long for that version.
    list: Option<(Arc<CertificateList>, DtlsCertificate)>,
}

/// What is shown beyond the certificate that the engine has.
pub(crate) enum Certificates {
    /// The message of DTLS 1.2.
    Message(Arc<[u8]>),
    /// The list of DTLS 1.3.
    List(Arc<CertificateList>),
}

/// What serves a client.
pub(crate) struct Server {
    pub(crate) engine: Dtls,
    /// Checks the client's certificate.
    pub(crate) verifier: Option<Verifier>,
    /// Where it shows more than the engine would say.
    pub(crate) certificates: Option<Certificates>,
}

impl std::fmt::Debug for DtlsRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DtlsRules(…)")
    }
}

/// How long a handshake may take at most; settings may allow it less.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(240);
/// How often a flight is said again, at intervals that double from one second on: for as long as settings may allow.
const RETRIES: usize = 7;
/// Handshake datagrams stay below the smallest path's size.
const MTU: usize = 1200;

impl DtlsRules {
    /// Reads the certificates DTLS can show: ECDSA keys on P-256 or P-384, and in DTLS 1.3 chains of [`MAX_LIST`] bytes at
    /// most; longer ones are shown in DTLS 1.2 alone. Others are for TLS only and are passed over.
    ///
    /// [`MAX_LIST`]: certificate_list::MAX_LIST
    ///
    /// # Errors
    /// When none is usable, or when DTLS can't ask for client certificates the way the settings say. Clients are then
    /// not served.
    pub fn load(&self, rules: &FrontendTls) -> Result<(), ClientTlsError> {
        let (current, result) = match Rules::read(rules) {
            Ok(mut rules) => {
                let before = self.clients().flatten();
                rules.clients = rules.clients.map(|clients| clients.or_same(before.as_ref()));
                (Ok(rules), Ok(()))
            }
            Err(error) => (Err(error.to_string()), Err(error)),
        };
        self.current.store(Some(Arc::new(current)));
        result
    }

    /// What judges clients' certificates, if they are asked for any; `None` where no client can be served.
    pub(crate) fn clients(&self) -> Option<Option<Verifier>> {
        Some(Result::as_ref(&*self.current.load_full()?).ok()?.clients.clone())
    }

    /// Why clients can't be served, if they can't.
    pub fn problem(&self) -> Option<String> {
        match &*self.current.load_full()? {
            Ok(_) => None,
            Err(problem) => Some(problem.clone()),
        }
    }

    /// An engine for a client that asks for this name and may offer DTLS 1.3, and what checks its certificate; `None` where
    /// DTLS can't be served. Cookies are exchanged before anything else, so that nobody makes the gateway answer to a forged address
    /// at length.
    pub(crate) fn server(&self, name: Option<&str>, offers_13: bool, now: Instant) -> Option<Server> {
        /// Made once: making one has the engine test its cryptography.
        static OPEN: LazyLock<Option<Arc<Config>>> = LazyLock::new(|| config(false));
        static WITH_CERTIFICATES: LazyLock<Option<Arc<Config>>> = LazyLock::new(|| config(true));
        let current = self.current.load_full()?;
        let rules = Result::as_ref(&current).ok()?;
        let config = if rules.clients.is_some() { WITH_CERTIFICATES.clone()? } else { OPEN.clone()? };
        let Shown { leaf, chain } = &**rules.certificates.find(name).next()?;
        let wants_13 = rules.only_13 || offers_13;
        let (engine, certificates) = match chain {
            None if rules.only_13 => (Dtls::new_13(config, leaf.clone(), now), None),
            None => (Dtls::new_auto(config, leaf.clone(), now), None),
            Some(Chain { list: Some((list, believed)), .. }) if wants_13 => {
                (Dtls::new_13(config, believed.clone(), now), Some(Certificates::List(list.clone())))
            }
            Some(Chain { message, .. }) => {
                (Dtls::new_12(config, leaf.clone(), now), Some(Certificates::Message(message.clone())))
            }
        };
        Some(Server { engine, verifier: rules.clients.clone(), certificates })
    }
}

fn config(client_certificates: bool) -> Option<Arc<Config>> {
    let builder = Config::builder()
        .with_crypto_provider(cookie::provider())
        .mtu(MTU)
        .require_client_certificate(client_certificates)
        .use_server_cookie(true)
        .flight_retries(RETRIES)
        .handshake_timeout(HANDSHAKE);
    builder.build().ok().map(Arc::new)
}

impl Rules {
    fn read(rules: &FrontendTls) -> Result<Self, ClientTlsError> {
        let unusable = |reason: &str| ClientTlsError::Unusable(reason.to_owned());
        let mut certificates = ByName::default();
        let mut passed_over = None;
        for files in rules.certificates.iter().filter(|files| files.acme.is_none()) {
            match usable(files, rules.min_version) {
                Ok((leaf, shown)) => certificates.add(&leaf, &Arc::new(shown)),
                Err(error) => passed_over = passed_over.or(Some(error)),
            }
        }
        if certificates.is_empty() {
            let reason = match rules.certificates.iter().any(|files| files.acme.is_some()) {
                true => {
                    "DTLS needs a certificate in files, with an ECDSA key; those of `acme` may not be there yet"
                }
                false => "DTLS needs a certificate with an ECDSA key",
            };
            return Err(passed_over.unwrap_or_else(|| unusable(reason)));
        }
        let clients = match &rules.client_ca_path {
            None => None,
            Some(_) if !rules.client_cert_required => {
                return Err(unusable("DTLS can't ask for a client certificate without requiring one"));
            }
            Some(path) => Some(Verifier::clients(path, rules.client_crl_path.as_deref())?),
        };
        Ok(Self { certificates, clients, only_13: rules.min_version == TlsVersion::Tls13 })
    }
}

/// The leaf, and what is shown. The engine has no RSA.
fn usable(
    files: &CertificateFiles,
    least: TlsVersion,
) -> Result<(CertificateDer<'static>, Shown), ClientTlsError> {
    let mut chain = pem::chain(&files.cert_path)?;
    let key = pem::key(&files.key_path)?;
    let engine = dimpl::crypto::aws_lc_rs::default_provider();
    if engine.key_provider.load_private_key(key.secret_der()).is_err() {
        let key = files.key_path.display();
        return Err(ClientTlsError::Unusable(format!("{key}: DTLS needs an ECDSA key (P-256 or P-384)")));
    }
    let leaf = chain[0].clone();
    chain.retain(|certificate| *certificate == leaf || !is_root(certificate));
    let shown = |certificate: &[u8]| DtlsCertificate {
        certificate: certificate.to_vec(),
        private_key: key.secret_der().to_vec(),
    };
    let path = files.cert_path.display();
    let too_long = |limit| ClientTlsError::Unusable(format!("{path}: the chain is longer than {limit}"));
    let chain = match chain.as_slice() {
        [_] => None,
        chain => {
            let message = flight::certificates(chain)
                .ok_or_else(|| too_long(format!("the {} bytes that DTLS can show", flight::MAX_CHAIN)))?;
            let list = CertificateList::new(chain);
            if list.is_none() && least == TlsVersion::Tls13 {
                let limit = certificate_list::MAX_LIST;
                return Err(too_long(format!(
                    "the {limit} bytes that DTLS 1.3 can show; allow DTLS 1.2 by `min_version`"
                )));
            }
            let list = list.map(|list| {
                let believed = shown(list.believed());
                (Arc::new(list), believed)
            });
            Some(Chain { message, list })
        }
    };
    Ok((leaf.clone(), Shown { leaf: shown(&leaf), chain }))
}

/// Whether a certificate names itself as its issuer: clients have those already.
fn is_root(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_ok_and(|parsed| parsed.issuer() == parsed.subject())
}

/// Checks whether rules towards targets can be carried out over DTLS.
///
/// # Errors
/// When a file is of no use, or the client certificate is one that DTLS can't show.
pub fn check_target(rules: &BackendTls) -> Result<(), ClientTlsError> {
    if let Some(path) = rules.ca_path.as_ref().filter(|_| rules.verify) {
        pem::roots(path)?;
    }
    own_certificate(rules).map(drop)
}

/// The certificate shown to targets, where the rules name one.
fn own_certificate(rules: &BackendTls) -> Result<Option<DtlsCertificate>, ClientTlsError> {
    let Some((cert_path, key_path)) = &rules.client_cert else { return Ok(None) };
    let files = CertificateFiles::given(cert_path.clone(), key_path.clone());
    match usable(&files, TlsVersion::Tls12)?.1 {
        Shown { leaf, chain: None } => Ok(Some(leaf)),
        Shown { .. } => Err(ClientTlsError::Unusable(format!(
            "{}: DTLS can show targets one certificate only, and this chain has more; use a certificate that they trust \
             without the others",
            cert_path.display()
        ))),
    }
}

/// An engine for a target.
///
/// # Errors
/// When the client certificate is of no use.
pub(crate) fn client(rules: &BackendTls, now: Instant) -> Result<Dtls, ClientTlsError> {
    let unusable = |what: &dyn std::fmt::Display| ClientTlsError::Unusable(what.to_string());
    let certificate = match own_certificate(rules)? {
        Some(shown) => shown,
        // Shown only to targets that insist on one; the engine wants something to show.
        None => throwaway().ok_or_else(|| unusable(&"no certificate could be made"))?,
    };
    static CONFIG: LazyLock<Result<Arc<Config>, dimpl::Error>> = LazyLock::new(|| {
        let config = Config::builder().with_crypto_provider(cookie::provider()).mtu(MTU);
        let config = config.flight_retries(RETRIES).handshake_timeout(HANDSHAKE).build();
        config.map(Arc::new)
    });
    let config = CONFIG.as_ref().map_err(|error| unusable(error))?;
    let mut engine = Dtls::new_auto(config.clone(), certificate, now);
    engine.set_active(true);
    Ok(engine)
}

/// A self-signed certificate, made once.
fn throwaway() -> Option<DtlsCertificate> {
    static MADE: LazyLock<Option<DtlsCertificate>> = LazyLock::new(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).ok()?;
        let made =
            rcgen::CertificateParams::new(vec!["ferrum-edge".to_owned()]).ok()?.self_signed(&key).ok()?;
        Some(DtlsCertificate { certificate: made.der().to_vec(), private_key: key.serialize_der() })
    });
    MADE.clone()
}
