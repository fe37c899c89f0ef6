//! Datagrams through the gateway: sessions, limits, expiry, targets that come and go.

mod proxied;
mod quic;

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::stream::{LOOPBACK, at, free_port, udp_backend};
use crate::support::wire::Wire;

/// A UDP origin that says back `answer(datagram)`, and how many clients it has seen.
struct Origin {
    address: SocketAddr,
    _task: JoinSet<()>,
}

impl Origin {
    async fn start(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut buffer = vec![0; 65_536];
            loop {
                // A client that is gone makes the next call fail once.
                let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
                drop(socket.send_to(&answer(&buffer[..length]), from).await);
            }
        });
        Self { address, _task: task }
    }

    async fn echo() -> Self {
        Self::start(<[u8]>::to_vec).await
    }
}

/// A client of a UDP proxy.
struct Client(UdpSocket);

impl Client {
    async fn new(port: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(at(port)).await.unwrap();
        Self(socket)
    }

    async fn send(&self, datagram: &[u8]) {
        self.0.send(datagram).await.unwrap();
    }

    async fn next(&self) -> Vec<u8> {
        let mut buffer = vec![0; 65_536];
        let length = soon(self.0.recv(&mut buffer)).await.unwrap();
        buffer.truncate(length);
        buffer
    }

    async fn ask(&self, datagram: &[u8]) -> Vec<u8> {
        self.send(datagram).await;
        self.next().await
    }
}

fn one(port: u16, fields: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_port: {port}, {fields}}}\n")
}

fn edge_with(fields: &str) -> (Edge, u16) {
    let port = free_port();
    (Edge::start_with(LOOPBACK, &one(port, fields)), port)
}

#[tokio::test]
async fn a_hundred_clients_each_get_their_own_answers() {
    let origin = Origin::echo().await;
    let port = free_port();
    let settings = format!("{LOOPBACK}\n  workers: 2");
    let fields = format!("udp_idle_timeout: 1, {}", udp_backend(origin.address));
    let mut edge = Edge::start_with(&settings, &one(port, &fields));
    let mut clients = JoinSet::new();
    for n in 0..100 {
        clients.spawn(async move {
            let client = Client::new(port).await;
            // The first one too, and an empty one.
            for m in 0..10 {
                let text = if m == 5 { String::new() } else { format!("{n}:{m}") };
                assert_eq!(client.ask(text.as_bytes()).await, text.as_bytes());
            }
            client
        });
    }
    // They are kept until the end, so that no two are at the same port.
    let mut done = Vec::new();
    while let Some(client) = soon(clients.join_next()).await {
        done.push(client.unwrap());
    }
    let mut ports: Vec<_> = done.iter().map(|client| client.0.local_addr().unwrap().port()).collect();
    let mut recorded = Vec::new();
    for _ in 0..100 {
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.proxy()), ("udp", "idle", "a"));
        let (up, down) = record.carried();
        assert!(up == down && (27..=36).contains(&up), "{up} {down}");
        recorded.push(u16::try_from(record.0["network.peer.port"].as_u64().unwrap()).unwrap());
    }
    ports.sort_unstable();
    recorded.sort_unstable();
    assert_eq!(ports, recorded, "one session a client");
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn datagrams_of_every_size_pass_whole() {
    let origin = Origin::echo().await;
    let (_edge, port) = edge_with(&udp_backend(origin.address));
    let client = Client::new(port).await;
    for size in [1, 1_200, 1_472, 1_473, 2_047, 2_048, 2_049, 9_000, 32_768, 65_506, 65_507] {
        let datagram: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        let answer = client.ask(&datagram).await;
        assert!(answer == datagram, "{} bytes of {size} came back", answer.len());
    }
}

