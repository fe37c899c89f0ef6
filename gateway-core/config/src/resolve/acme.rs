//! Certificates that the gateway gets by itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use sha2::{Digest, Sha256};

use super::{Notes, words};
use crate::file;
use crate::model::{AcmeChallenge, AcmeNames, AcmeRules, ExternalAccount, Settings};
use crate::pattern::parse::is_label;
use crate::problem::{ValueProblem, without_user};

/// The directory where none is written.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Names of one certificate; public CAs take no more.
const MAX_NAMES: usize = 100;
/// Bytes of a name that go into the name of a file: with a hash, `.json` and `.new` behind it, that has 255 at most.
const MAX_NAME_IN_FILE: usize = 229;
const DAY: u64 = 86_400;

/// Resolves the section. What has to be there is [`together`]'s: a part of it may come from the environment.
pub(super) fn rules(notes: &mut Notes<'_>, written: &file::Acme, folder: &Path) -> AcmeRules {
    let directory = written.directory_url.as_deref().unwrap_or(LETS_ENCRYPT).trim();
    if let Err(problem) = is_directory(directory) {
        notes.value::<()>("acme.directory_url", Err(problem));
    }
    if let Some(email) = written.email.as_deref().filter(|text| !is_email(text)) {
        notes.add("acme.email", format!("`{email}` is not an address for mail")).remedy =
            Some("write one such as `ops@shop.example`".to_owned());
    }
    let storage = written.storage.as_deref().map(|path| words::file_path(folder, path)).unwrap_or_default();
    AcmeRules {
        storage: storage.join(folder_name(directory)),
        directory_url: directory.into(),
        email: written.email.as_deref().map(Box::from),
        challenge: match written.challenge {
            Some(file::AcmeChallenge::TlsAlpn01) => AcmeChallenge::TlsAlpn01,
            Some(file::AcmeChallenge::Http01) | None => AcmeChallenge::Http01,
        },
        external_account: written.external_account.as_ref().and_then(|account| external(notes, account)),
        root_ca_path: written.root_ca_path.as_deref().map(|path| words::file_path(folder, path)),
        renew_before: written.renew_before_days.map(|days| Duration::from_secs(u64::from(days) * DAY)),
    }
}

/// What has to be there, and what other settings stand in the way of.
pub(super) fn together(notes: &mut Notes<'_>, written: &file::Gateway, settings: &Settings) {
    let names_any = settings.tls.certificates.iter().any(|one| one.acme.is_some());
    let Some(acme) = &written.acme else {
        if names_any {
            notes.add("acme", "certificates are to come from a CA, and nothing says from which").remedy =
                Some("write `acme: {accept_terms: true, storage: /var/lib/ferrum-edge/acme}`".to_owned());
        }
        return;
    };
    if acme.accept_terms != Some(true) {
        notes.add("acme.accept_terms", "no CA issues certificates without it").remedy =
            Some("read the CA's terms of service, and write `accept_terms: true`".to_owned());
    }
    if acme.storage.is_none() {
        notes.add("acme.storage", "this is missing").remedy =
            Some("name a folder that outlives the gateway, such as /var/lib/ferrum-edge/acme".to_owned());
    }
    let is_half = |account: &file::ExternalAccount| account.key_id.is_none() || account.hmac_key.is_none();
    if acme.external_account.as_ref().is_some_and(is_half) {
        notes.add("acme.external_account", "`key_id` and `hmac_key` are both needed");
    }
    let asks = settings.tls.client_ca_path.is_some() && settings.tls.client_cert_required;
    if settings.tls.tls_alpn_challenges && asks {
        notes
            .add("acme.challenge", "clients must show a certificate, and the CA shows none when it checks")
            .remedy = Some("write `challenge: http-01`, or `tls: {client_cert_required: false}`".to_owned());
    }
}

/// The names of a certificate.
pub(super) fn names(notes: &mut Notes<'_>, at: &str, written: &[String]) -> AcmeNames {
    if written.is_empty() || written.len() > MAX_NAMES {
        notes.add(at, format!("a certificate has 1 to {MAX_NAMES} names"));
    }
    let mut names: Vec<Box<str>> = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let at = format!("{at}[{n}]");
        let Some(name) = notes.value(&at, name(text)) else { continue };
        match names.contains(&name) {
            true => notes.add(&at, format!("`{name}` is listed twice")).remedy = Some("remove it".to_owned()),
            false => names.push(name),
        }
    }
    names.into()
}

