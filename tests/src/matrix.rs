//! Every HTTP version on either side, with and without TLS, and what an exchange may go through: one table.

use bytes::Bytes;
use http::Method;

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::talk::{Ask, Client, Origin, Served, Will, WireProtocol};

/// A gateway between one kind of client and one kind of origin.
struct Between {
    edge: Edge,
    down: WireProtocol,
    up: WireProtocol,
    origin: Origin,
}

impl Between {
    async fn new(down: WireProtocol, up: WireProtocol) -> Self {
        let (origin, backend) = Origin::listen(up).await;
        let edge = Edge::start(&format!(
            "proxies:\n  - {{id: main, listen_path: /, {backend}}}\n  \
             - {{id: stalls, listen_path: /stalls, {backend}, backend_first_byte_timeout: 100ms}}\n"
        ));
        Self { edge, down, up, origin }
    }

    async fn ask(&self, method: Method, headers: &[(&str, &str)], body: Will) -> Client {
        self.ask_at("/here?q=1", method, headers, body).await
    }

    async fn ask_at(&self, path: &str, method: Method, headers: &[(&str, &str)], body: Will) -> Client {
        Client::ask(&self.edge, self.down, Ask { method, path, headers, body }).await
    }

    async fn get(&mut self) -> (Client, Served) {
        let client = self.ask(Method::GET, &[], Will::Nothing).await;
        (client, self.origin.serve().await)
    }

    /// The one record is that of an exchange answered whole.
    async fn went_well(mut self, status: u64) {
        let record = self.edge.records.next().await;
        assert_eq!((record.status(), record.reason()), (status, ""), "{record:?}");
    }

    /// The one record says why.
    async fn ended_by(mut self, reason: &str) {
        let record = self.edge.records.next().await;
        assert_eq!(record.reason(), reason, "{record:?}");
    }
}

async fn get(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    assert_eq!((&served.method, served.path.as_str()), (&Method::GET, "/here?q=1"));
    assert_eq!(served.field("x-forwarded-for"), "127.0.0.1");
    assert_eq!(served.field("x-forwarded-host"), "a.test");
    assert_eq!(served.field("x-forwarded-proto"), if it.down.is_tls() { "https" } else { "http" });
    let via = served.field("via");
    assert!(via.starts_with(if it.down.is_h2() { "2 ferrum-edge (" } else { "1.1 ferrum-edge (" }), "{via}");
    assert!(served.body().await.unwrap().is_empty());
    served.respond(200, &[("x-origin", "yes")], Will::Length(5)).await;
    served.send(b"hello").await.unwrap();
    served.finish(&[]).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("x-origin"), head.field("content-length")), (200, "yes", "5"));
    assert_eq!(client.body().await.unwrap(), b"hello");
    it.went_well(200).await;
}

async fn post_with_length(mut it: Between) {
    let mut client = it.ask(Method::POST, &[("content-type", "text/plain")], Will::Length(11)).await;
    client.send(b"hello ").await.unwrap();
    let mut served = it.origin.serve().await;
    assert_eq!(served.field("content-length"), "11");
    client.send(b"world").await.unwrap();
    client.finish(&[]).await.unwrap();
    assert_eq!(served.body().await.unwrap(), b"hello world");
    served.respond(201, &[], Will::Length(2)).await;
    served.send(b"ok").await.unwrap();
    served.finish(&[]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 201);
    assert_eq!(client.body().await.unwrap(), b"ok");
    it.went_well(201).await;
}

/// Each piece is answered before the next is sent: nothing may be held back on the way, in either direction.
async fn echo_while_uploading(mut it: Between) {
    let mut client = it.ask(Method::POST, &[], Will::Stream).await;
    let mut served = it.origin.serve().await;
    served.respond(200, &[], Will::Stream).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    for piece in ["one", "two", "three"] {
        client.send(piece.as_bytes()).await.unwrap();
        assert_eq!(served.data().await.unwrap().unwrap(), piece.as_bytes());
        served.send(piece.as_bytes()).await.unwrap();
        assert_eq!(client.data().await.unwrap().unwrap(), piece.as_bytes());
    }
    client.finish(&[]).await.unwrap();
    assert_eq!(served.data().await.unwrap(), None);
    served.finish(&[]).await.unwrap();
    assert_eq!(client.data().await.unwrap(), None);
    it.went_well(200).await;
}

async fn head(mut it: Between) {
    let mut client = it.ask(Method::HEAD, &[], Will::Nothing).await;
    let mut served = it.origin.serve().await;
    assert_eq!(served.method, Method::HEAD);
    served.respond(200, &[("content-length", "1234")], Will::Nothing).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("content-length")), (200, "1234"));
    assert_eq!(client.body().await.unwrap(), b"");
    it.went_well(200).await;
}

async fn no_content(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    served.respond(204, &[], Will::Nothing).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("content-length"), head.field("transfer-encoding")), (204, "", ""));
    assert_eq!(client.body().await.unwrap(), b"");
    it.went_well(204).await;
}