#[tokio::test]
async fn sessions_over_the_limit_wait_until_others_have_expired() {
    let origin = Origin::echo().await;
    let fields = format!("udp_max_sessions: 5, udp_idle_timeout: 2, {}", udp_backend(origin.address));
    let (mut edge, port) = edge_with(&fields);
    let mut clients = Vec::new();
    for n in 0..5_u8 {
        let client = Client::new(port).await;
        assert_eq!(client.ask(&[n]).await, [n]);
        clients.push(client);
    }
    let sixth = Client::new(port).await;
    sixth.send(b"dropped").await;
    // An older session still answers; by then the sixth's datagram has been seen and dropped.
    assert_eq!(clients[0].ask(b"still here").await, b"still here");
    assert!(sixth.0.try_recv(&mut [0; 16]).is_err(), "there was no room for a sixth");
    for _ in 0..5 {
        assert_eq!(edge.session().await.end(), "idle");
    }
    assert_eq!(sixth.ask(b"now").await, b"now");
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried()), ("idle", (3, 3)));
    // Every place came back.
    for n in 0..5_u8 {
        assert_eq!(clients[usize::from(n)].ask(&[n]).await, [n]);
    }
    for _ in 0..5 {
        assert_eq!(edge.session().await.end(), "idle");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn replies_are_not_amplified_beyond_the_factor() {
    // Answers with as many bytes as the first byte says tens.
    let origin = Origin::start(|datagram| vec![b'r'; usize::from(datagram[0]) * 10]).await;
    let fields = format!("udp_max_response_amplification_factor: 3, {}", udp_backend(origin.address));
    let (edge, port) = edge_with(&fields);
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).unwrap();
    let client = Client::new(port).await;
    client.send(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    assert_eq!(client.ask(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.len(), 30, "90 bytes were dropped before");
    // It is the whole session that counts: 30 of 120 bytes are used up, so 100 are too many, and 50 are not.
    client.send(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    assert_eq!(client.ask(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.len(), 50);
    assert_eq!(client.ask(&vec![200; 1000]).await.len(), 2000);
    // Metrics count what was dropped while the session is still open.
    let mut wire = Wire::open(admin).await;
    wire.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    let page = String::from_utf8(wire.rest().await.to_vec()).unwrap();
    let counted = "ferrum_session_datagrams_dropped_total{protocol=\"udp\"} 2";
    assert!(page.lines().any(|line| line == counted), "{page}");
    let Edge { gateway, mut records, .. } = edge;
    soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap();
    assert_eq!(records.next().await.0["session.datagrams_dropped"], 2);
}

#[tokio::test]
async fn a_target_that_is_not_there_ends_the_session_and_the_next_one_begins() {
    let dead = free_port();
    let (mut edge, port) = edge_with(&udp_backend(at(dead)));
    let client = Client::new(port).await;
    for _ in 0..2 {
        client.send(b"anybody?").await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.carried()), ("udp", "target_refused", (8, 0)));
        assert_eq!(record.target(), at(dead).to_string());
    }
    // Several at once: more than one session may come of them, but each ends, and none by another reason.
    for _ in 0..8 {
        client.send(b"12345678").await;
    }
    let mut seen = 0;
    while seen == 0 {
        let record = edge.session().await;
        assert_eq!(record.end(), "target_refused");
        seen += record.carried().0;
    }
    let origin = UdpSocket::bind(at(dead)).await.unwrap();
    let mut buffer = [0; 64];
    // One may still fall into a session that learns of the closed port.
    let (length, from) = loop {
        client.send(b"and now?").await;
        let waiting = origin.recv_from(&mut buffer);
        if let Ok(got) = tokio::time::timeout(std::time::Duration::from_millis(500), waiting).await {
            break got.unwrap();
        }
    };
    assert_eq!(&buffer[..length], b"and now?");
    origin.send_to(b"yes", from).await.unwrap();
    assert_eq!(client.next().await, b"yes");
}

#[tokio::test]
async fn a_session_that_expires_while_a_target_is_sought_says_so() {
    let origin = Origin::echo().await;
    let port = free_port();
    let fields = format!("udp_idle_timeout: 1, udp_max_sessions: 1, {}", udp_backend(origin.address));
    let spec = one(port, &fields) + crate::support::censor::everywhere("hesitate: true").as_str();
    let mut edge = Edge::start_plugged(crate::support::censor::plugins(), LOOPBACK, &spec);
    let client = Client::new(port).await;
    for _ in 0..2 {
        client.send(b"anybody?").await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.target()), ("udp", "idle", ""));
    }
    edge.nothing_recorded().await;
}

/// What a target's machine says of a closed port counts against it like a connection refused.
#[tokio::test]
async fn a_target_that_is_not_there_is_left_alone() {
    let (origin, dead, port) = (Origin::echo().await, free_port(), free_port());
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, backend_scheme: udp, upstream_id: u}}\n\
             upstreams:\n  - {{id: u, health_checks: {{passive: {{unhealthy_threshold: 1}}}}, \
             targets: [{{host: 127.0.0.1, port: {dead}}}, {{host: 127.0.0.1, port: {}}}]}}\n",
            origin.address.port()
        ),
    );
    // One of the first two meets the dead one.
    for _ in 0..2 {
        Client::new(port).await.send(b"x").await;
    }
    assert_eq!(edge.session().await.end(), "target_refused");
    for _ in 0..6 {
        assert_eq!(Client::new(port).await.ask(b"y").await, b"y");
    }
}

