//! What a failed TLS handshake was about, as a word for records and metrics.

use std::io;

use rustls::Error;

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

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
