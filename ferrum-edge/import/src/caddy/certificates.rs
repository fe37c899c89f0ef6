//! Certificates: `tls`, and what Caddy gets by itself.

use super::Caddy;
use super::json::listens;
use super::sites::Site;
use super::tokens::CaddyLine;
use crate::draft::{Acme, CertificateFile, ExternalAccount, draft};
use crate::ports::Ports;
use crate::report::At;
use crate::tree::Node;

/// Settings of a site's own way to certificates.
const OWN_WAY: &[&str] = &["ca", "issuer", "get_certificate", "on_demand"];
/// What the CA is shown over DNS.
const BY_DNS: &[&str] = &[
    "dns",
    "dns_ttl",
    "dns_challenge_override_domain",
    "propagation_delay",
    "propagation_timeout",
    "resolvers",
];
const HOW: &str = "set gateway.acme and name the host by `acme` in gateway.tls.certificates, or give files";

impl Caddy<'_> {
    /// A global option about certificates; whether it is one.
    pub(super) fn is_about_certificates(&mut self, line: &CaddyLine) -> bool {
        let first = line.word(1).to_owned();
        let settings = &mut self.from_ca.settings;
        match line.name() {
            "email" if first.contains('@') => settings.email(first),
            // Whatever is no directory is refused by `check`: another CA must not take its place.
            "acme_ca" if first.contains("://") => settings.directory_url(first),
            "acme_ca" if !first.is_empty() => settings.directory_url(format!("https://{first}")),
            "acme_ca_root" if !first.is_empty() => settings.root_ca_path(first),
            "acme_eab" => {
                let of = |name: &str| line.inner().iter().find(|it| it.name() == name).map(|it| it.word(1));
                let account = of("key_id").zip(of("mac_key"));
                let Some((key, mac)) = account else { return false };
                settings.external_account(draft!(ExternalAccount { key_id: key, hmac_key: mac }));
            }
            "local_certs" => {
                self.has_own_ca = true;
                let why = "the gateway has no CA of its own";
                self.out.not_converted(line.at, line.text(), why, "name files in gateway.tls.certificates");
                return true;
            }
            "cert_issuer" | "on_demand_tls" | "acme_dns" => {
                self.has_own_ca |= line.name() == "cert_issuer";
                self.out.not_converted(line.at, line.text(), "the gateway does not support this", HOW);
                return true;
            }
            _ => return false,
        }
        self.out.converted(line.at, line.name());
        true
    }

    /// `tls CERT KEY`, and how Caddy gets certificates where there are none.
    pub(super) fn tls(&mut self, line: &CaddyLine) {
        match line.arguments() {
            [certificate, key] => {
                self.certificates
                    .push(draft!(CertificateFile { cert_path: certificate, key_path: key }).into());
                self.out.converted(line.at, line.text());
            }
            [word] if word == "internal" => {
                let why = "the gateway has no CA of its own";
                self.out.not_converted(line.at, line.text(), why, "name files in gateway.tls.certificates");
            }
            _ => self.out.converted(line.at, line.text()),
        }
        for inner in line.inner() {
            let what = format!("tls {}", inner.text());
            match inner.name() {
                "client_auth" => {
                    self.asks_certificates = true;
                    let todo = "set gateway.tls.client_ca_path, then remove `request_termination`";
                    self.out.guard_not_converted(
                        inner.at,
                        "tls client_auth",
                        "what it guards is closed",
                        todo,
                    );
                }
                name if OWN_WAY.contains(&name) => {
                    self.out.not_converted(
                        inner.at,
                        what,
                        "the gateway gets certificates from one CA for all names",
                        HOW,
                    );
                }
                name if BY_DNS.contains(&name) => {
                    let why =
                        "the CA checks names by HTTP or TLS; ports 80 or 443 have to be reachable for it";
                    self.out.not_converted(inner.at, what, why, "");
                }
                _ => self.out.not_converted(
                    inner.at,
                    what,
                    "TLS 1.2 and 1.3 with rustls's ciphers are spoken",
                    "",
                ),
            }
        }
    }

    /// What Caddy gets certificates for by itself: a site's names that are served over TLS and have no files.
    pub(super) fn get_certificates(&mut self, site: &Site) {
        let lines: Vec<&CaddyLine> = site.line.inner().iter().filter(|line| line.name() == "tls").collect();
        let is_own = |line: &&CaddyLine| {
            line.arguments().len() == 2
                || line.word(1) == "internal"
                || line.inner().iter().any(|it| OWN_WAY.contains(&it.name()))
        };
        if lines.iter().any(is_own) {
            return;
        }
        if let Some(email) = lines.iter().map(|line| line.word(1)).find(|word| word.contains('@')) {
            self.from_ca.settings.entry("email").or_insert_with(|| email.into());
        }
        let hosts = site.addresses.iter().filter(|it| it.is_tls && !it.host.is_empty()).map(|it| &it.host);
        for host in hosts {
            self.get_certificate(site.line.at, host);
        }
    }

    fn get_certificate(&mut self, at: At, host: &str) {
        if self.no_certificates {
            return;
        }
        let own = "the gateway has no CA of its own";
        match self.from_ca.refusal(host).or_else(|| self.has_own_ca.then_some(own)) {
            Some(why) => {
                let what = format!("the certificate for {host}");
                self.out.not_converted(at, what, why, "name files in gateway.tls.certificates");
            }
            None => self.from_ca.add(at, &[host.to_owned()]),
        }
    }

    /// The policies of Caddy's JSON, by which it gets certificates.
    pub(super) fn policies(&mut self, document: &Node) {
        for pair in
            document.path(&["apps", "tls", "certificates"]).map_or(&[][..], |it| it.each("load_files"))
        {
            if let (Some(certificate), Some(key)) = (pair.text_of("certificate"), pair.text_of("key")) {
                self.certificates
                    .push(draft!(CertificateFile { cert_path: certificate, key_path: key }).into());
                self.has_files = true;
            }
        }
        let policies =
            document.path(&["apps", "tls", "automation"]).map_or(&[][..], |it| it.each("policies"));
        for (number, policy) in policies.iter().enumerate() {
            let issuer = policy.each("issuers").first();
            let module = issuer.and_then(|it| it.text_of("module")).unwrap_or("acme");
            let is_acme = module == "acme" && policy.get("on_demand").is_none();
            let Some(issuer) = issuer.filter(|_| is_acme) else {
                if is_acme {
                    continue;
                }
                let subjects = policy.texts("subjects");
                self.has_own_ca |= subjects.is_empty();
                self.not_from_ca.extend(subjects);
                let what = format!("apps.tls.automation.policies[{number}]");
                self.out.not_converted(policy.at, what, "its way to certificates is not offered", HOW);
                continue;
            };
            let account = issuer.path(&["external_account", "key_id"]).and_then(Node::str);
            let mac = issuer.path(&["external_account", "mac_key"]).and_then(Node::str);
            let account =
                account.zip(mac).map(|(key, mac)| draft!(ExternalAccount { key_id: key, hmac_key: mac }));
            let settings = draft!(Acme {
                email: issuer.text_of("email"),
                directory_url: issuer.text_of("ca"),
                external_account: account,
                root_ca_path: issuer.texts("trusted_roots_pem_files").into_iter().next(),
            });
            for (key, value) in settings {
                let known = self.from_ca.settings.entry(&key).or_insert_with(|| value.clone());
                if *known != value {
                    let what = format!("apps.tls.automation.policies[{number}]: {key}");
                    self.out.not_converted(policy.at, what, "one CA and account are used for all names", HOW);
                }
            }
        }
    }

    /// The names of a server's routes that Caddy gets certificates for, and those of them that it redirects plain requests of.
    pub(super) fn names_from_ca(&mut self, server: &Node) -> Vec<String> {
        let says = |key: &str| server.path(&["automatic_https", key]).and_then(Node::bool) == Some(true);
        let skipped = |key: &str| server.path(&["automatic_https"]).map_or_else(Vec::new, |it| it.texts(key));
        if says("disable") {
            return Vec::new();
        }
        let sets = server.each("routes").iter().flat_map(|route| route.each("match"));
        let mut hosts: Vec<String> = sets.flat_map(|set| set.texts("host")).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let is_name = |host: &str| {
            let name = host.strip_prefix("*.").unwrap_or(host);
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-'))
        };
        let skip = skipped("skip");
        hosts.retain(|host| is_name(host) && !skip.contains(host));
        let without = skipped("skip_certificates");
        // Names that are in files have certificates already, and which ones those are can't be seen.
        if !says("disable_certificates") && !self.has_files {
            let is_got = |host: &&String| !without.contains(host) && !self.not_from_ca.contains(host);
            let got: Vec<String> = hosts.iter().filter(is_got).cloned().collect();
            for host in got {
                self.get_certificate(server.at, &host);
            }
        }
        if says("disable_redirects") { Vec::new() } else { hosts }
    }

    /// The names of each server whose plain requests Caddy sends to https, on a port that is given to them.
    pub(super) fn redirected(
        &mut self,
        document: &Node,
        servers: &Node,
        ports: &mut Ports,
    ) -> Vec<(String, Vec<String>)> {
        let mut redirected = Vec::new();
        for (called, server) in servers.entries() {
            if listens(server).iter().any(|(is_tls, _)| *is_tls) {
                let names = self.names_from_ca(server);
                redirected.extend((!names.is_empty()).then(|| (called.clone(), names)));
            }
        }
        let number = document.path(&["apps", "http", "http_port"]).and_then(Node::plain);
        let number = number.and_then(|port| port.parse().ok()).unwrap_or(80);
        if redirected.is_empty() {
            return redirected;
        }
        if ports.all().any(|port| port.number == number) {
            let why =
                "a server of the file has the port for them; Caddy sends to https what its routes don't take";
            let todo = "add a proxy with the plugin `redirect`";
            self.out.not_converted(servers.at, "automatic_https: redirects", why, todo);
            return Vec::new();
        }
        ports.add(false, number, "");
        redirected
    }

    /// What every import has at its end: the certificates.
    pub(super) fn put_certificates(&mut self) {
        let (from_ca, files) = (std::mem::take(&mut self.from_ca), std::mem::take(&mut self.certificates));
        from_ca.write(self.out, files, "Caddy");
    }
}
