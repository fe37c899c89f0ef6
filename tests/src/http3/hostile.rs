//! Clients that say over HTTP/3 what HTTP/1.1 behind the gateway could misread, and clients that stay.

use http::{HeaderMap, Request};
use quinn::crypto::rustls::QuicClientConfig;

use super::raw::{PLAIN, Raw, request, says};
use super::{far_side, scripted, standing};
use crate::support::edge::Edge;
use crate::support::h2::map;
use crate::support::h3::{Client, Stream, edge_with};
use crate::support::stream::tcp_backend;
use crate::support::wire::{Port, connect};
use crate::support::{soon, tls};

async fn post(client: &Client, more: &[(&str, &str)]) -> Stream {
    let mut request = Request::post("https://a.test/up").body(()).unwrap();
    let fields: HeaderMap = more.iter().fold(HeaderMap::new(), |mut all, field| {
        let (name, value) = map(&[*field]).into_iter().next().unwrap();
        all.append(name.unwrap(), value);
        all
    });
    *request.headers_mut() = fields;
    client.send(request).await
}

/// A body of another length than the one declared never reaches the target as a whole message.
#[tokio::test]
async fn a_declared_length_has_to_be_kept() {
    for (length, body) in [("10", "short"), ("3", "too long")] {
        let (mut edge, origin) = scripted().await;
        let client = Client::open(edge.https()).await;
        let mut stream = post(&client, &[("content-length", length)]).await;
        // The gateway may refuse before all is sent.
        drop(soon(stream.0.send_data(body.into())).await);
        drop(soon(stream.0.finish()).await);
        let served = async {
            let mut far = far_side(&origin).await;
            far.request().await?;
            far.body().await
        };
        let answer = tokio::select! {
            body = served => {
                body.expect_err("a message of another length looked whole");
                stream.answer().await
            }
            answer = stream.answer() => answer,
        };
        if let Ok(answer) = answer {
            assert!(answer.head.status().is_client_error(), "{length}: {}", answer.head.status());
        }
        let record = edge.only_record().await;
        assert!(matches!(record.reason(), "bad_request" | "client_gone"), "{length}: {record:?}");
    }
}

/// What frames a message in HTTP/1.1 has no say here (RFC 9114 §4.2), and is not handed on.
#[tokio::test]
async fn framing_of_another_version_is_refused_or_dropped() {
    for fields in [
        &[("transfer-encoding", "chunked")][..],
        &[("transfer-encoding", "chunked"), ("content-length", "5")],
        &[("connection", "close, x-secret"), ("x-secret", "1")],
        &[("upgrade", "websocket"), ("connection", "upgrade")],
        &[("keep-alive", "timeout=5")],
        &[("content-length", "5"), ("content-length", "7")],
        &[("content-length", "+5")],
        &[("content-length", "5, 5")],
    ] {
        let (mut edge, origin) = scripted().await;
        let client = Client::open(edge.https()).await;
        let mut stream = post(&client, fields).await;
        drop(soon(stream.0.send_data("hello".into())).await);
        drop(soon(stream.0.finish()).await);
        let serve = async {
            let mut far = far_side(&origin).await;
            let head = far.request().await.unwrap();
            for name in ["connection", "upgrade", "keep-alive", "x-secret"] {
                assert_eq!(head.field(name), "", "{fields:?}");
            }
            // The one framing it has is true.
            assert_eq!(far.body().await.unwrap(), b"hello", "{fields:?}");
            far.wire.send("HTTP/1.1 204 Fine\r\nconnection: close\r\n\r\n").await;
            far.wire.closed().await;
        };
        tokio::select! {
            ((), answer) = async { tokio::join!(serve, stream.answer()) } => {
                assert_eq!(answer.unwrap().head.status(), 204, "{fields:?}");
            }
            record = edge.records.next() => {
                assert!(matches!(record.reason(), "bad_request" | "client_gone" | ""), "{fields:?} {record:?}");
            }
        }
    }
}

