//! hyper as the oracle: the same bytes go to hyper's server and to the gateway. Where one takes what the other refuses,
//! the difference stands in [`DIFFERENCES`] with its reason.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::wire::Wire;

/// A request that one of the two refuses, and why that is right. The gateway is the stricter one throughout: two
/// readers stand behind it, and what they could read differently is refused (ARCHITECTURE.md, invariant 7).
const DIFFERENCES: &[(&str, &str)] = &[
    ("GET / HTTP/1.1\nhost: a\n\n", "a bare line feed ends a line for some readers only"),
    ("GET / HTTP/1.1\r\nhost: a\n\r\n", "a bare line feed ends a line for some readers only"),
    (
        "GET / HTTP/1.1\r\n\r\n",
        "RFC 9112 §3.2: a request without Host is refused; hyper leaves that to its user",
    ),
    ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "RFC 9112 §3.2: so are two of them"),
    ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", "RFC 9112 §3.2: and one that is no host"),
    ("GET / HTTP/1.1\r\nhost:\r\n\r\n", "an empty Host chooses no proxy"),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
        "some readers take the last, others refuse",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "RFC 9112 §6.3 allows a server to refuse it, and it is the classic of request smuggling",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "RFC 9112 §6.1: 501 for a coding that is not known",
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunked twice is another coding than chunked once",
    ),
    (
        "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n",
        "the gateway takes no TRACE: it would show a client its identity headers",
    ),
    ("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n", "the gateway opens no tunnels to anywhere"),
    ("GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n", "a path that readers cut off at different places"),
    ("GET /%zz HTTP/1.1\r\nhost: a\r\n\r\n", "a broken escape is decoded in different ways"),
    ("GET /a\\b HTTP/1.1\r\nhost: a\r\n\r\n", "a backslash is a slash to some readers"),
    ("GET /a%5cb HTTP/1.1\r\nhost: a\r\n\r\n", "so is an escaped one"),
    (
        "GET http://u@a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "RFC 9110 §4.2.4: user information in a target is refused",
    ),
    ("GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n", "RFC 9112 §3.2.3: authority-form is for CONNECT"),
    (
        "GET x HTTP/1.1\r\nhost: a\r\n\r\n",
        "it is no form of a target, though the http crate takes it for an authority",
    ),
    ("GET * HTTP/1.1\r\nhost: a\r\n\r\n", "RFC 9112 §3.2.4: asterisk-form is for OPTIONS"),
];

/// What both must agree on.
const AGREED: &[&str] = &[
    "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n",
    "\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "PURGE / HTTP/1.1\r\nhost: a\r\n\r\n",
    "M-SEARCH / HTTP/1.1\r\nhost: a\r\n\r\n",
    "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
    "OPTIONS / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://a/x HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET http://a HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /?a=b&c=%20d HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a;b=c,d HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /~a!$&'()*+,;=:@ HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHOST:a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost:   a   \r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx:\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: \ty\t \r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: \u{e9}\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx!#$%&'*+-.^_`|~1: y\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 00002\r\n\r\nhi",
    "POST / HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n002\r\nhi\r\n000\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: y\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
    "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n z\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx : y\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\n: y\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
    "GET / HTTP/1.1\r\n host: a\r\n\r\n",
    "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET\t/ HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/3.0\r\nhost: a\r\n\r\n",
    "GET / http/1.1\r\nhost: a\r\n\r\n",
    "GET /\r\n\r\n",
    "G\u{e9}T / HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +2\r\n\r\nhi",
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhiX\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhi\r\n0\r\n\r\n",
];

/// hyper's server; takes a request when its body can be read to the end.
async fn oracle() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let Ok((tcp, _)) = listener.accept().await else { return };
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async {
                let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
                if request.into_body().collect().await.is_err() {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                }
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(async move {
                drop(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(tcp), service)
                        .await,
                );
            });
        }
    });
    address
}

/// Whether a server answers with a success; refusals and closes are no.
async fn takes(server: SocketAddr, bytes: &str) -> bool {
    let mut wire = Wire::open(server).await;
    drop(wire.try_send(bytes).await);
    let head = wire.until(b"\r\n\r\n").await.unwrap_or_default();
    head.get(9..10) == Some(b"2")
}

#[tokio::test]
async fn the_gateway_and_hyper_take_the_same_requests() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()));
    let hyper = oracle().await;
    let mut wrong = Vec::new();
    for bytes in AGREED {
        let (ours, hypers) = (takes(edge.http(), bytes).await, takes(hyper, bytes).await);
        if ours != hypers {
            wrong.push(format!("{bytes:?}: the gateway {ours}, hyper {hypers}"));
        }
    }
    for (bytes, why) in DIFFERENCES {
        if takes(edge.http(), bytes).await {
            wrong.push(format!("{bytes:?}: the gateway takes it, although {why}"));
        }
        if !takes(hyper, bytes).await {
            wrong.push(format!("{bytes:?}: hyper refuses it too; it belongs to the others"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
