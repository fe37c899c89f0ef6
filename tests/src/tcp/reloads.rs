//! Ports that come and go, and sessions that stay, while configurations change.

use tokio::net::TcpStream;

use super::one;
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, free_ports, open, tcp_backend};
use crate::support::wire::{Port, Wire};

#[tokio::test]
async fn ports_open_and_close_while_other_sessions_go_on() {
    let echo = Echo::start().await;
    let (first, second) = (free_port(), free_port());
    let mut edge = Edge::start_with(LOOPBACK, &one(first, &echo.backend()));
    let mut old = open(first).await;
    old.send("a").await;
    old.expect("a").await;
    let both =
        format!("{}  - {{id: b, listen_port: {second}, {}}}\n", one(first, &echo.backend()), echo.backend());
    edge.reload(&both);
    let mut new = open(second).await;
    new.send("b").await;
    new.expect("b").await;
    edge.reload(&one(second, &echo.backend()));
    // The listener is closed by the worker soon after the reload; sessions on it go on.
    let refused = async { while TcpStream::connect(at(first)).await.is_ok() {} };
    soon(refused).await;
    for client in [&mut old, &mut new] {
        client.send("still here").await;
        client.expect("still here").await;
    }
    // And comes back.
    edge.reload(&both);
    let mut again = open(first).await;
    again.send("c").await;
    again.expect("c").await;
    drop((old, new, again));
    let mut proxies = Vec::new();
    // Connections taken while the port was being closed have their records too.
    while proxies.len() < 3 {
        let record = edge.session().await;
        if record.carried() != (0, 0) {
            proxies.push(record.proxy().to_owned());
        }
    }
    proxies.sort();
    assert_eq!(proxies, ["a", "a", "b"]);
}

/// A port in use by another program affects its proxy alone, also after a reload, and is opened once it is free.
#[tokio::test]
async fn a_reload_opens_every_port_but_the_taken_one() {
    let echo = Echo::start().await;
    let (port, other) = (free_port(), free_port());
    let edge = Edge::start_with(LOOPBACK, &one(port, &echo.backend()));
    let wanted = free_port();
    let taken = std::net::TcpListener::bind(at(wanted)).unwrap();
    let proxy = |id: &str, port: u16| format!("  - {{id: {id}, listen_port: {port}, {}}}\n", echo.backend());
    edge.reload(&format!("proxies:\n{}{}{}", proxy("a", port), proxy("b", other), proxy("c", wanted)));
    assert_eq!(edge.gateway.snapshot().revision, 2);
    for port in [port, other] {
        let mut client = open(port).await;
        client.send("x").await;
        client.expect("x").await;
    }
    drop(taken);
    soon(async { while TcpStream::connect(at(wanted)).await.is_err() {} }).await;
    let mut client = open(wanted).await;
    client.send("x").await;
    client.expect("x").await;
}

#[tokio::test]
async fn a_hundred_reloads_end_no_session_and_no_websocket() {
    let echo = Echo::start().await;
    let origin = Port::listen(None).await;
    let port = free_port();
    let spec = |n: usize| {
        format!(
            "{}  - {{id: w{}, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n",
            one(port, &format!("tcp_idle_timeout: {}, {}", 100 + n, echo.backend())),
            n % 3,
            origin.address.port()
        )
    };
    let mut edge = Edge::start_with(LOOPBACK, &spec(0));
    let mut session = open(port).await;
    session.send("begin").await;
    session.expect("begin").await;
    let mut socket = edge.talker().await;
    socket
        .wire
        .send(
            "GET /s HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    far.request().await.unwrap();
    far.wire
        .send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    assert_eq!(socket.response(&http::Method::GET).await.unwrap().status(), 101);
    for n in 1..=100 {
        edge.reload(&spec(n));
        let text = format!("after {n}");
        session.send(&text).await;
        session.expect(&text).await;
        socket.wire.send(&text).await;
        far.wire.expect(&text).await;
        far.wire.send(&text).await;
        socket.wire.expect(&text).await;
    }
    assert_eq!(edge.records.next().await.status(), 101);
    drop((session, socket, far));
    let (one, other) = (edge.session().await, edge.session().await);
    let mut kinds = [one.kind(), other.kind()];
    kinds.sort_unstable();
    assert_eq!(kinds, ["tcp", "websocket"]);
    let tcp = if one.kind() == "tcp" { &one } else { &other };
    assert_eq!((tcp.end(), tcp.proxy()), ("closed", "a"));
    edge.nothing_recorded().await;
}

/// Whoever came would be cut at the end of the drain.
#[tokio::test]
async fn a_gateway_that_drains_opens_no_more_ports() {
    let echo = Echo::start().await;
    let (first, second) = (free_port(), free_port());
    let edge = Edge::start_with(LOOPBACK, &one(first, &echo.backend()));
    let mut client = open(first).await;
    client.send("hello").await;
    client.expect("hello").await;
    edge.gateway.begin_drain();
    let more = format!("  - {{id: b, listen_port: {second}, {}}}\n", echo.backend());
    edge.reload(&(one(first, &echo.backend()) + more.as_str()));
    assert!(soon(TcpStream::connect(at(second))).await.is_err(), "nobody listens there");
    client.send("more").await;
    client.expect("more").await;
}

/// The ports of a range are opened together, a proxy whose port is taken stops no other, and its ports are opened once they are free.
#[tokio::test]
async fn a_taken_port_keeps_only_its_own_range_closed_until_it_is_free() {
    let echo = Echo::start().await;
    let (range, other) = (free_ports(3), free_port());
    let taken = std::net::TcpListener::bind(at(range + 1)).unwrap();
    let spec = format!(
        "proxies:\n  - {{id: range, listen_port_range: {range}-{}, {backend}}}\n  - {{id: b, listen_port: {other}, {backend}}}\n",
        range + 2,
        backend = echo.backend(),
    );
    let edge = Edge::start_with(LOOPBACK, &spec);
    let mut client = open(other).await;
    client.send("x").await;
    client.expect("x").await;
    assert!(TcpStream::connect(at(range)).await.is_err(), "a range is open as a whole");
    drop(taken);
    for port in range..range + 3 {
        // The kernel opens one after the other.
        soon(async { while TcpStream::connect(at(port)).await.is_err() {} }).await;
        let mut client = open(port).await;
        client.send("x").await;
        client.expect("x").await;
    }
    drop(edge);
}

#[tokio::test]
async fn a_range_leads_to_the_ports_at_the_same_distance() {
    let (range, targets) = (free_ports(2), free_ports(2));
    let origins = [Port::listen_on(at(targets), None).await, Port::listen_on(at(targets + 1), None).await];
    let spec = format!(
        "proxies:\n  - {{id: a, listen_port_range: {range}-{}, backend_port_mapping: offset, {}}}\n",
        range + 1,
        tcp_backend(at(targets))
    );
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    for (n, origin) in (0_u16..).zip(&origins) {
        let mut client = open(range + n).await;
        client.send("hello").await;
        Wire::new(origin.accept().await).expect("hello").await;
        drop(client);
        let record = edge.records.next().await;
        let target = at(targets + n).to_string();
        assert_eq!(record.0["upstream.address"], target, "records name the port that the session went to");
    }
    drop(origins);
    let _refused = open(range + 1).await;
    let record = edge.records.next().await;
    assert_eq!(record.0["session.end"], "connect_failed", "{record:?}");
    assert_eq!(record.0["upstream.address"], at(targets + 1).to_string());
}
