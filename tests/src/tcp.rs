//! Byte streams through the gateway: half-close, resets, TLS, server names, PROXY headers, reloads.

mod between;
mod kernel_counts;
mod names;
mod proxied;
mod reloads;
mod sockets;
mod starttls;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, free_ports, open, tcp_backend};
use crate::support::wire::{Port, Wire, connect};
use crate::support::{soon, tls};

/// One TCP proxy `a` on `port` with these fields.
fn one(port: u16, fields: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_port: {port}, {fields}}}\n")
}

/// A gateway with one TCP proxy, and its port.
fn edge_with(fields: &str) -> (Edge, u16) {
    let port = free_port();
    (Edge::start_with(LOOPBACK, &one(port, fields)), port)
}

#[tokio::test]
async fn bytes_go_both_ways_and_are_counted() {
    let echo = Echo::start().await;
    let (mut edge, port) = edge_with(&echo.backend());
    let mut client = open(port).await;
    let long = vec![b'x'; 3 << 20];
    client.send("hello").await;
    client.expect("hello").await;
    let (reading, writing) = tokio::io::split(soon(TcpStream::connect(at(port))).await.unwrap());
    let (mut reading, mut writing) = (reading, writing);
    let sent = long.clone();
    let sender = tokio::spawn(async move {
        writing.write_all(&sent).await.unwrap();
        writing.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    soon(reading.read_to_end(&mut got)).await.unwrap();
    assert!(got == long, "{} bytes came back of {}", got.len(), long.len());
    soon(sender).await.unwrap();
    let record = edge.session().await;
    assert_eq!((record.kind(), record.end(), record.proxy()), ("tcp", "closed", "a"));
    assert_eq!(record.carried(), (long.len() as u64, long.len() as u64));
    assert_eq!(record.target(), echo.address.to_string());
    client.shutdown().await;
    client.closed().await;
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried()), ("closed", (5, 5)));
}

#[tokio::test]
async fn a_client_that_ended_its_side_still_receives() {
    let origin = Port::listen(None).await;
    let (mut edge, port) = edge_with(&tcp_backend(origin.address));
    let mut client = open(port).await;
    client.send("all of it").await;
    client.shutdown().await;
    let mut far = Wire::new(origin.accept().await);
    assert_eq!(far.rest().await, "all of it");
    far.send("the answer").await;
    client.expect("the answer").await;
    far.send(", more").await;
    far.shutdown().await;
    assert_eq!(client.rest().await, ", more");
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried()), ("closed", (9, 16)));
}

#[tokio::test]
async fn a_target_that_ended_its_side_still_receives() {
    let origin = Port::listen(None).await;
    let (mut edge, port) = edge_with(&tcp_backend(origin.address));
    let mut client = open(port).await;
    let mut far = Wire::new(origin.accept().await);
    far.send("greeting").await;
    far.shutdown().await;
    assert_eq!(client.rest().await, "greeting");
    client.send("late words").await;
    far.expect("late words").await;
    client.shutdown().await;
    far.closed().await;
    assert_eq!(edge.only_record().await.end(), "closed");
}

/// Whoever is reset must not look as if it had ended in order: the other side sees a reset too.
#[tokio::test]
async fn a_reset_reaches_the_other_side_and_the_record() {
    for by_client in [true, false] {
        let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut edge, port) = edge_with(&tcp_backend(origin.local_addr().unwrap()));
        let mut client = soon(TcpStream::connect(at(port))).await.unwrap();
        let (mut far, _) = soon(origin.accept()).await.unwrap();
        client.write_all(b"ping").await.unwrap();
        let mut four = [0; 4];
        soon(far.read_exact(&mut four)).await.unwrap();
        far.write_all(b"pong").await.unwrap();
        soon(client.read_exact(&mut four)).await.unwrap();
        let (gone, mut stays, reason) =
            if by_client { (client, far, "client_reset") } else { (far, client, "target_reset") };
        gone.set_zero_linger().unwrap();
        drop(gone);
        let end = soon(stays.read(&mut four)).await;
        let end = end.expect_err("a reset is no orderly end");
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset, "{reason}");
        let record = edge.only_record().await;
        assert_eq!((record.end(), record.carried()), (reason, (4, 4)));
    }
}

#[tokio::test]
async fn a_silent_session_expires() {
    let origin = Port::listen(None).await;
    let fields = format!("tcp_idle_timeout: 1, {}", tcp_backend(origin.address));
    let (mut edge, port) = edge_with(&fields);
    let mut client = open(port).await;
    let mut far = Wire::new(origin.accept().await);
    client.send("x").await;
    far.expect("x").await;
    far.closed().await;
    client.closed().await;
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried()), ("idle", (1, 0)));
}

/// Half-closed sessions expire as well: a peer that never ends its side can't keep one for ever.
#[tokio::test]
async fn a_half_closed_session_expires() {
    let origin = Port::listen(None).await;
    let (mut edge, port) = edge_with(&format!("tcp_idle_timeout: 1, {}", tcp_backend(origin.address)));
    let mut client = open(port).await;
    let mut far = Wire::new(origin.accept().await);
    client.shutdown().await;
    far.closed().await;
    client.closed().await;
    assert_eq!(edge.only_record().await.end(), "idle");
}

