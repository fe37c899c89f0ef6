//! An OpenTelemetry collector for tests: takes OTLP over HTTP and gRPC, and reads what it was sent by its own rules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::h1::Talker;
use super::h2;
use super::soon;
use super::wire::{Port, Wire};

/// One request that it took.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The message, without gRPC's prefix.
    pub(crate) body: Vec<u8>,
}

impl Sent {
    /// The one value of a header field; empty where there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A running collector.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    sent: UnboundedReceiver<Sent>,
    _task: JoinSet<()>,
}

/// One span as it was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Collector {
    /// Takes OTLP by the protocol of this name, as in the settings of exporters.
    pub(crate) async fn speaking(protocol: &str) -> Self {
        match protocol {
            "grpc" => Self::grpc().await,
            _ => Self::http(&[]).await,
        }
    }

    /// Takes OTLP over HTTP/1.1; answers with these statuses first, then with 200.
    pub(crate) async fn http(statuses: &'static [u16]) -> Self {
        let port = Port::listen_on(SocketAddr::from(([127, 0, 0, 1], 0)), None).await;
        let address = port.address;
        let (sender, sent) = unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            let count = Arc::new(AtomicUsize::new(0));
            loop {
                let talker = Talker::new(Wire::new_patient(port.accept_ever().await));
                connections.spawn(serve(talker, statuses, count.clone(), sender.clone()));
            }
        });
        Self { address, sent, _task: task }
    }

    /// Takes OTLP over gRPC.
    pub(crate) async fn grpc() -> Self {
        let port = Port::listen_on(SocketAddr::from(([127, 0, 0, 1], 0)), None).await;
        let address = port.address;
        let (sender, sent) = unbounded_channel();
        let mut task = JoinSet::new();
        let mut streams = h2::origin(port);
        task.spawn(async move {
            while let Some((request, mut respond)) = streams.recv().await {
                let (head, mut recv) = request.into_parts();
                let mut body = Vec::new();
                while let Ok(Some(data)) = h2::data(&mut recv).await {
                    body.extend_from_slice(&data);
                }
                let length = u32::from_be_bytes([body[1], body[2], body[3], body[4]]) as usize;
                assert_eq!(body.len(), length + 5, "one whole message");
                body.drain(..5);
                let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut stream = respond.send_response(answer, false).unwrap();
                stream.send_data(Bytes::from_static(&[0, 0, 0, 0, 0]), false).unwrap();
                stream.send_trailers(h2::map(&[("grpc-status", "0")])).unwrap();
                let path = head.uri.path().to_owned();
                drop(sender.send(Sent { path, headers: head.headers, body }));
            }
        });
        Self { address, sent, _task: task }
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Sent {
        soon(self.sent.recv()).await.expect("a request")
    }

    /// So many spans, however many requests they come in; with the resource of the last.
    pub(crate) async fn spans(&mut self, count: usize) -> (Vec<Span>, BTreeMap<String, String>) {
        let (mut spans, mut resource) = (Vec::new(), BTreeMap::new());
        while spans.len() < count {
            let sent = self.next().await;
            let read = match sent.headers["content-type"].to_str().unwrap() {
                "application/json" => of_json(&serde_json::from_slice(&sent.body).expect("JSON")),
                _ => of_protobuf(&sent.body),
            };
            spans.extend(read.0);
            resource = read.1;
        }
        (spans, resource)
    }
}

async fn serve(
    mut talker: Talker,
    statuses: &'static [u16],
    count: Arc<AtomicUsize>,
    sender: UnboundedSender<Sent>,
) {
    while let Ok(head) = talker.request().await {
        let Ok(body) = talker.body().await else { return };
        let status = statuses.get(count.fetch_add(1, Ordering::Relaxed)).unwrap_or(&200);
        let line = format!("HTTP/1.1 {status} Collector");
        if talker.send_head(&line, &[("content-length", "0")], Some(0)).await.is_err() {
            return;
        }
        let path = head.word().to_owned();
        drop(sender.send(Sent { path, headers: head.headers, body: body.to_vec() }));
    }
}

type Read = (Vec<Span>, BTreeMap<String, String>);

fn of_json(request: &Value) -> Read {
    let attributes = |list: &Value| {
        let pairs = list.as_array().into_iter().flatten();
        let pairs = pairs.map(|pair| {
            let value = pair["value"].as_object().unwrap().values().next().unwrap();
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (pair["key"].as_str().unwrap().to_owned(), text)
        });
        pairs.collect()
    };
    let one = &request["resourceSpans"][0];
    let text = |span: &Value, key: &str| span[key].as_str().unwrap_or_default().to_owned();
    let spans = one["scopeSpans"][0]["spans"].as_array().unwrap().iter().map(|span| Span {
        trace: text(span, "traceId"),
        id: text(span, "spanId"),
        parent: text(span, "parentSpanId"),
        name: text(span, "name"),
        kind: span["kind"].as_u64().unwrap(),
        attributes: attributes(&span["attributes"]),
    });
    (spans.collect(), attributes(&one["resource"]["attributes"]))
}

/// The field numbers of opentelemetry-proto's trace.proto.
fn of_protobuf(request: &[u8]) -> Read {
    let (mut spans, mut resource) = (Vec::new(), BTreeMap::new());
    for (_, one) in fields(request) {
        for (number, value) in fields(one.bytes()) {
            if number == 1 {
                resource.extend(
                    fields(value.bytes())
                        .into_iter()
                        .filter(|(number, _)| *number == 1)
                        .map(|(_, pair)| attribute(pair)),
                );
                continue;
            }
            for (_, value) in fields(value.bytes()).into_iter().filter(|(number, _)| *number == 2) {
                spans.push(span(value.bytes()));
            }
        }
    }
    (spans, resource)
}

fn span(bytes: &[u8]) -> Span {
    let mut span = Span::default();
    for (number, value) in fields(bytes) {
        match number {
            1 => span.trace = hex(value.bytes()),
            2 => span.id = hex(value.bytes()),
            4 => span.parent = hex(value.bytes()),
            5 => span.name = text(value.bytes()),
            6 => span.kind = value.number(),
            9 => span.attributes.extend([attribute(value)]),
            _ => {}
        }
    }
    span
}

fn attribute(pair: Field<'_>) -> (String, String) {
    let (mut key, mut shown) = (String::new(), String::new());
    for (number, value) in fields(pair.bytes()) {
        match number {
            1 => key = text(value.bytes()),
            _ => {
                let (kind, value) = fields(value.bytes()).remove(0);
                shown = match kind {
                    1 => text(value.bytes()),
                    2 => (value.number() != 0).to_string(),
                    3 => value.number().to_string(),
                    _ => String::new(),
                };
            }
        }
    }
    (key, shown)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Field<'b> {
    fn bytes(&self) -> &'b [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => panic!("{number} is a number"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(bytes) => panic!("{bytes:?} is no number"),
        }
    }
}

/// The fields of a message; panics where it is malformed.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let length = match tag & 7 {
            0 => {
                fields.push((tag >> 3, Field::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            wire => panic!("wire type {wire}"),
        };
        let (value, rest) = bytes.split_at(length);
        fields.push((tag >> 3, Field::Bytes(value)));
        bytes = rest;
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint's end");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
    }
    panic!("a varint without end")
}