async fn not_modified(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    served.respond(304, &[("etag", "\"x\"")], Will::Nothing).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("etag")), (304, "\"x\""));
    assert_eq!(client.body().await.unwrap(), b"");
    it.went_well(304).await;
}

/// A client that does not read keeps the origin from sending: the gateway holds no more than its windows and sockets do.
async fn large_response(mut it: Between) {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 16;
    let (mut client, mut served) = it.get().await;
    served.respond(200, &[], Will::Length(PIECE * PIECES)).await;
    let sending = async {
        for number in 0..PIECES {
            served.send(&vec![number as u8; PIECE]).await.unwrap();
        }
        served.finish(&[]).await.unwrap();
    };
    let reading = async {
        assert_eq!(client.head().await.unwrap().status, 200);
        client.body().await.unwrap()
    };
    let ((), body) = tokio::join!(sending, reading);
    assert_eq!(body.len(), PIECE * PIECES);
    assert!(body.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / PIECE));
    it.went_well(200).await;
}

async fn trailers(mut it: Between) {
    let mut client = it.ask(Method::POST, &[("te", "trailers")], Will::Stream).await;
    client.send(b"up").await.unwrap();
    client.finish(&[("x-up", "1")]).await.unwrap();
    let mut served = it.origin.serve().await;
    assert_eq!(served.body().await.unwrap(), b"up");
    assert_eq!(served.trailers().await.unwrap()["x-up"], "1");
    served.respond(200, &[], Will::Stream).await;
    served.send(b"down").await.unwrap();
    served.finish(&[("x-down", "2")]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.body().await.unwrap(), b"down");
    assert_eq!(client.trailers().await.unwrap()["x-down"], "2");
    it.went_well(200).await;
}

async fn early_hints(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    // HAProxy passes forty; the length is the final response's, which some targets send early.
    for _ in 0..40 {
        served.interim(103, &[("link", "</a.css>; rel=preload"), ("content-length", "5")]).await;
        let hints = client.head().await.unwrap();
        assert_eq!((hints.status, hints.field("link")), (103, "</a.css>; rel=preload"));
        assert_eq!(hints.field("content-length"), "");
    }
    served.respond(200, &[], Will::Length(2)).await;
    served.send(b"ok").await.unwrap();
    served.finish(&[]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.body().await.unwrap(), b"ok");
    it.went_well(200).await;
}

async fn expect_continue(mut it: Between) {
    let mut client = it.ask(Method::PUT, &[("expect", "100-continue")], Will::Length(4)).await;
    let mut served = it.origin.serve().await;
    assert_eq!(served.field("expect"), "100-continue", "the target decides");
    served.interim(100, &[]).await;
    assert_eq!(client.head().await.unwrap().status, 100);
    let upload = async {
        client.send(b"body").await.unwrap();
        client.finish(&[]).await.unwrap();
    };
    let ((), body) = tokio::join!(upload, served.body());
    assert_eq!(body.unwrap(), b"body");
    served.respond(200, &[], Will::Length(2)).await;
    served.send(b"ok").await.unwrap();
    served.finish(&[]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.body().await.unwrap(), b"ok");
    it.went_well(200).await;
}

async fn client_leaves_mid_response(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    served.respond(200, &[], Will::Stream).await;
    served.send(b"some").await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.data().await.unwrap().unwrap(), "some");
    client.hang_up();
    served.gone().await;
    it.ended_by("client_gone").await;
}

async fn client_leaves_before_the_answer(mut it: Between) {
    let (client, served) = it.get().await;
    client.hang_up();
    served.gone().await;
    it.ended_by("client_gone").await;
}

async fn upstream_breaks_off(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    served.respond(200, &[], Will::Length(100)).await;
    served.send(b"some").await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.data().await.unwrap().unwrap(), "some");
    served.break_off();
    client.body().await.expect_err("a body cut short must not look whole");
    it.ended_by("upstream_closed").await;
}

async fn upstream_breaks_off_a_stream(mut it: Between) {
    let (mut client, mut served) = it.get().await;
    served.respond(200, &[], Will::Stream).await;
    served.send(b"some").await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.data().await.unwrap().unwrap(), "some");
    served.break_off();
    client.body().await.expect_err("a body cut short must not look whole");
    it.ended_by("upstream_closed").await;
}

async fn upstream_closes_before_the_answer(mut it: Between) {
    let (mut client, served) = it.get().await;
    served.break_off();
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("content-type")), (502, "application/problem+json"));
    let body = String::from_utf8(client.body().await.unwrap()).unwrap();
    assert!(body.contains("upstream_closed"), "{body}");
    it.ended_by("upstream_closed").await;
}

async fn upstream_stalls(mut it: Between) {
    let mut client = it.ask_at("/stalls", Method::GET, &[], Will::Nothing).await;
    let served = it.origin.serve().await;
    assert_eq!(client.head().await.unwrap().status, 504);
    served.gone().await;
    it.ended_by("upstream_timeout").await;
}