#[tokio::test]
async fn tls_ends_at_the_gateway() {
    let echo = Echo::start().await;
    let (mut edge, port) = edge_with(&format!("frontend_tls: true, {}", echo.backend()));
    let mut client = Wire::new(connect(at(port), Some(&[])).await);
    client.send("secret").await;
    client.expect("secret").await;
    client.shutdown().await;
    client.closed().await;
    let record = edge.only_record().await;
    assert_eq!((record.kind(), record.end(), record.carried()), ("tcp", "closed", (6, 6)));
    assert_eq!(record.0["tls.client.server_name"], "gateway.test");
    // What is no handshake is refused, and says nothing to the target.
    let mut client = open(port).await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.rest().await;
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.target()), ("handshake_failed", ""));
}

#[tokio::test]
async fn tls_begins_at_the_gateway_and_judges_the_target() {
    let origin = Port::listen(Some(&[])).await;
    let backend = tcp_backend(origin.address).replace("tcp", "tcps");
    let ca = tls::authority().ca();
    let good = format!("backend_tls_ca_path: {ca:?}, {backend}");
    let (mut edge, port) = edge_with(&good);
    let mut client = open(port).await;
    let mut far = Wire::new(origin.accept().await);
    client.send("up").await;
    far.expect("up").await;
    far.send("down").await;
    client.expect("down").await;
    client.shutdown().await;
    far.closed().await;
    far.shutdown().await;
    client.closed().await;
    assert_eq!(edge.only_record().await.end(), "closed");
    // A name that is not in its certificate.
    edge.reload(&one(port, &format!("backend_tls_server_name: other.test, {good}")));
    let failing = tokio::spawn(async move { origin.accept_ever().await });
    let mut client = open(port).await;
    client.closed().await;
    assert_eq!(edge.only_record().await.end(), "tls_certificate_error");
    soon(failing).await.map(drop).expect_err("the handshake failed for the origin too");
}

/// A target that ends TLS without close_notify may have been cut off: no orderly end for the client.
#[tokio::test]
async fn tls_cut_off_is_no_orderly_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = tcp_backend(listener.local_addr().unwrap()).replace("tcp", "tcps");
    let ca = tls::authority().ca();
    let (mut edge, port) = edge_with(&format!("backend_tls_ca_path: {ca:?}, {backend}"));
    let mut client = soon(TcpStream::connect(at(port))).await.unwrap();
    let (tcp, _) = soon(listener.accept()).await.unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls::server(tls::localhost(), &[]));
    let mut far = soon(acceptor.accept(tcp)).await.unwrap();
    far.write_all(b"half of i").await.unwrap();
    far.flush().await.unwrap();
    let mut nine = [0; 9];
    soon(client.read_exact(&mut nine)).await.unwrap();
    drop(far);
    soon(client.read(&mut nine)).await.expect_err("a cut is no orderly end");
    assert_eq!(edge.only_record().await.end(), "target_reset");
}

#[tokio::test]
async fn another_target_takes_what_the_first_does_not() {
    let echo = Echo::start().await;
    let dead = free_port();
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, backend_scheme: tcp, upstream_id: u}}\nupstreams:\n  \
             - {{id: u, targets: [{{host: 127.0.0.1, port: {dead}}}, {{host: 127.0.0.1, port: {}}}]}}\n",
            echo.address.port()
        ),
    );
    for _ in 0..4 {
        let mut client = open(port).await;
        client.send("hi").await;
        client.expect("hi").await;
        client.shutdown().await;
        client.closed().await;
        let record = edge.session().await;
        assert_eq!((record.end(), record.target()), ("closed", &*echo.address.to_string()));
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn no_target_at_all_ends_a_session_with_its_reason() {
    let (mut edge, port) = edge_with(&tcp_backend(at(free_port())));
    let mut client = open(port).await;
    client.closed().await;
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried(), record.proxy()), ("connect_failed", (0, 0), "a"));
}

/// A TLS client's connection through `port`, by this name.
async fn tls_client(port: u16, name: &'static str) -> Wire {
    let tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    let connector = TlsConnector::from(tls::authority().client(&[]));
    Wire::new(Box::new(soon(connector.connect(name.try_into().unwrap(), tcp)).await.unwrap()))
}

/// However they end, nothing of them stays.
#[tokio::test]
async fn nothing_is_left_of_many() {
    let echo = Echo::start().await;
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  limits: {{max_connections: 6}}");
    let mut edge = Edge::start_with(&settings, &one(port, &echo.backend()));
    for n in 0..40 {
        let mut client = soon(TcpStream::connect(at(port))).await.unwrap();
        client.write_all(b"x").await.unwrap();
        soon(client.read_exact(&mut [0])).await.expect("a place for it");
        if n % 2 == 0 {
            client.set_zero_linger().unwrap();
        }
        drop(client);
        let reason = if n % 2 == 0 { "client_reset" } else { "closed" };
        assert_eq!(edge.session().await.end(), reason);
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_range_of_ports_is_one_proxy() {
    let echo = Echo::start().await;
    let first = free_ports(3);
    let ports = format!("{first}-{}", first + 2);
    let spec = format!("proxies:\n  - {{id: a, listen_port_range: {ports}, {}}}\n", echo.backend());
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    for port in first..first + 3 {
        let mut client = open(port).await;
        client.send("x").await;
        client.expect("x").await;
        client.shutdown().await;
        client.closed().await;
        assert_eq!(edge.session().await.proxy(), "a");
    }
}
