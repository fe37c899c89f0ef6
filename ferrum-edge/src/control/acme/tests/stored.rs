//! What is in the storage: of other gateways, torn, or of somebody else.

use super::super::storage::StoredChallenge;
use super::*;
use pebble::Ca;

const SHOP: &str = "shop.test";

/// A gateway that nothing is issued for: its CA is never there.
fn without_ca(doors: Doors, challenge: &str) -> (Ca, String) {
    let ca = Ca::new(doors);
    let text = configuration(ca.folder(), doors, &ca.settings(challenge), &[SHOP]);
    (ca, text)
}

fn certificate(text: &str) -> PathBuf {
    let model = source::file::parse(text, "test.yaml", &crate::plugins()).unwrap();
    model.settings.tls.certificates[0].cert_path.clone()
}

#[test]
fn a_file_that_can_not_be_used_is_left_alone_and_shown_to_nobody() {
    let doors = Doors::new();
    let (mut ca, text) = without_ca(doors, "http-01");
    ca.start();
    let file = certificate(&text);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["foreign.test".to_owned()]).unwrap();
    let foreign = signing_key.serialize_pem() + cert.pem().as_str();
    let (torn, _) = foreign.split_at(foreign.len() / 2);
    for (stored, why) in
        [(torn, "can't be used"), (foreign.as_str(), "the certificate is not for `shop.test`")]
    {
        fs::write(&file, stored).unwrap();
        let gateway = start(&text);
        until("it is said", || problem(&gateway).is_some_and(|text| text.contains(why)));
        assert_eq!(leaf(doors.tls, SHOP), None);
        assert_eq!(names(&leaf(doors.tls, "other.test").unwrap()), ["other.test"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), stored, "it is not overwritten");
        assert_eq!(orders(&gateway), (0, 0));
        assert_eq!(statuses(&gateway)[0].next_order_at, None);
    }
    // Once it is moved away, one is got.
    fs::remove_file(&file).unwrap();
    let gateway = start(&text);
    until("a certificate is shown", || leaf(doors.tls, SHOP).is_some_and(|leaf| names(&leaf) == [SHOP]));
    until("it is counted", || orders(&gateway) == (1, 0));
}

#[test]
fn one_that_breaks_while_it_is_used_goes_on_being_shown() {
    let doors = Doors::new();
    let (_ca, text) = without_ca(doors, "http-01");
    let file = certificate(&text);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([SHOP.to_owned()]).unwrap();
    fs::write(&file, signing_key.serialize_pem() + cert.pem().as_str()).unwrap();
    let gateway = start(&text);
    assert_eq!(leaf(doors.tls, SHOP).as_deref(), Some(cert.der().as_ref()), "it is used at once");
    until("it is known", || statuses(&gateway).first().is_some_and(|status| status.ends_at.is_some()));
    fs::write(&file, "torn").unwrap();
    until("it is said", || problem(&gateway).is_some());
    // What is said of it, and what is read for what is shown, are two looks.
    let other = replace_given(&gateway);
    until("the files were read again", || leaf(doors.tls, "other.test").is_some_and(|leaf| leaf == other));
    assert_eq!(leaf(doors.tls, SHOP).as_deref(), Some(cert.der().as_ref()));
    assert!(statuses(&gateway)[0].warning().unwrap().message.contains("the certificate before goes on"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "torn");
}

/// Replaces the certificate that is given; the new one.
fn replace_given(gateway: &Gateway) -> Vec<u8> {
    let given = gateway.snapshot().settings.tls.certificates[1].clone();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["other.test".to_owned()]).unwrap();
    // Read between the two it is no pair, and is read again once it is.
    fs::write(&given.key_path, signing_key.serialize_pem()).unwrap();
    fs::write(&given.cert_path, cert.pem()).unwrap();
    cert.der().to_vec()
}

