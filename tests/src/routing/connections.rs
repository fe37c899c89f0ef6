//! How many connections a target gets.

use http::{Method, Request};

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, open};
use crate::support::wire::{Port, Wire, connect};
use crate::support::{h2, h3, soon, tls};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A proxy (`fields` more) to an upstream (`rules` more) whose only target may have one connection.
fn one(port: &Port, fields: &str, rules: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, upstream_id: u{fields}}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {}, max_connections: 1}}]{rules}}}\n",
        port.address.port()
    )
}

async fn status(edge: &Edge) -> u16 {
    edge.get("/").await.0.status()
}

#[tokio::test]
async fn a_request_beyond_the_last_connection_is_refused_and_the_idle_one_is_used_again() {
    let port = Port::listen(None).await;
    let mut edge = Edge::start(&one(&port, "", ""));
    let mut first = edge.talker().await;
    first.wire.send(GET).await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    let (head, _) = edge.get("/").await;
    assert_eq!((head.status(), head.field("retry-after")), (503, "1"));
    assert_eq!(edge.records.next().await.reason(), "targets_full");
    target.send(OK).await;
    assert_eq!(first.response(&Method::GET).await.unwrap().status(), 200);
    let (answered, ()) = tokio::join!(status(&edge), async {
        target.until(b"\r\n\r\n").await.unwrap();
        target.send(OK).await;
    });
    assert_eq!(answered, 200, "over the connection that was idle");
}

#[tokio::test]
async fn a_request_waits_for_a_connection_where_there_is_a_queue() {
    let port = Port::listen(None).await;
    let edge = Edge::start(&one(&port, "", ", queue: {max_waiting: 1, timeout: 60000ms}"));
    let (mut first, mut second) = (edge.talker().await, edge.talker().await);
    first.wire.send(GET).await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    second.wire.send(GET).await;
    // The answer ends the connection, so that the one who waits gets a new one.
    target.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    assert_eq!(first.response(&Method::GET).await.unwrap().status(), 200);
    target.closed().await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    target.send(OK).await;
    assert_eq!(second.response(&Method::GET).await.unwrap().status(), 200);
}

/// Clients of a gateway with two workers: all 64 at one of them would be one chance in 2^63.
async fn clients(edge: &Edge) -> Vec<Talker> {
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(edge.talker().await);
    }
    clients
}

#[tokio::test]
async fn an_idle_connection_of_another_worker_makes_room() {
    let port = Port::listen(None).await;
    let edge = Edge::start_with("  workers: 2", &one(&port, "", ""));
    let mut clients = clients(&edge).await;
    let (mut target, mut closed) = (None, 0);
    for client in &mut clients {
        client.wire.send(GET).await;
        let mut wire = match target.take() {
            None => Wire::new(port.accept().await),
            Some(wire) => wire,
        };
        // Closed, where the request came to the other worker; only then there is another one.
        if wire.until(b"\r\n\r\n").await.is_err() {
            closed += 1;
            wire = Wire::new(port.accept().await);
            wire.until(b"\r\n\r\n").await.unwrap();
        }
        wire.send(OK).await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
        target = Some(wire);
    }
    assert!(closed > 0, "both workers had requests");
}

#[tokio::test]
async fn a_shared_connection_of_another_worker_makes_room_once_its_requests_are_answered() {
    let port = Port::listen(None).await;
    let spec = one(&port, ", backend_http_version: '2'", "");
    let edge = Edge::start_with("  workers: 2", &spec);
    let mut streams = h2::origin(port);
    let mut clients = clients(&edge).await;
    clients[0].wire.send(GET).await;
    let (_, mut held) = soon(streams.recv()).await.unwrap();
    for client in clients.iter_mut().skip(1) {
        client.wire.send(GET).await;
    }
    // Those of the other worker have no connection, and get none before the first one is closed.
    held.send_response(http::Response::new(()), true).unwrap();
    for _ in 1..clients.len() {
        let (_, mut respond) = soon(streams.recv()).await.unwrap();
        respond.send_response(http::Response::new(()), true).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_connection_over_http3_makes_room_as_well() {
    let (origin, mut streams) = h3::origin("127.0.0.1:0".parse().unwrap()).unwrap();
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_http_version: '3', upstream_id: u, \
         backend_tls_server_name: localhost, backend_tls_ca_path: {:?}}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {}, max_connections: 1}}]}}\n",
        tls::authority().ca(),
        origin.port()
    );
    let edge = Edge::start_with("  workers: 2", &spec);
    for client in &mut clients(&edge).await {
        client.wire.send(GET).await;
        let (_, mut stream) = soon(streams.recv()).await.unwrap();
        soon(stream.send_response(http::Response::new(()))).await.unwrap();
        soon(stream.finish()).await.unwrap();
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
        client.body().await.unwrap();
    }
    assert_eq!(open_now(&edge).await, "1");
}

