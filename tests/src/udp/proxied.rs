//! PROXY protocol headers in datagrams, read and written.

use std::net::SocketAddr;

use tokio::net::UdpSocket;

use super::{Client, Origin, edge_with, one};
use crate::support::edge::{Edge, problems};
use crate::support::soon;
use crate::support::stream::{LOOPBACK, at, free_port, udp_backend};

/// A header of version 2 for this transport (1 is a connection, 2 a datagram), from 192.0.2.`host`:`port` to 198.51.100.9:2222.
fn header(transport: u8, host: u8, port: u16) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    header.extend_from_slice(&[0x10 | transport, 0, 12, 192, 0, 2, host, 198, 51, 100, 9]);
    header.extend_from_slice(&port.to_be_bytes());
    header.extend_from_slice(&2222_u16.to_be_bytes());
    header
}

fn behind(header: Vec<u8>, payload: &str) -> Vec<u8> {
    [header, payload.as_bytes().to_vec()].concat()
}

fn trusting(fields: &str) -> (Edge, u16) {
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  trusted_proxies: [127.0.0.0/8]");
    (Edge::start_with(&settings, &one(port, &format!("accept_proxy_protocol: true, {fields}"))), port)
}

/// An origin that says back who has asked, by the port of the gateway's socket, and what.
async fn by_port() -> (SocketAddr, tokio::task::JoinSet<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let answer = format!("{} {}", from.port(), String::from_utf8_lossy(&buffer[..length]));
            drop(socket.send_to(answer.as_bytes(), from).await);
        }
    });
    (address, task)
}

/// One socket of a trusted proxy carries many clients, whose sessions are apart.
#[tokio::test]
async fn each_datagram_says_whose_it_is() {
    let (origin, _task) = by_port().await;
    let (mut edge, port) = trusting(&format!("udp_idle_timeout: 1, {}", udp_backend(origin)));
    let proxy = Client::new(port).await;
    let mut sockets = Vec::new();
    for (host, payload) in [(7, "a"), (8, "b"), (7, "c"), (8, "")] {
        let answer = proxy.ask(&behind(header(2, host, 1111), payload)).await;
        let answer = String::from_utf8(answer).unwrap();
        let (socket, said) = answer.split_once(' ').unwrap();
        assert_eq!(said, payload, "the header is not payload");
        sockets.push(socket.to_owned());
    }
    assert_eq!((&sockets[0], &sockets[1]), (&sockets[2], &sockets[3]), "one session a client");
    assert_ne!(sockets[0], sockets[1]);
    // Another proxy may know another client by the same address.
    let other = Client::new(port).await;
    let answer = String::from_utf8(other.ask(&behind(header(2, 7, 1111), "d")).await).unwrap();
    assert!(!answer.starts_with(&sockets[0]), "{answer}");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end()), ("udp", "idle"));
        assert_eq!(
            (&record.0["network.peer.port"], &record.0["network.local.port"]),
            (&1111.into(), &2222.into())
        );
        seen.push((record.0["client.address"].as_str().unwrap().to_owned(), record.carried().0));
    }
    seen.sort();
    assert_eq!(seen, [("192.0.2.7".into(), 1), ("192.0.2.7".into(), 2), ("192.0.2.8".into(), 1)]);
    edge.nothing_recorded().await;
}

/// The proxy's own question, and a header with extensions.
#[tokio::test]
async fn a_proxy_speaks_for_itself_and_tells_more() {
    let origin = Origin::echo().await;
    let (mut edge, port) = trusting(&format!("udp_idle_timeout: 1, {}", udp_backend(origin.address)));
    let proxy = Client::new(port).await;
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert_eq!(proxy.ask(&behind(local.to_vec(), "alive?")).await, b"alive?");
    let record = edge.session().await;
    assert_eq!((record.end(), &record.0["client.address"]), ("idle", &"127.0.0.1".into()));
    let mut long = header(2, 7, 1111);
    long[15] = 12 + 9 + 5;
    long.extend_from_slice(b"\x02\0\x06A.test\x05\0\x02id");
    assert_eq!(proxy.ask(&behind(long, "x")).await, b"x");
    let record = edge.session().await;
    assert_eq!(record.0["tls.client.server_name"], "a.test");
    assert_eq!(record.0["proxy_protocol.unique_id"], "id");
}

