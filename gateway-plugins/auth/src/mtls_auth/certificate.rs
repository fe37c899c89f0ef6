//! What a client's certificate says.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_plugin_common::hex::hex;
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::credential::checked::Print;

/// Bytes of a certificate; larger ones are refused unread.
pub(super) const MAX_CERTIFICATE: usize = 16 << 10;
/// Alternative names of a certificate; one with more is refused.
const MAX_NAMES: usize = 1000;

/// Part of a certificate that may identify its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CertificateField {
    /// The SHA-256 of the certificate, 64 hexadecimal digits in lower case.
    FingerprintSha256,
    /// A URI among the alternative names, such as a SPIFFE id.
    SanUri,
    /// A DNS name among the alternative names, in lower case.
    SanDns,
    /// A mail address among the alternative names.
    SanEmail,
    /// The subject's common name.
    SubjectCn,
}

/// Name of an issuer; all given fields must match.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Issuer {
    /// The common name.
    pub(super) cn: Option<String>,
    /// The organization.
    pub(super) o: Option<String>,
    /// The organizational unit.
    pub(super) ou: Option<String>,
}

/// A certificate that was read.
#[derive(Debug)]
pub(super) struct Certificate {
    /// Names by which part they are, in the certificate's order.
    names: Vec<(CertificateField, String)>,
    issuer: [Vec<String>; 3],
    /// Seconds since 1970 of its first and its last second.
    valid: (u64, u64),
    /// As RFC 9440 §2.1 writes it.
    pub(super) header: HeaderValue,
}

/// The SHA-256 of a certificate.
pub(super) fn fingerprint(der: &[u8]) -> Print {
    digest(&SHA256, der).as_ref().try_into().unwrap_or_default()
}

/// A certificate in a header field: a byte sequence of RFC 8941.
pub(super) fn encoded(der: &[u8]) -> String {
    format!(":{}:", STANDARD.encode(der))
}

/// The certificate in a `Client-Cert` field.
pub(super) fn decoded(field: &[u8]) -> Option<Vec<u8>> {
    let text = field.trim_ascii().strip_prefix(b":")?.strip_suffix(b":")?;
    (text.len() <= MAX_CERTIFICATE * 4 / 3 + 4).then(|| STANDARD.decode(text).ok())?
}

impl Certificate {
    /// Reads a certificate; `None` when it can't be read, or is too large.
    pub(super) fn read(der: &[u8], fingerprint: &Print) -> Option<Arc<Self>> {
        if der.len() > MAX_CERTIFICATE {
            return None;
        }
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let mut names = vec![(CertificateField::FingerprintSha256, hex(fingerprint))];
        if let Some(extension) = parsed.subject_alternative_name().ok()? {
            let all = &extension.value.general_names;
            if all.len() > MAX_NAMES {
                return None;
            }
            names.extend(all.iter().filter_map(alternative));
        }
        names.extend(
            texts(parsed.subject().iter_common_name()).map(|name| (CertificateField::SubjectCn, name)),
        );
        let second = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let issuer: &X509Name<'_> = parsed.issuer();
        Some(Arc::new(Self {
            names,
            issuer: [
                texts(issuer.iter_common_name()).collect(),
                texts(issuer.iter_organization()).collect(),
                texts(issuer.iter_organizational_unit()).collect(),
            ],
            valid: (second(parsed.validity().not_before), second(parsed.validity().not_after)),
            header: HeaderValue::try_from(encoded(der)).ok()?,
        }))
    }

    /// The names that are this part.
    pub(super) fn names(&self, part: CertificateField) -> impl Iterator<Item = &str> {
        self.names.iter().filter(move |(known, _)| *known == part).map(|(_, name)| name.as_str())
    }

    /// Whether it is valid at this second since 1970: a connection may outlive the certificate it began with.
    pub(super) fn is_valid(&self, now: u64) -> bool {
        (self.valid.0..=self.valid.1).contains(&now)
    }

    /// Whether its issuer has such a name.
    pub(super) fn is_by(&self, wanted: &Issuer) -> bool {
        let fields = [&wanted.cn, &wanted.o, &wanted.ou];
        let mut pairs = fields.into_iter().zip(&self.issuer);
        pairs.all(|(wanted, has)| wanted.as_ref().is_none_or(|wanted| has.contains(wanted)))
    }
}

/// The texts of a name's parts; what has control characters is left out.
fn texts<'c>(parts: impl Iterator<Item = &'c AttributeTypeAndValue<'c>>) -> impl Iterator<Item = String> {
    parts.filter_map(|part| part.as_str().ok()).filter(|text| is_plain(text)).map(str::to_owned)
}

fn alternative(name: &GeneralName<'_>) -> Option<(CertificateField, String)> {
    let (part, text) = match name {
        GeneralName::URI(text) => (CertificateField::SanUri, (*text).to_owned()),
        GeneralName::DNSName(text) => (CertificateField::SanDns, text.to_ascii_lowercase()),
        GeneralName::RFC822Name(text) => (CertificateField::SanEmail, (*text).to_owned()),
        _ => return None,
    };
    is_plain(&text).then_some((part, text))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}
