//! The fleet's certificate authority, which issues the certificates of edges and control planes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use thiserror::Error;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The name that every control plane's certificate has, whatever its address is: edges check this one.
pub const SERVER_NAME: &str = "control-plane.ferrum-fleet.internal";
/// How long an edge's certificate is valid.
pub const EDGE_VALIDITY: Duration = Duration::from_secs(30 * 86_400);
/// How long a control plane's certificate is valid; each makes itself another one in time.
pub const SERVER_VALIDITY: Duration = Duration::from_secs(30 * 86_400);
/// How long the authority itself is valid.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(20 * 365 * 86_400);
/// Certificates begin to be valid a little earlier, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(300);
/// Bytes of a signing request.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Why a certificate can't be issued or read.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The certificate or key of the authority.
    #[error("the fleet's authority can't be used: {0}")]
    Authority(String),
    /// The signing request.
    #[error("the signing request can't be used: {0}")]
    Request(String),
    /// A certificate.
    #[error("the certificate can't be read: {0}")]
    Certificate(String),
}

/// An authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    roots: String,
    domain: String,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// PEM.
    pub certificate: String,
    /// Its serial number in hexadecimal.
    pub serial: String,
    /// Until when it is valid, in seconds since 1970.
    pub not_after: u64,
}

/// Whose certificate it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedEdge {
    /// The edge's id.
    pub edge: String,
    /// The group that it had when the certificate was issued.
    pub group: String,
    /// In hexadecimal.
    pub serial: String,
    /// Seconds since 1970.
    pub not_before: u64,
    /// Seconds since 1970.
    pub not_after: u64,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({}, {})", self.domain, self.pin())
    }
}

impl Authority {
    /// A new authority: its certificate and its key in PEM.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate(domain: &str) -> Result<(String, String), AuthorityError> {
        let failed = |error: rcgen::Error| AuthorityError::Authority(error.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = parameters(AUTHORITY_VALIDITY, &format!("{domain} fleet authority"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The authority of this certificate and key in PEM; the first certificate is the one that issues.
    ///
    /// # Errors
    /// When they can't be read, or the domain is not a trust domain of SPIFFE.
    pub fn from_pem(certificate: &str, key: &str, domain: &str) -> Result<Self, AuthorityError> {
        let failed = |error: &dyn std::fmt::Display| AuthorityError::Authority(error.to_string());
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        if domain.is_empty() || domain.len() > 255 || !domain.chars().all(is_name) {
            return Err(failed(&format_args!("`{domain}` is not a trust domain")));
        }
        let key = KeyPair::from_pem(key).map_err(|error| failed(&error))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| failed(&error))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| failed(&error))?;
        if !parsed.is_ca() {
            return Err(failed(&"its certificate is not one of an authority"));
        }
        if parsed.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&key) {
            return Err(failed(&"its key is not the certificate's"));
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(|error| failed(&error))?;
        let (roots, domain) = (certificate.to_owned(), domain.to_owned());
        Ok(Self { issuer, certificate: der.into_owned(), roots, domain })
    }

    /// Its certificate in PEM, which edges and control planes trust.
    pub fn roots(&self) -> &str {
        &self.roots
    }

    /// Its certificate.
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// SHA-256 of its certificate in hexadecimal, by which an invited edge knows it.
    pub fn pin(&self) -> String {
        fingerprint(&self.certificate)
    }

    /// A certificate for an edge. Only the public key is taken from the request.
    ///
    /// # Errors
    /// When the request can't be read, or is not signed by its key.
    pub fn issue_edge(&self, edge: &str, group: &str, request: &str) -> Result<Issued, AuthorityError> {
        if request.len() > MAX_REQUEST_BYTES {
            return Err(AuthorityError::Request("it is too long".to_owned()));
        }
        let failed = |error: rcgen::Error| AuthorityError::Request(error.to_string());
        let request = CertificateSigningRequestParams::from_pem(request).map_err(failed)?;
        let mut params = parameters(EDGE_VALIDITY, edge);
        params.subject_alt_names = vec![uri(&format!("spiffe://{}/edge/{group}/{edge}", self.domain))?];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&request.public_key, &self.issuer).map_err(failed)?;
        let read = read_edge(certificate.der())?;
        Ok(Issued { certificate: certificate.pem(), serial: read.serial, not_after: read.not_after })
    }

