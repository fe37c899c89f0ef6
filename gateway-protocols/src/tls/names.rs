//! Certificates by the names they carry; several may carry the same, such as one with an RSA key beside one with ECDSA.

use std::collections::HashMap;

use rustls_pki_types::CertificateDer;

/// Certificates, found by the name a client asks for.
pub(crate) struct ByName<T> {
    exact: HashMap<Box<str>, Vec<T>>,
    /// `*.example.com`, by `example.com`.
    wildcard: HashMap<Box<str>, Vec<T>>,
    /// For everybody else: the first certificate, and those with the same names.
    default: Vec<T>,
    default_names: Vec<String>,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        let (exact, wildcard) = (HashMap::new(), HashMap::new());
        Self { exact, wildcard, default: Vec::new(), default_names: Vec::new() }
    }
}

impl<T: Clone> ByName<T> {
    /// Adds what is shown for the names of this certificate.
    pub(crate) fn add(&mut self, certificate: &CertificateDer<'_>, shown: &T) {
        self.add_for(&names(certificate), shown);
    }

    /// Adds what is shown for these names (sorted, in lower case).
    pub(crate) fn add_for(&mut self, names: &[String], shown: &T) {
        for name in names {
            let shown_for = match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.entry(parent.into()),
                None => self.exact.entry(name.as_str().into()),
            };
            shown_for.or_default().push(shown.clone());
        }
        if self.default.is_empty() {
            self.default_names = names.to_vec();
        }
        if self.default_names == names {
            self.default.push(shown.clone());
        }
    }

    /// Reserves a name: while nothing is added for it, those for everybody else are not found for it. A wildcard that covers it
    /// is.
    pub(crate) fn reserve(&mut self, name: &str) {
        self.exact.entry(name.into()).or_default();
    }

    /// Those for a name (lower case, no trailing dot), in the order they were added, exact names first. Those for
    /// everybody else when nothing carries the name.
    pub(crate) fn find(&self, name: Option<&str>) -> impl Iterator<Item = &T> {
        let exact = name.and_then(|name| self.exact.get(name));
        let wildcard =
            name.and_then(|name| name.split_once('.')).and_then(|(_, parent)| self.wildcard.get(parent));
        let default = (exact.is_none() && wildcard.is_none()).then_some(&self.default);
        [exact, wildcard, default].into_iter().flatten().flatten()
    }

    /// Whether there is none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.default.is_empty()
    }
}

/// The DNS names of a certificate's subjectAltName, in lower case, sorted, each once.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let mut names: Vec<String> = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    names
}
