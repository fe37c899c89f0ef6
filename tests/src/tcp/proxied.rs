//! PROXY protocol headers, read and written.

use tokio::io::AsyncReadExt;

use super::{edge_with, one};
use crate::support::edge::Edge;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, free_ports, open, tcp_backend};
use crate::support::wire::{Port, Wire};
use crate::support::{soon, tls};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 1111 2222\r\n";

/// Version 2 of the same.
fn v2() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 9]);
    header.extend_from_slice(&1111_u16.to_be_bytes());
    header.extend_from_slice(&2222_u16.to_be_bytes());
    header
}

fn trusting(fields: &str) -> (Edge, u16) {
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  trusted_proxies: [127.0.0.0/8]");
    (Edge::start_with(&settings, &one(port, &format!("accept_proxy_protocol: true, {fields}"))), port)
}

#[tokio::test]
async fn a_trusted_proxy_says_who_the_client_is() {
    let echo = Echo::start().await;
    let (mut edge, port) = trusting(&echo.backend());
    for header in [V1.to_vec(), v2()] {
        for slice in [1, header.len()] {
            let mut client = open(port).await;
            for piece in header.chunks(slice) {
                client.send(piece).await;
            }
            client.send("payload").await;
            client.expect("payload").await;
            client.shutdown().await;
            client.closed().await;
            let record = edge.session().await;
            assert_eq!((record.end(), record.carried()), ("closed", (7, 7)), "the header is not payload");
            assert_eq!(record.0["client.address"], "192.0.2.7");
            assert_eq!(record.0["network.peer.port"], 1111);
        }
    }
    // Header and payload in one packet.
    let mut client = open(port).await;
    client.send([&v2()[..], b"payload"].concat()).await;
    client.expect("payload").await;
    drop(client);
    assert_eq!(edge.session().await.carried(), (7, 7));
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn who_is_not_trusted_is_refused() {
    let echo = Echo::start().await;
    let (mut edge, port) = edge_with(&format!("accept_proxy_protocol: true, {}", echo.backend()));
    for header in [V1.to_vec(), v2(), b"no header".to_vec()] {
        let mut client = open(port).await;
        drop(client.try_send(&header).await);
        assert!(client.rest().await.is_empty());
        let record = edge.session().await;
        assert_eq!((record.end(), record.target()), ("proxy_protocol_untrusted", ""));
        assert_eq!(record.0["client.address"], "127.0.0.1");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_trusted_proxy_has_to_send_its_header() {
    let echo = Echo::start().await;
    let (mut edge, port) = trusting(&echo.backend());
    for (bytes, end) in
        [(&b"GET / HTTP/1.1\r\n\r\n"[..], "proxy_protocol_malformed"), (b"PROXY TCP4 1.1", "closed_early")]
    {
        let mut client = open(port).await;
        client.send(bytes).await;
        client.shutdown().await;
        assert!(client.rest().await.is_empty());
        assert_eq!(edge.session().await.end(), end);
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn the_target_is_told_who_the_client_is() {
    for version in [1, 2] {
        let origin = Port::listen(None).await;
        let (mut edge, port) =
            edge_with(&format!("send_proxy_protocol: {version}, {}", tcp_backend(origin.address)));
        let mut client = open(port).await;
        let mut far = Wire::new(origin.accept().await);
        client.send("payload").await;
        if version == 1 {
            let line = far.until(b"\r\n").await.unwrap();
            let line = std::str::from_utf8(&line).unwrap();
            let words: Vec<_> = line.trim_end().split(' ').collect();
            assert_eq!(words[..4], ["PROXY", "TCP4", "127.0.0.1", "127.0.0.1"]);
            assert_eq!(words[5], port.to_string());
        } else {
            let header = far.some_exactly(28).await;
            assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
            assert_eq!(header[26..], port.to_be_bytes());
        }
        far.expect("payload").await;
        client.shutdown().await;
        far.closed().await;
        drop(far);
        let record = edge.only_record().await;
        assert_eq!(record.carried(), (7, 0), "the header is not payload");
    }
}

/// What one proxy said is said on to the target.
#[tokio::test]
async fn a_header_is_handed_on() {
    let origin = Port::listen(None).await;
    let (_edge, port) = trusting(&format!("send_proxy_protocol: 1, {}", tcp_backend(origin.address)));
    let mut client = open(port).await;
    client.send(v2()).await;
    let mut far = Wire::new(origin.accept().await);
    far.expect(V1).await;
}

/// The server name that a trusted proxy has read, and facts of the client's TLS, reach the target with a checksum.
#[tokio::test]
async fn extensions_are_handed_on() {
    let origin = Port::listen(None).await;
    let fields = "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [authority, crc32c]";
    let (mut edge, port) = trusting(&format!("{fields}, {}", tcp_backend(origin.address)));
    let mut header = v2();
    header[15] += 9;
    header.extend_from_slice(b"\x02\0\x06A.Test");
    let mut client = open(port).await;
    client.send([&header[..], b"x"].concat()).await;
    let mut far = Wire::new(origin.accept().await);
    let seen = far.some_exactly(28 + 9 + 7).await;
    assert_eq!(seen[28..40], *b"\x02\0\x06a.test\x03\0\x04");
    far.expect("x").await;
    client.shutdown().await;
    far.closed().await;
    drop(far);
    let record = edge.only_record().await;
    assert_eq!(record.0["tls.client.server_name"], "a.test", "{}", record.0);
}

/// The protocol and the id of a trusted proxy's connection are handed on; a connection without an id gets one, which its record has.
#[tokio::test]
async fn the_protocol_and_the_id_of_a_connection_are_handed_on() {
    let origin = Port::listen(None).await;
    let fields = "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [alpn, unique_id]";
    let (mut edge, port) = trusting(&format!("{fields}, {}", tcp_backend(origin.address)));
    let mut header = v2();
    header[15] += 5 + 9;
    header.extend_from_slice(b"\x01\0\x02h2\x05\0\x06id-\xff-1");
    let mut client = open(port).await;
    client.send([&header[..], b"x"].concat()).await;
    let mut far = Wire::new(origin.accept().await);
    let seen = far.some_exactly(28 + 5 + 9).await;
    assert_eq!(seen[28..], *b"\x01\0\x02h2\x05\0\x06id-\xff-1");
    far.expect("x").await;
    client.shutdown().await;
    far.closed().await;
    drop(far);
    let record = edge.only_record().await;
    assert_eq!(record.0["proxy_protocol.unique_id"], "id-\\xff-1", "{}", record.0);

    let (mut edge, port) = trusting(&format!("{fields}, {}", tcp_backend(origin.address)));
    let mut client = open(port).await;
    client.send([&v2()[..], b"x"].concat()).await;
    let mut far = Wire::new(origin.accept().await);
    let seen = far.some_exactly(28 + 3 + 36).await;
    assert_eq!(seen[28..31], *b"\x05\0\x24", "no protocol is made up");
    far.expect("x").await;
    client.shutdown().await;
    far.closed().await;
    drop(far);
    let record = edge.only_record().await;
    let id = String::from_utf8(seen[31..].to_vec()).unwrap();
    assert_eq!(record.0["proxy_protocol.unique_id"], id.as_str(), "{}", record.0);
}

/// The header comes before the handshake, as every server reads it that knows both.
#[tokio::test]
async fn a_header_comes_before_tls() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = tcp_backend(listener.local_addr().unwrap()).replace("tcp", "tcps");
    let ca = tls::authority().ca();
    let (_edge, port) = edge_with(&format!("send_proxy_protocol: 2, backend_tls_ca_path: {ca:?}, {backend}"));
    let mut client = open(port).await;
    let (mut tcp, _) = soon(listener.accept()).await.unwrap();
    let mut header = [0; 28];
    soon(tcp.read_exact(&mut header)).await.unwrap();
    assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
    let acceptor = tokio_rustls::TlsAcceptor::from(tls::server(tls::localhost(), &[]));
    let mut far = Wire::new(Box::new(soon(acceptor.accept(tcp)).await.unwrap()));
    client.send("payload").await;
    far.expect("payload").await;
}

/// A range maps, and limits count, the port that the gateway listens on: what a header says of the proxy's own port is the proxy's
/// matter, and its clients'.
#[tokio::test]
async fn a_header_changes_neither_the_target_of_a_range_nor_the_port_that_is_limited() {
    let (range, targets) = (free_ports(2), free_ports(2));
    let origins = [Port::listen_on(at(targets), None).await, Port::listen_on(at(targets + 1), None).await];
    let spec = format!(
        "proxies:
  - {{id: a, listen_port_range: {range}-{}, backend_port_mapping: offset, accept_proxy_protocol: true, {}}}
plugin_configs:
  - {{id: l, plugin_name: connection_limit, proxy_id: a, config: {{limit_by: port, max_concurrent: 2}}}}
",
        range + 1,
        tcp_backend(at(targets))
    );
    let settings = format!("{LOOPBACK}\n  trusted_proxies: [127.0.0.0/8]");
    let mut edge = Edge::start_with(&settings, &spec);
    for (listen, said) in [(1, range), (1, 443), (0, range + 1), (0, range + 500)] {
        let mut client = open(range + listen).await;
        client.send(format!("PROXY TCP4 192.0.2.7 198.51.100.9 1111 {said}\r\nhello")).await;
        Wire::new(origins[usize::from(listen)].accept().await).expect("hello").await;
        drop(client);
        let record = edge.session().await;
        assert_eq!(record.target(), at(targets + listen).to_string(), "{listen} {said}");
    }
    let mut open_ones = Vec::new();
    for said in [1, 2, 3] {
        let mut client = open(range).await;
        client.send(format!("PROXY TCP4 192.0.2.7 198.51.100.9 1111 {said}\r\nhello")).await;
        if said < 3 {
            let target = Wire::new(origins[0].accept().await);
            open_ones.push((client, target));
        } else {
            let _ended = client.rest().await;
        }
    }
    assert_eq!(edge.session().await.end(), "connection_limit_concurrent");
}
