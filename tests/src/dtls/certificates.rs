//! Which certificate DTLS shows, and what it asks of clients.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ferrum_edge::source::file;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::{LOOPBACK, OFFERS, Offer, Peer, at, echo, free_port, one, plain_client, soon, udp_backend};
use crate::support::edge::Edge;
use crate::support::tls::{self, Identity};

/// `gateway.tls` with these certificates and more.
pub(super) fn settings(certificates: &[&Identity], more: &str) -> String {
    let shown = certificates
        .iter()
        .map(|identity| format!("{{cert_path: {:?}, key_path: {:?}}}", identity.cert, identity.key));
    let shown = shown.collect::<Vec<_>>().join(", ");
    format!("{LOOPBACK}\n  tls: {{certificates: [{shown}]{more}}}")
}

/// A gateway with this `gateway.tls` that ends DTLS in front of an echo.
pub(super) async fn terminating(settings: &str) -> (Edge, u16, JoinSet<()>) {
    let (address, task) = echo().await;
    let port = free_port();
    let fields = format!("frontend_tls: true, {}", udp_backend(address));
    (Edge::start_with(settings, &one(port, &fields)), port, task)
}

/// Another CA and a certificate of its for `localhost`.
fn stranger() -> Identity {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let folder = tls::authority().folder();
    let identity = Identity { cert: folder.join("dtls-stranger.pem"), key: folder.join("dtls-stranger.key") };
    std::fs::write(&identity.cert, cert.pem()).unwrap();
    std::fs::write(&identity.key, key.serialize_pem()).unwrap();
    identity
}

#[tokio::test]
async fn clients_show_a_certificate_of_the_ca() {
    let ca = format!(", client_ca_path: {:?}", tls::authority().ca());
    let (mut edge, port, _echo) = terminating(&settings(&[tls::localhost()], &ca)).await;
    let stranger = stranger();
    for offer in OFFERS {
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"known").await, b"known", "{offer:?}");
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{offer:?}");

        let mut client = Peer::client_showing(at(port), offer, &stranger).await;
        let record = tokio::select! {
            record = edge.session() => record,
            () = client.insist(b"let me in") => panic!("{offer:?}: a stranger was served"),
        };
        assert_eq!((record.end(), record.carried()), ("dtls_certificate_refused", (0, 0)), "{offer:?}");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn clients_whose_certificate_is_revoked_are_refused() {
    let authority = tls::authority();
    let lists = authority.folder().join("dtls-lists");
    std::fs::create_dir_all(&lists).unwrap();
    authority.revoke(&lists.join("a.crl"), &[91], 4000);
    let more = format!(", client_ca_path: {:?}, client_crl_path: {lists:?}", authority.ca());
    let (mut edge, port, _echo) = terminating(&settings(&[tls::localhost()], &more)).await;
    let revoked = authority.issue_numbered("dtls-revoked", &["localhost"], 91);
    for offer in OFFERS {
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"known").await, b"known", "{offer:?}");
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{offer:?}");

        let mut client = Peer::client_showing(at(port), offer, &revoked).await;
        let record = tokio::select! {
            record = edge.session() => record,
            () = client.insist(b"let me in") => panic!("{offer:?}: a revoked certificate was taken"),
        };
        assert_eq!(record.end(), "dtls_certificate_refused", "{offer:?}");
    }
}