#[tokio::test]
async fn two_targets_share_the_sessions() {
    let (one, two) = (Origin::echo().await, Origin::echo().await);
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, udp_idle_timeout: 1, backend_scheme: udp, \
             upstream_id: u}}\nupstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {}}}, \
             {{host: 127.0.0.1, port: {}}}]}}\n",
            one.address.port(),
            two.address.port()
        ),
    );
    for n in 0..10_u8 {
        let client = Client::new(port).await;
        assert_eq!(client.ask(&[n]).await, [n]);
        assert_eq!(client.ask(&[n, n]).await, [n, n]);
    }
    let mut sessions = HashMap::<String, u32>::new();
    for _ in 0..10 {
        let record = edge.session().await;
        assert_eq!(record.carried(), (3, 3), "a session stays with its target");
        *sessions.entry(record.target().to_owned()).or_default() += 1;
    }
    assert_eq!(sessions.into_values().collect::<Vec<_>>(), [5, 5]);
}

#[tokio::test]
async fn reloads_keep_sessions_and_give_new_ones_the_new_rules() {
    let (one_origin, other) = (Origin::echo().await, Origin::start(|_| b"other".to_vec()).await);
    let (mut edge, port) = edge_with(&udp_backend(one_origin.address));
    let old = Client::new(port).await;
    assert_eq!(old.ask(b"x").await, b"x");
    for n in 1..=20 {
        let fields = format!("udp_idle_timeout: {}, {}", 30 + n, udp_backend(other.address));
        edge.reload(&one(port, &fields));
        assert_eq!(old.ask(b"still the old one").await, b"still the old one");
    }
    let new = Client::new(port).await;
    assert_eq!(new.ask(b"x").await, b"other");
    // Closing the port ends and records its sessions.
    edge.reload("proxies:\n");
    let (first, second) = (edge.session().await, edge.session().await);
    for record in [&first, &second] {
        assert_eq!((record.end(), record.proxy()), ("drained", "a"));
    }
    edge.nothing_recorded().await;
    // And the port can be opened again.
    edge.reload(&one(port, &udp_backend(other.address)));
    assert_eq!(Client::new(port).await.ask(b"x").await, b"other");
}

/// Many sessions come and go: their records are all there, and so is the room for more.
#[tokio::test]
async fn a_flood_of_sessions_is_over_once_it_is_over() {
    const MANY: usize = 150;
    let origin = Origin::echo().await;
    let fields = format!("udp_max_sessions: {MANY}, udp_idle_timeout: 1, {}", udp_backend(origin.address));
    let (mut edge, port) = edge_with(&fields);
    for round in 0..3_u8 {
        // Kept until the round is over, so that no two are at the same port.
        let mut clients = Vec::with_capacity(MANY);
        for _ in 0..MANY {
            let client = Client::new(port).await;
            assert_eq!(client.ask(&[round]).await, [round]);
            clients.push(client);
        }
        for _ in 0..MANY {
            let record = edge.session().await;
            assert_eq!((record.end(), record.carried()), ("idle", (1, 1)));
        }
    }
    edge.nothing_recorded().await;
}

/// A drain does not wait for what has no end.
#[tokio::test]
async fn sessions_are_recorded_when_the_gateway_stops() {
    let origin = Origin::echo().await;
    let (edge, port) = edge_with(&udp_backend(origin.address));
    let client = Client::new(port).await;
    assert_eq!(client.ask(b"x").await, b"x");
    let Edge { gateway, mut records, .. } = edge;
    soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap();
    assert_eq!(records.next().await.end(), "drained");
}

#[tokio::test]
async fn plugins_read_datagrams_change_them_drop_them_and_end_sessions() {
    let origin = Origin::echo().await;
    let port = free_port();
    let spec = one(port, &udp_backend(origin.address)) + crate::support::censor::everywhere("").as_str();
    let mut edge = Edge::start_plugged(crate::support::censor::plugins(), LOOPBACK, &spec);
    let client = Client::new(port).await;
    assert_eq!(client.ask(b"hello").await, b"HELLO");
    client.send(b"drop").await;
    assert_eq!(client.ask(b"next").await, b"NEXT");
    client.send(b"end").await;
    let record = edge.session().await;
    assert_eq!((record.kind(), record.end(), record.carried()), ("udp", "message_refused", (9, 9)));
    assert_eq!(client.ask(b"again").await, b"AGAIN", "the next one is another session");

    // A panic costs the session that it happened in, and no other one of the port.
    let other = Client::new(port).await;
    assert_eq!(other.ask(b"other").await, b"OTHER");
    client.send(b"panic").await;
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried()), ("internal", (5, 5)));
    assert_eq!(other.ask(b"still").await, b"STILL");
    edge.nothing_recorded().await;
}
