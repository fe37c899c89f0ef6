//! QUIC passed through unopened: the name in a client's first packets chooses, and a client's address may change under it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::{Client, Origin};
use crate::support::edge::Edge;
use crate::support::stream::{LOOPBACK, at, free_port, udp_backend};
use crate::support::wire::Wire;
use crate::support::{soon, tls};

/// A server for these names that answers each stream with its word.
fn server(names: &[&str], word: &'static [u8]) -> SocketAddr {
    server_of(names, "hq", word)
}

/// The same for clients of this application protocol.
fn server_of(names: &[&str], protocol: &str, word: &'static [u8]) -> SocketAddr {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let file = format!("quic-{}", FILES.fetch_add(1, Ordering::Relaxed));
    let identity = tls::authority().issue(&file, names);
    let crypto = QuicServerConfig::try_from(tls::server(&identity, &[protocol])).unwrap();
    let endpoint =
        Endpoint::server(ServerConfig::with_crypto(Arc::new(crypto)), "127.0.0.1:0".parse().unwrap())
            .unwrap();
    let address = endpoint.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                    let asked = recv.read_to_end(1 << 20).await.unwrap_or_default();
                    drop(send.write_all(&[word, &asked].concat()).await);
                    drop(send.finish());
                }
            });
        }
    });
    address
}

/// A NAT in front of one client, which gives it another port whenever it is told to forget.
struct Nat {
    address: SocketAddr,
    forget: mpsc::Sender<()>,
}

impl Nat {
    async fn before(port: u16) -> Self {
        let inside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = inside.local_addr().unwrap();
        let (forget, mut forgets) = mpsc::channel(1);
        tokio::spawn(async move {
            let (mut outside, mut client) = (Self::outside(port).await, address);
            let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                tokio::select! {
                    Ok((length, from)) = inside.recv_from(&mut up) => {
                        client = from;
                        drop(outside.send(&up[..length]).await);
                    }
                    Ok(length) = outside.recv(&mut down) => {
                        drop(inside.send_to(&down[..length], client).await);
                    }
                    forget = forgets.recv() => match forget {
                        Some(()) => outside = Self::outside(port).await,
                        None => return,
                    },
                }
            }
        });
        Self { address, forget }
    }

    async fn outside(port: u16) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(at(port)).await.unwrap();
        socket
    }
}

async fn connect(to: SocketAddr, name: &str) -> (Endpoint, Connection) {
    connect_by(to, name, "hq").await
}

async fn connect_by(to: SocketAddr, name: &str, protocol: &str) -> (Endpoint, Connection) {
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let crypto = QuicClientConfig::try_from(tls::authority().client(&[protocol])).unwrap();
    let config = ClientConfig::new(Arc::new(crypto));
    let connection = soon(endpoint.connect_with(config, to, name).unwrap()).await.unwrap();
    (endpoint, connection)
}

async fn ask(connection: &Connection, text: &[u8]) -> Vec<u8> {
    let (mut send, mut recv) = soon(connection.open_bi()).await.unwrap();
    send.write_all(text).await.unwrap();
    send.finish().unwrap();
    soon(recv.read_to_end(1 << 21)).await.unwrap()
}

fn shared(port: u16, origins: &[(&str, SocketAddr)]) -> String {
    let proxy = |(n, (name, address)): (usize, &(&str, SocketAddr))| {
        let backend = udp_backend(*address);
        format!(
            "  - {{id: p{n}, listen_port: {port}, passthrough: true, udp_idle_timeout: 1, \
             hosts: [{name}], {backend}}}\n"
        )
    };
    format!("proxies:\n{}", origins.iter().enumerate().map(proxy).collect::<String>())
}

/// Two clients ask for one name by different protocols on one port; each server speaks one of them.
#[tokio::test]
async fn the_protocol_chooses_among_proxies_of_one_name() {
    let port = free_port();
    let proxy = |protocol: &str, word| {
        let backend = udp_backend(server_of(&["a.test"], protocol, word));
        format!(
            "  - {{id: {protocol}, listen_port: {port}, passthrough: true, udp_idle_timeout: 1, hosts: [a.test], \
             alpn: [{protocol}], {backend}}}\n"
        )
    };
    let spec = format!("proxies:\n{}{}", proxy("h3", b"web:"), proxy("doq", b"names:"));
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    let (web, web_connection) = connect_by(at(port), "a.test", "h3").await;
    let (names, names_connection) = connect_by(at(port), "a.test", "doq").await;
    for n in 0..3 {
        let asked = format!("{n}").into_bytes();
        assert_eq!(ask(&web_connection, &asked).await, [&b"web:"[..], &asked].concat());
        assert_eq!(ask(&names_connection, &asked).await, [&b"names:"[..], &asked].concat());
    }
    for (endpoint, connection) in [(web, web_connection), (names, names_connection)] {
        connection.close(0_u8.into(), b"bye");
        endpoint.wait_idle().await;
    }
    let mut proxies = Vec::new();
    for _ in 0..2 {
        let record = edge.session().await;
        proxies.push(record.proxy().to_owned());
    }
    proxies.sort();
    assert_eq!(proxies, ["doq", "h3"]);
}