#[test]
fn an_account_that_can_not_be_read_is_left_alone() {
    let doors = Doors::new();
    let (mut ca, text) = without_ca(doors, "http-01");
    ca.start();
    let folder = certificate(&text).ancestors().nth(2).unwrap().to_owned();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("account.json"), "{\"private_key\": ").unwrap();
    let gateway = start(&text);
    until("it is said", || problem(&gateway).is_some_and(|text| text.contains("account.json")));
    assert_eq!(fs::read_to_string(folder.join("account.json")).unwrap(), "{\"private_key\": ");
    assert_eq!(leaf(doors.tls, SHOP), None);
}

#[test]
fn challenges_of_another_gateway_are_answered_while_they_are_under_way() {
    let doors = Doors::new();
    let (_ca, text) = without_ca(doors, "tls-alpn-01");
    let gateway = start(&text);
    let (_, storage) = storage(&gateway);
    // As the other gateway has it.
    let taken = std::cell::Cell::new(None);
    until("nobody else has the lock", || {
        taken.set(storage.lock().unwrap());
        let lock = taken.take();
        let is_taken = lock.is_some();
        taken.set(lock);
        is_taken
    });
    let lock = taken.take().unwrap();
    let challenge = |kind: &str, token: &str| StoredChallenge {
        kind: kind.to_owned(),
        name: SHOP.to_owned(),
        token: token.to_owned(),
        authorization: format!("{token}.thumb"),
    };
    storage.keep_challenge(&challenge("http-01", "abc"), &lock).unwrap();
    storage.keep_challenge(&challenge("tls-alpn-01", "def"), &lock).unwrap();
    assert!(storage.keep_challenge(&challenge("http-01", "../abc"), &lock).is_err());
    let path = "/.well-known/acme-challenge/abc";
    until("it is answered", || get(doors.http, path).1 == "abc.thumb");
    assert_eq!(get(doors.http, "/.well-known/acme-challenge/def").1, "routed", "that one is for TLS");
    let challenge: &[u8] = b"acme-tls/1";
    until("that one, too", || handshake(doors.tls, SHOP, &[challenge]).is_some());
    let (shown, protocol) = handshake(doors.tls, SHOP, &[challenge]).unwrap();
    assert_eq!((names(&shown), protocol.as_deref()), (vec![SHOP.to_owned()], Some(challenge)));
    assert_eq!(leaf(doors.tls, SHOP), None, "clients are not shown it");
    assert_eq!(handshake(doors.tls, "other.test", &[challenge]), None);
    storage.end_challenges(&lock).unwrap();
    until("it is over", || get(doors.http, path).1 == "routed");
    until("that one, too", || handshake(doors.tls, SHOP, &[challenge]).is_none());
}

#[test]
fn only_one_has_the_lock_and_leftovers_are_removed_with_it() {
    let folder = Folder::new();
    let storage = Storage::new(&folder.path("ca"));
    let lock = storage.lock().unwrap().unwrap();
    assert!(storage.lock().unwrap().is_none());
    let unfinished = folder.path("ca/certificates/a.pem.new");
    let challenge = folder.path("ca/challenges/token");
    fs::write(&unfinished, "half").unwrap();
    fs::write(&challenge, "half").unwrap();
    assert_eq!(storage.challenges().unwrap(), [], "one that can't be read is no challenge");
    drop(lock);
    let _lock = storage.lock().unwrap().unwrap();
    assert!(!unfinished.exists() && !challenge.exists());
}

#[test]
fn tcp_proxies_may_show_what_is_not_there_yet_and_datagrams_need_files() {
    let text = "
gateway: { admin: off, acme: { accept_terms: true, storage: acme }, tls: { certificates: [{ acme: [shop.test] }] } }
proxies: [{ id: a, listen_port: 5008, backend_scheme: udp, frontend_tls: true, backend_host: 127.0.0.1, backend_port: 1 }]
";
    let why = source::file::parse(text, "test.yaml", &crate::plugins()).unwrap_err().to_string();
    assert!(why.contains("DTLS needs a certificate in files"), "{why}");
    source::file::parse(&text.replace("udp", "tcp"), "test.yaml", &crate::plugins()).unwrap();
}
