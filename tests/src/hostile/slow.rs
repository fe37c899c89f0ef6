//! Clients that take their time: each has its own timeout, and none holds anything beyond it.

use http::Method;

use super::{DEAD, FIXED};
use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};

#[tokio::test]
async fn a_head_that_never_ends() {
    let mut edge = Edge::start_with("  client_timeouts: {header: 100ms}", DEAD);
    for part in ["G", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: a\r\nx: y"] {
        let mut wire = edge.wire().await;
        wire.send(part).await;
        let answer = wire.rest().await;
        assert!(answer.starts_with(b"HTTP/1.1 408 "), "{part:?}: {}", String::from_utf8_lossy(&answer));
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (408, "request_timeout"), "{part:?}");
    }
}

/// A byte now and then does not buy time.
#[tokio::test]
async fn a_head_that_drips() {
    let mut edge = Edge::start_with("  client_timeouts: {header: 150ms}", DEAD);
    let mut wire = edge.wire().await;
    let (mut sent, mut ticks) = (0, tokio::time::interval(std::time::Duration::from_millis(5)));
    // Far more bytes than the time allows; the gateway closes before they are through.
    while wire.try_send(if sent == 0 { "GET / HTTP/1.1\r\nx: " } else { "y" }).await.is_ok() {
        ticks.tick().await;
        sent += 1;
        assert!(sent < 4000, "the gateway still listens");
    }
    let record = edge.only_record().await;
    assert_eq!(record.reason(), "request_timeout");
}

/// Neither do empty lines before a request, which are read over.
#[tokio::test]
async fn empty_lines_that_drip() {
    let mut edge = Edge::start_with("  client_timeouts: {header: 150ms}", DEAD);
    let mut wire = edge.wire().await;
    let (mut sent, mut ticks) = (0, tokio::time::interval(std::time::Duration::from_millis(5)));
    while wire.try_send("\r\n").await.is_ok() {
        ticks.tick().await;
        sent += 1;
        assert!(sent < 4000, "the gateway still listens");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn silence_is_ended_in_silence() {
    let mut edge = Edge::start_with("  client_timeouts: {header: 100ms, keep_alive: 100ms}", FIXED);
    edge.wire().await.closed().await;
    let mut talker = edge.talker().await;
    talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"ok");
    talker.wire.closed().await;
    edge.only_record().await;
}

#[tokio::test]
async fn an_idle_http_2_connection_is_ended() {
    let edge = Edge::start_with("  client_timeouts: {keep_alive: 100ms}", FIXED);
    let io = crate::support::wire::connect(edge.http(), None).await;
    let (requests, connection) = h2::client::handshake(io).await.unwrap();
    crate::support::soon(connection).await.expect("a GOAWAY, not a reset");
    drop(requests);
}

#[tokio::test]
async fn a_handshake_that_never_comes() {
    let edge = Edge::start_with("  client_timeouts: {handshake: 100ms}", DEAD);
    let mut wire = crate::support::wire::Wire::open(edge.https()).await;
    wire.closed().await;
}

#[tokio::test]
async fn a_body_that_stops() {
    for (down, up) in [
        (WireProtocol::H1, WireProtocol::H1),
        (WireProtocol::H1, WireProtocol::H2),
        (WireProtocol::H2, WireProtocol::H1),
        (WireProtocol::H2, WireProtocol::H2),
    ] {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start_with(
            "  client_timeouts: {body: 100ms}",
            &format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"),
        );
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Length(10) };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"half").await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.data().await.unwrap().unwrap(), "half");
        assert_eq!(client.head().await.unwrap().status, 408, "{down:?} {up:?}");
        served.gone().await;
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (408, "request_timeout"), "{down:?} {up:?}");
    }
}

/// A client that reads nothing more is given up, and its target is let go.
#[tokio::test]
async fn a_client_that_does_not_read() {
    for (down, up) in [
        (WireProtocol::H1, WireProtocol::H1),
        (WireProtocol::H1, WireProtocol::H2),
        (WireProtocol::H2, WireProtocol::H1),
        (WireProtocol::H2, WireProtocol::H2),
    ] {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start_with(
            "  client_timeouts: {body: 150ms}",
            &format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"),
        );
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, down, ask).await;
        let mut served = origin.serve().await;
        served.respond(200, &[], Will::Stream).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let piece = vec![0; 1 << 20];
        let mut sent = 0;
        while served.send(&piece).await.is_ok() {
            sent += 1;
            assert!(sent < 256, "{down:?} {up:?}: the gateway takes what nobody reads");
        }
        let record = edge.only_record().await;
        assert_eq!(record.reason(), "client_timeout", "{down:?} {up:?}");
        drop(client);
    }
}

/// The total is a limit on all of it, whatever else goes well.
#[tokio::test]
async fn an_exchange_that_takes_too_long_in_all() {
    for (down, up) in [
        (WireProtocol::H1, WireProtocol::H1),
        (WireProtocol::H1, WireProtocol::H2),
        (WireProtocol::H2, WireProtocol::H1),
        (WireProtocol::H2, WireProtocol::H2),
    ] {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, total_timeout: 150ms, {backend}}}\n"
        ));
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, down, ask).await;
        let mut served = origin.serve().await;
        served.respond(200, &[], Will::Stream).await;
        served.send(b"some").await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 200);
        client.body().await.expect_err("cut short");
        served.gone().await;
        assert_eq!(edge.only_record().await.reason(), "total_timeout", "{down:?} {up:?}");
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, down, ask).await;
        let served = origin.serve().await;
        assert_eq!(client.head().await.unwrap().status, 504);
        served.gone().await;
        assert_eq!(edge.records.next().await.reason(), "total_timeout", "{down:?} {up:?}");
    }
}

/// Zero switches a timeout off, it is not a time of none.
#[tokio::test]
async fn timeouts_that_are_off_do_not_fire() {
    let off = "  client_timeouts: {header: 0ms, handshake: 0ms, keep_alive: 0ms, body: 0ms}\n";
    let mut edge = crate::support::h3::edge_with(off, FIXED);
    for kind in [WireProtocol::H1, WireProtocol::H2, WireProtocol::H1Tls, WireProtocol::H2Tls] {
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, kind, ask).await;
        assert_eq!(client.head().await.unwrap().status, 200, "{kind:?}");
        edge.only_record().await;
    }
    let client = crate::support::h3::Client::open(edge.https()).await;
    assert_eq!(client.get("/").await.head.status(), 200);
    edge.only_record().await;
}
