//! WebSockets through the gateway: over HTTP/1.1, TLS and HTTP/2, refused and accepted, at rest and in a hurry.

mod endings;
mod limits;
mod messages;
mod over_h2;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::Method;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::support::edge::Edge;
use crate::support::h1::{Head, Talker};
use crate::support::soon;
use crate::support::wire::{Io, Port, Wire, connect};

/// What a client asks with.
const ASK: &str = "GET /chat?x=1 HTTP/1.1\r\nhost: a.test\r\nconnection: keep-alive, Upgrade\r\n\
    upgrade: WebSocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// What an origin agrees with.
const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: chat\r\n\r\n";

/// A gateway with one proxy with these fields in front of a scripted origin.
async fn edge_with(fields: &str) -> (Edge, Port) {
    let origin = Port::listen(None).await;
    let edge = Edge::start(&spec(&origin, fields));
    (edge, origin)
}

fn spec(origin: &Port, fields: &str) -> String {
    let port = origin.address.port();
    format!(
        "proxies:\n  - {{id: w, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
         backend_port: {port}{fields}}}\n"
    )
}

/// The client's side after it has asked, and the origin's with the request's head.
async fn asked(edge: &Edge, origin: &Port, more: &str) -> (Talker, Talker, Head) {
    let mut client = edge.talker().await;
    client.wire.send(format!("{ASK}{more}\r\n")).await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    let head = far.request().await.unwrap();
    (client, far, head)
}

/// An open WebSocket, seen as bytes.
async fn opened(edge: &Edge, origin: &Port) -> (Talker, Talker) {
    let (mut client, mut far, _) = asked(edge, origin, "").await;
    far.wire.send(AGREED).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 101);
    (client, far)
}

/// The records of one WebSocket: its exchange's, then its session's.
async fn records(edge: &mut Edge) -> (crate::support::records::Record, crate::support::records::Record) {
    let exchange = edge.records.next().await;
    assert_eq!((exchange.status(), exchange.end(), exchange.reason()), (101, "", ""), "{exchange:?}");
    let session = edge.session().await;
    assert_eq!((session.kind(), session.proxy()), ("websocket", "w"));
    (exchange, session)
}

