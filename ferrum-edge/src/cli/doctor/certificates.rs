//! Certificates that are shown: whether they are still good, belong together, and name what is served.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::certificate::{self, CertificateNames};
use gateway_core::config::model::{CertificateFiles, HostPattern, Model, Settings, Traffic};
use gateway_protocols::tls::pem;
use gateway_protocols::tls::server::Certificates;

use super::{Findings, acme};

/// Seconds before its end from which a certificate should be replaced.
const SOON: i64 = 14 * 86_400;
/// Names without a certificate that are told.
const MAX_NAMES: usize = 20;

/// Looks at every certificate that is shown to clients, to administrators and to targets.
pub(super) fn look(findings: &mut Findings, settings: &Settings, model: Option<&Model>) {
    let mut names = Vec::new();
    for files in &settings.tls.certificates {
        match &files.acme {
            None => names.extend(one(findings, &files.cert_path, &files.key_path)),
            Some(got) => names.extend(got.iter().map(ToString::to_string)),
        }
    }
    acme::look(findings, settings);
    for files in settings.admin_tls.iter().flat_map(|rules| &rules.certificates) {
        one(findings, &files.cert_path, &files.key_path);
    }
    let Some(model) = model else { return };
    let to_targets = model.proxies.iter().filter_map(|proxy| proxy.backend.tls.as_ref()?.client_cert.clone());
    for (certificate, key) in to_targets.collect::<BTreeSet<_>>() {
        one(findings, &certificate, &key);
    }
    if !settings.tls.certificates.is_empty() {
        served(findings, model, &names);
    }
}