/// A consumer is recognised by the certificate of a DTLS session, as of a TLS connection.
#[tokio::test]
async fn consumers_are_known_by_their_certificates() {
    let ca = format!(", client_ca_path: {:?}", tls::authority().ca());
    let (address, _echo) = echo().await;
    let port = free_port();
    let plugins = "plugins: [{plugin_config_id: who}, {plugin_config_id: one}]";
    let spec = format!(
        "{}consumers:\n  - {{id: ann, username: ann, credentials: {{mtls_auth: localhost}}}}\n\
         plugin_configs:\n  - {{id: who, plugin_name: mtls_auth, scope: proxy_group, config: {{}}}}\n  \
         - {{id: one, plugin_name: udp_rate_limiting, scope: proxy_group, config: {{limit_by: consumer, max_sessions: 1}}}}\n",
        one(port, &format!("frontend_tls: true, {plugins}, {}", udp_backend(address)))
    );
    let nobody = tls::authority().issue("dtls-nobody", &["nobody.test"]);
    let mut edge = Edge::start_with(&settings(&[tls::localhost()], &ca), &spec);
    for offer in OFFERS {
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"known").await, b"known", "{offer:?}");
        let mut again = Peer::client_showing(at(port), offer, tls::localhost()).await;
        let record = tokio::select! {
            record = edge.session() => record,
            () = again.insist(b"me too") => panic!("{offer:?}: a second session was served"),
        };
        assert_eq!(
            (record.end(), &record.0["enduser.id"]),
            ("udp_limit_sessions", &"ann".into()),
            "{offer:?}"
        );
        client.close().await;
        let record = edge.session().await;
        assert_eq!((record.end(), &record.0["enduser.id"]), ("closed", &"ann".into()), "{offer:?}");
        assert_eq!(record.0["tls.protocol.name"], "dtls");
        assert!(["1.2", "1.3"].contains(&record.0["tls.protocol.version"].as_str().unwrap()));

        let mut client = Peer::client_showing(at(port), offer, &nobody).await;
        let record = tokio::select! {
            record = edge.session() => record,
            () = client.insist(b"let me in") => panic!("{offer:?}: nobody was served"),
        };
        assert_eq!((record.end(), record.carried()), ("certificate_caller", (0, 0)), "{offer:?}");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn sessions_end_with_the_ca_of_their_clients() {
    let ca = tls::authority().ca();
    let both = tls::authority().folder().join("dtls-both.pem");
    std::fs::copy(&ca, &both).unwrap();
    let stranger = stranger();
    let (address, _echo) = echo().await;
    let port = free_port();
    let spec = one(port, &format!("frontend_tls: true, {}", udp_backend(address)));
    let settings = settings(&[tls::localhost()], &format!(", client_ca_path: {both:?}"));
    for offer in OFFERS {
        let mut edge = Edge::start_with(&settings, &spec);
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"known").await, b"known", "{offer:?}");
        // A reload that changes nothing ends nothing.
        edge.reload(&spec);
        assert_eq!(client.ask(b"still").await, b"still", "{offer:?}");
        edge.reload_with(
            &format!("client_ca_path: {both:?}"),
            &format!("client_ca_path: {:?}", stranger.cert),
            &spec,
        );
        assert_eq!(edge.session().await.end(), "revoked", "{offer:?}");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let ca = format!(", client_ca_path: {:?}", tls::authority().ca());
    let (mut edge, port, _echo) = terminating(&settings(&[tls::localhost()], &ca)).await;
    let identity = tls::localhost();
    for with in [false, true] {
        let Some(said) = openssl(port, with.then_some(identity)).await else { return };
        assert_eq!(said.contains("echoed"), with, "{said}");
        let record = edge.session().await;
        let end = if with { "closed" } else { "dtls_certificate_missing" };
        assert_eq!((record.end(), record.carried().0 > 0), (end, with));
    }
}

/// What another implementation reads after it has said something; `None` where it is not installed. One that is refused
/// learns that by an alert, and ends by itself.
async fn openssl(port: u16, identity: Option<&Identity>) -> Option<String> {
    openssl_with(port, identity, &[]).await
}

