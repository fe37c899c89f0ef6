//! Clients' certificates that were good in the handshake and are not any more: their CA is not trusted, or they have expired and a
//! session is resumed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, Request};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::standing::Standing;
use crate::support::tls::{self, Identity};
use crate::support::wire::{Port, Wire, connect_as};
use crate::support::{h2, h3, soon};

/// A CA beside that of the tests, in a file, and somebody with a certificate of it.
fn other_ca(file: &str) -> (PathBuf, Identity) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "another CA");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let path = |kind: &str| tls::authority().folder().join(format!("{file}.{kind}"));
    let (ca, identity) = (path("ca.pem"), Identity { cert: path("pem"), key: path("key") });
    std::fs::write(&ca, issuer.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["bob.test".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(&identity.cert, cert.pem()).unwrap();
    std::fs::write(&identity.key, key.serialize_pem()).unwrap();
    (ca, identity)
}

/// Asks for the certificates of the CAs in this file.
fn asking(ca: &std::path::Path) -> String {
    let own = tls::localhost();
    format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {ca:?}, client_cert_required: false}}\n",
        own.cert, own.key
    )
}

fn showing(version: &str, identity: &Identity) -> Arc<rustls::ClientConfig> {
    tls::showing(&tls::authority().client(&[version]), identity)
}

#[tokio::test]
async fn open_connections_end_with_their_ca() {
    let origin = Standing::start("o").await;
    let (ca, bob) = other_ca("withdrawn");
    let both = ca.with_extension("both");
    let bundle = std::fs::read_to_string(tls::authority().ca()).unwrap()
        + std::fs::read_to_string(&ca).unwrap().as_str();
    std::fs::write(&both, bundle).unwrap();
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    let mut edge = h3::edge_with(&asking(&both), &spec);
    let ann = tls::authority().issue("withdrawn-ann", &["ann.test"]);
    let get = "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n";
    let mut idle = Vec::new();
    for identity in [&ann, &bob] {
        let mut talker =
            Talker::new(Wire::new(connect_as(edge.https(), showing("http/1.1", identity)).await));
        talker.wire.send(get).await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
        talker.body().await.unwrap();
        idle.push(talker);
    }
    let mut nobody =
        Talker::new(Wire::new(connect_as(edge.https(), tls::authority().client(&["http/1.1"])).await));
    let mut h2_of_ann = h2::client(connect_as(edge.https(), showing("h2", &ann)).await).await;
    let request = || Request::get("https://a.test/").body(()).unwrap();
    let (answer, _) = h2_of_ann.send_request(request(), true).unwrap();
    assert_eq!(soon(answer).await.unwrap().status(), 200);
    let h3_of_ann = h3::Client::open_as(edge.https(), showing("h3", &ann)).await;
    let h3_of_bob = h3::Client::open_as(edge.https(), showing("h3", &bob)).await;
    assert_eq!(h3_of_ann.get("/").await.head.status(), 200);
    assert_eq!(h3_of_bob.get("/").await.head.status(), 200);
    // A reload that changes nothing ends nothing.
    edge.reload(&spec);
    edge.reload_with(&format!("{both:?}"), &format!("{ca:?}"), &spec);
    let mut bobs = idle.pop().unwrap();
    idle.pop().unwrap().wire.closed().await;
    soon(h3_of_ann.quic.closed()).await;
    soon(async {
        while h2_of_ann.clone().ready().await.is_ok() {
            tokio::task::yield_now().await
        }
    })
    .await;
    // Those of others go on, and of clients without a certificate.
    for talker in [&mut bobs, &mut nobody] {
        talker.wire.send(get).await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    }
    assert_eq!(h3_of_bob.get("/").await.head.status(), 200);
}

#[tokio::test]
async fn what_lasts_ends_with_its_ca() {
    let (ca, _) = other_ca("withdrawn-lasting");
    let origin = Port::listen(None).await;
    let backend = format!("backend_host: 127.0.0.1, backend_port: {}", origin.address.port());
    let http = format!("  - {{id: w, listen_path: /, backend_scheme: http, {backend}}}\n");
    let edge = |port: u16| {
        let spec = format!(
            "proxies:\n{http}  - {{id: t, listen_port: {port}, backend_scheme: tcp, frontend_tls: true, {backend}}}\n"
        );
        (Edge::start_with(&asking(&tls::authority().ca()), &spec), spec)
    };
    let port = crate::support::stream::free_port();
    let (mut edge, spec) = edge(port);
    let ann = tls::authority().issue("lasting-ann", &["ann.test"]);
    // An answer that has begun.
    let mut client = Talker::new(Wire::new(connect_as(edge.https(), showing("http/1.1", &ann)).await));
    client.wire.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    far.request().await.unwrap();
    far.wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n").await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(client.data().await.unwrap().unwrap(), "hi");
    // A stream.
    let mut stream = connect_as(([127, 0, 0, 1], port).into(), showing("http/1.1", &ann)).await;
    stream.write_all(b"hello").await.unwrap();
    let mut end = Wire::new(origin.accept().await);
    end.expect("hello").await;
    edge.reload_with(&format!("{:?}", tls::authority().ca()), &format!("{ca:?}"), &spec);
    client.data().await.expect_err("it is cut off");
    far.wire.closed().await;
    soon(stream.read_to_end(&mut Vec::new())).await.ok();
    end.closed().await;
    let mut reasons = Vec::new();
    for _ in 0..2 {
        let record = edge.records.next().await;
        reasons.push((record.kind().to_owned(), record.reason().to_owned() + record.end()));
    }
    reasons.sort();
    assert_eq!(reasons, [("http", "revoked"), ("tcp", "revoked")].map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[tokio::test]
async fn an_expired_certificate_resumes_no_session() {
    let origin = Standing::start("o").await;
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start_with(&asking(&tls::authority().ca()), &spec);
    let identity = tls::authority().issue("expiring", &["ann.test"]);
    let key = KeyPair::from_pem(&std::fs::read_to_string(&identity.key).unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["ann.test".to_owned()]).unwrap();
    let end = SystemTime::now() + Duration::from_secs(3);
    params.not_after = end.into();
    let cert = params.signed_by(&key, tls::authority().issuer()).unwrap();
    std::fs::write(&identity.cert, cert.pem()).unwrap();
    // With what it remembers of its sessions.
    let client = showing("http/1.1", &identity);
    let mut resumed = 0;
    loop {
        let began = SystemTime::now();
        let tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
        let connector = TlsConnector::from(client.clone());
        let Ok(mut io) = soon(connector.connect("gateway.test".try_into().unwrap(), tcp)).await else {
            break;
        };
        let request = b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
        let mut answer = Vec::new();
        let _sent = io.write_all(request).await;
        let _read = soon(io.read_to_end(&mut answer)).await;
        if answer.is_empty() {
            break;
        }
        assert!(began < end + Duration::from_secs(1), "it has expired, and is let in");
        resumed += u32::from(io.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed));
    }
    assert!(SystemTime::now() >= end - Duration::from_secs(1), "it was refused while it was good");
    assert!(resumed > 0, "no session was resumed");
}