/// Looks at a certificate with its chain and key; hands out the names in it.
fn one(findings: &mut Findings, path: &Path, key: &Path) -> Vec<String> {
    const CHECK: &str = "certificate";
    let about = path.display().to_string();
    let chain = match pem::chain(path) {
        Ok(chain) => chain,
        Err(error) => {
            findings.error(CHECK, about, error.to_string(), "correct the path, or put the file there");
            return Vec::new();
        }
    };
    let before = findings.0.len();
    let files = CertificateFiles::given(path.to_owned(), key.to_owned());
    if let Err(error) = Certificates::default().load(&[files]) {
        let remedy = format!("put the key of this certificate into {}", key.display());
        findings.error(CHECK, about.clone(), error.to_string(), remedy);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    for (n, certificate) in chain.iter().enumerate() {
        let which =
            if n == 0 { about.clone() } else { format!("{about} (certificate {} of the chain)", n + 1) };
        let Some((from, to)) = certificate::validity(certificate) else {
            findings.error(CHECK, which, "it can't be read", "replace it");
            continue;
        };
        if to <= now {
            let message = format!("it ended {} days ago", (now - to) / 86_400);
            findings.error(CHECK, which, message, "replace it; the gateway takes up a new file by itself");
        } else if from > now {
            let message = format!("it is not valid before {} days from now", (from - now) / 86_400 + 1);
            findings.error(CHECK, which, message, "wait, correct the clock of this machine, or replace it");
        } else if to - now < SOON {
            let message = format!("it ends in {} days", (to - now) / 86_400);
            findings.warning(CHECK, which, message, "replace it; the gateway takes up a new file by itself");
        }
    }
    for (n, pair) in chain.windows(2).enumerate() {
        if !certificate::is_issued_by(&pair[0], &pair[1]) {
            let message = format!("certificate {} of the chain did not issue the one before it", n + 2);
            findings.error(
                CHECK,
                about.clone(),
                message,
                "put the leaf first, then each certificate's issuer",
            );
        }
    }
    let Some(names) = CertificateNames::read(&chain[0]) else { return Vec::new() };
    let is_lone = chain.len() == 1 && !certificate::is_issued_by(&chain[0], &chain[0]);
    if is_lone {
        let message =
            "the file has no intermediate certificate; clients that don't know its issuer refuse it";
        findings.warning(
            CHECK,
            about.clone(),
            message,
            "append the issuer's certificates, unless it is a root clients trust",
        );
    }
    if findings.0.len() == before {
        findings.ok(CHECK, about, format!("good: {}", names.alternative.join(", ")));
    }
    names.alternative
}

/// Whether each host that proxies serve is in a certificate.
fn served(findings: &mut Findings, model: &Model, names: &[String]) {
    let mut missing = BTreeSet::new();
    for proxy in &model.proxies {
        let hosts: Vec<&HostPattern> = match &proxy.traffic {
            Traffic::Http(rules) => rules.matches.iter().flat_map(|one| &one.hosts).collect(),
            Traffic::Stream(rules) if rules.frontend_tls => rules.server_names.iter().collect(),
            Traffic::Stream(_) => Vec::new(),
        };
        for host in hosts {
            let host = match host {
                HostPattern::Exact(name) => name.to_string(),
                HostPattern::Suffix(suffix) => format!("*{suffix}"),
            };
            if !names.iter().any(|name| covers(name, &host)) {
                missing.insert(host);
            }
        }
    }
    for host in missing.iter().take(MAX_NAMES) {
        let message = "no certificate of `gateway.tls` names this host; over TLS clients refuse it";
        findings.warning(
            "names",
            host.as_str(),
            message,
            "add a certificate for it to `gateway.tls.certificates`",
        );
    }
    if missing.len() > MAX_NAMES {
        let message = format!("{} more hosts have no certificate", missing.len() - MAX_NAMES);
        findings.warning("names", "", message, "add certificates for them to `gateway.tls.certificates`");
    }
}

/// Whether a certificate's name covers a host; `*` stands for one label (RFC 6125 §6.4.3).
fn covers(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(rest) = name.strip_prefix("*.") else { return false };
    let (label, parent) = host.split_once('.').unwrap_or((host, ""));
    !label.contains('*') && parent.eq_ignore_ascii_case(rest)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

    use super::super::Level;
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn said(folder: &Folder, certificate: &str, key: &str) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        one(&mut findings, &folder.0.join(certificate), &folder.0.join(key));
        findings.0.into_iter().map(|it| (it.level, it.message)).collect()
    }

    #[test]
    fn certificates_that_are_not_good_are_told_with_the_reason() {
        let folder = Folder(std::env::temp_dir().join(format!("ferrum-certificates-{}", std::process::id())));
        std::fs::create_dir_all(&folder.0).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "one");
        let ca = CertifiedIssuer::self_signed(params.clone(), KeyPair::generate().unwrap()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "another");
        let other = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = |from: (i32, u8, u8), to: (i32, u8, u8)| {
            let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
            params.not_before = date_time_ymd(from.0, from.1, from.2);
            params.not_after = date_time_ymd(to.0, to.1, to.2);
            params.signed_by(&key, &ca).unwrap().pem()
        };
        let good = leaf((2020, 1, 1), (2999, 1, 1));
        write("key.pem", &key.serialize_pem());
        write("other-key.pem", &KeyPair::generate().unwrap().serialize_pem());
        write("good.pem", &format!("{good}{}", ca.pem()));
        write("lone.pem", &good);
        write("chain.pem", &format!("{good}{}", other.pem()));
        write("ended.pem", &format!("{}{}", leaf((2020, 1, 1), (2021, 1, 1)), ca.pem()));
        write("future.pem", &format!("{}{}", leaf((2998, 1, 1), (2999, 1, 1)), ca.pem()));
        assert_eq!(said(&folder, "good.pem", "key.pem"), [(Level::Ok, "good: shop.example".to_owned())]);
        for (certificate, key, level, part) in [
            ("none.pem", "key.pem", Level::Error, "none.pem"),
            ("good.pem", "other-key.pem", Level::Error, ""),
            ("lone.pem", "key.pem", Level::Warning, "intermediate"),
            ("chain.pem", "key.pem", Level::Error, "did not issue"),
            ("ended.pem", "key.pem", Level::Error, "ended"),
            ("future.pem", "key.pem", Level::Error, "not valid before"),
        ] {
            let said = said(&folder, certificate, key);
            assert!(
                said.len() == 1 && said[0].0 == level && said[0].1.contains(part),
                "{certificate}: {said:?}"
            );
        }
    }

    #[test]
    fn an_asterisk_is_one_label() {
        for (name, host, is_covered) in [
            ("shop.example", "Shop.Example", true),
            ("*.example", "shop.example", true),
            ("*.example", "*.example", true),
            ("*.example", "a.shop.example", false),
            ("*.example", "example", false),
            ("shop.example", "*.example", false),
        ] {
            assert_eq!(covers(name, host), is_covered, "{name} {host}");
        }
    }
}
