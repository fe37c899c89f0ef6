//! WebSockets over HTTP/2: extended CONNECT (RFC 8441).

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};

use super::{AGREED, edge_with, records};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::h2::{data, send};
use crate::support::soon;
use crate::support::wire::{Port, Wire, connect};

/// A connection on which the server has said that it takes extended CONNECT.
pub(super) async fn client(edge: &Edge, tls: bool) -> SendRequest<Bytes> {
    let io = match tls {
        true => connect(edge.https(), Some(&["h2"])).await,
        false => connect(edge.http(), None).await,
    };
    let (mut requests, connection) = soon(h2::client::handshake(io)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    // A first request's answer proves that the settings have come.
    let marker = Request::get("http://marker.test/").body(()).unwrap();
    let (answer, _) = requests.send_request(marker, true).unwrap();
    assert_eq!(soon(answer).await.unwrap().status(), 200);
    assert!(requests.is_extended_connect_protocol_enabled());
    requests
}

pub(super) fn ask(protocol: &'static str) -> Request<()> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://a.test/chat?x=1")
        .version(http::Version::HTTP_2)
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .body(())
        .unwrap();
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}

/// A WebSocket over its stream, and the origin's side.
async fn opened(
    requests: &mut SendRequest<Bytes>,
    origin: &Port,
) -> (SendStream<Bytes>, Response<RecvStream>, Talker) {
    let (answer, sending) = requests.send_request(ask("websocket"), false).unwrap();
    let mut far = Talker::new(Wire::new(origin.accept().await));
    let head = far.request().await.unwrap();
    assert_eq!(head.line, "GET /chat?x=1 HTTP/1.1");
    assert_eq!(head.field("upgrade"), "websocket");
    assert_eq!(head.field("connection").to_ascii_lowercase(), "upgrade");
    assert_eq!(head.field("sec-websocket-key").len(), 24);
    assert_eq!(head.field("sec-websocket-protocol"), "chat");
    far.wire.send([AGREED.as_bytes(), b"early"].concat()).await;
    let answer = soon(answer).await.unwrap();
    assert_eq!(answer.status(), 200);
    for absent in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!answer.headers().contains_key(absent), "{absent}");
    }
    assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
    (sending, answer, far)
}

/// So many bytes of a stream.
pub(super) async fn take(recv: &mut RecvStream, length: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < length {
        got.extend_from_slice(&data(recv).await.unwrap().expect("more"));
    }
    got
}

#[tokio::test]
async fn a_stream_is_a_websocket_of_its_own() {
    let (mut edge, origin) = edge_with("").await;
    for tls in [false, true] {
        let mut requests = client(&edge, tls).await;
        edge.records.next().await;
        let (mut sending, answer, mut far) = opened(&mut requests, &origin).await;
        let mut recv = answer.into_body();
        assert_eq!(take(&mut recv, 5).await, b"early");
        let long = vec![b'w'; 3 << 20];
        let expected = long.clone();
        let receiver = tokio::spawn(async move {
            assert!(far.wire.some_exactly(expected.len()).await == expected);
            far.wire.send(&expected).await;
            far
        });
        send(&mut sending, &long, false).await.unwrap();
        assert!(take(&mut recv, long.len()).await == long);
        let mut far = soon(receiver).await.unwrap();
        // Others go on beside it.
        let marker = Request::get("http://marker.test/").body(()).unwrap();
        assert_eq!(soon(requests.send_request(marker, true).unwrap().0).await.unwrap().status(), 200);
        assert_eq!(edge.records.next().await.status(), 101);
        edge.records.next().await;
        // Each side ends its own.
        sending.send_data(Bytes::new(), true).unwrap();
        far.wire.closed().await;
        far.wire.send("bye-bye").await;
        far.wire.shutdown().await;
        assert_eq!(take(&mut recv, 7).await, b"bye-bye");
        assert!(data(&mut recv).await.unwrap().is_none());
        let session = edge.session().await;
        assert_eq!((session.kind(), session.end()), ("websocket", "closed"));
        assert_eq!(session.carried(), (3 << 20, (3 << 20) + 12));
        edge.nothing_recorded().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_its_websocket_alone() {
    let (mut edge, origin) = edge_with("").await;
    let mut requests = client(&edge, false).await;
    edge.records.next().await;
    let (mut first, _answer, mut gone) = opened(&mut requests, &origin).await;
    let (mut second, answer, mut far) = opened(&mut requests, &origin).await;
    first.send_reset(h2::Reason::CANCEL);
    gone.wire.rest().await;
    second.send_data("x".into(), false).unwrap();
    far.wire.expect("x").await;
    let mut recv = answer.into_body();
    far.wire.send("y").await;
    assert_eq!(take(&mut recv, 6).await, b"earlyy");
    assert_eq!(edge.records.next().await.status(), 101);
    assert_eq!(edge.records.next().await.status(), 101);
    assert_eq!(edge.session().await.end(), "client_reset");
    // A target that vanishes: the stream is no orderly end for the client.
    drop(far);
    while let Ok(Some(_)) = data(&mut recv).await {}
    drop((second, recv));
    edge.session().await;
    edge.nothing_recorded().await;
}

/// The whole connection goes: all of its WebSockets end and are recorded.
#[tokio::test]
async fn a_connection_that_goes_takes_its_websockets_along() {
    let (mut edge, origin) = edge_with("").await;
    let (io, requests) = {
        let (mine, theirs) = tokio::io::duplex(1 << 16);
        let mut tcp = connect(edge.http(), None).await;
        let pump = tokio::spawn(async move {
            let mut theirs = theirs;
            drop(tokio::io::copy_bidirectional(&mut tcp, &mut theirs).await);
        });
        let (requests, connection) = soon(h2::client::handshake(mine)).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        (pump, requests)
    };
    let mut requests: SendRequest<Bytes> = requests;
    let marker = Request::get("http://marker.test/").body(()).unwrap();
    assert_eq!(soon(requests.send_request(marker, true).unwrap().0).await.unwrap().status(), 200);
    edge.records.next().await;
    let (_sending, _answer, mut far) = opened(&mut requests, &origin).await;
    io.abort();
    far.wire.rest().await;
    let (_, session) = records(&mut edge).await;
    assert_eq!(session.end(), "client_reset");
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn a_refusal_is_an_answer_like_any_other() {
    let (mut edge, origin) = edge_with("").await;
    let mut requests = client(&edge, false).await;
    edge.records.next().await;
    let (answer, _sending) = requests.send_request(ask("websocket"), false).unwrap();
    let mut far = Talker::new(Wire::new(origin.accept().await));
    far.request().await.unwrap();
    far.wire.send("HTTP/1.1 403 No\r\ncontent-length: 4\r\n\r\nbody").await;
    let answer = soon(answer).await.unwrap();
    assert_eq!(answer.status(), 403);
    assert_eq!(take(&mut answer.into_body(), 4).await, b"body");
    assert_eq!(edge.only_record().await.status(), 403);
    // Any other protocol, and CONNECT without one, is nothing the gateway opens.
    let (answer, _sending) = requests.send_request(ask("connect-udp"), false).unwrap();
    match soon(answer).await {
        Ok(answer) => assert!(answer.status().is_client_error() || answer.status().is_server_error()),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
}