/// A connection without exchanges does not hold a drain up, and one with an exchange does until it is over.
#[tokio::test]
async fn a_drain_lets_exchanges_end() {
    let (edge, origin) = scripted().await;
    let idle = Client::open(edge.https()).await;
    assert_eq!(idle.get("/%zz").await.head.status(), 400);
    let busy = Client::open(edge.https()).await;
    let mut stream = busy.begin("GET", "/").await;
    stream.finish().await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    edge.gateway.begin_drain();
    soon(idle.quic.closed()).await;
    // Whoever comes now is told at once.
    let crypto = QuicClientConfig::try_from(tls::authority().client(&["h3"])).unwrap();
    let config = quinn::ClientConfig::new(std::sync::Arc::new(crypto));
    let refused = soon(busy.endpoint.connect_with(config, edge.https(), "gateway.test").unwrap()).await;
    let Err(quinn::ConnectionError::ConnectionClosed(close)) = refused else { panic!("{refused:?}") };
    assert_eq!(u64::from(close.error_code), 2, "CONNECTION_REFUSED");
    far.wire.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").await;
    assert_eq!(stream.answer().await.unwrap().body, "late");
    let Edge { gateway, .. } = edge;
    assert!(soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap(), "it waited in vain");
}

/// Who is cut off at the end of a drain is told, and its record says whose doing that was.
#[tokio::test]
async fn the_end_of_a_drain_closes_connections() {
    let origin = Port::listen(None).await;
    let backend = tcp_backend(origin.address).replace("tcp", "http");
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n");
    let edge = edge_with("  drain_timeout: 1\n", &spec);
    let client = Client::open(edge.https()).await;
    let mut stream = client.begin("GET", "/").await;
    stream.finish().await;
    let mut far = far_side(&origin).await;
    far.request().await.unwrap();
    let Edge { gateway, mut records, .. } = edge;
    assert!(!soon(tokio::task::spawn_blocking(move || gateway.drain())).await.unwrap(), "it is cut off");
    let closed = soon(client.quic.closed()).await;
    assert!(matches!(closed, quinn::ConnectionError::ApplicationClosed(_)), "{closed}");
    let record = records.next().await;
    assert_eq!((record.status(), record.reason()), (503, "drained"));
}

/// gRPC goes over HTTP/3 as well.
#[tokio::test]
async fn refusals_speak_grpc() {
    let (mut edge, _origin) = standing("").await;
    let client = Client::open(edge.https()).await;
    let mut request = Request::post("https://none.test/%zz").body(()).unwrap();
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let mut stream = client.send(request).await;
    stream.finish().await;
    let answer = stream.answer().await.unwrap();
    assert_eq!(answer.head.status(), 200);
    assert_eq!(answer.head.headers()["grpc-status"], "3");
    assert_eq!(edge.only_record().await.reason(), "bad_request");
}

/// RFC 9114 §4.3.1, RFC 9113 §8.3.1: what is routed by one name must not be served under another.
#[tokio::test]
async fn a_host_beside_another_authority_is_refused() {
    let (mut edge, _origin) = standing("").await;
    let raw = Raw::open(edge.https(), PLAIN).await;
    let io = connect(edge.https(), Some(&["h2"])).await;
    let mut requests = crate::support::h2::client(io).await;
    for (host, status) in [("a.test", 200), ("A.Test", 200), ("b.test", 400), ("a.test:8443", 400), ("", 400)]
    {
        let reason = if status == 200 { "" } else { "bad_host" };
        let answer = raw.ask(&request("GET", &[("host", host)])).await.unwrap();
        assert!(says(&answer, status), "{host}");
        assert_eq!(edge.records.next().await.reason(), reason, "{host}");
        let request = Request::get("https://a.test/").header("host", host).body(()).unwrap();
        let (answer, _) = requests.send_request(request, true).unwrap();
        assert_eq!(soon(answer).await.unwrap().status(), status, "{host}");
        assert_eq!(edge.records.next().await.reason(), reason, "{host}");
    }
    // RFC 9112 §3.2.2: an absolute target of HTTP/1.1 goes before Host.
    let (head, body) = edge.ask("GET http://a.test/ HTTP/1.1\r\nhost: b.test\r\n\r\n").await;
    assert!(head.status() == 200 && body.contains("x-forwarded-host: a.test"), "{body}");
}