pub(super) async fn openssl_with(port: u16, identity: Option<&Identity>, options: &[&str]) -> Option<String> {
    Command::new("openssl").arg("version").stdout(Stdio::null()).status().ok()?;
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-dtls1_2"])
        .args(options)
        .args(["-quiet", "-no_ign_eof", "-connect", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(identity) = identity {
        command.arg("-cert").arg(&identity.cert).arg("-key").arg(&identity.key);
    }
    let talking = tokio::task::spawn_blocking(move || {
        let mut client = command.spawn().unwrap();
        let mut stdin = client.stdin.take().unwrap();
        // It may be refused before it says this.
        let _said = writeln!(stdin, "echoed");
        let mut line = String::new();
        let _read = BufReader::new(client.stdout.take().unwrap()).read_line(&mut line);
        drop(stdin);
        client.wait().unwrap();
        line
    });
    Some(soon(talking).await.unwrap())
}

/// The first datagrams of the server's answer to a client of DTLS 1.2 that asks for this name and gives its cookie back.
async fn flight(port: u16, name: &str) -> Vec<u8> {
    flight_of(port, name, &Peer::hello(Offer::Dtls12).await).await
}

async fn flight_of(port: u16, name: &str, hello: &[u8]) -> Vec<u8> {
    let socket = plain_client(port).await;
    answered(&socket, name, hello).await
}

/// A client whose handshake has begun, and goes no further.
pub(super) async fn begun(port: u16, hello: &[u8]) -> UdpSocket {
    let socket = plain_client(port).await;
    answered(&socket, "localhost", hello).await;
    socket
}

/// What a client hears after it gave its cookie back.
async fn answered(socket: &UdpSocket, name: &str, hello: &[u8]) -> Vec<u8> {
    socket.send(&asking(hello, name, &[], 0)).await.unwrap();
    let answer = received(socket).await;
    // A HelloVerifyRequest: two heads, the version, the cookie's length and the cookie.
    let cookie = answer[28..28 + usize::from(answer[27])].to_vec();
    socket.send(&asking(hello, name, &cookie, 1)).await.unwrap();
    received(socket).await
}

async fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let length = soon(socket.recv(&mut buffer)).await.unwrap();
    buffer.truncate(length);
    buffer
}

/// A hello that asks for a name as well, with a cookie, as the `number`th.
fn asking(hello: &[u8], name: &str, cookie: &[u8], number: u8) -> Vec<u8> {
    let body = &hello[25..];
    // Version, random and an empty session id; an empty cookie; the rest.
    let (begin, rest) = (&body[..35], &body[36..]);
    let suites = 2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    let choices = suites + 1 + usize::from(rest[suites]);
    let short = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let mut extensions = rest[choices + 2..].to_vec();
    extensions.extend_from_slice(&[0, 0]);
    for more in [5, 3] {
        extensions.extend_from_slice(&short(name.len() + more));
    }
    extensions.push(0);
    extensions.extend_from_slice(&short(name.len()));
    extensions.extend_from_slice(name.as_bytes());
    let cookie = [&[u8::try_from(cookie.len()).unwrap()][..], cookie].concat();
    let body = [begin, &cookie, &rest[..choices], &short(extensions.len()), &extensions].concat();
    let length = &u32::try_from(body.len()).unwrap().to_be_bytes()[1..];
    let message = [&[1][..], length, &[0, number, 0, 0, 0], length, &body].concat();
    [&hello[..10], &[number], &short(message.len()), &message].concat()
}

#[tokio::test]
async fn the_certificate_is_chosen_by_the_name_asked_for() {
    let authority = tls::authority();
    let first = authority.issue("dtls-a", &["a.test"]);
    let second = authority.issue("dtls-b", &["b.test", "*.b.test"]);
    let (_edge, port, _echo) = terminating(&settings(&[&first, &second], "")).await;
    let shows = |flight: &[u8], identity: &Identity| {
        let leaf = CertificateDer::from_pem_file(&identity.cert).unwrap();
        flight.windows(leaf.len()).any(|bytes| bytes == leaf.as_ref())
    };
    for (name, expected) in
        [("a.test", &first), ("b.test", &second), ("x.b.test", &second), ("c.test", &first)]
    {
        let flight = flight(port, name).await;
        assert!(shows(&flight, expected), "{name}: another certificate");
        let other = if expected.cert == first.cert { &second } else { &first };
        assert!(!shows(&flight, other), "{name}: both certificates");
    }
}

/// `min_version` counts for DTLS as well.
#[tokio::test]
async fn an_old_version_is_refused() {
    let (_edge, port, _echo) = terminating(&settings(&[tls::localhost()], ", min_version: \"1.3\"")).await;
    let mut client = Peer::connect(at(port), Offer::Dtls13).await;
    assert_eq!(client.ask(b"new").await, b"new");
    let mut client = Peer::client(at(port), Offer::Dtls12).await;
    assert!(!client.is_let_in().await);
}

/// The problems of a configuration whose proxy ends DTLS, as `check` lists them.
pub(super) fn problems(settings: &str) -> String {
    let fields = "frontend_tls: true, backend_scheme: udp, backend_host: 127.0.0.1, backend_port: 1";
    let text = format!("gateway:\n  https: off\n{settings}\n{}", one(1, fields));
    match file::parse(&text, "test", &ferrum_edge::plugins()) {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}

/// The same certificate with others behind it.
fn chained(identity: &Identity, others: &[&Path], name: &str) -> Identity {
    let cert = tls::authority().folder().join(name);
    let mut text = std::fs::read_to_string(&identity.cert).unwrap();
    for other in others {
        text.push_str(&std::fs::read_to_string(other).unwrap());
    }
    std::fs::write(&cert, text).unwrap();
    Identity { cert, key: identity.key.clone() }
}

/// A server may not confirm what a client did not ask for (RFC 5246 §7.4.1.4); wolfSSL's clients refuse it.
#[tokio::test]
async fn renegotiation_is_confirmed_to_those_who_ask_alone() {
    let (_edge, port, _echo) = terminating(&settings(&[tls::localhost()], "")).await;
    let info = [0xFF, 1, 0, 1, 0];
    let has = |bytes: &[u8]| bytes.windows(info.len()).position(|part| part == info);
    let mut hello = Peer::hello(Offer::Dtls12).await;
    if let Some(at) = has(&hello) {
        hello.drain(at..at + info.len());
    }
    assert_eq!(has(&flight_of(port, "localhost", &hello).await), None);
    // Extensions are the last of a hello; their length is written anew.
    hello.extend_from_slice(&info);
    assert!(has(&flight_of(port, "localhost", &hello).await).is_some());
}

#[test]
fn what_dtls_cannot_do_is_refused() {
    let good = tls::localhost();
    let ca = tls::authority().ca();
    assert_eq!(problems(&settings(&[good], "")), "");
    let optional = format!(", client_ca_path: {ca:?}, client_cert_required: false");
    let said = problems(&settings(&[good], &optional));
    assert!(said.contains("without requiring one"), "{said}");
    // A root behind it is not shown, and is no matter.
    let chained = chained(good, &[&ca], "dtls-with-root.pem");
    assert_eq!(problems(&settings(&[&chained], ", min_version: \"1.3\"")), "");
    let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let rsa = tls::authority().issue_for("dtls-rsa", &["localhost"], &key);
    let said = problems(&settings(&[&rsa], ""));
    assert!(said.contains("ECDSA"), "{said}");
    assert_eq!(problems(&settings(&[&rsa, good], "")), "", "one of them is enough");
    let said = problems(LOOPBACK);
    assert!(said.contains("proxies.a.frontend_tls"), "{said}");
}
