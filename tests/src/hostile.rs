//! What nobody should send: each gets one right answer or a close, one record, and the gateway goes on.

mod bodies;
mod h2;
mod paths;
mod slow;
mod upstream;

use crate::support::edge::Edge;
use crate::support::wire::Wire;

/// A proxy whose target is not there: a request that got through is answered 502.
const DEAD: &str = "proxies:\n  - {id: dead, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1}\n";
/// A proxy that answers by itself.
const FIXED: &str = "proxies:\n  - {id: fixed, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
    backend_port: 1, plugins: [{plugin_config_id: ok}]}\n\
    plugin_configs:\n  - {id: ok, plugin_name: request_termination, scope: proxy_group, config: {status_code: 200, body: ok}}\n";

/// The statuses of all responses on a connection that ends after them.
async fn answers(mut wire: Wire, bytes: &[u8]) -> Vec<u16> {
    // The gateway may well stop reading half-way.
    drop(wire.try_send(bytes).await);
    let rest = wire.rest().await;
    let text = String::from_utf8_lossy(&rest);
    text.split("HTTP/1.1 ").skip(1).filter_map(|it| it.get(..3)?.parse().ok()).collect()
}

/// Each gets one answer, a close, and one record with that status.
async fn refused(settings: &str, table: &[(&str, u16)]) {
    let mut edge = Edge::start_with(settings, DEAD);
    let mut wrong = Vec::new();
    for (bytes, status) in table {
        let got = answers(edge.wire().await, bytes.as_bytes()).await;
        let shown: String = bytes.chars().take(120).collect();
        if got != [*status] {
            wrong.push(format!("{shown:?}: {got:?} instead of {status}"));
            edge = Edge::start_with(settings, DEAD);
            continue;
        }
        let record = edge.only_record().await;
        assert_eq!(record.status(), u64::from(*status), "{shown:?}: {record:?}");
        assert!(!record.reason().is_empty(), "{shown:?}: {record:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn framing_that_two_readers_could_read_differently() {
    refused(
        "",
        &[
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcde", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4, 4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4 4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4a\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 4\r\n\r\nabcd", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\u{b}chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\n transfer-encoding: chunked\r\nhost: a\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\nx: y\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\nx: y\rtransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\nx: y\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip,, chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
            ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ],
    )
    .await;
}

#[tokio::test]
async fn heads_that_are_none() {
    refused(
        "",
        &[
            ("GET / HTTP/1.1\nhost: a\n\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n\tfolded\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nx\0: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\n: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nnothing\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nb(c): d\r\n\r\n", 400),
            ("GET\t/\tHTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET /a b HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("G@T / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505),
            ("GET / HTTP/0.9\r\nhost: a\r\n\r\n", 505),
            ("GET / HTTP/1.10\r\nhost: a\r\n\r\n", 400),
            ("GET / http/1.1\r\nhost: a\r\n\r\n", 400),
            ("\0\0\0\0\r\n\r\n", 400),
            ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n", 400),
            ("SSH-2.0-OpenSSH\r\n\r\n", 400),
        ],
    )
    .await;
}

#[tokio::test]
async fn hosts_targets_and_methods() {
    refused(
        "",
        &[
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost:\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a, b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: [::1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a:99999999\r\n\r\n", 400),
            ("GET x HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET ?x HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET a.test:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET http:// HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\nhost:\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
            ("GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET ws://a/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET http://a:65536/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nhost: a:65536\r\n\r\n", 400),
            ("GET /\u{1} HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ],
    )
    .await;
}

/// These keep their connection, so the refusal asks the gateway to close it.
#[tokio::test]
async fn wellformed_requests_that_are_refused() {
    refused(
        "",
        &[
            ("GET http://u:p@a/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
            ("GET /%00 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
            ("GET /a%5c..%5cb HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
            ("GET /%zz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
            ("TRACE / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 405),
            ("CONNECT a.test:80 HTTP/1.1\r\nhost: a.test:80\r\nconnection: close\r\n\r\n", 405),
            (
                "CONNECT a.test:80 HTTP/1.1\r\nhost: a.test:80\r\nconnection: close, upgrade\r\nupgrade: websocket\r\n\r\n",
                405,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn heads_beyond_the_limits() {
    let megabyte = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let endless_line = format!("GET /{}", "y".repeat(1 << 20));
    let endless_name = format!("GET / HTTP/1.1\r\nhost: a\r\n{}", "y".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(101));
    let very_many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(2000));
    let long_target = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(9000));
    refused(
        "",
        &[
            (&megabyte, 431),
            (&endless_line, 431),
            (&endless_name, 431),
            (&many, 431),
            (&very_many, 431),
            (&long_target, 414),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_truncated_head_is_recorded_and_nothing_is_said() {
    let mut edge = Edge::start(DEAD);
    for part in ["G", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nhost: a\r\n", "PRI * HTTP/2.0\r\n", "POST /x HTT"]
    {
        let mut wire = edge.wire().await;
        wire.send(part).await;
        wire.shutdown().await;
        wire.closed().await;
        assert_eq!(edge.only_record().await.reason(), "client_gone", "{part:?}");
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_leaves_no_record() {
    let mut edge = Edge::start(DEAD);
    let mut wire = edge.wire().await;
    wire.shutdown().await;
    wire.closed().await;
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn http_1_0_closes_unless_asked_to_stay() {
    let mut edge = Edge::start(FIXED);
    assert_eq!(answers(edge.wire().await, b"GET / HTTP/1.0\r\n\r\n").await, [200]);
    assert_eq!(edge.only_record().await.status(), 200);
    let mut talker = edge.talker().await;
    for _ in 0..2 {
        talker.wire.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
        let head = talker.response(&http::Method::GET).await.unwrap();
        assert_eq!((head.status(), head.field("connection")), (200, "keep-alive"));
        assert_eq!(talker.body().await.unwrap(), b"ok");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let mut edge = Edge::start(FIXED);
    let three = "GET /1 HTTP/1.1\r\nhost: a\r\n\r\nPOST /2 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\
        GET /3 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\nGET /never HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(answers(edge.wire().await, three.as_bytes()).await, [200, 200, 200]);
    for path in ["/1", "/2", "/3"] {
        assert_eq!(edge.records.next().await.path(), path);
    }
    edge.nothing_recorded().await;
}

/// Another protocol on a connection is none of a proxy's business unless both sides were asked: h2c least of all.
#[tokio::test]
async fn an_upgrade_that_is_not_supported_is_no_way_past_the_gateway() {
    let port = crate::support::wire::Port::listen(None).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n",
        port.address.port()
    ));
    let mut client = edge.wire().await;
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n")
        .await;
    let mut origin = Wire::new(port.accept().await);
    let head = origin.until(b"\r\n\r\n").await.unwrap();
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{head}");
    // The target switches all the same.
    origin.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    let head = client.until(b"\r\n\r\n").await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 502"), "{}", String::from_utf8_lossy(&head));
    origin.closed().await;
}

#[tokio::test]
async fn a_405_says_what_would_be_allowed() {
    let edge = Edge::start(FIXED);
    let (head, _) = edge.ask("TRACE / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(head.status(), 405);
    assert!(head.field("allow").contains("GET") && !head.field("allow").contains("TRACE"), "{head:?}");
}

/// RFC 9112 §2.2: however many there are, and however they arrive.
#[tokio::test]
async fn empty_lines_before_a_request_are_skipped() {
    let edge = Edge::start(FIXED);
    for lines in [1, 6, 600] {
        let (head, _) = edge.ask(&format!("{}GET / HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n".repeat(lines))).await;
        assert_eq!(head.status(), 200, "{lines}");
    }
}