#[tokio::test]
async fn the_name_chooses_and_a_nat_may_forget() {
    let port = free_port();
    let origins = [("a.test", server(&["a.test"], b"a:")), ("'*.b.test'", server(&["x.b.test"], b"b:"))];
    // The kernel gives a client's new address to any worker.
    let settings = format!("{LOOPBACK}\n  workers: 3");
    let mut edge = Edge::start_with(&settings, &shared(port, &origins));
    for (name, word, proxy) in [("a.test", "a:", "p0"), ("x.b.test", "b:", "p1")] {
        let nat = Nat::before(port).await;
        let (endpoint, connection) = connect(nat.address, name).await;
        let large = vec![b'l'; 300_000];
        for text in [&b"hello"[..], &large] {
            assert_eq!(ask(&connection, text).await, [word.as_bytes(), text].concat(), "{name}");
        }
        // Its address changes in the middle, again and again, and it does not know.
        for n in 0..8 {
            nat.forget.send(()).await.unwrap();
            assert_eq!(ask(&connection, b"moved").await, format!("{word}moved").into_bytes(), "{name} {n}");
        }
        connection.close(0_u8.into(), b"bye");
        endpoint.wait_idle().await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.proxy()), ("udp", "idle", proxy), "one session only");
    }
}

#[tokio::test]
async fn whoever_names_nobody_known_gets_nothing_or_what_is_left() {
    let port = free_port();
    let mut edge = Edge::start_with(LOOPBACK, &shared(port, &[("a.test", server(&["a.test"], b"a:"))]));
    let client = Client::new(port).await;
    for datagram in [&b"hello"[..], &[0xC0; 1200], &[0x40; 30]] {
        client.send(datagram).await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.proxy()), ("udp", "no_route", ""));
    }
    let other = Origin::echo().await;
    edge.reload(&shared(port, &[("a.test", server(&["a.test"], b"a:")), ("", other.address)]));
    assert_eq!(client.ask(b"hello").await, b"hello");
}

/// Anybody can send these from addresses that are not theirs: all are counted, and few are written to the log.
#[tokio::test]
async fn a_flood_of_strangers_does_not_fill_the_log() {
    const ALL: u64 = 600;
    let port = free_port();
    let mut edge = Edge::start_with(LOOPBACK, &shared(port, &[("a.test", server(&["a.test"], b"a:"))]));
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).unwrap();
    let value = async |name: &str| -> u64 {
        let mut wire = Wire::open(admin).await;
        wire.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        let page = String::from_utf8(wire.rest().await.to_vec()).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0, |value| value.trim().parse().unwrap())
    };
    let client = Client::new(port).await;
    let counted = "ferrum_session_ends_total{protocol=\"udp\",reason=\"no_route\"}";
    for n in 0..ALL {
        client.send(b"hello").await;
        // The socket's buffer holds so many.
        while n % 50 == 49 && value(counted).await <= n {}
    }
    let withheld = value("ferrum_session_records_withheld_total").await;
    assert!(withheld > 0, "every one of {ALL} was written");
    for _ in 0..ALL - withheld {
        assert_eq!(edge.session().await.end(), "no_route");
    }
    edge.nothing_recorded().await;
}

/// A client that moves on purpose changes its connection id as well (RFC 9000 §9.5), to one that the gateway has never seen.
#[tokio::test]
async fn a_client_that_moves_on_purpose_keeps_its_connection() {
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  workers: 3");
    let edge = Edge::start_with(&settings, &shared(port, &[("a.test", server(&["a.test"], b"a:"))]));
    let (endpoint, connection) = connect(at(port), "a.test").await;
    assert_eq!(ask(&connection, b"before").await, b"a:before");
    for n in 0..5 {
        endpoint.rebind(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        assert_eq!(ask(&connection, b"moved").await, b"a:moved", "{n}");
    }
    let large = vec![b'l'; 300_000];
    assert_eq!(ask(&connection, &large).await, [b"a:".as_slice(), &large].concat());
    connection.close(0_u8.into(), b"bye");
    endpoint.wait_idle().await;
    drop(edge);
}
