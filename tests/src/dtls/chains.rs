//! Certificates with others behind them, in either version.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use dimpl::crypto::Dtls13CipherSuite;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::certificates::{openssl_with, problems, settings, terminating};
use super::{Offer, Peer, at, dtls_backend, edge_with, free_port, plain_client, soon};
use crate::support::dtls::heard;
use crate::support::tls::{self, Identity};

/// A certificate of an intermediate CA of the test's own, which is behind it in the file, and padded by so many bytes.
pub(super) fn with_intermediate(name: &str, padding: usize) -> Identity {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "intermediate");
    if padding > 0 {
        // An octet string under a number that means nothing.
        let length = u16::try_from(padding).unwrap().to_be_bytes();
        let content = [&[4, 0x82][..], &length, &vec![7; padding]].concat();
        params
            .custom_extensions
            .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], content));
    }
    let between_key = KeyPair::generate().unwrap();
    let between = params.signed_by(&between_key, tls::authority().issuer()).unwrap();
    let issuer = Issuer::from_params(&params, &between_key);
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let folder = tls::authority().folder();
    let identity =
        Identity { cert: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) };
    std::fs::write(&identity.cert, [leaf.pem(), between.pem()].concat()).unwrap();
    std::fs::write(&identity.key, key.serialize_pem()).unwrap();
    identity
}

fn three(length: usize) -> [u8; 3] {
    let [_, rest @ ..] = u32::try_from(length).unwrap().to_be_bytes();
    rest
}

/// The certificate message of DTLS 1.3 with all of a file, as a transcript has it (RFC 8446 §4.4.2).
fn message(identity: &Identity) -> Vec<u8> {
    let certificates = CertificateDer::pem_file_iter(&identity.cert).unwrap();
    let entries = certificates.map(|certificate| {
        let certificate = certificate.unwrap();
        [&three(certificate.len())[..], &certificate, &[0, 0]].concat()
    });
    let list = entries.collect::<Vec<_>>().concat();
    [&[11][..], &three(list.len() + 4), &[0], &three(list.len()), &list].concat()
}

/// A client of DTLS 1.2 that trusts the root alone gets the certificates between, and what it signs fits what it was shown.
#[tokio::test]
async fn a_chain_is_shown_whole() {
    let ca = tls::authority().ca();
    for asks in ["".to_owned(), format!(", client_ca_path: {ca:?}")] {
        let chain = with_intermediate("dtls-chain", 0);
        let (_edge, port, _echo) = terminating(&settings(&[&chain], &asks)).await;
        let trust =
            ["-CAfile", ca.to_str().unwrap(), "-verify_return_error", "-verify_hostname", "localhost"];
        let Some(line) = openssl_with(port, Some(tls::localhost()), &trust).await else { return };
        assert_eq!(line, "echoed\n", "{asks}");
    }
}

/// The same in DTLS 1.3, which clients of both versions get. Both sides' signatures are over what was shown.
#[tokio::test]
async fn a_chain_is_shown_whole_in_dtls_1_3() {
    let ca = tls::authority().ca();
    for (n, asks) in ["".to_owned(), format!(", client_ca_path: {ca:?}")].iter().enumerate() {
        for (least, offers) in [("1.2", &[Offer::Both, Offer::Dtls13][..]), ("1.3", &[Offer::Both])] {
            let chain = with_intermediate(&format!("dtls-chain-{n}-{least}"), 0);
            let more = format!("{asks}, min_version: \"{least}\"");
            let (mut edge, port, _echo) = terminating(&settings(&[&chain], &more)).await;
            for offer in offers {
                let mut client = Peer::client_noting(plain_client(port).await, *offer);
                client.shake().await;
                assert_eq!(client.ask(b"let in").await, b"let in", "{offer:?} {more}");
                assert!(heard(&message(&chain)), "{offer:?} {more}: another list");
                client.close().await;
                assert_eq!(edge.session().await.end(), "closed", "{offer:?} {more}");
            }
        }
    }
}

/// A list that takes as many datagrams as there may be comes whole, with a client's certificate asked for as well.
#[tokio::test]
async fn a_long_chain_comes_in_pieces() {
    // What is left of the limit is less than the difference between two signatures.
    let chain = with_intermediate("dtls-chain-long", 5_245);
    let length = message(&chain).len();
    assert!((5_990..=6_013).contains(&length), "{length}");
    let ca = tls::authority().ca();
    let asks = format!(", client_ca_path: {ca:?}");
    let (_edge, port, _echo) = terminating(&settings(&[&chain], &asks)).await;
    for offer in [Offer::Dtls12, Offer::Dtls13] {
        let mut client = Peer::client_noting(plain_client(port).await, offer);
        client.shake().await;
        assert_eq!(client.ask(b"let in").await, b"let in", "{offer:?}");
    }
    assert!(heard(&message(&chain)), "another list");
}

