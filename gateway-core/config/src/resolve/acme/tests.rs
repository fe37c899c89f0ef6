//! What may be written of certificates that the gateway gets by itself, and what is said of the rest.

use std::path::Path;

use crate::file::{NoReferences, Origin};
use crate::model::Model;
use crate::model::{AcmeChallenge, Settings};
use crate::problem::Problems;
use crate::resolve::load;
use crate::resolve::no_plugins::NoPlugins;
use crate::warning::warnings;

const ACCEPTED: &str = "accept_terms: true, storage: acme";
const SHOP: &str = "{acme: [shop.example]}";

fn model(gateway: &str, proxies: &str) -> Result<Model, Problems> {
    let origin = Origin { name: "f".to_owned(), folder: "/etc/ferrum".into(), format: None };
    let text = format!("gateway: {{{gateway}}}\nproxies: [{proxies}]");
    load(&text, &origin, &NoReferences, &NoPlugins, |_| Problems::default())
}

fn read(acme: &str, certificates: &str) -> Result<Settings, Problems> {
    let gateway = format!("acme: {{{acme}}}, tls: {{certificates: [{certificates}]}}");
    model(&gateway, "").map(|model| Settings::clone(&model.settings))
}

#[track_caller]
fn refused(acme: &str, certificates: &str, expected: &str) {
    let problems = read(acme, certificates).map(drop).expect_err("it is refused").to_string();
    assert!(problems.contains(expected), "{problems}\nhas no\n{expected}");
}

#[test]
fn defaults_are_those_that_users_of_other_gateways_expect() {
    let settings = read(ACCEPTED, SHOP).unwrap();
    let rules = settings.acme.clone().unwrap();
    assert_eq!(&*rules.directory_url, "https://acme-v02.api.letsencrypt.org/directory");
    assert_eq!(
        (rules.challenge, rules.email.as_deref(), rules.renew_before),
        (AcmeChallenge::Http01, None, None)
    );
    assert!(rules.storage.starts_with("/etc/ferrum/acme"));
    assert!(!settings.tls.tls_alpn_challenges);
    let files = &settings.tls.certificates[0];
    assert_eq!(files.acme.as_deref(), Some(&[Box::from("shop.example")][..]));
    assert!(files.cert_path.starts_with(&rules.storage) && files.cert_path == files.key_path);
    assert!(
        settings.https_addresses().next().is_some(),
        "https is listened on before there is a certificate"
    );
    assert!(read(&format!("{ACCEPTED}, challenge: tls-alpn-01"), SHOP).unwrap().tls.tls_alpn_challenges);
    assert!(
        !read(&format!("{ACCEPTED}, challenge: tls-alpn-01"), "{cert_path: a, key_path: b}")
            .unwrap()
            .tls
            .tls_alpn_challenges
    );
}

#[test]
fn a_file_is_of_one_ca_and_of_its_names_in_any_order() {
    let path = |acme: &str, names: &str| {
        let settings = read(acme, &format!("{{acme: [{names}]}}")).unwrap();
        settings.tls.certificates[0].cert_path.clone()
    };
    let known = path(ACCEPTED, "shop.example, www.shop.example");
    assert_eq!(path(ACCEPTED, "WWW.shop.example., Shop.Example"), known);
    assert_ne!(path(ACCEPTED, "shop.example"), known);
    let other = format!("{ACCEPTED}, directory_url: 'https://ca.example/directory'");
    assert_ne!(path(&other, "shop.example, www.shop.example"), known);
    assert!(known.ends_with(Path::new(known.file_name().unwrap())));
    // Names of 253 bytes are allowed, files' of 255 with what is put behind them.
    let long = format!("{0}.{0}.{0}.{1}", "a".repeat(62), "b".repeat(60));
    let file = |name: &str| path(ACCEPTED, name).file_name().unwrap().to_str().unwrap().to_owned();
    assert!(file(&long).len() + ".new".len() <= 255, "{}", file(&long));
    assert_ne!(file(&long), file(&format!("{long}b")));
}

#[test]
fn names_that_a_ca_can_not_check_by_http_or_tls() {
    for (name, expected) in [
        ("'*.shop.example'", "is a wildcard, which CAs check by DNS (dns-01) only; that is not offered"),
        ("192.0.2.1", "is an address"),
        ("'[2001:db8::1]'", "is an address"),
        ("'shop.example:443'", "is not a DNS name"),
        ("'https://shop.example'", "is not a DNS name"),
        ("-shop.example", "is not a DNS name"),
        ("a_b.example", "is not a DNS name"),
        ("shop..example", "is not a DNS name"),
        ("bücher.example", "by their `xn--` form"),
    ] {
        refused(ACCEPTED, &format!("{{acme: [{name}]}}"), expected);
    }
    refused(ACCEPTED, "{acme: [a.example, A.example]}", "`a.example` is listed twice");
    refused(ACCEPTED, "{acme: [a.example, b.example]}, {acme: [b.example, a.example]}", "has the same names");
    let many: Vec<String> = (0..101).map(|n| format!("n{n}.example")).collect();
    refused(ACCEPTED, &format!("{{acme: [{}]}}", many.join(", ")), "tls.certificates[0].acme");
    refused(ACCEPTED, "{acme: []}", "tls.certificates[0].acme");
}

