//! Certificates: those in files, and those that a resolver gets from a CA.

use std::collections::{HashMap, HashSet};

use super::{Traefik, switched};
use crate::draft::{CertificateFile, ExternalAccount, draft};
use crate::tree::Node;

const HOW: &str = "set gateway.acme and name the host by `acme` in gateway.tls.certificates, or give files";
/// Settings of a resolver that the gateway needs no counterpart for, or has one of its own.
const NOT_NEEDED: &[&str] =
    &["storage", "keyType", "certificatesDuration", "certificateTimeout", "preferredChain"];

impl Traefik<'_> {
    /// Certificates in files.
    pub(super) fn files(&mut self, document: &Node) {
        for pair in document.path(&["tls", "certificates"]).map_or(&[][..], Node::items) {
            if let (Some(certificate), Some(key)) = (pair.text_of("certFile"), pair.text_of("keyFile")) {
                self.certificates
                    .push(draft!(CertificateFile { cert_path: certificate, key_path: key }).into());
            }
        }
    }

    /// Looks for the resolver that most routers name: the gateway gets certificates from one CA.
    pub(super) fn resolvers(&mut self, documents: &[Node]) {
        let all: Vec<&(String, Node)> = documents
            .iter()
            .filter_map(|it| it.get("certificatesResolvers"))
            .flat_map(Node::entries)
            .collect();
        let mut asked: HashMap<String, usize> = HashMap::new();
        for document in documents {
            let routers = ["http", "tcp"].into_iter().filter_map(|kind| document.path(&[kind, "routers"]));
            let of_routers =
                routers.flat_map(Node::entries).filter_map(|(_, it)| it.path(&["tls", "certResolver"]));
            let points = document.get("entryPoints").map_or(&[][..], Node::entries).iter();
            let of_points = points.filter_map(|(_, it)| it.path(&["http", "tls", "certResolver"]));
            for name in of_routers.chain(of_points).filter_map(Node::plain) {
                *asked.entry(name).or_default() += 1;
            }
        }
        let count = |name: &str| asked.get(name).copied().unwrap_or_default();
        let chosen = all.iter().rev().max_by_key(|(name, _)| count(name)).map(|(name, _)| name.clone());
        for (name, resolver) in all {
            let what = format!("certificatesResolvers.{name}");
            let acme = resolver.get("acme");
            match acme {
                Some(acme) if Some(name) == chosen.as_ref() => self.resolver(name, acme),
                Some(_) => self.out.not_converted(
                    resolver.at,
                    what,
                    "the gateway gets certificates from one CA",
                    HOW,
                ),
                None => {
                    self.out.not_converted(resolver.at, what, "its way to certificates is not offered", HOW)
                }
            }
        }
    }

    fn resolver(&mut self, name: &str, acme: &Node) {
        let what = format!("certificatesResolvers.{name}.acme");
        let mut challenge = None;
        let settings = &mut self.from_ca.settings;
        for (key, value) in acme.entries() {
            let text = value.plain();
            match (key.as_str(), text) {
                ("email", Some(email)) => settings.email(email),
                ("caServer", Some(url)) => settings.directory_url(url),
                ("caCertificates", _) => {
                    settings.root_ca_path(acme.texts(key).first());
                }
                ("eab", _) => {
                    let account = value.text_of("kid").zip(value.text_of("hmacEncoded"));
                    let account =
                        account.map(|(key, mac)| draft!(ExternalAccount { key_id: key, hmac_key: mac }));
                    settings.external_account(account);
                }
                ("httpChallenge", _) => {
                    value.see_all();
                    challenge = challenge.or_else(|| switched(Some(value)).map(|_| "http-01"));
                }
                ("tlsChallenge", _) => challenge = switched(Some(value)).map(|_| "tls-alpn-01").or(challenge),
                (key, _) if NOT_NEEDED.contains(&key) => {}
                (key, _) => {
                    value.see_all();
                    let why = if key == "dnsChallenge" {
                        "CAs that check by DNS are not offered; it is checked by HTTP, which port 80 has to be reachable for"
                    } else {
                        "the gateway does not support this"
                    };
                    self.out.not_converted(value.at, format_args!("{what}.{key}"), why, "");
                }
            }
        }
        self.from_ca.settings.challenge(challenge);
        self.resolver = Some(name.to_owned());
        self.out.converted(acme.at, what);
    }

    /// What Traefik gets a router's certificates for: the domains that it or its entry point names, else the hosts of its rule.
    pub(super) fn get_certificate(
        &mut self,
        what: &str,
        router: &Node,
        hosts: &[String],
        entries: &[String],
    ) {
        let of_router = switched(router.get("tls")).cloned();
        let on: HashSet<String> = self.points(entries).into_iter().collect();
        let of_point =
            || self.entry_points.iter().filter(|it| on.contains(&it.name)).find_map(|it| it.tls.clone());
        let Some(tls) = of_router.or_else(of_point) else { return };
        let domains: Vec<Vec<String>> = tls.get("domains").map_or_else(Vec::new, |domains| {
            let of = |domain: &Node| {
                let names = domain.text_of("main").map(str::to_owned).into_iter();
                names.chain(domain.texts("sans")).collect()
            };
            match domains.is_empty() {
                false if domains.items().is_empty() => vec![of(domains)],
                _ => domains.items().iter().map(of).collect(),
            }
        });
        let Some(resolver) = tls.get("certResolver") else { return };
        if resolver.plain() != self.resolver {
            // The static file, which says more of it, may not be here.
            let what = format!("{what}: certResolver {}", resolver.plain().unwrap_or_default());
            return self.out.not_converted(resolver.at, what, "its certificates are not got from there", HOW);
        }
        let wanted = if domains.is_empty() { vec![hosts.to_vec()] } else { domains };
        for names in wanted {
            let mut kept = Vec::new();
            for name in names {
                match self.from_ca.refusal(&name) {
                    Some(why) => {
                        let what = format!("{what}: the certificate for {name}");
                        self.out.not_converted(
                            resolver.at,
                            what,
                            why,
                            "name files in gateway.tls.certificates",
                        );
                    }
                    None => kept.push(name),
                }
            }
            self.from_ca.add(resolver.at, &kept);
        }
    }
}
