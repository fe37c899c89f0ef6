//! What a failed TLS handshake was about, as a word for records and metrics.

use std::io;

use rustls::{AlertDescription, Error};

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
