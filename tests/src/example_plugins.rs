//! An example plugin that calls out, streams a reply and refuses from a body wrapper, over every protocol, while clients leave,
//! the gateway drains or reloads, and another plugin panics: one record each.

use std::sync::Arc;

use bytes::Bytes;
use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::plugin::{Hooks, OnResponse, Plugin, Registry, Seat, Step, World, entry};
use http::{Method, Request, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::support::edge::Edge;
use crate::support::talk::{Ask, Client, Origin, Served, Will, WireProtocol};
use crate::support::wire::Port;
use crate::support::{h3, soon};

#[path = "../../examples/plugins/src/screening.rs"]
mod screening;

/// A plugin that panics where the response says so in `x-panic`: in the `hook`, or in the `body` it wraps.
struct Panics;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl Plugin for Panics {
    const NAME: &'static str = "panics";
    const SUMMARY: &'static str = "Panics.";
    type Config = NoSettings;

    fn build(_config: NoSettings, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

impl OnResponse for Panics {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        match exchange.request.headers.get("x-panic").map(|value| value.as_bytes()) {
            Some(b"hook") => panic!("as the test wants it"),
            Some(b"body") => {
                let body = std::mem::take(response.body_mut());
                *response.body_mut() = body.map(|_| panic!("as the test wants it"));
            }
            _ => {}
        }
        Step::Next
    }
}

fn plugins() -> Registry {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Panics>());
    registry.add(entry::<screening::Screening>());
    registry
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    Http3,
    Grpc,
    WebSocket,
}

use Protocol::{Grpc, Http1, Http2, Http3, WebSocket};

const ALL: [Protocol; 5] = [Http1, Http2, Http3, Grpc, WebSocket];

/// A gateway with the plugin, a target, and the service that the plugin asks.
struct Stand {
    protocol: Protocol,
    edge: Edge,
    backend: String,
    target: Origin,
    service: Origin,
    asked_at: u16,
}

/// A client's side of an exchange.
enum Asked {
    Stream(Client),
    Http3(h3::Client, Box<h3::Stream>),
}

impl Stand {
    async fn new(protocol: Protocol) -> Self {
        let kind = if protocol == Grpc { WireProtocol::H2 } else { WireProtocol::H1 };
        let (target, backend) = Origin::listen(kind).await;
        let port = Port::listen(None).await;
        let asked_at = port.address.port();
        let spec = spec(&backend, asked_at, "forbidden");
        let edge = match protocol {
            Http3 => h3::edge_plugged(&plugins(), "", &spec),
            _ => Edge::start_plugged(plugins(), "", &spec),
        };
        Self { protocol, edge, backend, target, service: Origin::H1(port), asked_at }
    }

    /// Sends a request's head; with `Will::Stream` a body is to follow.
    async fn ask(&self, headers: &[(&str, &str)], body: Will) -> Asked {
        let method = if body == Will::Nothing && self.protocol != Grpc { Method::GET } else { Method::POST };
        let more: &[(&str, &str)] = match self.protocol {
            Grpc => &[("content-type", "application/grpc"), ("te", "trailers")],
            WebSocket => &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ],
            _ => &[],
        };
        let headers = &[headers, more].concat();
        let kind = if matches!(self.protocol, Http2 | Grpc) { WireProtocol::H2 } else { WireProtocol::H1 };
        if self.protocol != Http3 {
            return Asked::Stream(
                Client::ask(&self.edge, kind, Ask { method, path: "/x", headers, body }).await,
            );
        }
        let client = h3::Client::open(self.edge.https()).await;
        let mut request = Request::builder().method(method).uri("https://a.test/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut stream = client.send(request.body(()).expect("a request")).await;
        if body == Will::Nothing {
            stream.finish().await;
        }
        Asked::Http3(client, Box::new(stream))
    }

    /// The plugin's call, once it is there.
    async fn call(&mut self) -> Served {
        let call = self.service.serve().await;
        assert_eq!((call.path.as_str(), call.field("x-path")), ("/may", "/x"), "{:?}", self.protocol);
        call
    }

    /// Has the request pass.
    async fn allow(&mut self) {
        self.call().await.respond(204, &[("connection", "close")], Will::Nothing).await;
    }

    /// Refuses the request, with the beginning of an answer.
    async fn refuse(&mut self) -> Served {
        let mut call = self.call().await;
        call.respond(403, &[("content-type", "text/plain"), ("x-internal", "1")], Will::Stream).await;
        call.send(b"not ").await.expect("a piece sent");
        call
    }

    /// Has another configuration of the plugin in use.
    fn reload(&self, forbidden: &str) {
        self.edge.reload(&spec(&self.backend, self.asked_at, forbidden));
    }
}

fn spec(backend: &str, asked_at: u16, forbidden: &str) -> String {
    format!(
        "proxies:\n  - {{id: main, listen_path: /, {backend}, plugins: [{{plugin_config_id: a}}, {{plugin_config_id: b}}]}}\n\
         plugin_configs:\n  - {{id: a, plugin_name: panics, scope: proxy_group, config: {{}}}}\n  \
         - {{id: b, plugin_name: screening, scope: proxy_group, config: {{url: 'http://127.0.0.1:{asked_at}/may', forbidden: {forbidden}}}}}\n"
    )
}

impl Asked {
    async fn send(&mut self, data: &'static [u8]) {
        match self {
            Self::Stream(client) => client.send(data).await.expect("a piece sent"),
            Self::Http3(_, stream) => stream.data(data).await,
        }
    }

    /// Status, `content-type`, and `grpc-status` of the answer.
    async fn head(&mut self) -> Result<(u16, String, String), String> {
        let (status, headers) = match self {
            Self::Stream(client) => {
                let head = client.head().await.map_err(|error| error.to_string())?;
                (head.status, head.headers)
            }
            Self::Http3(_, stream) => {
                let head = stream.head().await.map_err(|error| error.to_string())?;
                (head.status().as_u16(), head.headers().clone())
            }
        };
        assert!(!headers.contains_key("x-internal"), "{headers:?}");
        let field =
            |name: &str| headers.get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
        Ok((status, field("content-type"), field("grpc-status")))
    }

    async fn data(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Stream(client) => client.data().await.map_err(|error| error.to_string()),
            Self::Http3(_, stream) => stream.piece().await.map_err(|error| error.to_string()),
        }
    }

    async fn body(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&data);
        }
        Ok(body)
    }

    fn leave(self) {
        match self {
            Self::Stream(client) => client.hang_up(),
            Self::Http3(client, _) => client.quic.close(0_u8.into(), b""),
        }
    }

    /// The refusal as far as it has come: the head, and the first piece of a body that goes on.
    async fn is_being_refused(&mut self) {
        let (status, kind, _) = self.head().await.expect("a head");
        assert_eq!((status, kind.as_str()), (403, "text/plain"));
        assert_eq!(self.data().await, Ok(Some(Bytes::from_static(b"not "))));
    }
}