/// With `first`, what follows is the client's, also if it looks like a header.
#[tokio::test]
async fn the_first_datagram_says_whose_all_are() {
    let origin = Origin::echo().await;
    let fields = format!(
        "udp_idle_timeout: 1, accept_proxy_protocol_datagrams: first, {}",
        udp_backend(origin.address)
    );
    let (mut edge, port) = trusting(&fields);
    let proxy = Client::new(port).await;
    assert_eq!(proxy.ask(&behind(header(2, 7, 1111), "one")).await, b"one");
    assert_eq!(proxy.ask(b"two").await, b"two");
    let forged = behind(header(2, 66, 1111), "three");
    assert_eq!(proxy.ask(&forged).await, forged);
    let record = edge.session().await;
    let bytes = 6 + forged.len() as u64;
    assert_eq!((record.end(), record.carried()), ("idle", (bytes, bytes)));
    assert_eq!(record.0["client.address"], "192.0.2.7");
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn datagrams_without_a_good_header_are_refused() {
    let origin = Origin::echo().await;
    let (mut edge, port) = trusting(&udp_backend(origin.address));
    let client = Client::new(port).await;
    let mut cut = header(2, 7, 1111);
    cut.truncate(20);
    let v1 = b"PROXY TCP4 192.0.2.7 198.51.100.9 1111 2222\r\nx".to_vec();
    for bad in [b"query".to_vec(), Vec::new(), cut, v1, behind(header(1, 7, 1111), "of a connection")] {
        client.send(&bad).await;
        let record = edge.session().await;
        assert_eq!((record.end(), record.target()), ("proxy_protocol_malformed", ""), "{bad:?}");
    }
    // A session does not excuse what follows.
    assert_eq!(client.ask(&behind(header(2, 7, 1111), "good")).await, b"good");
    client.send(b"bad").await;
    assert_eq!(edge.session().await.end(), "proxy_protocol_malformed");

    let (mut edge, port) =
        edge_with(&format!("accept_proxy_protocol: true, {}", udp_backend(origin.address)));
    let stranger = Client::new(port).await;
    stranger.send(&behind(header(2, 7, 1111), "believe me")).await;
    let record = edge.session().await;
    assert_eq!((record.end(), record.target()), ("proxy_protocol_untrusted", ""));
    assert_eq!(record.0["client.address"], "127.0.0.1");
    edge.nothing_recorded().await;
}

/// Sessions from before a header was needed end: nobody goes on without one.
#[tokio::test]
async fn a_reload_that_asks_for_headers_ends_sessions_without() {
    let origin = Origin::echo().await;
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  trusted_proxies: [127.0.0.0/8]");
    let spec = |more: &str| one(port, &format!("{more}{}", udp_backend(origin.address)));
    let mut edge = Edge::start_with(&settings, &spec(""));
    let client = Client::new(port).await;
    assert_eq!(client.ask(b"plain").await, b"plain");
    edge.reload(&spec("accept_proxy_protocol: true, "));
    assert_eq!(edge.session().await.end(), "drained");
    client.send(b"plain").await;
    assert_eq!(edge.session().await.end(), "proxy_protocol_malformed");
    assert_eq!(client.ask(&behind(header(2, 7, 1111), "told")).await, b"told");
}

/// What a target is told: of each datagram, or of the first.
#[tokio::test]
async fn targets_are_told_who_the_client_is() {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = vec![0; 65_536];
    for (datagrams, with_header) in [("every", [true, true]), ("first", [true, false])] {
        let (_edge, port) = edge_with(&format!(
            "send_proxy_protocol: 2, send_proxy_protocol_datagrams: {datagrams}, {}",
            udp_backend(target.local_addr().unwrap())
        ));
        let client = Client::new(port).await;
        let source = client.0.local_addr().unwrap().port();
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
        expected.extend_from_slice(&source.to_be_bytes());
        expected.extend_from_slice(&port.to_be_bytes());
        for (payload, is_told) in ["one", "two"].into_iter().zip(with_header) {
            client.send(payload.as_bytes()).await;
            let (length, from) = soon(target.recv_from(&mut buffer)).await.unwrap();
            let expected = if is_told { behind(expected.clone(), payload) } else { payload.into() };
            assert_eq!(buffer[..length], expected, "{datagrams}");
            target.send_to(b"answer", from).await.unwrap();
            assert_eq!(client.next().await, b"answer", "answers have none");
        }
    }
}

/// Two gateways behind each other: the second one's record names the client of the first, and the session's id is the same.
#[tokio::test]
async fn a_gateway_believes_another_one() {
    let origin = Origin::echo().await;
    for datagrams in ["every", "first"] {
        let (mut inner, inside) = trusting(&format!(
            "accept_proxy_protocol_datagrams: {datagrams}, udp_idle_timeout: 1, {}",
            udp_backend(origin.address)
        ));
        let (mut outer, port) = edge_with(&format!(
            "send_proxy_protocol: 2, send_proxy_protocol_datagrams: {datagrams}, send_proxy_protocol_tlvs: [unique_id, crc32c], \
             udp_idle_timeout: 1, {}",
            udp_backend(at(inside))
        ));
        let client = Client::new(port).await;
        for payload in [&b"one"[..], b"two"] {
            assert_eq!(client.ask(payload).await, payload);
        }
        let (told, own) = (inner.session().await, outer.session().await);
        let source = client.0.local_addr().unwrap().port();
        assert_eq!(told.0["network.peer.port"], source, "{datagrams}");
        assert_eq!((told.carried(), told.0["network.local.port"].as_u64()), ((6, 6), Some(port.into())));
        assert_eq!(told.0["proxy_protocol.unique_id"], own.0["proxy_protocol.unique_id"]);
        assert!(own.0["proxy_protocol.unique_id"].is_string());
    }
}

#[test]
fn headers_that_datagrams_can_not_have_are_refused() {
    let of = |scheme: &str, fields: &str| {
        problems(&format!(
            "proxies:\n  - {{id: a, listen_port: 7000, backend_scheme: {scheme}, backend_host: 127.0.0.1, backend_port: 1, {fields}}}\n"
        ))
    };
    for (scheme, fields, expected) in [
        ("udp", "send_proxy_protocol: 1", "version 1 is for connections only"),
        ("dtls", "send_proxy_protocol: 2", "a DTLS target takes a header for a broken record"),
        ("udp", "accept_proxy_protocol: true, frontend_tls: true", "clients of DTLS prove their own address"),
        ("udp", "accept_proxy_protocol: true, passthrough: true", "sessions of QUIC and DTLS are found by"),
        (
            "udp",
            "accept_proxy_protocol_datagrams: first",
            "there is no header without `accept_proxy_protocol`",
        ),
        ("udp", "send_proxy_protocol_datagrams: every", "there is no header without `send_proxy_protocol`"),
        ("tcp", "send_proxy_protocol: 2, send_proxy_protocol_datagrams: every", "only a UDP proxy has this"),
        ("udp", "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [tls]", "`tls` is for connections only"),
        (
            "udp",
            "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [authority]",
            "`authority` needs a server name",
        ),
    ] {
        let said = of(scheme, fields);
        assert!(said.contains(expected), "{fields}: {said}");
    }
    assert_eq!(of("udp", "send_proxy_protocol: 2, send_proxy_protocol_tlvs: [unique_id, crc32c]"), "");
}
