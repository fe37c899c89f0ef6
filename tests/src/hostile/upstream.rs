//! Targets that answer wrongly: the client gets a 502 or a cut, never somebody else's bytes.

use http::Method;

use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};
use crate::support::wire::{Port, Wire};

async fn edge_to(port: &Port) -> Edge {
    Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n",
        port.address.port()
    ))
}

/// What a target says before it closes, and the status and reason this becomes.
#[tokio::test]
async fn heads_that_are_none() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(300));
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(101);
    let table = [
        ("", "upstream_closed"),
        ("HTTP/1.1 200 O", "upstream_closed"),
        ("HTTP/1.1 103 Early Hints\r\n\r\n", "upstream_closed"),
        ("garbage\r\n\r\n", "upstream_garbage"),
        ("\0\0\0\0\0\0\0\0\r\n\r\n", "upstream_garbage"),
        ("HTTP/2.0 200 OK\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 099 Low\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 20 Short\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 200 OK\nx: y\n\n", "upstream_garbage"),
        ("HTTP/1.1 200 OK\r\nx y\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 200 OK\r\nx: y\r\n folded\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", "upstream_garbage"),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "upstream_garbage"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "upstream_garbage",
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "upstream_garbage"),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "upstream_garbage"),
        (&long, "upstream_garbage"),
        (&many, "upstream_garbage"),
        (&interim, "upstream_garbage"),
    ];
    let port = Port::listen(None).await;
    let mut edge = edge_to(&port).await;
    for (answer, reason) in table {
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut origin = Wire::new(port.accept().await);
        origin.until(b"\r\n\r\n").await.unwrap();
        drop(origin.try_send(answer).await);
        origin.shutdown().await;
        let mut head = talker.response(&Method::GET).await.unwrap();
        while head.status() == 103 {
            head = talker.response(&Method::GET).await.unwrap();
        }
        let shown: String = answer.chars().take(80).collect();
        assert_eq!(head.status(), 502, "{shown:?}");
        let body = String::from_utf8(talker.body().await.unwrap()).unwrap();
        assert!(body.contains(reason), "{shown:?}: {body}");
        drop(origin);
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (502, reason), "{shown:?}");
    }
}

/// A good head and a body that breaks: the client must be able to tell.
#[tokio::test]
async fn bodies_that_break() {
    for (answer, reason) in [
        ("content-length: 10\r\n\r\nhalf", "upstream_closed"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "upstream_closed"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n", "upstream_closed"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n\r\n", "upstream_garbage"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalfX\r\n0\r\n\r\n", "upstream_garbage"),
        ("transfer-encoding: chunked\r\n\r\n4;\r\nhalf\r\n0\r\n\r\n", "upstream_garbage"),
        ("transfer-encoding: chunked\r\n\r\n4 \r\nhalf\r\n0\r\n\r\n", "upstream_garbage"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0;bad[=x\r\n\r\n", "upstream_garbage"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\n", "upstream_garbage"),
    ] {
        for down in [WireProtocol::H1, WireProtocol::H2] {
            let port = Port::listen(None).await;
            let mut edge = edge_to(&port).await;
            let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
            let mut client = Client::ask(&edge, down, ask).await;
            let mut origin = Wire::new(port.accept().await);
            origin.until(b"\r\n\r\n").await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            origin.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n")).await;
            assert_eq!(client.head().await.unwrap().status, 200, "{answer:?}");
            origin.send(body).await;
            origin.shutdown().await;
            client.body().await.expect_err(answer);
            assert_eq!(edge.records.next().await.reason(), reason, "{down:?} {answer:?}");
        }
    }
}

/// Where nothing of an answer has gone out yet, a body that breaks at its beginning is a 502 instead of a connection that
/// closes without a word.
#[tokio::test]
async fn bodies_that_break_at_once() {
    for answer in [
        "transfer-encoding: chunked\r\n\r\n5;\r\nhello\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        "transfer-encoding: chunked\r\n\r\n\r\n",
    ] {
        let port = Port::listen(None).await;
        let mut edge = edge_to(&port).await;
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut origin = Wire::new(port.accept().await);
        origin.until(b"\r\n\r\n").await.unwrap();
        origin.send(format!("HTTP/1.1 200 OK\r\n{answer}")).await;
        let head = talker.response(&Method::GET).await.unwrap();
        assert_eq!((head.status(), head.field("connection")), (502, "close"), "{answer:?}");
        let body = String::from_utf8(talker.body().await.unwrap()).unwrap();
        assert!(body.contains("upstream_garbage"), "{body}");
        talker.wire.closed().await;
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (502, "upstream_garbage"), "{answer:?}");
    }
}

/// A target's frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// So is an answer over HTTP/2 that is there at once and has another length than it says.
#[tokio::test]
async fn answers_of_another_length_over_http_2() {
    for body in ["abc", "much more than that", ""] {
        let port = Port::listen(None).await;
        let at = port.address.port();
        let mut edge = Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {at}, \
             backend_http_version: \"2\"}}\n"
        ));
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut target = Wire::new(port.accept().await);
        target.until(b"SM\r\n\r\n").await.unwrap();
        target.send(frame(4, 0, 0, &[])).await;
        // The request: HEADERS that end their stream, the first one.
        target.until(&[1, 5, 0, 0, 0, 1]).await.unwrap();
        // `:status: 200` and `content-length: 10`; then a whole body.
        let head = frame(1, 4, 1, b"\x88\x0f\x0d\x0210");
        target.send([head, frame(0, 1, 1, body.as_bytes())].concat()).await;
        let head = talker.response(&Method::GET).await.unwrap();
        assert_eq!(head.status(), 502, "{body:?}");
        talker.body().await.unwrap();
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (502, "upstream_garbage"), "{body:?}");
    }
}

