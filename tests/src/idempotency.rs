//! Requests with an `Idempotency-Key` are carried out once: over both HTTP versions, for clients that leave, for targets
//! that break off, and for gateways that share a store.

use http::Method;

use crate::support::edge::Edge;
use crate::support::redis::Redis;
use crate::support::standing::Standing;
use crate::support::stream::free_port;
use crate::support::talk::{Ask, Client, Got, Origin, Will, WireProtocol};

fn spec(backend: &str, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: request_deduplication, scope: proxy_group, config: {config}}}\n"
    )
}

/// Sends a request with a key and a body.
async fn send(edge: &Edge, kind: WireProtocol, more: &[(&str, &str)]) -> Client {
    let headers: Vec<_> = [("idempotency-key", "\"8e03978e\"")].iter().chain(more).copied().collect();
    let ask = Ask { method: Method::POST, path: "/pay", headers: &headers, body: Will::Length(3) };
    let mut client = Client::ask(edge, kind, ask).await;
    client.send(b"ten").await.unwrap();
    client.finish(&[]).await.unwrap();
    client
}

async fn whole(mut client: Client) -> (Got, String) {
    let got = client.head().await.unwrap();
    let body = client.body().await.unwrap();
    (got, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_request_is_carried_out_once_in_every_version() {
    for kind in [WireProtocol::H1, WireProtocol::H2, WireProtocol::H2Tls] {
        let (mut origin, backend) = Origin::listen(kind).await;
        let mut edge = Edge::start(&spec(&backend, "{}"));
        let client = send(&edge, kind, &[]).await;
        let mut served = origin.serve().await;
        assert_eq!(served.body().await.unwrap(), b"ten", "{kind:?}");
        // The second comes while the first is under way.
        let (got, _) = whole(send(&edge, kind, &[]).await).await;
        assert_eq!((got.status, got.field("retry-after")), (409, "1"), "{kind:?}");
        served.respond(201, &[("x-order", "7")], Will::Stream).await;
        served.send(b"made").await.unwrap();
        served.finish(&[]).await.unwrap();
        let (got, body) = whole(client).await;
        assert_eq!(
            (got.status, body.as_str(), got.field("idempotent-replayed")),
            (201, "made", ""),
            "{kind:?}"
        );
        for again in [WireProtocol::H1, WireProtocol::H2] {
            let (got, body) = whole(send(&edge, again, &[]).await).await;
            assert_eq!((got.status, body.as_str()), (201, "made"), "{kind:?}");
            assert_eq!((got.field("x-order"), got.field("idempotent-replayed")), ("7", "true"));
        }
        let (got, _) = whole(send(&edge, kind, &[("content-type", "text/x")]).await).await;
        assert_eq!(got.status, 422, "{kind:?}");
        let mut outcomes = Vec::new();
        for _ in 0..5 {
            let record = edge.records.next().await.0;
            outcomes.push(record["request_deduplication.outcome"].as_str().unwrap_or("").to_owned());
        }
        assert_eq!(outcomes, ["conflict", "first", "replayed", "replayed", "mismatch"], "{kind:?}");
    }
}

#[tokio::test]
async fn the_client_gets_an_answer_while_it_is_stored() {
    for (kind, limit) in [
        (WireProtocol::H1, "1MiB"),
        (WireProtocol::H2, "1MiB"),
        (WireProtocol::H2Tls, "6"),
        (WireProtocol::H1, "6"),
    ] {
        let (mut origin, backend) = Origin::listen(kind).await;
        let edge = Edge::start(&spec(&backend, &format!("{{max_response: {limit}}}")));
        let mut client = send(&edge, kind, &[]).await;
        let mut served = origin.serve().await;
        served.body().await.unwrap();
        served.respond(200, &[], Will::Stream).await;
        let mut got = Vec::new();
        for (n, piece) in [b"one ", b"two ", b"tre "].iter().enumerate() {
            served.send(*piece).await.unwrap();
            if n == 0 {
                assert_eq!(client.head().await.unwrap().status, 200);
            }
            while got.len() < 4 * (n + 1) {
                got.extend(client.data().await.unwrap().expect("more"));
            }
            assert_eq!(got.len(), 4 * (n + 1), "{kind:?}: it is there before the next is sent");
        }
        served.finish(&[]).await.unwrap();
        assert_eq!(client.body().await.unwrap(), b"");
        assert_eq!(got, b"one two tre ");
        let (again, body) = whole(send(&edge, kind, &[]).await).await;
        match limit {
            "6" => assert!(again.status == 409 && body.contains("idempotency_answer_not_stored"), "{body}"),
            _ => assert_eq!((again.status, body.as_str()), (200, "one two tre ")),
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_gets_the_answer_when_it_asks_again() {
    // More than windows and buffers hold: once it is sent, the gateway reads the answer.
    const SIZE: usize = 16 << 20;
    for kind in [WireProtocol::H1, WireProtocol::H2] {
        let (mut origin, backend) = Origin::listen(WireProtocol::H2).await;
        let config = "{concurrent: wait, max_response: 20MiB}";
        let edge = Edge::start(&spec(&backend, config));
        let client = send(&edge, kind, &[]).await;
        let mut served = origin.serve().await;
        served.body().await.unwrap();
        served.respond(200, &[], Will::Length(SIZE)).await;
        served.send(&vec![b'x'; SIZE - 1]).await.unwrap();
        client.hang_up();
        let second = send(&edge, kind, &[]).await;
        served.send(b"!").await.unwrap();
        served.finish(&[]).await.unwrap();
        let (got, body) = whole(second).await;
        assert_eq!(
            (got.status, body.len(), got.field("idempotent-replayed")),
            (200, SIZE, "true"),
            "{kind:?}"
        );
        assert!(body.ends_with("x!"));
    }
}

#[tokio::test]
async fn a_target_that_breaks_off_leaves_the_outcome_open() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H2).await;
    let edge = Edge::start(&spec(&backend, "{}"));
    let client = send(&edge, WireProtocol::H1, &[]).await;
    let mut served = origin.serve().await;
    served.body().await.unwrap();
    served.break_off();
    let (got, _) = whole(client).await;
    assert_eq!(got.status, 502);
    let (got, body) = whole(send(&edge, WireProtocol::H1, &[]).await).await;
    assert_eq!((got.status, body.contains("idempotency_outcome_unknown")), (409, true), "{body}");
}

#[tokio::test]
async fn a_target_that_was_never_reached_leaves_the_key_free() {
    let port = free_port();
    let edge = Edge::start(&spec(
        &format!("backend_scheme: http, backend_host: 127.0.0.1, backend_port: {port}"),
        "{}",
    ));
    for _ in 0..2 {
        let (got, _) = whole(send(&edge, WireProtocol::H1, &[]).await).await;
        assert_eq!(got.status, 502, "it was tried");
    }
}

#[tokio::test]
async fn gateways_with_one_store_carry_out_a_request_once() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    let spec = spec(&origin.backend(), "{redis: {name: main, on_error: deny}}");
    let edges = [(); 2].map(|()| Edge::start_with(&redis.settings("10s"), &spec));
    for edge in &edges {
        // Refused until it is connected.
        let headers = [("idempotency-key", "first")];
        loop {
            let ask = Ask { method: Method::POST, path: "/", headers: &headers, body: Will::Nothing };
            if whole(Client::ask(edge, WireProtocol::H1, ask).await).await.0.status == 200 {
                break;
            }
        }
    }
    assert_eq!(origin.served(), 1, "the second gateway has the answer of the first");
    let (got, first) = whole(send(&edges[0], WireProtocol::H1, &[]).await).await;
    assert_eq!((got.status, got.field("idempotent-replayed")), (200, ""));
    loop {
        let (got, body) = whole(send(&edges[1], WireProtocol::H2, &[]).await).await;
        if got.status != 409 {
            assert_eq!((got.status, got.field("idempotent-replayed"), body), (200, "true", first));
            break;
        }
    }
    drop(redis);
    let (got, body) = whole(send(&edges[1], WireProtocol::H1, &[]).await).await;
    assert_eq!((got.status, body.contains("idempotency_store_away")), (503, true), "{body}");
    assert_eq!(origin.served(), 2);
}
