//! DTLS rules made ready: what is shown to clients, and how targets are judged.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use dimpl::{Config, Dtls, DtlsCertificate};
use gateway_core::config::model::{BackendTls, CertificateFiles};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::cookie;
use crate::tls::client::{ClientTlsError, public_roots, server_name};
use crate::tls::pem;

/// DTLS for the gateway's UDP ports. Certificates are read again on reload; sessions keep theirs.
#[derive(Default)]
pub struct DtlsRules {
    shown: arc_swap::ArcSwapOption<DtlsCertificate>,
}

impl std::fmt::Debug for DtlsRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DtlsRules(…)")
    }
}

/// How long a handshake may take before its state is dropped.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);
/// Handshake datagrams stay below the smallest path's size.
const MTU: usize = 1200;

impl DtlsRules {
    /// Reads the first certificate with a key DTLS can use (ECDSA).
    ///
    /// # Errors
    /// When there are certificates and none of them has such a key.
    pub fn load(&self, files: &[CertificateFiles]) -> Result<(), ClientTlsError> {
        let Some(first) = files.first() else {
            self.shown.store(None);
            return Ok(());
        };
        let mut unusable = None;
        for file in files {
            match usable(file) {
                Ok(certificate) => {
                    self.shown.store(Some(Arc::new(certificate)));
                    return Ok(());
                }
                Err(error) => unusable = Some(error),
            }
        }
        self.shown.store(None);
        Err(unusable.unwrap_or_else(|| ClientTlsError::Unusable(first.cert_path.display().to_string())))
    }

    /// Whether clients can be terminated at all.
    pub fn has_certificate(&self) -> bool {
        self.shown.load().is_some()
    }

    /// An engine for a client; `None` without a certificate. Cookies are exchanged before anything else, so that
    /// nobody makes the gateway answer to a forged address at length.
    pub(super) fn server(&self, now: Instant) -> Option<Dtls> {
        /// Made once: making one has the engine test its cryptography.
        static CONFIG: LazyLock<Option<Arc<Config>>> = LazyLock::new(|| {
            let builder = Config::builder()
                .with_crypto_provider(cookie::provider())
                .mtu(MTU)
                .require_client_certificate(false)
                .use_server_cookie(true)
                .handshake_timeout(HANDSHAKE);
            builder.build().ok().map(Arc::new)
        });
        let shown = self.shown.load_full()?;
        Some(Dtls::new_auto(CONFIG.clone()?, DtlsCertificate::clone(&shown), now))
    }
}

/// ECDSA keys only; the engine has no RSA.
fn usable(file: &CertificateFiles) -> Result<DtlsCertificate, ClientTlsError> {
    let chain = pem::chain(&file.cert_path)?;
    let key = pem::key(&file.key_path)?;
    let is_ecdsa = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&key).is_ok();
    if !is_ecdsa {
        let key = file.key_path.display();
        return Err(ClientTlsError::Unusable(format!("{key}: DTLS needs an ECDSA key (P-256 or P-384)")));
    }
    Ok(DtlsCertificate { certificate: chain[0].to_vec(), private_key: key.secret_der().to_vec() })
}

/// An engine for a target.
///
/// # Errors
/// When the client certificate is of no use.
pub(super) fn client(rules: &BackendTls, now: Instant) -> Result<Dtls, ClientTlsError> {
    let unusable = |what: &dyn std::fmt::Display| ClientTlsError::Unusable(what.to_string());
    let certificate = match &rules.client_cert {
        Some((cert_path, key_path)) => {
            usable(&CertificateFiles { cert_path: cert_path.clone(), key_path: key_path.clone() })?
        }
        // Shown only to targets that insist on one; the engine wants something to show.
        None => throwaway().ok_or_else(|| unusable(&"no certificate could be made"))?,
    };
    static CONFIG: LazyLock<Result<Arc<Config>, String>> = LazyLock::new(|| {
        let config = Config::builder().mtu(MTU).handshake_timeout(HANDSHAKE).build();
        config.map(Arc::new).map_err(|error| error.to_string())
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

/// Checks a target's certificate, which the engine leaves to us.
pub(super) struct Verifier {
    roots: Arc<RootCertStore>,
    name: ServerName<'static>,
}

impl Verifier {
    /// For a target; `None` where the operator switched verification off.
    ///
    /// # Errors
    /// When the CA file is of no use.
    pub(super) fn new(rules: &BackendTls, host: &str) -> Result<Option<Self>, ClientTlsError> {
        if !rules.verify {
            return Ok(None);
        }
        let roots = match &rules.ca_path {
            Some(path) => Arc::new(pem::roots(path)?),
            None => public_roots(),
        };
        Ok(Some(Self { roots, name: server_name(rules, host)? }))
    }

    /// Whether the certificate leads to a trusted root and carries the name. DTLS hands over the leaf alone, so it
    /// must be signed by a root directly.
    pub(super) fn accepts(&self, certificate: &[u8]) -> bool {
        let der = CertificateDer::from(certificate);
        let Ok(leaf) = webpki::EndEntityCert::try_from(&der) else { return false };
        let chain = leaf.verify_for_usage(
            crate::tls::provider().signature_verification_algorithms.all,
            &self.roots.roots,
            &[],
            UnixTime::now(),
            webpki::KeyUsage::server_auth(),
            None,
            None,
        );
        chain.is_ok() && leaf.verify_is_valid_for_subject_name(&self.name).is_ok()
    }
}
