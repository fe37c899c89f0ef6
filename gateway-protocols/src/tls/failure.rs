//! What a failed TLS handshake was about, as a word for records and metrics.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::own_root::is_ca_as_server;

/// Why a client's handshake failed; `None` where the client went away.
pub(crate) fn handshake_failure(error: &io::Error) -> Option<&'static str> {
    match cause(error) {
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => Some("tls_certificate_error"),
        Some(Error::AlertReceived(_)) => Some("tls_alert_received"),
        Some(_) => Some("handshake_failed"),
        None => None,
    }
}

/// Whether a target's certificate was refused.
pub(crate) fn is_about_certificate(error: &io::Error) -> bool {
    matches!(cause(error), Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented))
}

/// What helps where a target's certificate is refused; empty where nothing in the configuration does.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    let Some(Error::InvalidCertificate(why)) = cause(error) else { return "" };
    match why {
        CertificateError::UnknownIssuer => {
            "; put the certificate of its CA, or the target's own if it is self-signed, into the file of trusted roots \
             (`backend_tls_ca_path` of a proxy, `ca_path` or `root_ca_path` elsewhere)"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "; the name has to be among its subject alternative names, or `backend_tls_server_name` has to say another one"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "; renew it at the target",
        _ if cause(error).is_some_and(is_ca_as_server) => {
            "; the target shows the certificate of a CA, which is trusted only where this very certificate is in the file of \
             trusted roots (`backend_tls_ca_path` of a proxy, `ca_path` or `root_ca_path` elsewhere) and its key \
             usage, if it has one, includes digitalSignature"
        }
        _ => "",
    }
}

/// The setting of a proxy that accepts a refused certificate of a target; empty where the target needs another certificate.
pub(crate) fn preventing_setting(error: &io::Error) -> &'static str {
    match cause(error) {
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "proxies.backend_tls_server_name",
        Some(Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
            | CertificateError::Revoked,
        )) => "",
        _ => "proxies.backend_tls_ca_path",
    }
}

/// What a target says by an alert that refuses this side: with TLS 1.3 it comes after the handshake, in front of any answer, and
/// means that the request was not read.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let Some(Error::AlertReceived(alert)) = cause(error) else { return None };
    let remedy = match alert {
        AlertDescription::CertificateRequired => ", which `backend_tls_client_cert_path` gives",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA => "; it does not take the client certificate",
        AlertDescription::HandshakeFailure | AlertDescription::AccessDenied => "",
        _ => return None,
    };
    Some(format!("TLS: the target refuses the connection by the alert {alert:?}{remedy}"))
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn a_refused_certificate_names_the_setting_that_accepts_it() {
        let name = ServerName::try_from("shop.test").unwrap();
        let (time, not_after) = (
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(9)),
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(5)),
        );
        let cases = [
            (CertificateError::NotValidForName, "proxies.backend_tls_server_name", "backend_tls_server_name"),
            (
                CertificateError::NotValidForNameContext { expected: name, presented: Vec::new() },
                "proxies.backend_tls_server_name",
                "backend_tls_server_name",
            ),
            (CertificateError::UnknownIssuer, "proxies.backend_tls_ca_path", "backend_tls_ca_path"),
            (CertificateError::BadSignature, "proxies.backend_tls_ca_path", ""),
            (CertificateError::Expired, "", "renew it"),
            (CertificateError::ExpiredContext { time, not_after }, "", "renew it"),
            (CertificateError::NotValidYet, "", ""),
            (CertificateError::Revoked, "", ""),
        ];
        for (why, setting, advice) in cases {
            let error = io::Error::other(Error::InvalidCertificate(why.clone()));
            assert_eq!(preventing_setting(&error), setting, "{why:?}");
            assert!(remedy(&error).contains(advice), "{why:?}: {}", remedy(&error));
        }
    }
}