/// The file in which a certificate with these names is kept, its key and its chain: the same for the same names in another
/// order.
pub(super) fn file(rules: &AcmeRules, names: &AcmeNames) -> PathBuf {
    let mut sorted: Vec<&str> = names.iter().map(|name| &**name).collect();
    sorted.sort_unstable();
    let first = sorted.first().copied().unwrap_or_default();
    // The hash tells names apart whose beginnings are the same.
    let first = first.get(..MAX_NAME_IN_FILE).unwrap_or(first).trim_end_matches('.');
    rules.storage.join("certificates").join(format!("{first}-{}.pem", short_hash(&sorted.join(","))))
}

/// A DNS name that a CA can check by HTTP or TLS.
fn name(text: &str) -> Result<Box<str>, ValueProblem> {
    let lower = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let refused = |why: &str, remedy: &str| Err(ValueProblem::new(format!("`{text}` {why}")).remedy(remedy));
    if lower.contains('*') {
        return refused(
            "is a wildcard, which CAs check by DNS (dns-01) only; that is not offered",
            "list each name, or name files with a wildcard certificate by `cert_path` and `key_path`",
        );
    }
    let is_address = lower.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if is_address {
        return refused(
            "is an address; certificates are got for names",
            "write a name such as `shop.example`",
        );
    }
    let is_hyphened = |label: &str| label.starts_with('-') || label.ends_with('-') || label.contains('_');
    let is_good = !lower.is_empty()
        && lower.len() <= 253
        && lower.split('.').all(|label| is_label(label) && label.len() <= 63 && !is_hyphened(label))
        && !lower.rsplit('.').next().is_some_and(|last| last.bytes().all(|c| c.is_ascii_digit()));
    match is_good {
        true => Ok(lower.into()),
        false => refused(
            "is not a DNS name",
            "write a name such as `shop.example`; names in other scripts by their `xn--` form",
        ),
    }
}

fn is_directory(text: &str) -> Result<(), ValueProblem> {
    let refused = |why: &str| {
        Err(ValueProblem::new(format!("`{}` {why}", without_user(text))).remedy("write an `https` URL"))
    };
    let Ok(uri) = text.parse::<Uri>() else { return refused("is not a URL") };
    if uri.scheme_str() != Some("https") {
        return refused("does not begin with `https://`: a CA's directory is asked over TLS only");
    }
    match uri.authority() {
        Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => Ok(()),
        _ => refused("must name a server, and no user"),
    }
}

fn is_email(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | ';' | '<' | '>' | '"' | '?');
    let parts = text.split_once('@');
    text.chars().all(plain) && parts.is_some_and(|(user, host)| !user.is_empty() && name(host).is_ok())
}

fn external(notes: &mut Notes<'_>, written: &file::ExternalAccount) -> Option<ExternalAccount> {
    // Some CAs give it with padding, some in the other alphabet.
    let key = written.hmac_key.as_deref().unwrap_or_default().trim().trim_end_matches('=');
    let key = key.replace('+', "-").replace('/', "_");
    if !is_base64url(&key) {
        notes.add("acme.external_account.hmac_key", "it is not in base64url").remedy =
            Some("write it as the CA gives it".to_owned());
    }
    let key_id = written.key_id.as_deref().filter(|_| !key.is_empty())?;
    Some(ExternalAccount { key_id: key_id.into(), hmac_key: key.into() })
}

/// Whether this is whole bytes in base64url without padding, with no bit left over (RFC 4648, section 3.5).
fn is_base64url(text: &str) -> bool {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    };
    let left_over = match text.len() % 4 {
        0 => 0,
        2 => 0b1111,
        3 => 0b11,
        _ => return false,
    };
    let last = text.bytes().next_back().map_or(Some(0), value);
    text.bytes().all(|c| value(c).is_some()) && last.is_some_and(|last| last & left_over == 0)
}

/// A folder's name for what one CA knows: certificates of a CA for tests must not be taken for another's.
fn folder_name(directory: &str) -> PathBuf {
    let host = directory.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_ascii_lowercase));
    let host: String =
        host.unwrap_or_default().chars().filter(|c| !matches!(c, '[' | ']' | ':' | '/')).collect();
    PathBuf::from(format!("{host}-{}", short_hash(directory)))
}

fn short_hash(text: &str) -> String {
    let mut hex = String::with_capacity(16);
    for byte in Sha256::digest(text.as_bytes()).iter().take(8) {
        let _infallible = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests;