    /// A certificate of a control plane with its key, in DER.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn issue_server(&self) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), AuthorityError> {
        let failed = |error: rcgen::Error| AuthorityError::Authority(error.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = parameters(SERVER_VALIDITY, SERVER_NAME);
        let name = SERVER_NAME.try_into().map_err(failed)?;
        let id = uri(&format!("spiffe://{}/control-plane", self.domain))?;
        params.subject_alt_names = vec![SanType::DnsName(name), id];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key.serialize_der()))
    }
}

fn uri(text: &str) -> Result<SanType, AuthorityError> {
    let text = text.try_into().map_err(|error: rcgen::Error| AuthorityError::Request(error.to_string()))?;
    Ok(SanType::URI(text))
}

fn parameters(validity: Duration, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now + validity;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let mut serial = [0_u8; 16];
    fill(&mut serial);
    // Positive, and as many digits for all.
    serial[0] = serial[0] & 0x3f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

/// Fills with random bytes; the library's generator never fails once it is seeded, and ends the process otherwise.
fn fill(bytes: &mut [u8]) {
    if aws_lc_rs::rand::fill(bytes).is_err() {
        // A serial number needs to be unique rather than secret.
        fastrand::fill(bytes);
    }
}

/// SHA-256 of a certificate in hexadecimal.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whose certificate it is, by its SPIFFE id. Its signature has to be checked before.
///
/// # Errors
/// When it is not an edge's.
pub fn read_edge(certificate: &CertificateDer<'_>) -> Result<CertifiedEdge, AuthorityError> {
    let failed = |error: &dyn std::fmt::Display| AuthorityError::Certificate(error.to_string());
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| failed(&error))?;
    let names = parsed.subject_alternative_name().map_err(|error| failed(&error))?;
    let names = names.map(|names| &names.value.general_names).into_iter().flatten();
    let mut ids = names.filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix("spiffe://")?.split_once("/edge/")?.1.split_once('/'),
        _ => None,
    });
    let (Some((group, edge)), None) = (ids.next(), ids.next()) else {
        return Err(failed(&"it has no SPIFFE id of an edge"));
    };
    let time = |time: i64| u64::try_from(time).unwrap_or(0);
    let validity = parsed.validity();
    Ok(CertifiedEdge {
        edge: edge.to_owned(),
        group: group.to_owned(),
        serial: parsed.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
    })
}

/// A new key of an edge and a signing request for it, both in PEM.
///
/// # Errors
/// When there is no randomness.
pub fn signing_request() -> Result<(String, String), AuthorityError> {
    let failed = |error: rcgen::Error| AuthorityError::Request(error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).and_then(|request| request.pem()).map_err(failed)?;
    Ok((key.serialize_pem(), request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_gets_what_the_authority_decides_whatever_it_asks_for() {
        let (certificate, key) = Authority::generate("example.org").unwrap();
        let authority = Authority::from_pem(&certificate, &key, "example.org").unwrap();
        let own = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["admin.example.org".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let request = params.serialize_request(&own).unwrap().pem().unwrap();
        let issued = authority.issue_edge("e1", "eu", &request).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let read = read_edge(&der).unwrap();
        assert_eq!((read.edge.as_str(), read.group.as_str(), &read.serial), ("e1", "eu", &issued.serial));
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        assert!(!parsed.is_ca());
        assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
        assert!(read.not_after - read.not_before <= EDGE_VALIDITY.as_secs() + BACKDATED.as_secs());
        let (_, good) = signing_request().unwrap();
        assert_ne!(authority.issue_edge("e1", "eu", &good).unwrap().serial, issued.serial);
    }

    #[test]
    fn wrong_authorities_and_requests_are_refused() {
        let (certificate, key) = Authority::generate("example.org").unwrap();
        let (_, other) = Authority::generate("example.org").unwrap();
        assert!(Authority::from_pem(&certificate, &other, "example.org").is_err());
        assert!(Authority::from_pem(&certificate, &key, "Example/org").is_err());
        let authority = Authority::from_pem(&certificate, &key, "example.org").unwrap();
        let issued = authority.issue_edge("e", "g", &signing_request().unwrap().1).unwrap();
        assert!(Authority::from_pem(&issued.certificate, &key, "example.org").is_err());
        for wrong in ["", "no PEM", &issued.certificate, &"x".repeat(MAX_REQUEST_BYTES + 1)] {
            assert!(authority.issue_edge("e", "g", wrong).is_err());
        }
        let (chain, _) = authority.issue_server().unwrap();
        assert!(read_edge(&chain[0]).is_err(), "a control plane is no edge");
        assert_eq!(authority.pin(), fingerprint(&chain[1]));
    }
}
