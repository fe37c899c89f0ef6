//! What is shown for names whose own certificate the gateway has not got yet.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;

/// A gateway's configuration whose CA is never there: its directory's path, and its certificates.
fn text(folder: &Folder, ca: &str, certificates: &str) -> String {
    let storage = shown(&folder.0.join("acme"));
    format!(
        "
gateway:
  http: 127.0.0.1:0
  https: 127.0.0.1:0
  workers: 1
  acme: {{ accept_terms: true, storage: {storage}, directory_url: 'https://127.0.0.1:1/{ca}' }}
  tls: {{ certificates: [{certificates}] }}
"
    )
}

fn model(text: &str) -> gateway_core::config::model::Model {
    source::file::parse(text, "test.yaml", &crate::plugins()).unwrap()
}

fn start(text: &str) -> Gateway {
    Gateway::start(model(text), crate::plugins()).unwrap()
}

/// Stores a certificate for these names, that ends in this year, as the first of the configuration; its leaf.
fn store(text: &str, names: &[&str], ends: i32) -> Vec<u8> {
    let path = model(text).settings.tls.certificates[0].cert_path.clone();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(ends, 1, 1);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{}{}", key.serialize_pem(), cert.pem())).unwrap();
    cert.der().to_vec()
}

#[test]
fn names_that_work_go_on_working_while_another_name_is_added_or_another_ca_is_asked() {
    let folder = Folder::new();
    let first = text(&folder, "one", "{ acme: [a.test] }");
    let leaf = store(&first, &["a.test"], 2999);
    let gateway = start(&first);
    assert_eq!(seen_for(&gateway, "a.test"), Some(leaf.clone()));
    let more = text(&folder, "one", "{ acme: [a.test, blocked.test] }");
    let elsewhere = text(&folder, "two", "{ acme: [a.test, blocked.test] }");
    for changed in [&more, &elsewhere] {
        gateway.reload(&model(changed)).unwrap();
        assert_eq!(seen_for(&gateway, "a.test"), Some(leaf.clone()));
        assert_eq!(seen_for(&gateway, "unknown.test"), Some(leaf.clone()), "everybody else, too");
        assert_eq!(seen_for(&gateway, "blocked.test"), None);
        // After a start there is what is stored.
        assert_eq!(seen_for(&start(changed), "a.test"), Some(leaf.clone()));
    }
    // Its own comes, and is the only one.
    let own = store(&elsewhere, &["a.test", "blocked.test"], 2999);
    Watch::new(gateway.engine().clone(), false).look();
    assert_eq!(seen_for(&gateway, "a.test"), Some(own.clone()));
    assert_eq!(seen_for(&gateway, "blocked.test"), Some(own));
}

#[test]
fn only_names_that_are_asked_for_and_only_what_is_valid() {
    let folder = Folder::new();
    let first = text(&folder, "one", "{ acme: [a.test, b.test] }");
    store(&first, &["a.test", "b.test"], 2999);
    let (cert, key) = (shown(&folder.0.join("cert.pem")), shown(&folder.0.join("key.pem")));
    let given = format!("{{ cert_path: {cert}, key_path: {key} }}");
    let gateway = start(&first);
    let fewer = text(&folder, "one", &format!("{given}, {{ acme: [a.test] }}"));
    gateway.reload(&model(&fewer)).unwrap();
    let default = seen(&gateway);
    assert!(seen_for(&gateway, "a.test").is_some_and(|leaf| leaf != default));
    assert_eq!(seen_for(&gateway, "b.test"), Some(default), "that name was taken away");
    store(&first, &["a.test", "b.test"], 2021);
    let ended = text(&folder, "one", "{ acme: [a.test] }");
    assert_eq!(seen_for(&start(&ended), "a.test"), None, "it has ended");
}

#[test]
fn certificates_in_files_stand_in_for_those_that_take_their_place() {
    let folder = Folder::new();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["*.shop.test".to_owned()]).unwrap();
    folder.put("cert.pem", &cert.pem());
    folder.put("key.pem", &signing_key.serialize_pem());
    let (path, key) = (shown(&folder.0.join("cert.pem")), shown(&folder.0.join("key.pem")));
    let given = format!("{{ cert_path: {path}, key_path: {key} }}");
    let got = "{ acme: [a.shop.test] }";
    let wildcard = Some(cert.der().to_vec());
    // Beside it, a wildcard covers the name; nobody is refused for want of another.
    let both = start(&text(&folder, "one", &format!("{got}, {given}")));
    assert_eq!(seen_for(&both, "a.shop.test"), wildcard);
    let gateway = start(&text(&folder, "one", &given));
    gateway.reload(&model(&text(&folder, "one", got))).unwrap();
    assert_eq!(seen_for(&gateway, "a.shop.test"), wildcard);
    assert_eq!(seen_for(&start(&text(&folder, "one", got)), "a.shop.test"), None, "it is not stored");
}