#[tokio::test]
async fn requests_pass_when_the_service_says_so() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[], Will::Nothing).await;
        it.allow().await;
        let mut served = it.target.serve().await;
        if protocol == WebSocket {
            let agreed = [
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ];
            served.respond(101, &agreed, Will::Nothing).await;
            assert_eq!(asked.head().await.expect("a head").0, 101);
            asked.leave();
            drop(served);
            assert_eq!(it.edge.records.next().await.status(), 101);
            assert_eq!(it.edge.session().await.kind(), "websocket");
            it.edge.nothing_recorded().await;
            continue;
        }
        let kind = if protocol == Grpc { "application/grpc" } else { "text/plain" };
        served.respond(200, &[("content-type", kind)], Will::Stream).await;
        served.send(b"fine").await.expect("a piece sent");
        served
            .finish(if protocol == Grpc { &[("grpc-status", "0")] } else { &[] })
            .await
            .expect("the end sent");
        assert_eq!(asked.head().await.expect("a head").0, 200);
        assert_eq!(asked.body().await.expect("a body"), b"fine");
        let record = it.edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (200, ""), "{protocol:?}: {record:?}");
    }
}

#[tokio::test]
async fn a_refusal_comes_to_the_client_as_the_service_sends_it() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[], Will::Nothing).await;
        let mut call = it.refuse().await;
        // The service says more only after the client has what it said before.
        asked.is_being_refused().await;
        call.send(b"you").await.expect("a piece sent");
        call.finish(&[]).await.expect("the end sent");
        assert_eq!(asked.body().await.expect("a body"), b"you");
        let record = it.edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (403, "screened"), "{protocol:?}: {record:?}");
    }
}