/// How many connections the only target has.
async fn open_now(edge: &Edge) -> String {
    let metrics = edge.metrics().await;
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix("ferrum_target_connections{"));
    let line = lines.next().unwrap_or_else(|| panic!("{metrics}"));
    assert!(metrics.contains("ferrum_target_max_connections{") && lines.next().is_none(), "{metrics}");
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn requests_over_http2_share_the_only_connection() {
    let port = Port::listen(None).await;
    let edge = Edge::start(&one(&port, ", backend_http_version: '2'", ""));
    let mut streams = h2::origin(port);
    let mut client = h2::client(connect(edge.https(), Some(&["h2"])).await).await;
    let requests = (0..50).map(|_| {
        let request = Request::get("https://gateway.test/").body(()).unwrap();
        client.send_request(request, true).unwrap().0
    });
    let requests: Vec<_> = requests.collect();
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(soon(streams.recv()).await.unwrap());
    }
    assert_eq!(open_now(&edge).await, "1");
    held.iter_mut().for_each(|(_, respond)| {
        respond.send_response(http::Response::new(()), true).unwrap();
    });
    for request in requests {
        assert_eq!(soon(request).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_websocket_has_its_connection_until_it_ends() {
    let port = Port::listen(None).await;
    let mut edge = Edge::start(&one(&port, "", ""));
    let mut client = edge.wire().await;
    client
        .send(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    target
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )
        .await;
    client.until(b"\r\n\r\n").await.unwrap();
    edge.records.next().await;
    assert_eq!(status(&edge).await, 503);
    assert_eq!(edge.records.next().await.reason(), "targets_full");
    drop((client, target));
    edge.records.next().await;
    let (answered, ()) = tokio::join!(status(&edge), async {
        let mut target = Wire::new(port.accept().await);
        target.until(b"\r\n\r\n").await.unwrap();
        target.send(OK).await;
    });
    assert_eq!(answered, 200);
}

/// A stream proxy on `listen` to an upstream whose only target may have one connection.
fn stream(listen: u16, scheme: &str, target: u16) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_port: {listen}, backend_scheme: {scheme}, upstream_id: u}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {target}, max_connections: 1}}]}}\n",
    )
}

#[tokio::test]
async fn a_tcp_stream_is_a_connection() {
    let echo = Echo::start().await;
    let port = free_port();
    let mut edge = Edge::start_with(LOOPBACK, &stream(port, "tcp", echo.address.port()));
    let mut first = open(port).await;
    first.send("hello").await;
    first.expect("hello").await;
    open(port).await.closed().await;
    assert_eq!(edge.session().await.end(), "no_target");
    first.shutdown().await;
    first.closed().await;
    assert_eq!(edge.session().await.end(), "closed");
    let mut third = open(port).await;
    third.send("again").await;
    third.expect("again").await;
}

#[tokio::test]
async fn a_session_of_udp_is_a_connection() {
    let origin = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = free_port();
    let spec = stream(port, "udp", origin.local_addr().unwrap().port());
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    let clients = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    clients[0].send_to(b"one", at(port)).unwrap();
    let mut datagram = [0; 16];
    let (length, _) = soon(origin.recv_from(&mut datagram)).await.unwrap();
    assert_eq!(&datagram[..length], b"one");
    clients[1].send_to(b"two", at(port)).unwrap();
    assert_eq!(edge.session().await.end(), "no_target");
    clients[0].send_to(b"three", at(port)).unwrap();
    let (length, _) = soon(origin.recv_from(&mut datagram)).await.unwrap();
    assert_eq!(&datagram[..length], b"three", "nothing of the second one came");
}
