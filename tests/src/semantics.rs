//! Rules of RFC 9110 that hold for every version.

use http::Method;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Got, Origin, Will, WireProtocol};

const KINDS: [WireProtocol; 2] = [WireProtocol::H1, WireProtocol::H2];

fn spec(backend: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n")
}

/// Asks without a body; the answer's head and body.
async fn ask(
    edge: &Edge,
    kind: WireProtocol,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (Got, String) {
    let method: Method = method.parse().unwrap();
    let mut client = Client::ask(edge, kind, Ask { method, path, headers, body: Will::Nothing }).await;
    let got = client.head().await.unwrap();
    let body = client.body().await.unwrap();
    (got, String::from_utf8(body).unwrap())
}

/// A target that does without trailers may leave out what the client would have liked to know.
#[tokio::test]
async fn a_client_that_takes_trailers_is_announced_as_one() {
    for down in KINDS {
        let (mut origin, backend) = Origin::listen(WireProtocol::H2).await;
        let edge = Edge::start(&spec(&backend));
        let with: &[(&str, &str)] = match down {
            WireProtocol::H1 => &[("te", "gzip, trailers"), ("connection", "te")],
            _ => &[("te", "trailers")],
        };
        for (headers, expected) in [(with, Some("trailers")), (&[], None)] {
            let ask = Ask { method: Method::GET, path: "/", headers, body: Will::Nothing };
            let (_client, served) = tokio::join!(Client::ask(&edge, down, ask), origin.serve());
            let te = served.headers.get("te").map(|value| value.to_str().unwrap());
            assert_eq!(te, expected, "{down:?}");
        }
    }
}

#[tokio::test]
async fn expectations_nobody_knows_are_refused() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&spec(&origin.backend()));
    for kind in KINDS {
        for expectation in ["200-ok", "100-continue, 200-ok", ""] {
            let (got, _) = ask(&edge, kind, "GET", "/", &[("expect", expectation)]).await;
            assert_eq!(got.status, 417, "{kind:?} {expectation:?}");
            let record = edge.records.next().await;
            assert_eq!((record.status(), record.reason()), (417, "expectation_failed"));
        }
        let (got, _) = ask(&edge, kind, "GET", "/", &[("expect", "100-Continue")]).await;
        assert_eq!(got.status, 200, "{kind:?}");
        edge.records.next().await;
    }
    let (head, _) = edge.ask("GET / HTTP/1.0\r\nhost: a\r\nexpect: 200-ok\r\n\r\n").await;
    assert_eq!(head.status(), 200, "HTTP/1.0 knows no expectations");
    assert_eq!(origin.served(), 3);
}

/// RFC 9110 §2.5.
#[tokio::test]
async fn later_versions_of_http_1_are_read_as_1_1() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&spec(&origin.backend()));
    let mut client = edge.talker().await;
    for version in ["HTTP/1.2", "HTTP/1.9", "HTTP/1.1"] {
        client.wire.send(format!("GET / {version}\r\nhost: a\r\n\r\n")).await;
        let head = client.response(&Method::GET).await.unwrap();
        client.body().await.unwrap();
        assert_eq!((head.status(), head.field("connection")), (200, ""), "{version}");
    }
}

/// Whoever sends the body along does not wait, and sends all of it.
#[tokio::test]
async fn an_expectation_with_the_body_behind_it_keeps_the_connection() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&spec(&origin.backend()));
    let mut client = edge.talker().await;
    for (framing, body) in [
        ("content-length: 4", "abcd"),
        ("transfer-encoding: chunked", "4\r\nabcd\r\n0\r\n\r\n"),
        ("content-length: 4", "abcd"),
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n{framing}\r\n\r\n{body}");
        client.wire.send(request).await;
        let head = client.response(&Method::POST).await.unwrap();
        client.body().await.unwrap();
        assert_eq!((head.status(), head.field("connection")), (200, ""), "{framing}");
    }
}

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

#[tokio::test]
async fn the_gateway_answers_for_itself() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&spec(&origin.backend()));
    let (head, body) = edge.ask("OPTIONS * HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    assert_eq!((head.status(), head.field("allow"), body.as_str()), (200, METHODS, ""));
    let record = edge.records.next().await;
    assert_eq!((record.status(), record.reason()), (200, "options"));
    for kind in KINDS {
        let (got, body) = ask(&edge, kind, "OPTIONS", "/", &[("max-forwards", "0")]).await;
        assert_eq!((got.status, got.field("allow"), body.as_str()), (200, METHODS, ""), "{kind:?}");
    }
    assert_eq!(origin.served(), 0, "none of them was for the target");
    for kind in KINDS {
        for (sent, expected) in [("1", "max-forwards: 0\n"), ("10", "max-forwards: 9\n")] {
            let (got, body) = ask(&edge, kind, "OPTIONS", "/", &[("max-forwards", sent)]).await;
            assert_eq!(got.status, 200);
            assert!(body.contains(expected), "{kind:?} {sent}: {body}");
        }
        // It is for OPTIONS and TRACE only.
        let (_, body) = ask(&edge, kind, "GET", "/", &[("max-forwards", "0")]).await;
        assert!(body.contains("max-forwards: 0\n"), "{body}");
    }
}

#[tokio::test]
async fn who_may_get_may_ask_for_the_head() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&spec(&format!("allowed_methods: [GET, POST], {}", origin.backend())));
    for kind in KINDS {
        assert_eq!(ask(&edge, kind, "HEAD", "/", &[]).await.0.status, 200, "{kind:?}");
        let (got, _) = ask(&edge, kind, "DELETE", "/", &[]).await;
        assert_eq!((got.status, got.field("allow")), (405, "GET, HEAD, POST"), "{kind:?}");
    }
}
