//! Hedged requests over every version of HTTP.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request};

use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};
use crate::support::wire::connect;
use crate::support::{h2 as two, h3, soon, tls};

/// Long enough for a test to see that the other target was not asked at once.
const RULES: &str = "hedging: {delay: 100ms, budget_percent: 50";

/// An upstream of two targets that are spoken to as their proxy's fields say.
fn spec(one: &str, two: &str, rules: &str) -> String {
    let (host, fields): (Vec<&str>, Vec<&str>) = one
        .split(", ")
        .partition(|field| field.starts_with("backend_host") || field.starts_with("backend_port"));
    let port = |fields: &str| {
        fields.rsplit_once("backend_port: ").map(|(_, rest)| rest.split(',').next().unwrap().to_owned())
    };
    assert_eq!(host.len(), 2);
    format!(
        "proxies:\n  - {{id: a, listen_path: /, upstream_id: u, {}, {rules}}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {}}}, {{host: 127.0.0.1, port: {}}}]}}\n",
        fields.join(", "),
        port(one).unwrap(),
        port(two).unwrap(),
    )
}

#[tokio::test]
async fn the_slower_target_is_given_up_over_each_version() {
    for kind in [WireProtocol::H1, WireProtocol::H1Tls, WireProtocol::H2, WireProtocol::H2Tls] {
        for slow_first in [true, false] {
            let ((mut one, first), (mut two, second)) =
                (Origin::listen(kind).await, Origin::listen(kind).await);
            let mut edge = Edge::start(&spec(&first, &second, &format!("{RULES}}}")));
            let ask =
                Ask { method: Method::GET, path: "/x?y", headers: &[("x-a", "b")], body: Will::Nothing };
            let mut client = Client::ask(&edge, kind, ask).await;
            let (first, second) = (one.serve().await, two.serve().await);
            for served in [&first, &second] {
                assert_eq!((served.path.as_str(), served.field("x-a")), ("/x?y", "b"), "{kind:?}");
            }
            let (slow, mut fast) = if slow_first { (first, second) } else { (second, first) };
            fast.respond(200, &[("x-by", "fast")], Will::Length(2)).await;
            fast.send(b"ok").await.unwrap();
            fast.finish(&[]).await.unwrap();
            let got = client.head().await.unwrap();
            assert_eq!((got.status, got.field("x-by")), (200, "fast"), "{kind:?}");
            assert_eq!(client.body().await.unwrap(), b"ok");
            slow.gone().await;
            let record = edge.records.next().await;
            assert_eq!((record.attempts(), &record.0["upstream.hedges"]), (2, &1.into()), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn over_http3() {
    let localhost = "127.0.0.1:0".parse().unwrap();
    let (one, mut first) = h3::origin(localhost).unwrap();
    let (two, mut second) = h3::origin(localhost).unwrap();
    let fields = format!(
        "backend_scheme: https, backend_http_version: '3', backend_tls_server_name: localhost, \
         backend_tls_ca_path: {:?}, {RULES}}}",
        tls::authority().ca()
    );
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, upstream_id: u, {fields}}}\n\
         upstreams:\n  - {{id: u, targets: [{{host: 127.0.0.1, port: {}}}, {{host: 127.0.0.1, port: {}}}]}}\n",
        one.port(),
        two.port()
    );
    let mut edge = h3::edge_with("", &spec);
    let client = h3::Client::open(edge.https()).await;
    let mut stream = client.begin("GET", "/").await;
    stream.finish().await;
    let (slow, fast) = tokio::join!(soon(first.recv()), soon(second.recv()));
    let (_request, mut slow) = slow.unwrap();
    let (_request, mut fast) = fast.unwrap();
    soon(fast.send_response(http::Response::new(()))).await.unwrap();
    soon(fast.send_data(Bytes::from_static(b"ok"))).await.unwrap();
    soon(fast.finish()).await.unwrap();
    let answer = stream.answer().await.unwrap();
    assert_eq!((answer.head.status().as_u16(), &answer.body[..]), (200, &b"ok"[..]));
    // The other stream was given up: sooner or later nothing can be written to it.
    drop(slow.send_response(http::Response::new(())).await);
    soon(async { while slow.send_data(Bytes::from_static(b"x")).await.is_ok() {} }).await;
    let record = edge.records.next().await;
    assert_eq!((record.attempts(), &record.0["upstream.hedges"]), (2, &1.into()));
}

#[tokio::test]
async fn unary_grpc_calls_that_are_named() {
    let ((mut one, first), (mut two, second)) =
        (Origin::listen(WireProtocol::H2).await, Origin::listen(WireProtocol::H2).await);
    let rules = format!("{RULES}, grpc_methods: [shop.Catalog/Get]}}");
    let mut edge = Edge::start(&spec(&first, &second, &rules));
    let io = connect(edge.http(), None).await;
    let (mut requests, connection) = soon(h2::client::handshake(io)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(2);
    message.put_slice(b"hi");
    let message = message.freeze();
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://a.test/shop.Catalog/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let (answer, mut up) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    two::send(&mut up, &message, true).await.unwrap();
    let (mut first, mut second) = (one.serve().await, two.serve().await);
    assert_eq!(first.body().await.unwrap(), message);
    assert_eq!(second.body().await.unwrap(), message);
    second.respond(200, &[("content-type", "application/grpc")], Will::Stream).await;
    second.send(&message).await.unwrap();
    second.finish(&[("grpc-status", "0")]).await.unwrap();
    let answer = soon(answer).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    first.gone().await;
    drop(answer);
    let record = edge.records.next().await;
    assert_eq!((record.attempts(), record.0["upstream.hedges"].as_u64()), (2, Some(1)));
}
