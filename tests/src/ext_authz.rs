//! Envoy's external authorization over gRPC, with a server that speaks HTTP/2 on a real socket.

use std::collections::HashMap;

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Response};
use prost::Message as _;
use tokio::sync::mpsc;

use crate::support::edge::Edge;
use crate::support::h2::{Stream, data, origin, send};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::free_port;
use crate::support::talk::{Ask, Client, Got, Will, WireProtocol};
use crate::support::wire::Port;

// As much of the published messages as these tests need.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    attributes: Option<Attributes>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Attributes {
    #[prost(message, optional, tag = "4")]
    request: Option<About>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct About {
    #[prost(message, optional, tag = "2")]
    http: Option<Http>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Http {
    #[prost(string, tag = "2")]
    method: String,
    #[prost(map = "string, string", tag = "3")]
    headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "10")]
    protocol: String,
    #[prost(string, tag = "11")]
    body: String,
}
#[derive(Clone, PartialEq, prost::Message)]
struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<Code>,
    #[prost(message, optional, tag = "2")]
    denied: Option<Denied>,
    #[prost(message, optional, tag = "3")]
    allowed: Option<Allowed>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Code {
    #[prost(int32, tag = "1")]
    code: i32,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Denied {
    #[prost(message, optional, tag = "1")]
    status: Option<Code>,
    #[prost(string, tag = "3")]
    body: String,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Allowed {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Set>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Set {
    #[prost(message, optional, tag = "1")]
    header: Option<Field>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// A server that allows whoever says `x-pass: yes`, and tells the test what it was asked.
async fn server() -> (u16, mpsc::UnboundedReceiver<Http>) {
    let port = Port::listen(None).await;
    let number = port.address.port();
    let mut streams = origin(port);
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(stream) = streams.recv().await {
            if sender.send(answer(stream).await).is_err() {
                return;
            }
        }
    });
    (number, asked)
}

async fn answer((request, mut respond): Stream) -> Http {
    assert_eq!(request.uri().path(), "/envoy.service.auth.v3.Authorization/Check");
    let mut body = request.into_body();
    let mut read = BytesMut::new();
    while let Some(piece) = data(&mut body).await.unwrap() {
        read.extend_from_slice(&piece);
    }
    let asked = CheckRequest::decode(&read[5..]).unwrap();
    let http = asked.attributes.unwrap().request.unwrap().http.unwrap();
    let passes = http.headers.get("x-pass").is_some_and(|value| value == "yes");
    let said = match passes {
        true => {
            let field = Field { key: "x-user".into(), value: "ann".into() };
            let allowed = Allowed { headers: vec![Set { header: Some(field) }] };
            CheckResponse { status: Some(Code { code: 0 }), denied: None, allowed: Some(allowed) }
        }
        false => {
            let denied = Denied { status: Some(Code { code: 401 }), body: "who are you?".into() };
            CheckResponse { status: Some(Code { code: 16 }), denied: Some(denied), allowed: None }
        }
    };
    let message = said.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.extend_from_slice(&message);
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut sending = respond.send_response(head, false).unwrap();
    send(&mut sending, &framed, false).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    sending.send_trailers(trailers).unwrap();
    http
}

fn spec(origin: &Standing, port: u16, more: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: forward_auth, scope: proxy_group, config: \
         {{url: 'http://127.0.0.1:{port}', convention: envoy_grpc{more}}}}}\n",
        origin.backend()
    )
}

async fn ask(edge: &Edge, kind: WireProtocol, pass: &str) -> (Got, String) {
    let headers = [("x-pass", pass), ("x-user", "forged")];
    let ask = Ask { method: Method::POST, path: "/shop?x=1", headers: &headers, body: Will::Length(3) };
    let mut client = Client::ask(edge, kind, ask).await;
    client.send(b"ten").await.unwrap();
    client.finish(&[]).await.unwrap();
    let got = client.head().await.unwrap();
    let body = client.body().await.unwrap();
    (got, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_server_over_grpc_decides() {
    let target = Standing::start("o").await;
    let (port, mut asked) = server().await;
    let edge = Edge::start(&spec(&target, port, ", send_body: true"));
    for kind in [WireProtocol::H1, WireProtocol::H2, WireProtocol::H1Tls] {
        let (got, body) = ask(&edge, kind, "yes").await;
        assert_eq!(got.status, 200, "{kind:?} {body}");
        assert!(body.contains("x-user: ann\n") && !body.contains("forged"), "{kind:?} {body}");
        let http = soon(asked.recv()).await.unwrap();
        assert_eq!(
            (http.method.as_str(), http.path.as_str(), http.body.as_str()),
            ("POST", "/shop?x=1", "ten")
        );
        assert_eq!(http.protocol, if kind.is_h2() { "HTTP/2" } else { "HTTP/1.1" });
        let (got, body) = ask(&edge, kind, "no").await;
        assert_eq!((got.status, body.as_str()), (401, "who are you?"), "{kind:?}");
        soon(asked.recv()).await.unwrap();
    }
    assert_eq!(target.served(), 3, "what is refused does not reach the target");
}

#[tokio::test]
async fn a_server_that_is_away_lets_nothing_pass_unless_it_may() {
    let target = Standing::start("o").await;
    let port = free_port();
    for (more, status) in [("", 503), (", failure_mode_allow: true", 200)] {
        let edge = Edge::start(&spec(&target, port, more));
        assert_eq!(ask(&edge, WireProtocol::H1, "yes").await.0.status, status, "{more}");
    }
    // A server that takes connections and says nothing.
    let silent = Port::listen(None).await;
    let edge = Edge::start(&spec(&target, silent.address.port(), ", timeout: 50ms"));
    assert_eq!(ask(&edge, WireProtocol::H1, "yes").await.0.status, 503);
    assert_eq!(target.served(), 1);
}

#[tokio::test]
async fn a_websocket_is_asked_about_before_it_begins() {
    let target = Standing::start("o").await;
    let (port, mut asked) = server().await;
    let edge = Edge::start(&spec(&target, port, ""));
    let request = "GET /chat HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let (head, _) = edge.ask(request).await;
    assert_eq!(head.status(), 401);
    assert_eq!(soon(asked.recv()).await.unwrap().path, "/chat");
    assert_eq!(target.served(), 0);
}
