//! The fleet's certificate authority, which issues the certificates of edges and control planes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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
    /// The one that issues is the first.
    trusted: Vec<CertificateDer<'static>>,
    roots: String,
    domain: String,
    /// Seconds since 1970.
    not_after: u64,
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

    /// The authority of these certificates and this key in PEM. The first certificate issues. Others are trusted besides, such as
    /// the authority before or after it, except those that issued one of the file, such as the root above an intermediate.
    ///
    /// # Errors
    /// When they can't be read or must not issue certificates, or the domain is not a trust domain of SPIFFE.
    pub fn from_pem(certificates: &str, key: &str, domain: &str) -> Result<Self, AuthorityError> {
        let failed = |error: &dyn std::fmt::Display| AuthorityError::Authority(error.to_string());
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        if domain.is_empty() || domain.len() > 255 || !domain.chars().all(is_name) {
            return Err(failed(&format_args!("`{domain}` is not a trust domain")));
        }
        if key.contains("BEGIN ENCRYPTED PRIVATE KEY") || key.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(failed(&"its key is encrypted; `openssl pkey -in KEY` decrypts it"));
        }
        let key = KeyPair::from_pem(key);
        let key = key.map_err(|error| failed(&format_args!("its key can't be read: {error}")))?;
        let pem = CertificateDer::pem_slice_iter(certificates.as_bytes()).collect::<Result<Vec<_>, _>>();
        let pem = pem.map_err(|error| failed(&format_args!("its certificate can't be read: {error}")))?;
        let parsed = pem.iter().map(|der| X509Certificate::from_der(der).map(|(_, parsed)| parsed));
        let parsed = parsed.collect::<Result<Vec<_>, _>>();
        let parsed =
            parsed.map_err(|error| failed(&format_args!("its certificate can't be read: {error}")))?;
        let (Some(der), Some(first)) = (pem.first(), parsed.first()) else {
            return Err(failed(&"there is no certificate in PEM"));
        };
        for certificate in &parsed {
            may_issue(certificate)?;
        }
        if first.public_key().raw != rcgen::PublicKeyData::subject_public_key_info(&key) {
            return Err(failed(&"its key is not that of the first certificate"));
        }
        let not_after = u64::try_from(first.validity().not_after.timestamp()).unwrap_or(0);
        let issuer = Issuer::from_ca_cert_der(der, key).map_err(|error| failed(&error))?;
        let has_issued = |above: &X509Certificate<'_>| {
            let is_below =
                |one: &X509Certificate<'_>| one.issuer() != one.subject() && one.issuer() == above.subject();
            parsed.iter().any(is_below)
        };
        let others = pem.iter().zip(&parsed).skip(1).filter(|(_, parsed)| !has_issued(parsed));
        let trusted: Vec<CertificateDer<'static>> =
            std::iter::once(der).chain(others.map(|(der, _)| der)).cloned().collect();
        let roots = trusted.iter().map(pem_of).collect();
        Ok(Self { issuer, trusted, roots, domain: domain.to_owned(), not_after })
    }

    /// The certificates in PEM that edges trust.
    pub fn roots(&self) -> &str {
        &self.roots
    }

    /// The certificates that are trusted, the one that issues first.
    pub fn trusted(&self) -> &[CertificateDer<'static>] {
        &self.trusted
    }

    /// When its certificate ends, in seconds since 1970. Certificates that it issues end no later.
    pub const fn not_after(&self) -> u64 {
        self.not_after
    }

    /// SHA-256 of its certificate in hexadecimal, by which an invited edge knows it.
    pub fn pin(&self) -> String {
        self.trusted.first().map(fingerprint).unwrap_or_default()
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
        let mut params = self.parameters(EDGE_VALIDITY, edge);
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
        let mut params = self.parameters(SERVER_VALIDITY, SERVER_NAME);
        let name = SERVER_NAME.try_into().map_err(failed)?;
        let id = uri(&format!("spiffe://{}/control-plane", self.domain))?;
        params.subject_alt_names = vec![SanType::DnsName(name), id];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        // The authority is sent, too: an edge that enrols knows only its pin.
        let chain = std::iter::once(certificate.der().clone()).chain(self.trusted.first().cloned());
        Ok((chain.collect(), key.serialize_der()))
    }

    fn parameters(&self, validity: Duration, name: &str) -> CertificateParams {
        let mut params = parameters(validity, name);
        let end = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(self.not_after);
        params.not_after = params.not_after.min(end);
        params
    }
}

/// Whether an authority's certificate may issue others now.
fn may_issue(certificate: &X509Certificate<'_>) -> Result<(), AuthorityError> {
    let subject = certificate.subject();
    let refused = |reason| Err(AuthorityError::Authority(reason));
    if !certificate.is_ca() {
        return refused(format!("the certificate of {subject} is not one of an authority"));
    }
    let usage = match certificate.key_usage() {
        Ok(usage) => usage,
        Err(error) => return refused(format!("the certificate of {subject}: {error}")),
    };
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return refused(format!(
            "the certificate of {subject} must not sign certificates: its key usage lacks keyCertSign"
        ));
    }
    let validity = certificate.validity();
    if !validity.is_valid() {
        let (from, to) = (validity.not_before, validity.not_after);
        return refused(format!("the certificate of {subject} is valid from {from} to {to}, not now"));
    }
    Ok(())
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    // RFC 7468: lines of 64 characters.
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
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

    #[test]
    fn issuers_of_other_certificates_in_the_file_are_not_trusted() {
        let key = || KeyPair::generate().unwrap();
        let authority = |name: &str| {
            let mut params = parameters(AUTHORITY_VALIDITY, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let root_key = key();
        let root = authority("root").self_signed(&root_key).unwrap();
        let root_issuer = Issuer::new(authority("root"), root_key);
        let (now_key, next_key) = (key(), key());
        let below = authority("fleet").signed_by(&now_key, &root_issuer).unwrap();
        // Of the same name: the one that takes its place.
        let next = authority("fleet").self_signed(&next_key).unwrap();
        let file = [below.pem(), root.pem(), next.pem()].concat();
        let read = Authority::from_pem(&file, &now_key.serialize_pem(), "example.org").unwrap();
        assert_eq!(read.trusted(), [below.der().clone(), next.der().clone()]);
        assert!(!read.roots().contains(root.pem().lines().nth(5).unwrap()));
        let again = Authority::from_pem(read.roots(), &now_key.serialize_pem(), "example.org").unwrap();
        assert_eq!(again.trusted(), read.trusted(), "what edges get can be read");
    }
}
