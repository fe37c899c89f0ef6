//! Certificates, keys and roots that a configuration names are read when it is checked, not when somebody connects.

use std::collections::{BTreeMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::certificate;
use gateway_core::config::model::{BackendTls, FrontendTls, Id, Model, Proxy, Scheme, Traffic};
use gateway_core::config::problem::Problems;
use gateway_core::config::warning::{Expiry, WARNED_SECONDS, Warning};
use gateway_protocols::tls;
use gateway_protocols::tls::server::Certificates;
use gateway_protocols::udp::dtls::{self, DtlsRules};

/// Every file of no use.
pub(crate) fn check(model: &Model) -> Problems {
    let mut problems = Problems::default();
    let rules = &model.settings.tls;
    // One that the gateway gets by itself may be missing.
    let given = rules.certificates.iter().enumerate().filter(|(_, files)| files.acme.is_none());
    for (n, files) in given {
        if let Err(error) = Certificates::default().load(std::slice::from_ref(files)) {
            pair_problem(&mut problems, &format!("gateway.tls.certificates[{n}]"), &error.to_string());
        }
    }
    if let Some(path) = &rules.client_ca_path
        && let Err(error) = tls::pem::roots(path)
    {
        problems.add("gateway.tls.client_ca_path", error.to_string());
    }
    lists_problem(&mut problems, "gateway.tls.client_crl_path", rules);
    if let Some(path) = model.settings.acme.as_ref().and_then(|acme| acme.root_ca_path.as_deref())
        && let Err(error) = tls::pem::roots(path)
    {
        problems.add("gateway.acme.root_ca_path", error.to_string());
    }
    if let Some(rules) = &model.settings.admin_tls {
        let pair = Certificates::default().load(&rules.certificates).map_err(|error| error.to_string());
        let roots = rules
            .client_ca_path
            .as_deref()
            .map_or(Ok(()), |path| tls::pem::roots(path).map(drop).map_err(|error| error.to_string()));
        for error in [pair, roots].into_iter().filter_map(Result::err) {
            pair_problem(&mut problems, "gateway.admin_tls", &error);
        }
        lists_problem(&mut problems, "gateway.admin_tls.client_crl_path", rules);
    }
    for (name, server) in model.settings.redis.iter().flat_map(|servers| servers.iter()) {
        let (ca_path, client_cert) = (server.ca_path.clone(), server.client_cert.clone());
        let rules = BackendTls { verify: true, ca_path, client_cert, server_name: None };
        if let Err(error) = tls::client::build(&rules, None) {
            problems.add(format!("gateway.redis.{name}"), error.to_string());
        }
    }
    if problems.0.is_empty() {
        terminated(model, &mut problems);
    }
    for (proxy, error) in unusable(model.proxies.iter().map(|proxy| &**proxy)) {
        problems.add(format!("proxies.{}", proxy.id), error);
    }
    problems
}

/// The proxies whose files for TLS towards targets are of no use, and why. Many proxies share their rules: each file is
/// read once, and its problem reported once, of the first proxy by id.
pub(crate) fn unusable<'m>(proxies: impl Iterator<Item = &'m Proxy>) -> Vec<(&'m Proxy, String)> {
    let with_files = proxies.filter(|proxy| {
        let rules = proxy.backend.tls.as_deref();
        rules.is_some_and(|rules| rules.ca_path.is_some() || rules.client_cert.is_some())
    });
    let mut with_files: Vec<_> = with_files.collect();
    with_files.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let mut seen = HashSet::new();
    let checked = with_files.into_iter().filter_map(|proxy| {
        let rules = proxy.backend.tls.as_deref()?;
        let datagrams = proxy.backend.scheme == Scheme::Dtls;
        if !seen.insert((rules, datagrams)) {
            return None;
        }
        let checked = match datagrams {
            true => dtls::check_target(rules),
            false => tls::client::build(rules, None).map(drop),
        };
        Some((proxy, format!("TLS towards its targets: {}", checked.err()?)))
    });
    checked.collect()
}

/// The same as warnings: a database may name files that are not on this machine.
pub(crate) fn unusable_warnings(unusable: &[(Id, String)]) -> Vec<Warning> {
    let warning = |(id, message): &(Id, String)| Warning {
        code: "target_tls_unusable",
        path: format!("proxies.{id}"),
        message: message.clone(),
        remedy: "put the files on this machine, or correct their paths",
    };
    unusable.iter().map(warning).collect()
}

/// Warnings of changed files that can't be used, by the setting that names them.
#[cfg(feature = "admin")]
pub(crate) fn changed_warnings(changed: &BTreeMap<&'static str, Vec<String>>) -> Vec<Warning> {
    let all = changed.iter().flat_map(|(setting, errors)| errors.iter().map(move |error| (setting, error)));
    let warning = |(setting, error): (&&'static str, &String)| Warning {
        code: "certificate_unusable",
        path: (*setting).to_owned(),
        message: format!(
            "its files have changed and can't be used, and those before them go on serving: {error}"
        ),
        remedy: "correct the files; the gateway looks at them every 5 s",
    };
    all.map(warning).collect()
}