#[tokio::test]
async fn an_upload_is_ended_where_it_has_what_may_not_be() {
    for protocol in [Http1, Http2, Http3, Grpc] {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[], Will::Stream).await;
        asked.send(b"harmless, ").await;
        it.allow().await;
        let mut served = it.target.serve().await;
        assert_eq!(
            served.data().await.expect("data"),
            Some(Bytes::from_static(b"harmless, ")),
            "{protocol:?}"
        );
        asked.send(b"but forb").await;
        asked.send(b"idden").await;
        let (status, _, grpc) = asked.head().await.expect("a head");
        assert_eq!(
            (status, grpc.as_str()),
            if protocol == Grpc { (200, "7") } else { (403, "") },
            "{protocol:?}"
        );
        let record = it.edge.only_record().await;
        assert_eq!(record.reason(), "forbidden_content", "{protocol:?}: {record:?}");
    }
}

#[tokio::test]
async fn clients_may_leave() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        // While the service is asked.
        let asked = it.ask(&[], Will::Nothing).await;
        let call = it.call().await;
        asked.leave();
        assert_eq!(it.edge.only_record().await.reason(), "client_gone", "{protocol:?}");
        drop(call);
        // While the refusal comes.
        let mut asked = it.ask(&[], Will::Nothing).await;
        let call = it.refuse().await;
        asked.is_being_refused().await;
        asked.leave();
        let record = it.edge.only_record().await;
        assert_eq!(record.status(), 403, "{protocol:?}: {record:?}");
        drop(call);
    }
}

#[tokio::test]
async fn a_drain_lets_a_refusal_end() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[], Will::Nothing).await;
        let mut call = it.refuse().await;
        asked.is_being_refused().await;
        it.edge.gateway.begin_drain();
        call.send(b"you").await.expect("a piece sent");
        call.finish(&[]).await.expect("the end sent");
        assert_eq!(asked.body().await.expect("a body"), b"you", "{protocol:?}");
        let Edge { gateway, mut records, .. } = it.edge;
        let record = records.next().await;
        assert_eq!((record.status(), record.reason()), (403, "screened"), "{protocol:?}: {record:?}");
        asked.leave();
        let drained = soon(tokio::task::spawn_blocking(|| gateway.drain())).await.expect("no panic");
        assert!(drained, "{protocol:?}");
        records.nothing_more().await;
    }
}

#[tokio::test]
async fn a_reload_leaves_what_is_under_way() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[], Will::Nothing).await;
        let mut call = it.call().await;
        // The plugin is replaced while its call waits, and again while its reply streams.
        it.reload("other");
        call.respond(403, &[("content-type", "text/plain")], Will::Stream).await;
        call.send(b"not ").await.expect("a piece sent");
        asked.is_being_refused().await;
        it.reload("another");
        call.send(b"you").await.expect("a piece sent");
        call.finish(&[]).await.expect("the end sent");
        assert_eq!(asked.body().await.expect("a body"), b"you", "{protocol:?}");
        let record = it.edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (403, "screened"), "{protocol:?}: {record:?}");
    }
}

#[tokio::test]
async fn panics_are_recorded_once() {
    for protocol in ALL {
        let mut it = Stand::new(protocol).await;
        let mut asked = it.ask(&[("x-panic", "hook")], Will::Nothing).await;
        let call = it.refuse().await;
        let (status, _, grpc) = asked.head().await.expect("a head");
        assert_eq!(
            (status, grpc.as_str()),
            if protocol == Grpc { (200, "13") } else { (500, "") },
            "{protocol:?}"
        );
        let record = it.edge.only_record().await;
        assert_eq!(record.reason(), "internal", "{protocol:?}: {record:?}");
        drop(call);
        // The head may be on its way already.
        let mut asked = it.ask(&[("x-panic", "body")], Will::Nothing).await;
        let call = it.refuse().await;
        let whole = async {
            asked.head().await?;
            asked.body().await
        };
        assert!(whole.await.is_err(), "{protocol:?}: cut off");
        it.edge.only_record().await;
        drop(call);
    }
}
