//! Defects a review found in the data path, each told as the dialogue that showed it.

use std::collections::HashSet;

use http::Method;
use tokio::net::UdpSocket;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};
use crate::support::tls;
use crate::support::wire::{Io, Port, Wire};

const GET: Ask<'static> = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };

fn one_proxy(backend: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n")
}

fn over_tls(port: u16, version: &str) -> String {
    format!(
        "backend_scheme: https, backend_http_version: '{version}', backend_host: 127.0.0.1, backend_port: {port}, \
         backend_tls_ca_path: {:?}",
        tls::authority().ca()
    )
}

/// Answers one request on a new HTTP/2 connection.
async fn answer_h2(io: Box<dyn Io>) {
    let mut connection = h2::server::handshake(io).await.expect("an HTTP/2 connection");
    let (_, mut respond) = soon(connection.accept()).await.expect("a stream").expect("a request");
    respond.send_response(http::Response::new(()), true).expect("an answer sent");
    connection.graceful_shutdown();
    while let Some(Ok(_)) = soon(connection.accept()).await {}
}

/// Answers one request on a new HTTP/1.1 connection.
async fn answer_h1(io: Box<dyn Io>) {
    let mut talker = Talker::new(Wire::new(io));
    talker.request().await.expect("a request");
    talker.wire.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    talker.wire.shutdown().await;
}

/// A connection whose exchange was under way when the drain began is closed after it, not at its idle timeout.
#[tokio::test]
async fn a_drain_does_not_wait_for_connections_that_have_become_idle() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
    let edge = Edge::start(&one_proxy(&backend));
    let mut talker = edge.talker().await;
    talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut served = origin.serve().await;
    served.respond(200, &[], Will::Stream).await;
    assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    edge.gateway.begin_drain();
    served.send(b"late").await.unwrap();
    served.finish(&[]).await.unwrap();
    assert_eq!(talker.body().await.unwrap(), b"late");
    talker.wire.closed().await;
}

/// HTTP/1.0 knows a body's end by the connection's: half of one must not end in order.
#[tokio::test]
async fn a_body_cut_off_before_an_old_client_ends_in_a_reset() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
    let edge = Edge::start(&one_proxy(&backend));
    let mut client = edge.wire().await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let mut served = origin.serve().await;
    served.respond(200, &[], Will::Stream).await;
    client.until(b"\r\n\r\n").await.unwrap();
    served.send(b"half").await.unwrap();
    client.expect("half").await;
    served.break_off();
    assert!(client.fill().await.is_err(), "half a body looked whole");
}

/// RFC 9110 §8.6: no length with 204, also where a target says one.
#[tokio::test]
async fn nothing_has_no_length() {
    for down in [WireProtocol::H1, WireProtocol::H2] {
        let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
        let edge = Edge::start(&one_proxy(&backend));
        let mut client = Client::ask(&edge, down, GET).await;
        origin.serve().await.respond(204, &[("content-length", "5")], Will::Nothing).await;
        let head = client.head().await.unwrap();
        assert_eq!((head.status, head.field("content-length")), (204, ""), "{down:?}");
    }
}

/// What may not be said in a head may not be said after the body either, whatever the versions.
#[tokio::test]
async fn nobody_says_who_they_are_in_a_trailer() {
    for down in [WireProtocol::H1, WireProtocol::H2] {
        for up in [WireProtocol::H1, WireProtocol::H2] {
            let (mut origin, backend) = Origin::listen(up).await;
            let edge = Edge::start(&one_proxy(&backend));
            let ask = Ask { method: Method::POST, body: Will::Stream, ..GET };
            let mut client = Client::ask(&edge, down, ask).await;
            client.send(b"body").await.unwrap();
            client.finish(&[("x-consumer-username", "admin"), ("x-sum", "1")]).await.unwrap();
            let mut served = origin.serve().await;
            assert_eq!(served.body().await.unwrap(), b"body");
            let trailers = served.trailers().await.unwrap();
            assert_eq!(trailers.get("x-sum").map(|sum| sum.as_bytes()), Some(&b"1"[..]), "{down:?} {up:?}");
            assert!(!trailers.contains_key("x-consumer-username"), "{down:?} {up:?}");
        }
    }
}