/// What a target says unasked belongs to nobody: the next request goes over another connection.
#[tokio::test]
async fn a_second_answer_is_nobodys() {
    let port = Port::listen(None).await;
    let edge = edge_to(&port).await;
    let mut talker = edge.talker().await;
    talker.wire.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut origin = Wire::new(port.accept().await);
    origin.until(b"\r\n\r\n").await.unwrap();
    origin
        .send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\noneHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison")
        .await;
    assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"one");
    talker.wire.send("GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut origin = Wire::new(port.accept().await);
    let head = origin.until(b"\r\n\r\n").await.unwrap();
    assert!(head.starts_with(b"GET /2 "));
    origin.send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntwo").await;
    assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(talker.body().await.unwrap(), b"two");
}

/// A target may refuse a request half-way; its answer counts, and the client's connection is not confused by it.
#[tokio::test]
async fn an_answer_before_the_request_is_through() {
    for (down, up) in [
        (WireProtocol::H1, WireProtocol::H1),
        (WireProtocol::H1, WireProtocol::H2),
        (WireProtocol::H2, WireProtocol::H1),
        (WireProtocol::H2, WireProtocol::H2),
    ] {
        let (mut origin, backend) = Origin::listen(up).await;
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let ask = Ask { method: Method::POST, path: "/", headers: &[], body: Will::Stream };
        let mut client = Client::ask(&edge, down, ask).await;
        client.send(b"half").await.unwrap();
        let mut served = origin.serve().await;
        assert_eq!(served.data().await.unwrap().unwrap(), "half");
        served.respond(413, &[], Will::Length(5)).await;
        served.send(b"large").await.unwrap();
        served.finish(&[]).await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 413, "{down:?} {up:?}");
        assert_eq!(client.body().await.unwrap(), b"large", "{down:?} {up:?}");
        let record = edge.records.next().await;
        assert_eq!((record.status(), record.reason()), (413, ""), "{down:?} {up:?}");
    }
}

/// A connection that closes with its answer is fine when the answer says so.
#[tokio::test]
async fn a_body_that_ends_with_its_connection() {
    for head in
        ["HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"]
    {
        let port = Port::listen(None).await;
        let mut edge = edge_to(&port).await;
        let mut talker = edge.talker().await;
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut origin = Wire::new(port.accept().await);
        origin.until(b"\r\n\r\n").await.unwrap();
        origin.send(format!("{head}all of it")).await;
        origin.shutdown().await;
        let head = talker.response(&Method::GET).await.unwrap();
        assert_eq!((head.status(), head.field("transfer-encoding")), (200, "chunked"));
        assert_eq!(talker.body().await.unwrap(), b"all of it");
        assert_eq!(edge.records.next().await.reason(), "");
    }
}

/// What a target says about its own hop stays there.
#[tokio::test]
async fn hop_by_hop_fields_of_an_answer_stay_behind() {
    for down in [WireProtocol::H1, WireProtocol::H2] {
        let port = Port::listen(None).await;
        let edge = edge_to(&port).await;
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, down, ask).await;
        let mut origin = Wire::new(port.accept().await);
        origin.until(b"\r\n\r\n").await.unwrap();
        origin
            .send(
                "HTTP/1.1 103 Early Hints\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nlink: <x>\r\n\r\n\
                 HTTP/1.1 200 OK\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                 proxy-connection: keep-alive\r\nupgrade: h2c\r\nx-end: 1\r\ncontent-length: 2\r\n\r\nok",
            )
            .await;
        for status in [103, 200] {
            let head = client.head().await.unwrap();
            assert_eq!(head.status, status, "{down:?}");
            for name in ["x-hop", "keep-alive", "proxy-connection", "upgrade", "connection"] {
                assert!(!head.headers.contains_key(name), "{down:?} {status}: {name}");
            }
        }
        assert_eq!(client.body().await.unwrap(), b"ok");
    }
}

/// The target may refuse an upload before it is sent; one that ignores the expectation gets it all the same.
#[tokio::test]
async fn the_target_decides_whether_an_expected_body_is_sent() {
    let port = Port::listen(None).await;
    let mut edge = edge_to(&port).await;
    let request = "PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let mut client = edge.wire().await;
    client.send(request).await;
    let mut target = Wire::new(port.accept().await);
    let head = target.until(b"\r\n\r\n").await.unwrap();
    assert!(String::from_utf8_lossy(&head).to_lowercase().contains("expect: 100-continue"), "{head:?}");
    target.send("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    // Not a 100 before it.
    client.expect("HTTP/1.1 413").await;
    client.until(b"\r\n\r\n").await.unwrap();
    client.closed().await;
    assert_eq!(edge.only_record().await.status(), 413);

    let mut client = edge.wire().await;
    client.send(request).await;
    let mut target = Wire::new(port.accept().await);
    target.until(b"\r\n\r\n").await.unwrap();
    client.expect("HTTP/1.1 100").await;
    client.until(b"\r\n\r\n").await.unwrap();
    client.send("body").await;
    target.expect("body").await;
    target.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    client.expect("HTTP/1.1 200").await;
}