#[test]
fn what_has_to_be_there() {
    refused("storage: a", SHOP, "gateway.acme.accept_terms: no CA issues certificates without it");
    refused("storage: a, accept_terms: false", SHOP, "gateway.acme.accept_terms");
    refused("accept_terms: true", SHOP, "gateway.acme.storage: this is missing");
    refused(ACCEPTED, "{acme: [a.example], cert_path: a}", "from files or from a CA, not from both");
    refused(ACCEPTED, "{cert_path: a}", "`cert_path` and `key_path` are both needed");
    let without =
        model(&format!("tls: {{certificates: [{SHOP}]}}"), "").map(drop).expect_err("it is refused");
    assert!(without.to_string().contains("gateway.acme: certificates are to come from a CA"), "{without}");
    for (setting, expected) in [
        ("directory_url: 'http://ca.example/'", "does not begin with `https://`"),
        ("directory_url: ca", "acme.directory_url"),
        ("email: nobody", "is not an address for mail"),
        ("renew_before_days: 0", "renew_before_days"),
        ("external_account: {key_id: a}", "`key_id` and `hmac_key` are both needed"),
        ("external_account: {key_id: a, hmac_key: 'a b'}", "it is not in base64url"),
        ("external_account: {key_id: a, hmac_key: AAB}", "it is not in base64url"),
        ("external_account: {key_id: a, hmac_key: AB}", "it is not in base64url"),
        ("external_account: {key_id: a, hmac_key: AAAAA}", "it is not in base64url"),
        ("challenge: dns-01", "challenge"),
    ] {
        refused(&format!("{ACCEPTED}, {setting}"), SHOP, expected);
    }
}

#[test]
fn keys_of_accounts_are_taken_as_cas_give_them_and_never_shown() {
    let settings =
        read(&format!("{ACCEPTED}, external_account: {{key_id: a, hmac_key: 'q+/b'}}"), SHOP).unwrap();
    let account = settings.acme.as_ref().unwrap().external_account.clone().unwrap();
    assert_eq!((&*account.key_id, &*account.hmac_key), ("a", "q-_b"));
    for key in ["AAE", "AQ", "AQ==", "AAAA"] {
        read(&format!("{ACCEPTED}, external_account: {{key_id: a, hmac_key: '{key}'}}"), SHOP).unwrap();
    }
    assert!(!format!("{settings:?}").contains("q-_b"));
}

#[test]
fn a_ca_has_no_certificate_of_a_client() {
    let tls = |more: &str| {
        let acme = format!("acme: {{{ACCEPTED}, challenge: tls-alpn-01}}");
        model(&format!("{acme}, tls: {{client_ca_path: a, certificates: [{SHOP}]{more}}}"), "").map(drop)
    };
    assert!(tls("").expect_err("it is refused").to_string().contains("clients must show a certificate"));
    tls(", client_cert_required: false").unwrap();
}

#[test]
fn what_is_probably_not_meant() {
    let warned = |gateway: &str, proxies: &str| {
        let of = warnings(&model(gateway, proxies).unwrap());
        let codes: Vec<_> = of.iter().map(|one| (one.code, one.path.clone())).collect();
        codes
    };
    let proxy = "{id: p, hosts: [shop.example], listen_path: /, backend_scheme: http, backend_host: h, backend_port: 1}";
    let tls = |names: &str| format!("tls: {{certificates: [{{acme: [{names}]}}]}}");
    let acme = format!("acme: {{{ACCEPTED}}}");
    assert_eq!(warned(&format!("{acme}, {}", tls("shop.example")), proxy), []);
    let unserved = vec![("acme_name_unserved", "gateway.tls.certificates[0].acme".to_owned())];
    assert_eq!(warned(&format!("{acme}, {}", tls("shop.example, other.example")), proxy), unserved);
    let unanswered = vec![("acme_unanswered", "gateway.acme.challenge".to_owned())];
    assert_eq!(warned(&format!("http: off, {acme}, {}", tls("shop.example")), proxy), unanswered);
    let by_tls = format!("https: off, acme: {{{ACCEPTED}, challenge: tls-alpn-01}}, {}", tls("shop.example"));
    assert!(warned(&by_tls, proxy).contains(&unanswered[0]));
    let unused = format!("{acme}, tls: {{certificates: [{{cert_path: a, key_path: b}}]}}");
    assert_eq!(warned(&unused, proxy), [("setting_without_effect", "gateway.acme".to_owned())]);
}

#[test]
fn a_refused_directory_shows_no_password() {
    for url in
        ["https://u:SECRET@ca.example/", "http://u:SECRET@ca.example/", "https://u:SECRET @ca.example/"]
    {
        let problems = read(&format!("{ACCEPTED}, directory_url: '{url}'"), SHOP).map(drop);
        let problems = problems.expect_err("it is refused").to_string();
        assert!(problems.contains("REDACTED@ca.example/") && !problems.contains("SECRET"), "{problems}");
    }
}
