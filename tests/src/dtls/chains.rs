//! Certificates with others behind them, in either version.

use dimpl::crypto::Dtls13CipherSuite;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::certificates::{openssl_with, problems, settings, terminating};
use super::{Offer, Peer, plain_client, soon};
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
