//! HTTP/3 with targets.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use http::{Method, Response};

use crate::support::edge::Edge;
use crate::support::h3::{Served, origin};
use crate::support::talk::{Ask, Client, Will, WireProtocol};
use crate::support::wire::Port;
use crate::support::{soon, tls};

fn spec(address: SocketAddr, more: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_http_version: '3', \
         backend_host: 127.0.0.1, backend_port: {}, backend_tls_ca_path: {:?}{more}}}\n",
        address.port(),
        tls::authority().ca()
    )
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn take(served: &mut Served, length: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < length {
        let mut data = soon(served.1.recv_data()).await.unwrap().expect("more");
        got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    got
}

#[tokio::test]
async fn exchanges_stream_to_a_target_and_back() {
    let (address, mut streams) = origin(any()).unwrap();
    let mut edge = Edge::start(&spec(address, ""));
    for kind in [WireProtocol::H1, WireProtocol::H2, WireProtocol::H2Tls] {
        let ask = Ask { method: Method::POST, path: "/up?q", headers: &[("x-a", "b")], body: Will::Stream };
        let mut client = Client::ask(&edge, kind, ask).await;
        let mut served = soon(streams.recv()).await.unwrap();
        assert_eq!(served.0.uri().path_and_query().unwrap(), "/up?q");
        assert_eq!(served.0.headers()["x-a"], "b");
        client.send(b"ping").await.unwrap();
        assert_eq!(take(&mut served, 4).await, b"ping");
        let head = Response::builder().header("x-c", "d").body(()).unwrap();
        soon(served.1.send_response(head)).await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 200);
        soon(served.1.send_data(Bytes::from_static(b"pong"))).await.unwrap();
        client.finish(&[]).await.unwrap();
        assert!(soon(served.1.recv_data()).await.unwrap().is_none());
        soon(served.1.finish()).await.unwrap();
        assert_eq!(client.body().await.unwrap(), b"pong");
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason(), record.attempts()), (200, "", 1), "{kind:?}");
    }
}

#[tokio::test]
async fn a_target_that_breaks_off_is_not_taken_for_whole() {
    let (address, mut streams) = origin(any()).unwrap();
    let mut edge = Edge::start(&spec(address, ""));
    for kind in [WireProtocol::H1, WireProtocol::H2] {
        for length in ["", "100"] {
            let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
            let mut client = Client::ask(&edge, kind, ask).await;
            let (_request, mut stream) = soon(streams.recv()).await.unwrap();
            let mut head = Response::new(());
            if !length.is_empty() {
                head.headers_mut().insert("content-length", length.parse().unwrap());
            }
            soon(stream.send_response(head)).await.unwrap();
            soon(stream.send_data(Bytes::from_static(b"half"))).await.unwrap();
            assert_eq!(client.head().await.unwrap().status, 200);
            // With a length, an orderly end in the middle is none.
            if length.is_empty() {
                stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
            } else {
                soon(stream.finish()).await.unwrap();
            }
            client.body().await.expect_err("half an answer looked whole");
            let reason = edge.only_record().await;
            assert!(matches!(reason.reason(), "upstream_closed" | "upstream_garbage"), "{reason:?}");
        }
    }
}

#[tokio::test]
async fn a_target_without_quic_is_spoken_to_over_tcp() {
    let origin = Port::listen(Some(&["h2", "http/1.1"])).await;
    let mut edge = Edge::start(&spec(origin.address, ", backend_connect_timeout: 1500ms"));
    let mut streams = crate::support::h2::origin(origin);
    for _ in 0..3 {
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, WireProtocol::H1, ask).await;
        let (_request, mut respond) = soon(streams.recv()).await.unwrap();
        let mut sending = respond.send_response(Response::new(()), false).unwrap();
        sending.send_data("body".into(), true).unwrap();
        assert_eq!(client.head().await.unwrap().status, 200);
        assert_eq!(client.body().await.unwrap(), b"body");
        assert_eq!(edge.only_record().await.reason(), "");
    }
}
