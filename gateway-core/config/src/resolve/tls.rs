//! Certificates that are shown, and what is asked of clients'.

use std::path::Path;

use super::{Notes, acme, words};
use crate::file;
use crate::model::{AcmeChallenge, AcmeRules, CertificateFiles, FrontendTls, TlsVersion};

/// A certificate by its files, or by the names that the gateway gets one for.
fn certificate(
    notes: &mut Notes<'_>,
    at: &str,
    written: &file::Certificate,
    rules: Option<&AcmeRules>,
    folder: &Path,
) -> Option<CertificateFiles> {
    let file = |path: &Option<String>| path.as_deref().map(|path| words::file_path(folder, path));
    match (&written.acme, file(&written.cert_path), file(&written.key_path)) {
        (None, Some(cert_path), Some(key_path)) => Some(CertificateFiles::given(cert_path, key_path)),
        (Some(names), None, None) => {
            let names = acme::names(notes, &format!("{at}.acme"), names);
            let path = rules.map(|rules| acme::file(rules, &names)).unwrap_or_default();
            Some(CertificateFiles { cert_path: path.clone(), key_path: path, acme: Some(names) })
        }
        (None, _, _) => {
            notes.add(at, "`cert_path` and `key_path` are both needed").remedy =
                Some("give both, or `acme: [NAME]` for a certificate that the gateway gets by itself".into());
            None
        }
        (Some(_), _, _) => {
            notes.add(at, "it comes from files or from a CA, not from both").remedy =
                Some("remove `acme`, or `cert_path` and `key_path`".to_owned());
            None
        }
    }
}

/// The certificates shown to clients, and what is asked of theirs.
pub(super) fn frontend(
    notes: &mut Notes<'_>,
    written: Option<&file::Tls>,
    acme: Option<&AcmeRules>,
    folder: &Path,
) -> FrontendTls {
    let Some(written) = written else { return FrontendTls::default() };
    let mut certificates: Vec<CertificateFiles> = Vec::new();
    for (n, files) in written.certificates.as_deref().unwrap_or_default().iter().enumerate() {
        let at = format!("tls.certificates[{n}]");
        let Some(files) = certificate(notes, &at, files, acme, folder) else { continue };
        let is_known = |known: &CertificateFiles| known.acme.is_some() && known.cert_path == files.cert_path;
        if files.acme.is_some() && certificates.iter().any(is_known) {
            notes.add(&at, "another certificate has the same names").remedy = Some("remove one".to_owned());
        }
        certificates.push(files);
    }
    let gets_any = certificates.iter().any(|files| files.acme.is_some());
    let client_ca_path = written.client_ca_path.as_deref().map(|path| words::file_path(folder, path));
    if client_ca_path.is_none() && written.client_cert_required == Some(true) {
        notes
            .add("tls.client_cert_required", "there are no roots to check client certificates against")
            .remedy = Some("write `client_ca_path`".to_owned());
    }
    let client_crl_path = written.client_crl_path.as_deref().map(|path| words::file_path(folder, path));
    let early_data = written.early_data.unwrap_or(false);
    if early_data && client_ca_path.is_some() {
        notes
            .add("tls.early_data", "early data comes before a client could be asked for its certificate")
            .remedy = Some("remove it, or `client_ca_path`".to_owned());
    }
    FrontendTls {
        tls_alpn_challenges: gets_any
            && acme.is_some_and(|rules| rules.challenge == AcmeChallenge::TlsAlpn01),
        certificates,
        early_data,
        client_cert_required: written.client_cert_required.unwrap_or_else(|| client_ca_path.is_some()),
        client_ca_path,
        client_crl_path,
        min_version: match written.min_version {
            Some(file::TlsVersion::Tls13) => TlsVersion::Tls13,
            Some(file::TlsVersion::Tls12) | None => TlsVersion::Tls12,
        },
    }
}

/// Those of the admin API; `None` where a file is missing.
pub(super) fn admin(written: &file::AdminTls, folder: &Path) -> Option<FrontendTls> {
    let cert_path = words::file_path(folder, written.cert_path.as_deref()?);
    let key_path = words::file_path(folder, written.key_path.as_deref()?);
    Some(FrontendTls {
        certificates: vec![CertificateFiles::given(cert_path, key_path)],
        client_ca_path: written.client_ca_path.as_deref().map(|path| words::file_path(folder, path)),
        client_crl_path: written.client_crl_path.as_deref().map(|path| words::file_path(folder, path)),
        client_cert_required: true,
        ..FrontendTls::default()
    })
}