/// What is wrong with a certificate and its key, and what to do.
fn pair_problem(problems: &mut Problems, at: &str, error: &str) {
    let (message, remedy) = if let Some((files, _)) = error.split_once(": keys may not be consistent") {
        let (certificate, key) = files.split_once(" and ").unwrap_or((files, "its key"));
        (
            format!("the key {key} does not belong to the certificate {certificate}"),
            "name the key it was made with",
        )
    } else if error.contains("no certificate in this PEM file") {
        (error.to_owned(), "`cert_path` is the file with BEGIN CERTIFICATE, leaf first")
    } else if error.contains("the private key is encrypted") {
        (
            error.to_owned(),
            "decrypt it: `openssl pkey -in KEY -out PLAIN`, and make PLAIN readable for the gateway only",
        )
    } else if error.contains("no private key in this PEM file") {
        (error.to_owned(), "`key_path` is the file with BEGIN PRIVATE KEY")
    } else {
        problems.add(at, error);
        return;
    };
    problems.add(at, message).remedy = Some(remedy.to_owned());
}

/// What is wrong with the revocation lists of a server.
fn lists_problem(problems: &mut Problems, at: &str, rules: &FrontendTls) {
    if let Some(path) = &rules.client_crl_path
        && let Err(error) = tls::pem::revocation_lists(path)
    {
        problems.add(at, error.to_string());
    }
}

/// When the certificates that a configuration names end: the leaves shown to clients and to targets; and the revocation lists.
pub(crate) fn expiries(model: &Model) -> Vec<(String, Expiry)> {
    let shown = model.settings.tls.certificates.iter().enumerate();
    let shown = shown
        .map(|(n, files)| (format!("gateway.tls.certificates[{n}]"), &files.cert_path, files.acme.is_some()));
    let admin = model.settings.admin_tls.iter().flat_map(|rules| &rules.certificates);
    let admin = admin.map(|files| ("gateway.admin_tls".to_owned(), &files.cert_path, false));
    let targets = model.proxies.iter().filter_map(|proxy| {
        let (path, _) = proxy.backend.tls.as_ref()?.client_cert.as_ref()?;
        Some((format!("proxies.{}", proxy.id), path, false))
    });
    let mut seen = HashSet::new();
    let named = shown
        .chain(admin)
        .chain(targets)
        .filter(|(_, path, _)| seen.insert((*path).clone()))
        .collect::<Vec<_>>();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let ended = named.into_iter().filter_map(|(at, path, is_renewed)| {
        let chain = tls::pem::chain(path).ok()?;
        let (from, to) = certificate::validity(chain.first()?)?;
        // Long before that the gateway has renewed it, or tried to.
        let warned = if is_renewed { (to - from) / 6 } else { WARNED_SECONDS };
        Some((at, Expiry { file: path.clone(), seconds: to - now, warned }))
    });
    let of_admin = model.settings.admin_tls.as_ref().and_then(|rules| rules.client_crl_path.as_ref());
    let lists = [
        ("gateway.tls.client_crl_path", model.settings.tls.client_crl_path.as_ref()),
        ("gateway.admin_tls.client_crl_path", of_admin),
    ];
    let lists = lists.into_iter().flat_map(|(at, path)| {
        let files = path.and_then(|path| tls::pem::revocation_files(path).ok()).unwrap_or_default();
        files.into_iter().map(move |file| (at, file))
    });
    let lists = lists.filter_map(|(at, file)| {
        let first = tls::pem::revocation_list(&file).ok()?.into_iter().min_by_key(|list| list.to)?;
        // They are made anew all the time.
        let expiry = Expiry { file, seconds: first.to - now, warned: (first.to - first.from) / 6 };
        Some((at.to_owned(), expiry))
    });
    ended.chain(lists).collect()
}

/// Proxies that terminate TLS or DTLS must have a certificate to show.
fn terminated(model: &Model, problems: &mut Problems) {
    let rules = &model.settings.tls;
    let mut without_dtls = None;
    for proxy in &model.proxies {
        let Traffic::Stream(stream) = &proxy.traffic else { continue };
        if !stream.frontend_tls {
            continue;
        }
        let reason = match proxy.backend.scheme {
            Scheme::Udp | Scheme::Dtls => without_dtls
                .get_or_insert_with(|| DtlsRules::default().load(rules).err().map(|error| error.to_string()))
                .clone(),
            _ => rules.certificates.is_empty().then(|| "there is no certificate".to_owned()),
        };
        if let Some(reason) = reason {
            let path = format!("proxies.{}.frontend_tls", proxy.id);
            let is_optional = rules.client_ca_path.is_some() && !rules.client_cert_required;
            let remedy = match proxy.backend.scheme {
                Scheme::Udp | Scheme::Dtls if is_optional => {
                    "set `gateway.tls.client_cert_required: true`, or serve DTLS by a gateway that asks for no certificate"
                }
                _ => "add a certificate it can use to `gateway.tls.certificates`",
            };
            problems.add(path, reason).remedy = Some(remedy.to_owned());
        }
    }
}