/// The first-byte timeout begins when the request has been sent, however long that takes.
async fn a_slow_upload_is_no_stall(mut it: Between) {
    let mut client = it.ask_at("/stalls", Method::POST, &[], Will::Stream).await;
    let mut served = it.origin.serve().await;
    // Something else takes longer than the first-byte timeout of this proxy: an exchange that runs into its own.
    let mut other = it.ask_at("/stalls", Method::GET, &[], Will::Nothing).await;
    let stalled = it.origin.serve().await;
    client.send(b"a").await.unwrap();
    assert_eq!(served.data().await.unwrap(), Some(Bytes::from_static(b"a")));
    assert_eq!(other.head().await.unwrap().status, 504);
    stalled.gone().await;
    client.send(b"b").await.unwrap();
    client.finish(&[]).await.unwrap();
    assert_eq!(served.body().await.unwrap(), b"b");
    served.respond(200, &[], Will::Nothing).await;
    assert_eq!(client.head().await.unwrap().status, 200);
}

/// gRPC hears of a refusal in its own words: 200 with a status in the head.
async fn grpc_refusal(mut it: Between) {
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut client = it.ask_at("/pkg.Service/Do", Method::POST, &grpc, Will::Stream).await;
    client.send(b"\0\0\0\0\0").await.unwrap();
    client.finish(&[]).await.unwrap();
    let mut served = it.origin.serve().await;
    assert_eq!(served.body().await.unwrap().len(), 5);
    served.break_off();
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("grpc-status")), (200, "14"));
    assert_eq!(head.field("content-type"), "application/grpc");
    assert_eq!(client.body().await.unwrap(), b"");
    it.ended_by("upstream_closed").await;
}

/// And a target's own status, in trailers, reaches the client.
async fn grpc_status(mut it: Between) {
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut client = it.ask_at("/pkg.Service/Do", Method::POST, &grpc, Will::Stream).await;
    client.send(b"\0\0\0\0\0").await.unwrap();
    client.finish(&[]).await.unwrap();
    let mut served = it.origin.serve().await;
    if it.up.is_h2() {
        assert_eq!(served.field("te"), "trailers");
    }
    served.body().await.unwrap();
    served.respond(200, &[("content-type", "application/grpc")], Will::Stream).await;
    served.send(b"\0\0\0\0\0").await.unwrap();
    served.finish(&[("grpc-status", "0")]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.body().await.unwrap().len(), 5);
    assert_eq!(client.trailers().await.unwrap()["grpc-status"], "0");
    it.went_well(200).await;
}

/// Each scenario between each pair of kinds.
macro_rules! matrix {
    ($($scenario:ident)+) => {
        $(mod $scenario {
            use super::*;

            matrix!(@ $scenario h1_to_h1 H1 H1, h1_to_h1s H1 H1Tls, h1_to_h2 H1 H2, h1_to_h2s H1 H2Tls,
                h1s_to_h1 H1Tls H1, h1s_to_h1s H1Tls H1Tls, h1s_to_h2 H1Tls H2, h1s_to_h2s H1Tls H2Tls,
                h2_to_h1 H2 H1, h2_to_h1s H2 H1Tls, h2_to_h2 H2 H2, h2_to_h2s H2 H2Tls,
                h2s_to_h1 H2Tls H1, h2s_to_h1s H2Tls H1Tls, h2s_to_h2 H2Tls H2, h2s_to_h2s H2Tls H2Tls);
        })+
    };
    (@ $scenario:ident $($name:ident $down:ident $up:ident),+) => {
        $(#[tokio::test]
        async fn $name() {
            let it = Between::new(WireProtocol::$down, WireProtocol::$up).await;
            soon(super::$scenario(it)).await;
        })+
    };
}

matrix! {
    get post_with_length echo_while_uploading head no_content not_modified large_response trailers early_hints
    expect_continue client_leaves_mid_response client_leaves_before_the_answer upstream_breaks_off
    upstream_breaks_off_a_stream upstream_closes_before_the_answer upstream_stalls a_slow_upload_is_no_stall
    grpc_refusal grpc_status
}

#[tokio::test]
async fn a_target_is_spoken_to_in_the_clients_version_if_asked_to() {
    for kind in [WireProtocol::H1, WireProtocol::H2] {
        let (mut origin, backend) = Origin::listen(kind).await;
        let place: Vec<&str> = backend.split(", ").filter(|part| !part.contains("http_version")).collect();
        let spec = format!(
            "proxies:\n  - {{id: a, listen_path: /, {}, backend_http_version: \"same\"}}\n",
            place.join(", ")
        );
        let edge = Edge::start(&spec);
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, kind, ask).await;
        let mut served = origin.serve().await;
        served.respond(204, &[], Will::Nothing).await;
        assert_eq!(client.head().await.unwrap().status, 204);
    }
}
