//! Who a certificate names, and when it ends.

use std::net::IpAddr;

use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

/// Alternative names that are read of one certificate; more are refused as if there were none.
const MAX_NAMES: usize = 1000;

/// The names in a leaf certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The subject as RFC 4514 writes it, most specific part first: `CN=orders,O=Example`.
    pub subject: String,
    /// The subject's common name, the last of several.
    pub common_name: Option<String>,
    /// DNS names, mail addresses, IP addresses and URIs, in the order of the certificate.
    pub alternative: Vec<String>,
}

impl CertificateNames {
    /// Reads the names of a DER certificate; `None` when it can't be read or has more names than are kept.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Self { subject: subject(&certificate)?, ..Self::default() };
        let common = certificate.subject().iter_common_name().last();
        names.common_name = common.and_then(|name| name.as_str().ok()).map(str::to_owned);
        if let Some(extension) = certificate.subject_alternative_name().ok()? {
            let all = &extension.value.general_names;
            if all.len() > MAX_NAMES {
                return None;
            }
            names.alternative.extend(all.iter().filter_map(alternative));
        }
        Some(names)
    }
}

/// When a DER certificate ends, in seconds since 1970; `None` when it can't be read.
pub fn ends(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// From when to when a DER certificate is valid, in seconds since 1970; `None` when it can't be read.
pub fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// Whether the key usages of a DER certificate, where it has any, allow it to be a TLS server's (RFC 5280 §4.2.1.3 and §4.2.1.12); false
/// when it can't be read.
pub fn may_be_a_server(der: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let (Ok(usage), Ok(extended)) = (certificate.key_usage(), certificate.extended_key_usage()) else {
        return false;
    };
    usage.is_none_or(|usage| {
        let usage = usage.value;
        usage.digital_signature() || usage.key_encipherment() || usage.key_agreement()
    }) && extended.is_none_or(|extended| extended.value.server_auth || extended.value.any)
}

/// From when to when a DER revocation list (CRL) is to be gone by, in seconds since 1970; `None` when it can't be read or has no end.
pub fn revocation_list_validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    Some((list.last_update().timestamp(), list.next_update()?.timestamp()))
}

/// The identifier of its issuer's key and the serial number of a DER certificate, both as they are encoded; `None` where one
/// of them is missing.
pub fn issuer_key_and_serial(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let issuer_key =
        certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(issuer) => issuer.key_identifier.as_ref(),
            _ => None,
        })?;
    Some((issuer_key.0.to_vec(), certificate.raw_serial().to_vec()))
}

/// Whether a DER certificate names another as its issuer. Signatures are not looked at.
pub fn is_issued_by(der: &[u8], issuer: &[u8]) -> bool {
    let read = |der| X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate);
    match (read(der), read(issuer)) {
        (Some(certificate), Some(issuer)) => certificate.issuer().as_raw() == issuer.subject().as_raw(),
        _ => false,
    }
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// The subject by RFC 4514: parts in reverse order, special characters escaped. `None` when a part is no text.
fn subject(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut text = String::new();
    let parts: Vec<_> = certificate.subject().iter_attributes().collect();
    for part in parts.iter().rev() {
        if !text.is_empty() {
            text.push(',');
        }
        match short_name(&part.attr_type().to_id_string()) {
            Some(name) => text.push_str(name),
            None => text.push_str(&part.attr_type().to_id_string()),
        }
        text.push('=');
        escape(part.as_str().ok()?, &mut text);
    }
    Some(text)
}

/// RFC 4514 §3 names; others are written as their number.
fn short_name(id: &str) -> Option<&'static str> {
    Some(match id {
        "2.5.4.3" => "CN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return None,
    })
}

/// RFC 4514 §2.4: what would be read as part of the syntax gets a backslash, control characters their code.
fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (n, c) in value.chars().enumerate() {
        let special = matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\')
            || n == 0 && matches!(c, ' ' | '#')
            || n == last && c == ' ';
        if c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push_str(&format!("\\{byte:02x}"));
            }
            continue;
        }
        if special {
            out.push('\\');
        }
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn the_issuers_key_and_the_serial_number() {
        let issuer = KeyPair::generate().expect("there is randomness");
        let issuer =
            rcgen::CertifiedIssuer::self_signed(CertificateParams::default(), issuer).expect("is good");
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("is a name");
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x87, 1, 2]));
        let key = KeyPair::generate().expect("there is randomness");
        let without = params.signed_by(&key, &issuer).expect("is good");
        assert_eq!(issuer_key_and_serial(without.der()), None);
        params.use_authority_key_identifier_extension = true;
        let with = params.signed_by(&key, &issuer).expect("is good");
        let (issuer_key, serial) = issuer_key_and_serial(with.der()).expect("has both");
        assert_eq!((issuer_key.len(), &serial[..]), (20, &[0, 0x87, 1, 2][..]));
    }

    #[test]
    fn names_of_a_certificate() {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("is a name");
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CountryName, "DE");
        subject.push(DnType::OrganizationName, "Example, Inc.");
        subject.push(DnType::CommonName, "orders");
        params.distinguished_name = subject;
        params.subject_alt_names.push(SanType::URI("spiffe://example/orders".try_into().expect("is a URI")));
        params.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 7].into()));
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.self_signed(&key).expect("is good");
        let names = CertificateNames::read(certificate.der()).expect("is read");
        assert_eq!(names.subject, "CN=orders,O=Example\\, Inc.,C=DE");
        assert_eq!(names.common_name.as_deref(), Some("orders"));
        assert_eq!(names.alternative, ["a.example", "spiffe://example/orders", "192.0.2.7"]);
        assert_eq!(CertificateNames::read(b"no certificate"), None);
        assert_eq!(ends(certificate.der()), Some(params.not_after.unix_timestamp()));
        assert_eq!(ends(b"no certificate"), None);
    }
}
