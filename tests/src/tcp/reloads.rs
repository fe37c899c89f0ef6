//! Ports that come and go, and sessions that stay, while configurations change.

use tokio::net::TcpStream;

use super::one;
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, open};
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

#[tokio::test]
async fn a_port_that_is_taken_leaves_the_old_configuration_in_use() {
    let echo = Echo::start().await;
    let port = free_port();
    let edge = Edge::start_with(LOOPBACK, &one(port, &echo.backend()));
    let taken = Port::listen(None).await;
    let spec =
        format!("gateway:\n  stream_address: 127.0.0.1\n{}", one(taken.address.port(), &echo.backend()));
    let model = ferrum_edge::source::file::parse(&spec, "taken", &ferrum_edge::plugins()).unwrap();
    edge.gateway.reload(&model).expect_err("the port is taken");
    let mut client = open(port).await;
    client.send("x").await;
    client.expect("x").await;
    assert_eq!(edge.gateway.snapshot().revision, 1);
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
