//! Certificates that the gateway gets by itself: whether they are there, and what stands in the way of the next.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::certificate;
use gateway_core::config::model::{AcmeChallenge, AcmeNames, AcmeRules, CertificateFiles, Settings};
use gateway_protocols::tls::{pem, server};

use super::Findings;
use crate::control::acme::storage::Storage;

const CHECK: &str = "acme";

/// Looks into the storage. Nobody is contacted.
pub(super) fn look(findings: &mut Findings, settings: &Settings) {
    let Some(rules) = &settings.acme else { return };
    ports(findings, settings, rules);
    if let Some(path) = &rules.root_ca_path
        && let Err(error) = pem::roots(path)
    {
        let remedy = "put the roots of the CA there, or correct `gateway.acme.root_ca_path`";
        findings.error(CHECK, "root_ca_path", error.to_string(), remedy);
    }
    // Who may write to the configured folder may put another in the place of the CA's.
    for folder in rules.storage.parent().into_iter().chain([&*rules.storage]) {
        if fs::metadata(folder).is_ok_and(|about| about.mode() & 0o022 != 0) {
            let message = "other users may write to this folder, and it decides which certificates are shown";
            findings.warning(CHECK, folder.display().to_string(), message, "`chmod go-w` it");
        }
    }
    // A gateway that was never started has none.
    if let Err(error) = fs::metadata(&rules.storage) {
        findings.ok(CHECK, rules.storage.display().to_string(), format!("nothing is stored yet: {error}"));
    }
    let storage = Storage::new(&rules.storage);
    if let Err(error) = storage.account() {
        findings.error(CHECK, "account", error.to_string(), "nothing is ordered until then");
    }
    for files in &settings.tls.certificates {
        if let Some(names) = &files.acme {
            one(findings, &storage, files, names);
        }
    }
}

/// The CA asks on ports that can't be chosen.
fn ports(findings: &mut Findings, settings: &Settings, rules: &AcmeRules) {
    let (asked, listens) = match rules.challenge {
        AcmeChallenge::Http01 => (80, settings.http_addresses().map(|at| at.port()).collect::<Vec<_>>()),
        AcmeChallenge::TlsAlpn01 => (443, settings.https_addresses().map(|at| at.port()).collect()),
    };
    if !listens.is_empty() && !listens.contains(&asked) {
        let message = format!(
            "the CA asks on port {asked} of each name, and the gateway listens on {}",
            listens.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
        );
        findings.warning(CHECK, rules.challenge.as_str(), message, format!("have port {asked} lead there"));
    }
}

fn one(findings: &mut Findings, storage: &Storage, files: &CertificateFiles, names: &AcmeNames) {
    let about = names.join(", ");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let attempts = storage.attempts(&files.cert_path);
    if let Some(problem) = attempts.problem.filter(|_| attempts.failures > 0) {
        let next = attempts.not_before.map_or(0, |at| (at.cast_signed() - now).max(0));
        let message = format!("{} orders in a row failed, the last with: {problem}", attempts.failures);
        let remedy = format!("put it right; the next order is made in {} minutes", next / 60 + 1);
        findings.error(CHECK, about.as_str(), message, remedy);
    }
    match server::got(files, names) {
        Err(error) => {
            findings.error(
                CHECK,
                about,
                error.to_string(),
                "remove the file, or move it away; it is not replaced",
            );
        }
        Ok(None) => {
            let message = "it is not there yet; TLS handshakes for names that no other certificate covers are refused until it is";
            findings.warning(CHECK, about, message, "start the gateway; it orders it then");
        }
        Ok(Some(key)) => match certificate::validity(&key.cert[0]) {
            Some((_, to)) if to <= now => {
                findings.error(CHECK, about, "it has ended", "start the gateway; it is renewed then");
            }
            Some((from, to)) if to - now < (to - from) / 6 => {
                let message = format!("it ends in {} days and was not renewed", (to - now) / 86_400);
                findings.warning(CHECK, about, message, "look at the gateway's log for why");
            }
            _ => findings.ok(CHECK, about, "good"),
        },
    }
}
