//! How a client speaks, and a request that passes and one that does not in each of these ways.

use http::{HeaderMap, Method, Request};

use crate::support::edge::Edge;
use crate::support::h3;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    H1,
    H2,
    H2Tls,
    H3,
    Grpc,
    WebSocket,
}

pub(super) const WAYS: [Way; 6] = [Way::H1, Way::H2, Way::H2Tls, Way::H3, Way::Grpc, Way::WebSocket];
/// Ways for plugins that look at bodies: a handshake of a WebSocket has none.
pub(super) const WITH_BODIES: [Way; 4] = [Way::H1, Way::H2, Way::H2Tls, Way::H3];

pub(super) type Fields<'a> = &'a [(&'a str, &'a str)];

/// A plugin with a request that passes and one that does not.
pub(super) struct Row<'a> {
    pub(super) plugin: &'a str,
    pub(super) config: &'a str,
    /// `{way}` stands for a text of each protocol's own.
    pub(super) good: (&'a str, Fields<'a>, &'a str),
    pub(super) bad: (&'a str, Fields<'a>, &'a str),
    /// The status of the refusal in HTTP and in gRPC.
    pub(super) refused: (u16, &'a str),
    /// A header field that refusals have.
    pub(super) field: &'a str,
    pub(super) ways: &'a [Way],
}

pub(super) const NOTHING: (&str, Fields<'_>, &str) = ("/", &[], "");

/// Sends a request; says status, gRPC status and header fields of the answer.
pub(super) async fn ask(
    edge: &Edge,
    way: Way,
    path: &str,
    fields: Fields<'_>,
    body: &str,
) -> (u16, HeaderMap) {
    let own = format!("{way:?}");
    let mut fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (*name, if *value == "{way}" { own.as_str() } else { *value }))
        .collect();
    let mut method = if body.is_empty() { Method::GET } else { Method::POST };
    match way {
        Way::Grpc => {
            fields.extend([("content-type", "application/grpc"), ("te", "trailers")]);
            method = Method::POST;
        }
        Way::WebSocket => fields.extend([
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]),
        _ => {}
    }
    let kind = match way {
        Way::H1 | Way::WebSocket => WireProtocol::H1,
        Way::H2 | Way::Grpc => WireProtocol::H2,
        Way::H2Tls => WireProtocol::H2Tls,
        Way::H3 => {
            let client = h3::Client::open(edge.https()).await;
            let request = Request::builder().method(method).uri(format!("https://a.test{path}"));
            let mut request = request.body(()).expect("a request");
            *request.headers_mut() = crate::support::h2::map(&fields);
            let mut stream = client.send(request).await;
            if !body.is_empty() {
                stream.data(body.to_owned()).await;
            }
            stream.finish().await;
            let head = stream.head().await.expect("an answer").into_parts().0;
            return (head.status.as_u16(), head.headers);
        }
    };
    let will = if body.is_empty() { Will::Nothing } else { Will::Length(body.len()) };
    let mut client = Client::ask(edge, kind, Ask { method, path, headers: &fields, body: will }).await;
    if !body.is_empty() {
        // A refusal may come before it is sent.
        if client.send(body.as_bytes()).await.is_ok() {
            drop(client.finish(&[]).await);
        }
    }
    let got = client.head().await.expect("an answer");
    (got.status, got.headers)
}

/// Good requests pass and bad ones do not, in all these protocols.
pub(super) async fn decides(edge: &Edge, origin: &Standing, row: &Row<'_>) {
    for way in row.ways.iter().copied() {
        let what = format!("{} {} over {way:?}", row.plugin, row.config);
        let before = origin.served();
        let (path, fields, body) = row.good;
        let (status, fields) = ask(edge, way, path, fields, body).await;
        let after = origin.served();
        // A gRPC call comes to the target as HTTP/2, which it does not speak: what it reads of that counts.
        let is_served = after == before + 1 || way == Way::Grpc && after > before;
        assert!(is_served, "{what}: a good request is not served: {status} {fields:?}");
        let (path, fields, body) = row.bad;
        let (status, fields) = ask(edge, way, path, fields, body).await;
        assert_eq!(origin.served(), after, "{what}: a bad request is served: {status}");
        if way == Way::Grpc {
            let code = fields.get("grpc-status").and_then(|code| code.to_str().ok());
            assert_eq!((status, code), (200, Some(row.refused.1)), "{what}: {fields:?}");
        } else {
            assert_eq!(status, row.refused.0, "{what}: {fields:?}");
            assert!(row.field.is_empty() || fields.contains_key(row.field), "{what}: {fields:?}");
        }
    }
}

pub(super) const CONSUMERS: &str = "consumers:\n  - {id: ann, username: ann, credentials: {key_auth: sesame, basic_auth: {password: open}, \
    jwt_auth: 'a secret of thirty-two bytes, ok'}}\n";

pub(super) fn spec(origin: &Standing, plugins: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\n{CONSUMERS}plugin_configs:\n{plugins}",
        origin.backend()
    )
}