/// A chain that is too long for DTLS 1.3 is shown in DTLS 1.2, and refused where that is not allowed.
#[tokio::test]
async fn a_longer_chain_is_for_dtls_1_2() {
    let chain = with_intermediate("dtls-chain-longer", 20_000);
    let (_edge, port, _echo) = terminating(&settings(&[&chain], "")).await;
    for offer in [Offer::Dtls12, Offer::Both] {
        let mut client = Peer::client_noting(plain_client(port).await, offer);
        client.shake().await;
        assert_eq!(client.ask(b"let in").await, b"let in", "{offer:?}");
    }
    let said = problems(&settings(&[&chain], ", min_version: \"1.3\""));
    assert!(said.contains("longer than the 6000 bytes that DTLS 1.3 can show"), "{said}");
    let longest = with_intermediate("dtls-chain-too-long", 60_000);
    let said = problems(&settings(&[&longest], ""));
    assert!(said.contains("longer than the 49152 bytes that DTLS can show"), "{said}");
}

/// What is said again is put right as well.
#[tokio::test]
async fn a_lost_chain_is_said_again() {
    let chain = with_intermediate("dtls-chain-lost", 0);
    let (_edge, port, _echo) = terminating(&settings(&[&chain], "")).await;
    let mut client = Peer::client_noting(plain_client(port).await, Offer::Dtls13);
    client.prove().await;
    // The first datagram has the server's hello, without which the client understands nothing.
    let length = soon(client.socket.recv(&mut [0; 65_536])).await.unwrap();
    assert!(length > 1000, "it is the whole flight's beginning: {length}");
    client.shake().await;
    assert_eq!(client.ask(b"let in").await, b"let in");
    assert!(heard(&message(&chain)), "another list");
}

/// A client that is asked for another key share gets the list too.
#[tokio::test]
async fn a_chain_is_shown_after_a_retry() {
    let ca = tls::authority().ca();
    for asks in ["".to_owned(), format!(", client_ca_path: {ca:?}")] {
        let chain = with_intermediate("dtls-chain-retry", 0);
        let (_edge, port, _echo) = terminating(&settings(&[&chain], &asks)).await;
        for suite in [Dtls13CipherSuite::AES_128_GCM_SHA256, Dtls13CipherSuite::AES_256_GCM_SHA384] {
            let mut client = Peer::client_retrying(plain_client(port).await, suite);
            client.say_unknown_share().await;
            client.shake().await;
            assert_eq!(client.ask(b"let in").await, b"let in", "{suite:?} {asks}");
        }
    }
}

/// The first certificate of an identity's file, as one of its own.
fn without_intermediate(identity: &Identity) -> Identity {
    let text = std::fs::read_to_string(&identity.cert).unwrap();
    let (leaf, _) = text.split_once("-----END CERTIFICATE-----").unwrap();
    let cert = identity.cert.with_extension("leaf.pem");
    std::fs::write(&cert, format!("{leaf}-----END CERTIFICATE-----\n")).unwrap();
    Identity { cert, key: identity.key.clone() }
}

/// The fields of a proxy to a DTLS target at this port, whose certificate is for `localhost`.
fn named_backend(port: u16, ca: &std::path::Path) -> String {
    format!("backend_tls_server_name: localhost, {}", dtls_backend(at(port), ca))
}

/// The gateway takes a target whose certificate was signed by an intermediate CA, where the target shows that one's too.
#[tokio::test]
async fn a_targets_chain_is_followed() {
    let ca = tls::authority().ca();
    for (n, more) in ["", ", min_version: \"1.3\""].into_iter().enumerate() {
        let chain = with_intermediate(&format!("dtls-target-chain-{n}"), 0);
        for (shown, end) in
            [(&chain, "closed"), (&without_intermediate(&chain), "target_certificate_refused")]
        {
            let (_far, target, _echo) = terminating(&settings(&[shown], more)).await;
            let (mut edge, port) = edge_with(&named_backend(target, &ca));
            let client = plain_client(port).await;
            client.send(b"hello").await.unwrap();
            if end == "closed" {
                let mut buffer = [0; 16];
                let length = soon(client.recv(&mut buffer)).await.unwrap();
                assert_eq!(&buffer[..length], b"hello", "{more}");
                continue;
            }
            let record = edge.only_record().await;
            assert_eq!((record.end(), record.carried().1), (end, 0), "{more}");
        }
    }
}

