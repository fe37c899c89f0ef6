//! From where, and how, the gateway connects to targets.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use super::{edge_with, one};
use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::stream::{LOOPBACK, at, free_port, tcp_backend, udp_backend};

/// A client's connection from this address.
async fn open_from(client: &str, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(client.parse().unwrap(), 0)).unwrap();
    soon(socket.connect(at(port))).await.unwrap()
}

/// From where a target sees a TCP client of the gateway, once bytes have gone both ways.
async fn seen_by_target(fields: &str, client: &str) -> IpAddr {
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_edge, port) = edge_with(&format!("{fields}, {}", tcp_backend(target.local_addr().unwrap())));
    let mut client = open_from(client, port).await;
    client.write_all(b"ping").await.unwrap();
    let (mut accepted, peer) = soon(target.accept()).await.unwrap();
    let mut bytes = [0; 4];
    soon(accepted.read_exact(&mut bytes)).await.unwrap();
    accepted.write_all(b"pong").await.unwrap();
    soon(client.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"pong");
    peer.ip()
}

/// The same for a UDP client.
async fn seen_by_udp_target(fields: &str, client: &str) -> IpAddr {
    let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_edge, port) = edge_with(&format!("{fields}, {}", udp_backend(target.local_addr().unwrap())));
    let client = UdpSocket::bind(SocketAddr::new(client.parse().unwrap(), 0)).await.unwrap();
    client.connect(at(port)).await.unwrap();
    client.send(b"ping").await.unwrap();
    let mut bytes = [0; 16];
    let (_, peer) = soon(target.recv_from(&mut bytes)).await.unwrap();
    target.send_to(b"pong", peer).await.unwrap();
    assert_eq!(soon(client.recv(&mut bytes)).await.unwrap(), 4);
    peer.ip()
}

/// Why a gateway does not take these fields at a reload.
fn refusal(fields: &str) -> String {
    let edge = Edge::start_with(LOOPBACK, "proxies: []\n");
    let spec = format!(
        "gateway:\n{LOOPBACK}\n{}",
        one(free_port(), &format!("{fields}, {}", tcp_backend(SocketAddr::from(([127, 0, 0, 1], 9)))))
    );
    let model = ferrum_edge::source::file::parse(&spec, "f", &ferrum_edge::plugins()).unwrap();
    edge.gateway.reload(&model).expect_err("this machine can't do it").to_string()
}

/// Whether this process may use addresses that are not its machine's.
fn may_be_transparent() -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_ip_transparent_v4(true).is_ok()
}

#[tokio::test]
async fn connects_from_the_source_address() {
    let source: IpAddr = [127, 0, 0, 9].into();
    assert_eq!(seen_by_target("backend_source_address: 127.0.0.9", "127.0.0.1").await, source);
    assert_eq!(seen_by_udp_target("backend_source_address: 127.0.0.9", "127.0.0.1").await, source);
    // RFC 5737: no machine has it.
    let refused = refusal("backend_source_address: 192.0.2.1");
    assert!(
        refused.starts_with("proxy `a`: backend_source_address: this machine can't do that: "),
        "{refused}"
    );
}

#[tokio::test]
async fn connects_through_the_interface() {
    let loopback: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(seen_by_target("backend_interface: lo", "127.0.0.1").await, loopback);
    assert_eq!(seen_by_udp_target("backend_interface: lo", "127.0.0.1").await, loopback);
    let refused = refusal("backend_interface: nope0");
    assert!(refused.starts_with("proxy `a`: backend_interface: "), "{refused}");
}

#[tokio::test]
async fn a_transparent_connection_comes_from_the_clients_address() {
    if !may_be_transparent() {
        let refused = refusal("backend_transparent: true");
        assert!(refused.starts_with("proxy `a`: backend_transparent: "), "{refused}");
        return;
    }
    let client: IpAddr = [127, 0, 0, 77].into();
    assert_eq!(seen_by_target("backend_transparent: true", "127.0.0.77").await, client);
    assert_eq!(seen_by_udp_target("backend_transparent: true", "127.0.0.77").await, client);
}

#[tokio::test]
async fn multipath_tcp_carries_streams_to_targets_with_and_without_it() {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, Some(socket2::Protocol::MPTCP));
    if socket.is_err() {
        let refused = refusal("backend_mptcp: true");
        assert!(refused.starts_with("proxy `a`: backend_mptcp: "), "{refused}");
        return;
    }
    let loopback: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(seen_by_target("backend_mptcp: true", "127.0.0.1").await, loopback);
    let listener = socket.unwrap();
    listener.bind(&socket2::SockAddr::from(at(0))).unwrap();
    listener.listen(8).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener.into()).unwrap();
    let backend = tcp_backend(listener.local_addr().unwrap());
    let (mut edge, port) = edge_with(&format!("backend_mptcp: true, {backend}"));
    let mut client = open_from("127.0.0.1", port).await;
    let (mut accepted, _) = soon(listener.accept()).await.unwrap();
    let sent = vec![b'm'; 1 << 20];
    let sender = {
        let sent = sent.clone();
        tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        })
    };
    let mut received = Vec::new();
    soon(accepted.read_to_end(&mut received)).await.unwrap();
    assert!(received == sent, "{} bytes", received.len());
    accepted.write_all(b"whole").await.unwrap();
    accepted.shutdown().await.unwrap();
    assert_eq!(soon(sender).await.unwrap(), b"whole");
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried()), ("closed", (1 << 20, 5)));
}
