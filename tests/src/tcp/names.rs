//! Several proxies on one port, told apart by the name in the client's TLS hello.

use std::sync::Arc;

use rustls::ClientConnection;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::tls_client;
use crate::support::edge::{Edge, problems};
use crate::support::stream::{LOOPBACK, free_port, open, tcp_backend};
use crate::support::wire::{Port, Wire};
use crate::support::{soon, tls};

/// A client's first bytes.
pub(super) fn hello(name: &'static str) -> Vec<u8> {
    hello_offering(name, &[])
}

/// The first bytes of a client that offers these protocols.
fn hello_offering(name: &'static str, alpn: &[&str]) -> Vec<u8> {
    let config = tls::authority().client(alpn);
    let mut client = ClientConnection::new(Arc::clone(&config), name.try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Proxies on one port, each passing these names on to its own origin.
async fn shared(names: &[&str]) -> (Edge, u16, Vec<Port>) {
    let (port, mut spec, mut origins) = (free_port(), String::from("proxies:\n"), Vec::new());
    for (n, name) in names.iter().enumerate() {
        let origin = Port::listen(None).await;
        let backend = tcp_backend(origin.address);
        spec.push_str(&format!(
            "  - {{id: p{n}, listen_port: {port}, passthrough: true, hosts: [{name}], {backend}}}\n"
        ));
        origins.push(origin);
    }
    (Edge::start_with(LOOPBACK, &spec), port, origins)
}

#[tokio::test]
async fn the_name_chooses_however_the_hello_is_sliced() {
    let (mut edge, port, origins) = shared(&["a.test", "'*.a.test'", ""]).await;
    for (name, chosen) in
        [("a.test", 0), ("A.TEST", 0), ("x.a.test", 1), ("y.x.a.test", 1), ("b.test", 2), ("127.0.0.1", 2)]
    {
        let hello = hello(name);
        for slice in [1, 7, hello.len()] {
            let mut client = open(port).await;
            for piece in hello.chunks(slice) {
                client.send(piece).await;
            }
            let mut far = Wire::new(origins[chosen].accept().await);
            let got = far.some_exactly(hello.len()).await;
            assert!(got == hello, "{name} in pieces of {slice}");
            far.send("answer").await;
            client.expect("answer").await;
            client.shutdown().await;
            far.closed().await;
            far.shutdown().await;
            client.closed().await;
            let record = edge.session().await;
            assert_eq!((record.end(), record.proxy()), ("closed", &*format!("p{chosen}")), "{name}");
            assert_eq!(record.carried(), (hello.len() as u64, 6));
        }
    }
    edge.nothing_recorded().await;
}

/// The name goes first, then a protocol that the client offers.
#[tokio::test]
async fn protocols_choose_beside_names() {
    let (port, mut spec, mut origins) = (free_port(), String::from("proxies:\n"), Vec::new());
    for (id, fields) in [
        ("h2", "hosts: [a.test], alpn: [h2]"),
        ("a", "hosts: [a.test]"),
        ("chat", "alpn: [xmpp-client, stun.turn]"),
        ("rest", "hosts: []"),
    ] {
        let origin = Port::listen(None).await;
        let backend = tcp_backend(origin.address);
        spec.push_str(&format!(
            "  - {{id: {id}, listen_port: {port}, passthrough: true, {fields}, {backend}}}\n"
        ));
        origins.push(origin);
    }
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    for (name, alpn, chosen, id) in [
        ("a.test", &["http/1.1", "h2"][..], 0, "h2"),
        ("a.test", &["http/1.1"], 1, "a"),
        ("a.test", &[], 1, "a"),
        ("a.test", &["stun.turn"], 1, "a"),
        ("b.test", &["stun.turn"], 2, "chat"),
        ("b.test", &["h2"], 3, "rest"),
    ] {
        let hello = hello_offering(name, alpn);
        let mut client = open(port).await;
        client.send(&hello[..100]).await;
        client.send(&hello[100..]).await;
        let mut far = Wire::new(origins[chosen].accept().await);
        assert!(far.some_exactly(hello.len()).await == hello);
        client.shutdown().await;
        far.closed().await;
        far.shutdown().await;
        client.closed().await;
        assert_eq!(edge.session().await.proxy(), id, "{name} {alpn:?}");
    }
}

#[tokio::test]
async fn what_is_no_hello_goes_to_the_proxy_without_names() {
    let (mut edge, port, origins) = shared(&["a.test", ""]).await;
    let mut client = open(port).await;
    client.send("SSH-2.0-client\r\n").await;
    let mut far = Wire::new(origins[1].accept().await);
    far.expect("SSH-2.0-client\r\n").await;
    client.shutdown().await;
    far.closed().await;
    drop(far);
    assert_eq!(edge.only_record().await.proxy(), "p1");
}

#[tokio::test]
async fn an_unknown_name_is_refused_and_recorded() {
    let (mut edge, port, _origins) = shared(&["a.test", "'*.b.test'"]).await;
    for (bytes, name) in
        [(hello("c.test"), Some("c.test")), (hello("127.0.0.1"), None), (b"not TLS at all".to_vec(), None)]
    {
        let mut client = open(port).await;
        client.send(&bytes).await;
        assert!(client.rest().await.is_empty());
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.proxy()), ("tcp", "no_route", ""));
        assert_eq!(record.0.get("tls.client.server_name").and_then(|name| name.as_str()), name);
        assert_eq!(record.0["network.local.port"], port);
    }
    // One that goes away in the middle of its hello.
    let mut client = open(port).await;
    client.send(&hello("a.test")[..40]).await;
    client.shutdown().await;
    client.closed().await;
    assert_eq!(edge.only_record().await.end(), "closed_early");
}

