//! What of a request's head arrives, and what is said about the way it came.

use http::Method;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};

/// The fields the target got, from its answer.
fn field<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    body.lines().skip(2).find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

const CLAIMS: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nx-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: https\r\n\
    x-forwarded-host: evil\r\nforwarded: for=10.0.0.1\r\n\r\n";

#[tokio::test]
async fn a_strangers_claims_are_replaced() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()));
    let (_, body) = edge.ask(CLAIMS).await;
    assert_eq!(field(&body, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(field(&body, "x-forwarded-proto"), Some("http"));
    assert_eq!(field(&body, "x-forwarded-host"), Some("a.test"));
    assert_eq!(field(&body, "forwarded"), None);
}

#[tokio::test]
async fn a_trusted_proxys_claims_are_extended() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start_with(
        "  trusted_proxies: [127.0.0.0/8]\n  forwarded_header: true",
        &format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()),
    );
    let (_, body) = edge.ask(CLAIMS).await;
    assert_eq!(field(&body, "x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
    assert_eq!(field(&body, "x-forwarded-proto"), Some("https"));
    assert_eq!(field(&body, "x-forwarded-host"), Some("evil"));
    assert_eq!(field(&body, "forwarded"), Some("for=10.0.0.1, for=127.0.0.1;proto=http;host=\"a.test\""));
    assert_eq!(edge.records.next().await.0["client.address"], "10.0.0.1");
}

#[tokio::test]
async fn what_belongs_to_one_hop_stays_there() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()));
    let (_, body) = edge
        .ask(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, x-hop, cookie, host, x-forwarded-for\r\nx-hop: 1\r\n\
             keep-alive: timeout=5\r\nte: gzip\r\nproxy-authorization: Basic x\r\nproxy-connection: keep-alive\r\n\
             upgrade: x\r\ncookie: c=1\r\nx-consumer-username: root\r\nx-consumer-groups: admin\r\n\
             traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx-end: 1\r\n\r\n",
        )
        .await;
    for gone in [
        "connection",
        "x-hop",
        "keep-alive",
        "te",
        "proxy-authorization",
        "proxy-connection",
        "upgrade",
        "x-consumer-username",
        "x-consumer-groups",
    ] {
        assert_eq!(field(&body, gone), None, "{gone}");
    }
    assert_eq!(field(&body, "cookie"), Some("c=1"), "no client can have fields removed that guard something");
    assert_eq!(field(&body, "x-end"), Some("1"));
    assert_eq!(field(&body, "traceparent"), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    assert_eq!(field(&body, "x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn the_host_is_the_targets_unless_it_is_preserved() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: own, listen_path: /own, {0}}}\n  - {{id: kept, listen_path: /kept, preserve_host_header: true, {0}}}\n",
        origin.backend()
    ));
    let own = format!("127.0.0.1:{}", origin.address.port());
    for down in [WireProtocol::H1, WireProtocol::H2] {
        for (path, host) in [("/own", own.as_str()), ("/kept", "a.test")] {
            let mut client = Client::ask(
                &edge,
                down,
                Ask { method: Method::GET, path, headers: &[], body: Will::Nothing },
            )
            .await;
            assert_eq!(client.head().await.unwrap().status, 200);
            let body = String::from_utf8(client.body().await.unwrap()).unwrap();
            assert_eq!(field(&body, "host"), Some(host), "{down:?} {path}");
        }
    }
    // One name routed by and another forwarded would be two answers to one question.
    let (_, body) = edge.ask("GET http://b.test/kept HTTP/1.1\r\nhost: evil.test\r\n\r\n").await;
    assert_eq!(field(&body, "host"), Some("b.test"));
}

/// Conditions see what a client says to this hop, which targets don't.
#[tokio::test]
async fn a_proxy_is_chosen_by_what_belongs_to_one_hop() {
    let (plain, chosen) = (Standing::start("plain").await, Standing::start("chosen").await);
    let spec = |condition: &str| {
        format!(
            "proxies:\n  - {{id: a, listen_path: /, {}}}\n  - {{id: b, matches: [{{path: /, headers: {{{condition}}}}}], {}}}\n",
            plain.backend(),
            chosen.backend()
        )
    };
    for (condition, fields, is_chosen) in [
        ("connection: {contains: x-bot}", "connection: x-bot\r\nx-bot: 1\r\n", true),
        ("x-bot: {present: true}", "connection: x-bot\r\nx-bot: 1\r\n", true),
        ("upgrade: x", "upgrade: x\r\n", true),
        ("te: gzip", "te: gzip\r\n", true),
        ("te: trailers", "te: trailers\r\n", true),
        ("connection: {present: true}", "connection: keep-alive\r\n", false),
        ("x-consumer-username: {present: true}", "x-consumer-username: root\r\n", false),
        (
            "x-consumer-username: {present: true}",
            "connection: x-consumer-username\r\nx-consumer-username: root\r\n",
            false,
        ),
    ] {
        let edge = Edge::start(&spec(condition));
        let (_, body) = edge.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await;
        let name = if is_chosen { "chosen" } else { "plain" };
        assert!(body.starts_with(name), "{condition}: {body}");
        for gone in ["upgrade", "te", "x-bot", "x-consumer-username"] {
            assert_eq!(field(&body, gone), None, "{condition}");
        }
    }
}
