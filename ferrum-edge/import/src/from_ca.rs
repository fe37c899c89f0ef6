//! Certificates that an original gets from a CA by itself, as `gateway.acme`.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::draft::{Acme, CertificateFile, GatewayTls, Import, draft};
use crate::report::At;

/// Where the gateway keeps the account and the certificates.
const STORAGE: &str = "/var/lib/ferrum-edge/acme";
/// Domains that are nobody's own: no public CA issues for what is below them.
const PRIVATE: &[&str] = &["localhost", "local", "internal", "home.arpa"];

/// What an original gets from a CA.
#[derive(Debug, Clone, Default)]
pub(crate) struct FromCa {
    /// The CA and the account.
    pub(crate) settings: Acme,
    /// The names of each certificate.
    certificates: Vec<Vec<String>>,
    known: HashSet<Vec<String>>,
    /// Where the first of them is asked for.
    at: At,
}

impl FromCa {
    /// One certificate for these names, however often it is asked for.
    pub(crate) fn add(&mut self, at: At, names: &[String]) {
        let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.dedup();
        if self.certificates.is_empty() {
            self.at = at;
        }
        if !names.is_empty() && self.known.insert(names.clone()) {
            self.certificates.push(names);
        }
    }

    /// Why no certificate can be got for a name; `None` where it can.
    pub(crate) fn refusal(&self, name: &str) -> Option<&'static str> {
        let name = name.to_ascii_lowercase();
        if name.contains('*') {
            return Some("CAs check wildcards by DNS, which the gateway does not offer");
        }
        if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Some("certificates are got for names, not for addresses");
        }
        let is_label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
        };
        if !name.split('.').all(is_label) {
            return Some("no CA issues for it: it is not a DNS name");
        }
        let is_below = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        let is_private = !name.contains('.') || PRIVATE.iter().any(|domain| is_below(domain));
        // A CA of one's own may issue for anything.
        let is_public_ca = !self.settings.contains_key("directory_url");
        (is_private && is_public_ca).then_some("no public CA issues for it")
    }

    /// Gives the gateway these certificates, behind those in files. Where nothing listens for plain HTTP, the CA checks by TLS.
    pub(crate) fn write(self, out: &mut Import, files: Vec<Value>, original: &str) {
        let Self { mut settings, certificates, at, .. } = self;
        if !certificates.is_empty() {
            let why = format!(
                "the gateway orders certificates of its own; `accept_terms` accepts the CA's terms of service for you, \
                 as {original} did"
            );
            let todo = "look at gateway.acme; its folder has to be writable for the gateway";
            out.partial(at, "certificates from a CA", why, todo);
            if out.gateway.get("http").and_then(Value::as_str) == Some("off") {
                settings.challenge("tls-alpn-01");
            }
            settings.accept_terms(true);
            settings.storage(STORAGE);
            out.gateway.acme(settings);
        }
        let ordered = certificates.into_iter().map(|names| draft!(CertificateFile { acme: names }).into());
        let files: Vec<Value> = files.into_iter().chain(ordered).collect();
        if !files.is_empty() {
            out.gateway.tls(draft!(GatewayTls { certificates: files }));
        }
    }
}