/// A chain of a CA that is not trusted leads nowhere.
#[tokio::test]
async fn a_targets_chain_has_to_end_at_a_trusted_certificate() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let other = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let wrong = tls::authority().folder().join("dtls-chain-other-ca.pem");
    std::fs::write(&wrong, other.pem()).unwrap();
    let chain = with_intermediate("dtls-target-stranger", 0);
    let (_far, target, _echo) = terminating(&settings(&[&chain], "")).await;
    let (mut edge, port) = edge_with(&named_backend(target, &wrong));
    plain_client(port).await.send(b"secret").await.unwrap();
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried().1), ("target_certificate_refused", 0));
}

/// A client of OpenSSL's (DTLS 1.2) is let in by the certificate of an intermediate CA that it shows as well, also where the
/// gateway shows a list of its own.
#[tokio::test]
async fn a_clients_chain_is_followed() {
    let ca = tls::authority().ca();
    let own = with_intermediate("dtls-client-chain-own", 0);
    let client = with_intermediate("dtls-client-chain", 0);
    for shown in [tls::localhost(), &own] {
        let (_edge, port, _echo) =
            terminating(&settings(&[shown], &format!(", client_ca_path: {ca:?}"))).await;
        let between = ["-cert_chain", client.cert.to_str().unwrap()];
        let Some(line) = openssl_with(port, Some(&client), &between).await else { return };
        assert_eq!(line, "echoed\n");
        let alone = without_intermediate(&client);
        assert_eq!(
            openssl_with(port, Some(&alone), &[]).await.as_deref(),
            Some(""),
            "nobody trusts its issuer"
        );
    }
}

/// What OpenSSL hears as a target (DTLS 1.2) with these arguments, where it is installed. It wants to see a certificate, whoever
/// issued it, with its signature.
async fn heard_by_openssl(args: &[&std::ffi::OsStr]) -> Option<String> {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return None;
    }
    let (ca, own, target) = (tls::authority().ca(), tls::localhost(), free_port());
    let mut server = Command::new("openssl")
        .args(["s_server", "-dtls1_2", "-quiet", "-accept", &format!("127.0.0.1:{target}")])
        .args(["-Verify", "1"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        line
    });
    let shown = format!(
        "backend_tls_client_cert_path: {:?}, backend_tls_client_key_path: {:?}, {}",
        own.cert,
        own.key,
        named_backend(target, &ca)
    );
    let (_edge, port) = edge_with(&shown);
    let client = plain_client(port).await;
    // Until it listens, it hears nothing; each datagram begins a session where there is none.
    let mut every = tokio::time::interval(std::time::Duration::from_millis(100));
    let saying = async {
        loop {
            every.tick().await;
            drop(client.send(b"hello\n").await);
        }
    };
    let heard = tokio::select! {
        line = soon(reading) => line.unwrap(),
        () = saying => unreachable!("it goes on"),
    };
    server.kill().unwrap();
    server.wait().unwrap();
    Some(heard)
}

#[tokio::test]
async fn a_chain_of_openssl_is_followed() {
    let chain = with_intermediate("dtls-target-openssl", 0);
    let (cert, key) = (chain.cert.as_os_str(), chain.key.as_os_str());
    let args = ["-cert".as_ref(), cert, "-cert_chain".as_ref(), cert, "-key".as_ref(), key];
    assert!(heard_by_openssl(&args).await.is_none_or(|heard| heard == "hello\n"));
}

/// A target with several certificates shows the one of the name that the proxy names.
#[tokio::test]
async fn a_target_is_asked_by_its_name() {
    let (others, own) = (tls::authority().issue("dtls-other", &["other.test"]), tls::localhost());
    let files = [&others.cert, &others.key, &own.cert, &own.key].map(|path| path.as_os_str());
    let args = [
        ["-cert".as_ref(), files[0]],
        ["-key".as_ref(), files[1]],
        ["-servername".as_ref(), "localhost".as_ref()],
        ["-cert2".as_ref(), files[2]],
        ["-key2".as_ref(), files[3]],
    ];
    assert!(heard_by_openssl(args.as_flattened()).await.is_none_or(|heard| heard == "hello\n"));
}