#[tokio::test]
async fn an_upgrade_passes_and_so_do_bytes_on_its_heels() {
    let (mut edge, origin) = edge_with("").await;
    let (mut client, mut far, head) = asked(&edge, &origin, "sec-websocket-protocol: chat\r\n").await;
    assert_eq!(head.line, "GET /chat?x=1 HTTP/1.1");
    assert_eq!(head.field("upgrade").to_ascii_lowercase(), "websocket");
    assert_eq!(head.field("connection").to_ascii_lowercase(), "upgrade");
    assert_eq!(head.field("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(head.field("sec-websocket-version"), "13");
    assert_eq!(head.field("sec-websocket-protocol"), "chat");
    // The first message comes in the same packet as the head.
    far.wire.send([AGREED.as_bytes(), b"\x81\x05hello"].concat()).await;
    let head = client.response(&Method::GET).await.unwrap();
    assert_eq!((head.status(), head.field("upgrade")), (101, "websocket"));
    assert_eq!(head.field("connection").to_ascii_lowercase(), "upgrade");
    assert_eq!(head.field("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(head.field("sec-websocket-protocol"), "chat");
    client.wire.expect(b"\x81\x05hello").await;
    client.wire.send(b"\x82\x81\x01\x02\x03\x04\x05").await;
    far.wire.expect(b"\x82\x81\x01\x02\x03\x04\x05").await;
    client.wire.shutdown().await;
    far.wire.closed().await;
    far.wire.send("last").await;
    far.wire.shutdown().await;
    assert_eq!(client.wire.rest().await, "last");
    let (_, session) = records(&mut edge).await;
    assert_eq!((session.end(), session.carried()), ("closed", (7, 11)));
    assert_eq!(session.target(), origin.address.to_string());
    edge.nothing_recorded().await;
}

/// A client may not speak before it was answered, but if it does, nothing is lost either.
#[tokio::test]
async fn bytes_sent_together_with_the_request_are_not_lost() {
    let (mut edge, origin) = edge_with("").await;
    let (mut client, mut far, _) = asked(&edge, &origin, "\r\nearly").await;
    far.wire.send(AGREED).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 101);
    // What `asked` puts after the head is an empty line.
    far.wire.expect("early\r\n").await;
    drop((client, far));
    records(&mut edge).await;
}

async fn echo(io: Box<dyn Io>) {
    let mut socket = soon(accept_async(io)).await.unwrap();
    while let Some(Ok(message)) = soon(socket.next()).await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn join(io: Box<dyn Io>) -> WebSocketStream<Box<dyn Io>> {
    let request = "ws://gateway.test/chat".into_client_request().unwrap();
    soon(client_async(request, io)).await.unwrap().0
}

#[tokio::test]
async fn messages_of_a_mebibyte_go_both_ways_plain_and_over_tls() {
    let (mut edge, origin) = edge_with("").await;
    for alpn in [None, Some(&["http/1.1"][..])] {
        let to = if alpn.is_some() { edge.https() } else { edge.http() };
        let (client, far) = tokio::join!(async { join(connect(to, alpn).await).await }, origin.accept_echo());
        let (mut sink, mut stream) = client.split();
        let message = Bytes::from(vec![7; 1 << 20]);
        let sent = message.clone();
        let sender = tokio::spawn(async move {
            for _ in 0..10 {
                sink.send(Message::Binary(sent.clone())).await.unwrap();
            }
            sink.send(Message::text("bye")).await.unwrap();
            sink
        });
        for _ in 0..10 {
            let got = soon(stream.next()).await.unwrap().unwrap();
            assert!(got.into_data() == message);
        }
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().into_text().unwrap(), "bye");
        let mut sink = soon(sender).await.unwrap();
        sink.close().await.unwrap();
        while let Some(Ok(_)) = soon(stream.next()).await {}
        drop((sink, stream));
        soon(far).await.unwrap();
        let (exchange, session) = records(&mut edge).await;
        assert_eq!(exchange.0["url.scheme"], if alpn.is_some() { "https" } else { "http" });
        // This client closes TLS without saying so, which could as well be a cut.
        assert_eq!(session.end(), if alpn.is_some() { "client_reset" } else { "closed" });
        let (up, down) = session.carried();
        assert!(up > 10 << 20 && down > 10 << 20, "{up} {down}");
    }
    edge.nothing_recorded().await;
}

impl Port {
    /// Echoes the messages of the next connection.
    async fn accept_echo(&self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(echo(self.accept().await))
    }
}

#[tokio::test]
async fn only_allowed_origins_may_open_one() {
    let (mut edge, origin) = edge_with(", allowed_ws_origins: [https://app.test]").await;
    for origin in [
        "",
        "origin: https://evil.test\r\n",
        "origin: null\r\n",
        "origin: http://app.test\r\n",
        "origin: https://app.test\r\norigin: https://evil.test\r\n",
    ] {
        let mut client = edge.talker().await;
        client.wire.send(format!("{ASK}{origin}\r\n")).await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 403, "{origin}");
        client.body().await.unwrap();
        let record = edge.records.next().await;
        assert_eq!((record.status(), record.reason()), (403, "forbidden"));
    }
    let (mut client, mut far, _) = asked(&edge, &origin, "origin: https://APP.test\r\n").await;
    far.wire.send(AGREED).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 101);
    drop((client, far));
    records(&mut edge).await;
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_refused_upgrade_goes_on_as_http() {
    let (mut edge, origin) = edge_with("").await;
    for status in [200, 403, 426] {
        let (mut client, mut far, _) = asked(&edge, &origin, "").await;
        far.wire.send(format!("HTTP/1.1 {status} No\r\ncontent-length: 4\r\n\r\nbody")).await;
        let head = client.response(&Method::GET).await.unwrap();
        assert_eq!((head.status(), head.field("upgrade")), (status, ""));
        assert_eq!(client.body().await.unwrap(), b"body");
        // Both connections can be used again.
        client.wire.send("GET /next HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
        assert_eq!(far.request().await.unwrap().line, "GET /next HTTP/1.1");
        far.wire.send("HTTP/1.1 204 Fine\r\nconnection: close\r\n\r\n").await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 204);
        assert_eq!(edge.records.next().await.status(), u64::from(status));
        assert_eq!(edge.records.next().await.status(), 204);
    }
    edge.nothing_recorded().await;
}

/// Whoever gets an upgrade to something else past the gateway speaks past it.
#[tokio::test]
async fn nothing_but_a_websocket_is_upgraded_to() {
    let (edge, origin) = edge_with("").await;
    for (method, upgrade) in [
        (
            "GET",
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        ),
        ("GET", "connection: upgrade\r\nupgrade: TLS/1.0\r\n"),
        ("GET", "connection: upgrade\r\nupgrade: websocket, h2c\r\n"),
        ("GET", "upgrade: websocket\r\n"),
        ("DELETE", "connection: upgrade\r\nupgrade: websocket\r\n"),
    ] {
        let mut client = edge.talker().await;
        client.wire.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n{upgrade}\r\n")).await;
        let mut far = Talker::new(Wire::new(origin.accept().await));
        let head = far.request().await.unwrap();
        for name in ["upgrade", "http2-settings"] {
            assert_eq!(head.field(name), "", "{upgrade}");
        }
        assert!(!head.field("connection").to_ascii_lowercase().contains("upgrade"), "{upgrade}");
        far.wire.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
    }
}

/// An origin that switches without being asked, or to something else, is not followed.
#[tokio::test]
async fn an_origin_may_switch_only_to_what_was_asked() {
    let (mut edge, origin) = edge_with("").await;
    for agreed in ["HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", "HTTP/1.1 101 S\r\n\r\n"]
    {
        let (mut client, mut far, _) = asked(&edge, &origin, "").await;
        far.wire.send(agreed).await;
        assert_eq!(client.response(&Method::GET).await.unwrap().status(), 502);
        let record = edge.records.next().await;
        assert_eq!((record.status(), record.reason()), (502, "upstream_garbage"));
        far.wire.closed().await;
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_peer_that_vanishes_ends_it_for_the_other() {
    for client_goes in [true, false] {
        let (mut edge, origin) = edge_with("").await;
        let (client, far) = opened(&edge, &origin).await;
        let (gone, mut stays) = if client_goes { (client, far) } else { (far, client) };
        drop(gone);
        // A client is told that it was not its own doing; a target sees the end alone, which is the truth.
        let told = if client_goes { &b""[..] } else { b"\x88\x02\x03\xf3" };
        assert_eq!(stays.wire.rest().await, told);
        drop(stays);
        let (_, session) = records(&mut edge).await;
        assert_eq!(session.end(), "closed");
        edge.nothing_recorded().await;
    }
}

#[tokio::test]
async fn a_drain_cuts_off_what_does_not_end_and_records_it() {
    let origin = Port::listen(None).await;
    let edge = Edge::start_with("  drain_timeout: 1", &spec(&origin, ""));
    let (mut client, mut far) = opened(&edge, &origin).await;
    // The gateway passes on the rest of an unfinished frame; this one is never finished.
    client.wire.send(b"\x82\xff\x00\x01\x02").await;
    far.wire.expect(b"\x82\xff\x00\x01\x02").await;
    edge.gateway.begin_drain();
    let Edge { gateway, mut records, .. } = edge;
    let clean = soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap();
    assert!(!clean, "it was cut off");
    client.wire.rest().await;
    far.wire.rest().await;
    assert_eq!(records.next().await.status(), 101);
    let session = records.next().await;
    assert_eq!((session.kind(), session.end(), session.carried()), ("websocket", "drained", (5, 0)));
}

/// Slots, permits and connections all come back.
#[tokio::test]
async fn nothing_is_left_of_many() {
    let origin = Port::listen(None).await;
    let edge = Edge::start_with("  limits: {max_requests: 4, max_connections: 8}", &spec(&origin, ""));
    let mut edge = edge;
    for _ in 0..24 {
        let (client, far) = opened(&edge, &origin).await;
        drop((client, far));
        records(&mut edge).await;
    }
    edge.nothing_recorded().await;
}
