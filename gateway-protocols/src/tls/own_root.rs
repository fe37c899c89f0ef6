//! Targets whose certificate is its own root, as `openssl req -x509` makes one. webpki takes no CA's certificate for a server's; where
//! the operator trusts this very certificate there is no chain to build, and what is left to judge is judged here.

use std::path::Path;
use std::sync::Arc;

use gateway_core::certificate;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::pem;

/// Certificates that the operator trusts.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnRoots(Vec<CertificateDer<'static>>);

impl OwnRoots {
    /// The certificates of a file of roots.
    ///
    /// # Errors
    /// When the file is of no use.
    pub(crate) fn read(path: &Path) -> Result<Self, pem::PemError> {
        Ok(Self(pem::chain(path)?))
    }

    /// Judges a certificate that webpki refuses because it is a CA's: it has to be one of these, and good for a server of this name now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn judge(&self, der: &[u8], name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let is_trusted = self.0.iter().any(|root| **root == *der);
        if !is_trusted || !certificate::may_be_a_server(der) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        let (from, to) = certificate::validity(der).ok_or(CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < from {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > to {
            return Err(CertificateError::Expired.into());
        }
        let der = CertificateDer::from(der);
        let leaf = webpki::EndEntityCert::try_from(&der).map_err(|_| CertificateError::BadEncoding)?;
        leaf.verify_is_valid_for_subject_name(name).map_err(|error| name_error(error).into())
    }
}

/// As rustls tells it, with the names that the certificate has.
fn name_error(error: webpki::Error) -> CertificateError {
    match error {
        webpki::Error::CertNotValidForName(webpki::InvalidNameContext { expected, presented }) => {
            CertificateError::NotValidForNameContext { expected, presented }
        }
        _ => CertificateError::NotValidForName,
    }
}

/// Whether webpki refuses a certificate only because it is a CA's.
pub(crate) fn is_ca_as_server(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Judges targets by roots that the operator has named.
#[derive(Debug)]
pub(super) struct TargetVerifier {
    chains: Arc<WebPkiServerVerifier>,
    own: OwnRoots,
}

impl TargetVerifier {
    /// By the roots in this file.
    ///
    /// # Errors
    /// When the file is of no use.
    pub(super) fn read(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self, pem::PemError> {
        let roots = Arc::new(pem::roots(path)?);
        let chains = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| pem::PemError::Unusable { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Self { chains, own: OwnRoots::read(path)? })
    }
}

impl ServerCertVerifier for TargetVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if is_ca_as_server(&error) => match self.own.judge(end_entity, server_name, now) {
                Ok(()) => Ok(ServerCertVerified::assertion()),
                // What was wrong in the first place says more.
                Err(Error::InvalidCertificate(CertificateError::InvalidPurpose)) => Err(error),
                Err(why) => Err(why),
            },
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    };

    use super::*;

    const NAME: &str = "target.test";

    /// A certificate that is its own root.
    fn own(change: impl FnOnce(&mut CertificateParams)) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn file(name: &str, certificate: &rcgen::Certificate) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("ferrum-own-root-{}-{name}.pem", std::process::id()));
        std::fs::write(&path, certificate.pem()).unwrap();
        path
    }

    fn judged(
        name: &str,
        trusted: &rcgen::Certificate,
        shown: &rcgen::Certificate,
        host: &str,
    ) -> Result<(), Error> {
        let path = file(name, trusted);
        let verifier = TargetVerifier::read(&path, crate::tls::provider()).unwrap();
        std::fs::remove_file(path).unwrap();
        let host = ServerName::try_from(host.to_owned()).unwrap();
        verifier.verify_server_cert(shown.der(), &[], &host, &[], UnixTime::now()).map(drop)
    }

    #[test]
    fn a_trusted_certificate_of_its_own_is_taken() {
        let plain = own(|_| {});
        assert!(judged("a", &plain, &plain, NAME).is_ok());
        let leaf = own(|it| it.is_ca = IsCa::NoCa);
        assert!(judged("b", &leaf, &leaf, NAME).is_ok());
        let server = own(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert!(judged("c", &server, &server, NAME).is_ok());
    }

    #[test]
    fn everything_else_is_refused_as_before() {
        let plain = own(|_| {});
        // Of the same name and with another key; what the trusted one is not.
        let other = own(|_| {});
        assert!(
            is_ca_as_server(&judged("d", &plain, &other, NAME).unwrap_err())
                || judged("e", &plain, &other, NAME).is_err()
        );
        let wrong_name = judged("f", &plain, &plain, "other.test").unwrap_err();
        let wrong_name = wrong_name.to_string();
        assert!(wrong_name.contains("\"other.test\"") && wrong_name.contains(NAME), "{wrong_name}");
        let ended = own(|it| it.not_after = rcgen::date_time_ymd(2000, 1, 1));
        assert!(judged("g", &ended, &ended, NAME).is_err());
        let clients = own(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
        assert!(judged("h", &clients, &clients, NAME).is_err());
        let signs = own(|it| it.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
        assert!(is_ca_as_server(&judged("i", &signs, &signs, NAME).unwrap_err()));
    }

    #[test]
    fn times_are_judged_here_as_well() {
        let plain = own(|_| {});
        let path = file("j", &plain);
        let own = OwnRoots::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let at =
            |second| own.judge(plain.der(), &name, UnixTime::since_unix_epoch(Duration::from_secs(second)));
        assert!(at(1_700_000_000).is_ok());
        assert_eq!(at(0), Err(CertificateError::NotValidYet.into()));
        assert_eq!(at(1 << 40), Err(CertificateError::Expired.into()));
    }
}
