//! HTTP/2 clients that mean no good.

use std::io;

use bytes::Bytes;
use http::{Method, Request};

use super::FIXED;
use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};
use crate::support::wire::{Wire, connect};

async fn still_answers(edge: &Edge) {
    let ask = Ask { method: Method::GET, path: "/after", headers: &[], body: Will::Nothing };
    let mut client = Client::ask(edge, WireProtocol::H2, ask).await;
    assert_eq!(client.head().await.unwrap().status, 200);
}

fn request(path: &str) -> Request<()> {
    Request::builder().uri(format!("http://a.test{path}")).body(()).unwrap()
}

/// Streams opened only to be reset (CVE-2023-44487) cost the client its connection, and nobody else anything.
#[tokio::test]
async fn rapid_resets() {
    let edge = Edge::start(FIXED);
    let io = connect(edge.http(), None).await;
    let (mut requests, connection) = h2::client::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let flood = async {
        for _ in 0..100_000 {
            if std::future::poll_fn(|cx| requests.poll_ready(cx)).await.is_err() {
                return;
            }
            let Ok((_response, mut stream)) = requests.send_request(request("/reset"), false) else { return };
            stream.send_reset(h2::Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        panic!("the gateway takes any number of resets");
    };
    soon(flood).await;
    let error = soon(connection).await.unwrap().expect_err("a GOAWAY");
    assert!(error.is_go_away() || error.is_io(), "{error}");
    still_answers(&edge).await;
}

#[tokio::test]
async fn a_header_list_beyond_the_limit() {
    let edge = Edge::start_with("  limits: {max_header_size: 4096}", FIXED);
    let mut requests = crate::support::h2::client(connect(edge.http(), None).await).await;
    let mut large = request("/");
    for number in 0..20 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        large.headers_mut().insert(name, "y".repeat(1000).parse().unwrap());
    }
    let (response, _) = requests.send_request(large, true).unwrap();
    match soon(response).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_reset() || error.is_go_away(), "{error}"),
    }
    still_answers(&edge).await;
}

#[tokio::test]
async fn more_fields_than_the_limit() {
    let mut edge = Edge::start_with("  limits: {max_headers: 10}", FIXED);
    let mut requests = crate::support::h2::client(connect(edge.http(), None).await).await;
    let mut many = request("/");
    for number in 0..20 {
        many.headers_mut().append("x", number.into());
    }
    let (response, _) = requests.send_request(many, true).unwrap();
    assert_eq!(soon(response).await.unwrap().status(), 431);
    assert_eq!(edge.only_record().await.reason(), "headers_too_large");
}

/// A client that never opens its window gets what fits, and is then given up.
#[tokio::test]
async fn a_window_that_never_opens() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
    let mut edge = Edge::start_with(
        "  client_timeouts: {body: 150ms}",
        &format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"),
    );
    let io = connect(edge.http(), None).await;
    let (mut requests, connection) =
        h2::client::Builder::new().initial_window_size(10).handshake::<_, Bytes>(io).await.unwrap();
    tokio::spawn(connection);
    let (response, _) = requests.send_request(request("/"), true).unwrap();
    let mut served = origin.serve().await;
    served.respond(200, &[], Will::Length(1000)).await;
    served.send(&[b'x'; 1000]).await.unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(soon(body.data()).await.unwrap().unwrap().len(), 10);
    // Nothing is released, so the rest can't come.
    let error = soon(body.data()).await.unwrap().expect_err("given up");
    assert!(error.is_reset(), "{error}");
    assert_eq!(edge.records.next().await.reason(), "client_timeout");
}

#[tokio::test]
async fn garbage_after_the_preface() {
    let mut edge = Edge::start(FIXED);
    for garbage in
        [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0xff; 100], &[0; 9], b"\0\0\0\x01\x05\0\0\0\0"]
    {
        let mut wire = edge.wire().await;
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        drop(wire.try_send(garbage).await);
        wire.shutdown().await;
        let answer = wire.rest().await;
        assert!(!answer.windows(5).any(|five| five == b"HTTP/"), "{answer:?}");
        edge.nothing_recorded().await;
    }
}

/// A body longer or shorter than its declared length is refused by the stream, and is no whole request to the target.
#[tokio::test]
async fn lengths_that_lie() {
    for (declared, sent) in [(10, 4), (4, 10)] {
        let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Length(declared) };
        let mut client = Client::ask(&edge, WireProtocol::H2, ask).await;
        let mut served = origin.serve().await;
        let sending = async {
            client.send(&vec![b'x'; sent]).await?;
            client.finish(&[]).await?;
            Ok::<_, io::Error>(())
        };
        drop(sending.await);
        served.body().await.expect_err("a request that lies about its length must not look whole");
        let record = edge.records.next().await;
        assert!(matches!(record.reason(), "bad_request" | "client_gone"), "{record:?}");
    }
}

/// Fields that only make sense on one HTTP/1.1 hop are malformed here (RFC 9113 §8.2.2); they must not be let through.
#[tokio::test]
async fn a_head_split_by_http_1_means() {
    let edge = Edge::start(FIXED);
    let mut wire = Wire::new(connect(edge.http(), None).await);
    wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    // HEADERS on stream 1, literal fields without indexing, of which one has a CR LF in its value.
    let mut block = vec![0x82, 0x86, 0x84];
    for (name, value) in [(":authority", "a.test"), ("x", "y\r\nhost: b")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let length = u8::try_from(block.len()).unwrap();
    let mut frame = vec![0, 0, length, 1, 5, 0, 0, 0, 1];
    frame.extend_from_slice(&block);
    wire.send(frame).await;
    // Something is answered, a reset or a GOAWAY: no HEADERS frame (type 1) on stream 1.
    let mut frames = Vec::new();
    wire.shutdown().await;
    let answer = wire.rest().await;
    let mut rest = &answer[..];
    while let [a, b, c, kind, _flags, _, _, _, stream, tail @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        frames.push((*kind, *stream));
        rest = tail.get(length..).unwrap_or_default();
    }
    assert!(!frames.contains(&(1, 1)), "{frames:?}");
    still_answers(&edge).await;
}
