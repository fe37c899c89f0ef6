//! Which of several certificates a TLS client gets, over TCP and QUIC.

use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use rcgen::KeyPair;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, SignatureScheme, SupportedProtocolVersion, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::h3;
use crate::support::soon;
use crate::support::tls::{self, Identity};

/// A client of these versions that can check signatures of these schemes only.
fn client(versions: &[&'static SupportedProtocolVersion], rsa: bool, alpn: &[&str]) -> ClientConfig {
    let provider = default_provider();
    let mut algorithms = provider.signature_verification_algorithms;
    let of_kind = |scheme: &SignatureScheme| format!("{scheme:?}").starts_with("RSA") == rsa;
    let mapping: Vec<_> = algorithms.mapping.iter().filter(|(scheme, _)| of_kind(scheme)).copied().collect();
    // Certificates are of a CA with an ECDSA key: those are checked with all there are.
    algorithms.mapping = Box::leak(mapping.into_boxed_slice());
    let provider = CryptoProvider { signature_verification_algorithms: algorithms, ..provider };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(tls::authority().ca()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// The leaf a client is shown over TCP, for this name.
async fn over_tcp(edge: &Edge, config: ClientConfig, name: &str) -> Vec<u8> {
    let tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = name.to_owned().try_into().unwrap();
    let stream = soon(connector.connect(name, tcp)).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// The leaf a client is shown over QUIC.
async fn over_quic(edge: &Edge, config: ClientConfig, name: &str) -> Vec<u8> {
    let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let crypto = QuicClientConfig::try_from(config).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connection = soon(endpoint.connect_with(config, edge.https(), name).unwrap()).await.unwrap();
    let chain = connection.peer_identity().unwrap().downcast::<Vec<CertificateDer<'_>>>().unwrap();
    chain[0].to_vec()
}

fn leaf(identity: &Identity) -> Vec<u8> {
    CertificateDer::from_pem_file(&identity.cert).unwrap().to_vec()
}

#[tokio::test]
async fn the_clients_signature_schemes_choose_among_those_of_a_name() {
    let authority = tls::authority();
    let rsa = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let ecdsa_a = authority.issue("pair-a-ecdsa", &["a.test"]);
    let rsa_a = authority.issue_for("pair-a-rsa", &["a.test"], &rsa);
    let rsa_b = authority.issue_for("pair-b-rsa", &["*.b.test"], &rsa);
    let ecdsa_b = authority.issue("pair-b-ecdsa", &["*.b.test"]);
    let files = [&ecdsa_a, &rsa_a, &rsa_b, &ecdsa_b]
        .map(|identity| format!("{{cert_path: {:?}, key_path: {:?}}}", identity.cert, identity.key));
    let settings = format!("  tls: {{certificates: [{}]}}", files.join(", "));
    let edge = h3::edge_with(&settings, "proxies:\n");
    for (name, ecdsa, rsa) in [("a.test", &ecdsa_a, &rsa_a), ("x.b.test", &ecdsa_b, &rsa_b)] {
        for (is_rsa, expected) in [(false, ecdsa), (true, rsa)] {
            for version in [&version::TLS12, &version::TLS13] {
                let shown = over_tcp(&edge, client(&[version], is_rsa, &["http/1.1"]), name).await;
                assert_eq!(shown, leaf(expected), "{name}, RSA {is_rsa}, {version:?}");
            }
            let shown = over_quic(&edge, client(&[&version::TLS13], is_rsa, &["h3"]), name).await;
            assert_eq!(shown, leaf(expected), "{name}, RSA {is_rsa}, QUIC");
        }
    }
    // Who can check both gets the first, and nothing has changed about names.
    let both = authority.client(&["http/1.1"]);
    assert_eq!(over_tcp(&edge, (*both).clone(), "a.test").await, leaf(&ecdsa_a));
    assert_eq!(over_tcp(&edge, (*both).clone(), "x.b.test").await, leaf(&rsa_b));
}
