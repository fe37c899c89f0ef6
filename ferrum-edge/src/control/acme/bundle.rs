//! Certificates as bytes: requests for them, what a CA issued, and those that answer challenges.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_core::certificate::{self, CertificateNames};
use gateway_protocols::tls::challenge::ChallengeCertificate;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::error::CertificateError;

/// Clocks may differ by so much from a CA's.
const SKEW: Duration = Duration::from_secs(3600);

/// A key and a request for a certificate with it.
pub(super) struct Requested {
    key: KeyPair,
    /// PKCS #10, DER.
    pub(super) request: Vec<u8>,
}

impl Requested {
    /// For these names, with a new ECDSA key on P-256.
    pub(super) fn new(names: &[Box<str>]) -> Result<Self, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        Self::with_key(key?, names)
    }

    /// The same with the key of an order that is under way already.
    pub(super) fn again(key: &str, names: &[Box<str>]) -> Result<Self, CertificateError> {
        Self::with_key(KeyPair::from_pem(key)?, names)
    }

    fn with_key(key: KeyPair, names: &[Box<str>]) -> Result<Self, CertificateError> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| name.to_string()).collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        Ok(Self { request: request.der().to_vec(), key })
    }

    /// The key as [`Self::again`] reads it.
    pub(super) fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// What is stored: the key and the chain that a CA issued for it, when that is what was asked for.
    pub(super) fn with_chain(
        &self,
        chain: &str,
        names: &[Box<str>],
        now: SystemTime,
    ) -> Result<String, CertificateError> {
        let certificates: Vec<_> =
            CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
        let leaf = certificates.first().ok_or(CertificateError::Empty)?;
        let held: Vec<String> = CertificateNames::read(leaf)
            .ok_or(CertificateError::Unreadable)?
            .alternative
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        if let Some(name) = names.iter().find(|name| !held.iter().any(|held| **held == ***name)) {
            return Err(CertificateError::OtherName(name.clone()));
        }
        let validity = Validity::read(leaf).ok_or(CertificateError::Unreadable)?;
        if validity.to <= now || validity.from > now + SKEW {
            return Err(CertificateError::NotValidNow);
        }
        let is_chain = certificates.windows(2).all(|pair| certificate::is_issued_by(&pair[0], &pair[1]));
        if !is_chain {
            return Err(CertificateError::NoChain);
        }
        // Whatever else stood in the CA's text is not stored.
        let mut bundle = self.key.serialize_pem();
        for certificate in &certificates {
            bundle.push_str(&pem("CERTIFICATE", certificate));
        }
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(CertificateError::Key)?;
        CertifiedKey::from_der(certificates, key, &gateway_protocols::tls::provider())?;
        Ok(bundle)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at_checked(64).unwrap_or((rest, ""));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
}

impl Validity {
    pub(super) fn read(leaf: &[u8]) -> Option<Self> {
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned());
        let (from, to) = certificate::validity(leaf)?;
        Some(Self { from: at(from), to: at(to) })
    }
}

/// How long the first certificate of a bundle is valid, from its beginning to its end.
pub(super) fn life(pem: &str) -> Option<Duration> {
    let validity = Validity::read(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)?;
    validity.to.duration_since(validity.from).ok()
}

/// The certificate that answers a challenge by TLS handshake (RFC 8737 §3).
pub(super) fn challenge(name: &str, authorization: &str) -> Result<ChallengeCertificate, CertificateError> {
    let failed = CertificateError::Challenge;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    let hash = digest(&SHA256, authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(CertificateError::Key)?;
    Ok((certificate.der().clone(), key))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateSigningRequestParams, CertifiedIssuer, IsCa};

    use super::*;

    fn names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| Box::from(*name)).collect()
    }

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn issued(requested: &Requested, ca: &CertifiedIssuer<'static, KeyPair>) -> String {
        let request = CertificateSigningRequestParams::from_der(&requested.request.clone().into()).unwrap();
        request.signed_by(ca).unwrap().pem()
    }

    #[test]
    fn a_chain_is_taken_only_with_its_key_and_its_names() {
        let now = SystemTime::now();
        let (ca, shop) = (authority(), names(&["shop.test", "www.shop.test"]));
        let requested = Requested::new(&shop).unwrap();
        let chain = issued(&requested, &ca) + ca.pem().as_str();
        let bundle = requested.with_chain(&chain, &shop, now).unwrap();
        assert!(bundle.contains("PRIVATE KEY"), "{bundle}");
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
        let refused = |requested: &Requested, chain: &str, names: &[Box<str>], now| {
            requested.with_chain(chain, names, now).unwrap_err().to_string()
        };
        let more = names_with(&shop, "other.test");
        assert_eq!(refused(&requested, &chain, &more, now), "the CA's certificate is not for `other.test`");
        let other = Requested::new(&shop).unwrap();
        assert!(refused(&other, &chain, &shop, now).contains("not for the key"), "another key");
        assert!(refused(&requested, "", &shop, now).contains("no certificate"));
        let mixed = issued(&requested, &ca) + authority_named("someone else").pem().as_str();
        assert!(refused(&requested, &mixed, &shop, now).contains("not one chain"));
        let later = now + Duration::from_secs(400 * 365 * 86_400 * 10);
        assert!(refused(&requested, &chain, &shop, later).contains("not valid now"));
    }

    fn names_with(names: &[Box<str>], more: &str) -> Vec<Box<str>> {
        names.iter().cloned().chain([Box::from(more)]).collect()
    }

    fn authority_named(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn an_answer_to_a_challenge_names_the_host_and_what_it_proves() {
        let (certificate, _) = challenge("shop.test", "token.thumb").unwrap();
        assert_eq!(CertificateNames::read(&certificate).unwrap().alternative, ["shop.test"]);
        let hash = digest(&SHA256, b"token.thumb");
        // id-pe-acmeIdentifier, critical, an octet string in an octet string.
        let mut extension = vec![6, 8, 43, 6, 1, 5, 5, 7, 1, 31, 1, 1, 255, 4, 34, 4, 32];
        extension.extend(hash.as_ref());
        let der = certificate.as_ref();
        assert!(der.windows(extension.len()).any(|part| part == extension));
    }
}