#[tokio::test]
async fn a_hello_that_never_ends_is_given_up() {
    let port = free_port();
    let origin = Port::listen(None).await;
    let settings = format!("{LOOPBACK}\n  client_timeouts: {{handshake: 300ms}}");
    let mut edge = Edge::start_with(
        &settings,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, passthrough: true, hosts: [a.test], {}}}\n",
            tcp_backend(origin.address)
        ),
    );
    let mut client = open(port).await;
    client.send(&hello("a.test")[..40]).await;
    assert!(client.rest().await.is_empty());
    let record = edge.only_record().await;
    assert_eq!(record.end(), "handshake_timeout");
    assert!(record.0["session.duration"].as_f64() >= Some(0.3), "from the beginning: {record:?}");
    // Records upon records without a hello in them: as much as is needed, and no more, is kept.
    let mut client = open(port).await;
    while client.try_send([22, 3, 1, 0, 1, 1].repeat(4096)).await.is_ok() {}
    let end = edge.only_record().await;
    assert!(matches!(end.end(), "no_route" | "handshake_timeout"), "{}", end.end());
}

#[tokio::test]
async fn encrypted_bytes_pass_unopened() {
    let origin = Port::listen(Some(&[])).await;
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, passthrough: true, hosts: [gateway.test], {}}}\n",
            tcp_backend(origin.address)
        ),
    );
    let (mut client, far) = tokio::join!(tls_client(port, "gateway.test"), origin.accept());
    let mut far = Wire::new(far);
    client.send("through").await;
    far.expect("through").await;
    client.shutdown().await;
    far.closed().await;
    far.shutdown().await;
    client.closed().await;
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.proxy()), ("closed", "a"));
}

#[tokio::test]
async fn terminated_names_choose_too() {
    let origin = Port::listen(None).await;
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, frontend_tls: true, hosts: [gateway.test], {}}}\n",
            tcp_backend(origin.address)
        ),
    );
    let mut client = tls_client(port, "gateway.test").await;
    client.send("hi").await;
    let mut far = Wire::new(origin.accept().await);
    far.expect("hi").await;
    far.shutdown().await;
    client.shutdown().await;
    far.closed().await;
    assert_eq!(edge.only_record().await.proxy(), "a");
    let mut client = open(port).await;
    client.send(hello("localhost")).await;
    assert!(client.rest().await.is_empty());
    assert_eq!(edge.only_record().await.end(), "no_route");
}

/// With `${tls.server_name}`, a target is asked for the name that the client has asked for, and must have a certificate for it.
#[tokio::test]
async fn targets_get_the_name_that_clients_ask_for() {
    let identity = tls::authority().issue("client-name", &["gateway.test"]);
    let acceptor = TlsAcceptor::from(tls::server(&identity, &[]));
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut edge, port) = super::edge_with(&format!(
        "frontend_tls: true, backend_scheme: tcps, backend_tls_server_name: '${{tls.server_name}}', \
         backend_tls_ca_path: {}, backend_host: 127.0.0.1, backend_port: {}",
        tls::authority().ca().display(),
        target.local_addr().unwrap().port()
    ));
    let client = tls_client(port, "gateway.test").await;
    let far = soon(acceptor.accept(soon(target.accept()).await.unwrap().0)).await.unwrap();
    assert_eq!(far.get_ref().1.server_name(), Some("gateway.test"));
    drop(far);
    drop(client);
    assert_eq!(edge.session().await.proxy(), "a");
    let _other = tls_client(port, "localhost").await;
    assert!(
        soon(acceptor.accept(soon(target.accept()).await.unwrap().0)).await.is_err(),
        "it has no such name"
    );
    assert_eq!(edge.session().await.end(), "tls_certificate_error");
    for (fields, expected) in [
        ("backend_scheme: tcp, frontend_tls: true", "nothing is encrypted to a target of scheme `tcp`"),
        ("backend_scheme: tcps", "plain traffic has no server name"),
    ] {
        let said = problems(&super::one(
            7000,
            &format!(
                "{fields}, backend_tls_server_name: '${{tls.server_name}}', backend_host: a.test, backend_port: 1"
            ),
        ));
        assert!(said.contains(expected), "{said}");
    }
}
