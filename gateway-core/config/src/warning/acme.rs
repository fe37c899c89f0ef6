//! Certificates that the gateway can probably not get.

use super::WarningList;
use crate::model::{AcmeChallenge, Model, Traffic};

/// Names without a proxy that are named.
const MAX_NAMED: usize = 20;

impl WarningList {
    /// Challenges that nobody can answer, and names that nothing is served for.
    pub(super) fn acme(&mut self, model: &Model) {
        let settings = &model.settings;
        let Some(rules) = &settings.acme else { return };
        let certificates = &settings.tls.certificates;
        if certificates.iter().all(|files| files.acme.is_none()) {
            self.add(
                "setting_without_effect",
                "gateway.acme",
                "no certificate is got: none is named by `acme`",
                "add `acme: [NAME]` to `gateway.tls.certificates`, or remove it",
            );
            return;
        }
        let is_plain = settings.http_addresses().next().is_some() || settings.http_socket.is_some();
        match rules.challenge {
            AcmeChallenge::Http01 if !is_plain => self.add(
                "acme_unanswered",
                "gateway.acme.challenge",
                "the CA asks over plain HTTP, and no listener takes that",
                "give `gateway.http` an address that port 80 leads to, or write `challenge: tls-alpn-01`",
            ),
            AcmeChallenge::TlsAlpn01 if settings.https_addresses().next().is_none() => self.add(
                "acme_unanswered",
                "gateway.acme.challenge",
                "the CA asks over TLS, and no https listener takes that",
                "give `gateway.https` an address that port 443 leads to, or write `challenge: http-01`",
            ),
            _ => {}
        }
        self.unserved_names(model);
    }

    fn unserved_names(&mut self, model: &Model) {
        let is_served = |name: &str| {
            model.proxies.iter().any(|proxy| match &proxy.traffic {
                Traffic::Http(rules) => rules
                    .matches
                    .iter()
                    .any(|one| one.hosts.is_empty() || one.hosts.iter().any(|host| host.covers(name))),
                Traffic::Stream(rules) => {
                    let names = &rules.server_names;
                    rules.frontend_tls && (names.is_empty() || names.iter().any(|host| host.covers(name)))
                }
            })
        };
        let mut left = MAX_NAMED;
        for (n, files) in model.settings.tls.certificates.iter().enumerate() {
            let names = files.acme.iter().flat_map(|names| names.iter());
            for name in names.filter(|name| !is_served(name)) {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.add(
                    "acme_name_unserved",
                    format!("gateway.tls.certificates[{n}].acme"),
                    format!("a certificate is got for `{name}`, and no proxy answers for it"),
                    "add a proxy with this host, or remove the name",
                );
            }
        }
    }
}
