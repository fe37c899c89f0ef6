//! What clients may not say of themselves, however they spell it and whatever they speak.

use http::{Method, Request};

use crate::support::edge::Edge;
use crate::support::h3;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};

/// Fields a target must not see from a client by default.
const CLAIMS: &[(&str, &str)] = &[
    ("x_consumer_username", "root"),
    ("x_forwarded_for", "10.0.0.1"),
    ("x-forwarded_for", "10.0.0.1"),
    ("my_field", "1"),
    ("x-consumer-username", "root"),
    ("x-credential-identifier", "root"),
    ("client-cert", ":AAAA:"),
    ("client-cert-chain", ":AAAA:"),
    ("x-forwarded-client-cert", "Subject=root"),
];

fn spec(backend: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n")
}

/// The claims among an answer's lines, which repeat the request's fields.
fn claims(body: &[u8]) -> Vec<String> {
    let body = String::from_utf8_lossy(body);
    assert!(body.contains("x-own: 1\n"), "other fields arrive: {body}");
    let names = body.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name.to_owned());
    names.filter(|name| CLAIMS.iter().any(|(claim, _)| claim == name)).collect()
}

fn fields() -> Vec<(&'static str, &'static str)> {
    [CLAIMS, &[("x-own", "1")]].concat()
}

/// Asks with the claims; status, and those of them that arrived.
async fn ask(edge: &Edge, kind: WireProtocol) -> (u16, Vec<String>) {
    let headers = fields();
    let ask = Ask { method: Method::GET, path: "/", headers: &headers, body: Will::Nothing };
    let mut client = Client::ask(edge, kind, ask).await;
    let status = client.head().await.unwrap().status;
    let body = client.body().await.unwrap();
    (status, if status == 200 { claims(&body) } else { Vec::new() })
}

#[tokio::test]
async fn no_version_carries_them() {
    let origin = Standing::start("o").await;
    let edge = h3::edge_with("", &spec(&origin.backend()));
    for kind in [WireProtocol::H1, WireProtocol::H1Tls, WireProtocol::H2, WireProtocol::H2Tls] {
        assert_eq!(ask(&edge, kind).await, (200, Vec::new()), "{kind:?}");
    }
    let client = h3::Client::open(edge.https()).await;
    let mut request = Request::get("https://a.test/");
    for (name, value) in fields() {
        request = request.header(name, value);
    }
    let mut stream = client.send(request.body(()).unwrap()).await;
    stream.finish().await;
    let answer = stream.answer().await.unwrap();
    assert_eq!((answer.head.status().as_u16(), claims(&answer.body)), (200, Vec::new()));
}

#[tokio::test]
async fn neither_do_grpc_and_websockets() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H2).await;
    let edge = Edge::start(&spec(&backend));
    let headers = [&fields()[..], &[("content-type", "application/grpc"), ("te", "trailers")]].concat();
    let ask = Ask { method: Method::POST, path: "/a.B/C", headers: &headers, body: Will::Stream };
    let (_client, served) = tokio::join!(Client::ask(&edge, WireProtocol::H2, ask), origin.serve());
    assert_eq!(served.field("x-own"), "1");
    for (name, _) in CLAIMS {
        assert!(!served.headers.contains_key(*name), "{name}");
    }
    let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
    let edge = Edge::start(&spec(&backend));
    let headers = [
        &fields()[..],
        &[
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ],
    ]
    .concat();
    let ask = Ask { method: Method::GET, path: "/", headers: &headers, body: Will::Nothing };
    let (_client, served) = tokio::join!(Client::ask(&edge, WireProtocol::H1, ask), origin.serve());
    assert_eq!(
        (served.field("x-own"), served.field("upgrade").to_ascii_lowercase()),
        ("1", "websocket".into())
    );
    for (name, _) in CLAIMS {
        assert!(!served.headers.contains_key(*name), "{name}");
    }
}

#[tokio::test]
async fn underscores_are_a_setting() {
    let origin = Standing::start("o").await;
    let spec = spec(&origin.backend());
    let edge = Edge::start_with("  underscores_in_headers: allow", &spec);
    for kind in [WireProtocol::H1, WireProtocol::H2] {
        // Those that pose as others are no more welcome than the others.
        assert_eq!(ask(&edge, kind).await, (200, vec!["my_field".to_owned()]), "{kind:?}");
    }
    let mut edge = Edge::start_with("  underscores_in_headers: reject", &spec);
    for kind in [WireProtocol::H1, WireProtocol::H2] {
        assert_eq!(ask(&edge, kind).await.0, 400, "{kind:?}");
        assert_eq!(edge.records.next().await.reason(), "bad_request");
    }
    let (head, _) = edge.get("/").await;
    assert_eq!(head.status(), 200, "without one it passes");
}

/// Who ends TLS in front of the gateway passes on whom it saw.
#[tokio::test]
async fn a_trusted_proxy_passes_certificates_on() {
    let origin = Standing::start("o").await;
    let edge = Edge::start_with("  trusted_proxies: [127.0.0.0/8]", &spec(&origin.backend()));
    let (status, mut passed) = ask(&edge, WireProtocol::H1).await;
    passed.sort_unstable();
    assert_eq!(status, 200);
    assert_eq!(passed, ["client-cert", "client-cert-chain", "x-forwarded-client-cert"]);
}