/// Who waits for somebody else's connection goes on when that one goes away.
#[tokio::test]
async fn a_dial_given_up_is_taken_over() {
    let port = Port::listen(None).await;
    let other = Standing::start("o").await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_connect_timeout: 60000ms, pool_http2_connections_per_host: 1, {}}}\n  - {{id: b, listen_path: /other, {}}}\n",
        over_tls(port.address.port(), "2"),
        other.backend()
    ));
    let mut first = edge.wire().await;
    first.send("GET /first HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // The target takes the connection and never shakes hands.
    let _silent = port.accept().await;
    let mut second = edge.wire().await;
    second.send("GET /second HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // The one worker has read the second request by the time it has answered a later one.
    for _ in 0..3 {
        assert_eq!(edge.get("/other").await.0.status(), 200);
    }
    drop(first);
    let _taken_over = port.accept().await;
}

/// A target that spoke HTTP/2 and doesn't any more, and one that has learned it, are noticed by the next request.
#[tokio::test]
async fn a_targets_version_is_learned_anew() {
    let h2 = Some(&["h2", "http/1.1"][..]);
    let old = Some(&["http/1.1"][..]);
    let port = Port::listen(h2).await;
    let address = port.address;
    let edge = Edge::start(&one_proxy(&over_tls(address.port(), "auto")));
    let (answer, ()) = tokio::join!(edge.get("/"), async { answer_h2(port.accept().await).await });
    assert_eq!(answer.0.status(), 200);
    drop(port);
    let port = Port::listen_on(address, old).await;
    let serve = async {
        // The first of them shows that HTTP/2 is gone.
        drop(port.accept().await);
        answer_h1(port.accept().await).await;
    };
    let (answer, ()) = tokio::join!(edge.get("/"), serve);
    assert_eq!(answer.0.status(), 200);
    drop(port);
    let port = Port::listen_on(address, h2).await;
    let (answer, ()) = tokio::join!(edge.get("/"), async { answer_h2(port.accept().await).await });
    assert_eq!(answer.0.status(), 200);
}

/// A shared connection on which no answer comes may be dead without a word: the next request gets another one.
#[tokio::test]
async fn a_silent_shared_connection_is_left() {
    let port = Port::listen(None).await;
    let edge = Edge::start(&one_proxy(&format!(
        "backend_scheme: http, backend_http_version: '2', backend_host: 127.0.0.1, backend_port: {}, \
         backend_first_byte_timeout: 100ms",
        port.address.port()
    )));
    let asked = tokio::join!(edge.get("/"), port.accept());
    assert_eq!(asked.0.0.status(), 504);
    let (answer, ()) = tokio::join!(edge.get("/"), async { answer_h2(port.accept().await).await });
    assert_eq!(answer.0.status(), 200);
}

/// Many requests find out together, once, that a target does not answer over QUIC.
#[tokio::test]
async fn quic_is_tried_once() {
    let port = Port::listen(Some(&["http/1.1"])).await;
    let silent = UdpSocket::bind(port.address).await.unwrap();
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_connect_timeout: 1000ms, {}}}\n",
        over_tls(port.address.port(), "3")
    ));
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        clients.push(talker);
    }
    for _ in 0..4 {
        answer_h1(port.accept().await).await;
    }
    for mut talker in clients {
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    }
    let (mut tried, mut packet) = (HashSet::new(), [0; 2048]);
    while let Ok((_, from)) = silent.try_recv_from(&mut packet) {
        tried.insert(from);
    }
    assert_eq!(tried.len(), 1);
}

/// An address that swallows everything leaves time for the target's next one.
#[tokio::test]
async fn a_silent_address_is_not_the_last() {
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let full = full.listen(0).unwrap();
    let silent = full.local_addr().unwrap();
    // Nobody takes the one connection that may wait; the kernel answers no more.
    let _waiting = soon(tokio::net::TcpStream::connect(silent)).await.unwrap();
    let live = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, silent.port()));
    let port = Port::listen_on(live, None).await;
    let edge = Edge::start(&one_proxy(&format!(
        "backend_scheme: http, backend_host: localhost, backend_port: {}, backend_connect_timeout: 1000ms",
        silent.port()
    )));
    let (answer, ()) = tokio::join!(edge.get("/"), async { answer_h1(port.accept().await).await });
    assert_eq!(answer.0.status(), 200);
}

/// A client that never answers a GOAWAY does not hold its connection.
#[tokio::test]
async fn an_unanswered_goaway_is_the_end() {
    let edge = Edge::start_with(
        "  client_timeouts: {keep_alive: 100ms}",
        &one_proxy("backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1"),
    );
    let mut client = edge.wire().await;
    // A preface with empty settings; what the gateway says, its GOAWAY and its ping too, is never answered.
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    client.rest().await;
}

/// A kept connection was trusted by a CA file that has been replaced since: it must not serve under the new one.
#[tokio::test]
async fn kept_connections_do_not_outlive_the_file_that_made_them_trusted() {
    let port = Port::listen(Some(&["http/1.1"])).await;
    let ca = tls::authority().folder().join("replaced-ca.pem");
    std::fs::copy(tls::authority().ca(), &ca).expect("a copy");
    let backend = format!(
        "backend_scheme: https, backend_host: 127.0.0.1, backend_port: {}, backend_tls_ca_path: {ca:?}",
        port.address.port()
    );
    let edge = Edge::start(&one_proxy(&backend));
    let mut client = edge.talker().await;
    let ask = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    client.wire.send(ask).await;
    let mut origin = Talker::new(Wire::new(port.accept().await));
    for _ in 0..2 {
        // The second time over the connection that was kept.
        origin.request().await.expect("a request");
        origin.wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 204);
        client.wire.send(ask).await;
    }
    origin.request().await.expect("a request");
    origin.wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 204);
    // A certificate that signed nothing of the origin's.
    std::fs::copy(&tls::localhost().cert, &ca).expect("a copy");
    edge.reload(&one_proxy(&backend));
    let refused = tokio::spawn(async move { drop(port.accept().await) });
    client.wire.send(ask).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 502);
    refused.abort();
}
