//! What an instance's functions of the host work with: its contexts, and what all instances of a plugin config share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::{AbortHandle, AbortRegistration};
use gateway_core::config::model::Id;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::Reply;
use gateway_core::metrics::Metric;
use gateway_core::plugin::Seat;
use gateway_core::plugin::world::meters::{Counter, Gauge, Histogram, Meters};
use gateway_core::stream::session::Session;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use wasmtime::{Memory, StoreLimits, TypedFunc};

use super::grpc::OpenStream;
use super::guest_error::GuestError;
use super::queues::Queues;
use super::settings::Rules;
use crate::shared_table::SharedTable;

/// The context of the module as a whole.
pub(super) const ROOT: u32 = 1;
/// Properties that one context may set.
pub(super) const MAX_PROPERTIES: usize = 64;
/// Metrics that a module may define.
pub(super) const MAX_METRICS: usize = 200;
/// Bytes of one shared value, queue entry, property or log line.
pub(super) const MAX_VALUE: usize = 256 << 10;

/// Bytes of a local response that gRPC clients get as its message.
const MAX_MESSAGE: usize = 1024;

/// What all instances of a plugin config share.
pub(super) struct Parts {
    pub(super) rules: Rules,
    /// The plugin config's id.
    pub(super) owner: String,
    /// Values with their compare-and-swap numbers.
    pub(super) data: Arc<SharedTable<(Bytes, u32)>>,
    pub(super) queues: Arc<Queues>,
    pub(super) meters: Meters,
    pub(super) metrics: Mutex<Vec<(Box<str>, Meter)>>,
}

/// A metric that a module has defined.
#[derive(Clone)]
pub(super) enum Meter {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

const COUNTERS: Metric =
    Metric::counter("ferrum_wasm_counter_total", "Counters that WebAssembly modules define, by name.");
const GAUGES: Metric = Metric::gauge("ferrum_wasm_gauge", "Gauges that WebAssembly modules define, by name.");
const HISTOGRAMS: Metric = Metric::histogram(
    "ferrum_wasm_histogram_seconds",
    "Histograms that WebAssembly modules define, by name; what they record counts as milliseconds.",
);

impl Parts {
    pub(super) fn metrics(&self) -> MutexGuard<'_, Vec<(Box<str>, Meter)>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metric of this kind (0 counter, 1 gauge, 2 histogram) and name.
    pub(super) fn meter(&self, kind: u32, name: &str) -> Option<Meter> {
        let (labels, values) = (&["plugin_config", "name"], [self.owner.as_str(), name]);
        Some(match kind {
            0 => Meter::Counter(self.meters.counter(COUNTERS, labels, &values)),
            1 => Meter::Gauge(self.meters.gauge(GAUGES, labels, &values)),
            2 => Meter::Histogram(self.meters.histogram(HISTOGRAMS, labels, &values)),
            _ => return None,
        })
    }
}

/// What an instance has.
pub(super) struct Host {
    pub(super) parts: Arc<Parts>,
    pub(super) limits: StoreLimits,
    pub(super) memory: Option<Memory>,
    pub(super) allocate: Option<TypedFunc<u32, u32>>,
    pub(super) contexts: HashMap<u32, Context, foldhash::fast::RandomState>,
    /// Whose data the functions of the host work with.
    pub(super) effective: u32,
    /// Calls that the guest has asked for and nobody has begun yet.
    pub(super) calls: Vec<Call>,
    /// The number of the last call or stream.
    pub(super) next_call: u32,
    /// gRPC streams by number, and those of them that nobody has begun yet.
    pub(super) streams: HashMap<u32, OpenStream, foldhash::fast::RandomState>,
    pub(super) opening: Vec<u32>,
    /// What a call came to or a stream brought, while the guest is told.
    pub(super) answer: Option<Answered>,
    /// How often the module wants to be called, at the root.
    pub(super) tick: Option<Duration>,
    /// Queues that it wants to hear of.
    pub(super) listens: Vec<u32>,
    pub(super) is_root_changed: bool,
    /// What was written to the standard output and error, without an end of a line so far.
    pub(super) unfinished: [Vec<u8>; 2],
}

/// A call that a guest wants made.
pub(super) struct Call {
    pub(super) id: u32,
    pub(super) owner: u32,
    pub(super) server: usize,
    pub(super) request: http::Request<Bytes>,
    pub(super) timeout: Duration,
    pub(super) is_grpc: bool,
    /// Ends the call when the guest cancels it.
    pub(super) cancelled: AbortRegistration,
}

/// A call that was begun or is about to be.
pub(super) struct UnderWay {
    pub(super) id: u32,
    pub(super) is_grpc: bool,
    pub(super) cancel: AbortHandle,
}

/// What a call came to; no headers for a failure.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) status: Option<StatusCode>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: HeaderMap,
    /// Of a gRPC call.
    pub(super) grpc_status: u32,
    pub(super) grpc_message: String,
}

/// A call that was made.
pub(super) struct Made {
    pub(super) id: u32,
    pub(super) owner: u32,
    pub(super) is_grpc: bool,
    pub(super) answer: Answered,
}

/// Directions of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directions {
    /// What the client sends.
    pub(super) up: bool,
    /// What the target sends.
    pub(super) down: bool,
}

/// The two ways of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// One exchange or stream, as the guest sees it; or the module as a whole.
#[derive(Default)]
pub(super) struct Context {
    pub(super) facts: Option<Facts>,
    /// A byte stream instead: `request` is what its client sends, `response` what its target sends.
    pub(super) is_stream: bool,
    pub(super) request: HostMessage,
    pub(super) response: HostMessage,
    pub(super) local: Option<LocalReply>,
    pub(super) properties: HashMap<Box<[u8]>, Bytes>,
    /// Who waits for the guest to go on.
    pub(super) waker: Option<Waker>,
    pub(super) calls: Vec<UnderWay>,
    /// Numbers of its gRPC streams.
    pub(super) streams: Vec<u32>,
    /// A function of the guest has failed that was called for a gRPC stream of this context, or a call beside its messages.
    pub(super) failure: Option<GuestError>,
}

/// One message of an exchange.
#[derive(Default)]
pub(super) struct HostMessage {
    /// Whether there is such a message yet.
    pub(super) is_there: bool,
    pub(super) line: PseudoHeaders,
    pub(super) headers: HeaderMap,
    pub(super) trailers: Option<HeaderMap>,
    /// What of the body the guest can see now.
    pub(super) body: Option<BytesMut>,
    /// Whether the head was changed, and the body at hand.
    pub(super) is_changed: bool,
    pub(super) is_body_changed: bool,
    pub(super) is_resumed: bool,
    /// Of a stream: its sender has closed.
    pub(super) is_over: bool,
    pub(super) is_closed: bool,
    /// Whether the guest took the message's length away, because it is going to change the body.
    pub(super) drops_length: bool,
}

/// What is not a header field, but looks like one to guests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PseudoHeaders {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) authority: String,
    pub(super) scheme: &'static str,
    pub(super) status: StatusCode,
}

/// What properties are made of.
pub(super) struct Facts {
    pub(super) client: Arc<Client>,
    pub(super) client_address: std::net::IpAddr,
    pub(super) version: http::Version,
    pub(super) request_id: Option<HeaderValue>,
    pub(super) server_name: Option<Arc<str>>,
    pub(super) proxy: Id,
    pub(super) caller: Option<Arc<str>>,
    pub(super) target: Option<String>,
    pub(super) began: std::time::SystemTime,
}

/// What a guest answers.
pub(super) struct LocalReply {
    pub(super) status: StatusCode,
    /// What gRPC clients get, where the guest says so; the body is their message then.
    pub(super) grpc_status: Option<u8>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl LocalReply {
    pub(super) fn into_reply(self) -> Reply {
        let Self { status, grpc_status, mut headers, body } = self;
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            // As in Envoy.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }
        let message = body.get(..MAX_MESSAGE).unwrap_or(&body);
        let detail = (!message.is_empty()).then(|| String::from_utf8_lossy(message).into_owned().into());
        let reply = Reply::fixed(status, body).reason("wasm");
        Reply { headers, grpc_status, detail, ..reply }
    }
}

/// Path and query as the target sees them, unless its proxy strips some of the path.
pub(super) fn target_of(exchange: &Exchange) -> String {
    exchange.forward_path.clone().unwrap_or_else(|| {
        exchange.request.uri.path_and_query().map_or_else(|| "/".to_owned(), |it| it.as_str().to_owned())
    })
}

impl Context {
    /// The context of an exchange whose request has come.
    pub(super) fn of(exchange: &Exchange, seat: Seat<'_>) -> Self {
        let line = PseudoHeaders {
            method: exchange.request.method.clone(),
            path: target_of(exchange),
            authority: exchange.authority().unwrap_or_default().to_owned(),
            scheme: exchange.scheme(),
            status: StatusCode::OK,
        };
        let facts = Facts {
            client: exchange.client.clone(),
            client_address: exchange.client_address,
            version: exchange.version(),
            request_id: exchange.request_id().cloned(),
            server_name: exchange.client.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            proxy: seat.proxy().id.clone(),
            caller: exchange.identity.as_ref().map(|identity| identity.name.clone()),
            target: None,
            began: std::time::SystemTime::now(),
        };
        let headers = exchange.request.headers.clone();
        let request = HostMessage { is_there: true, line, headers, ..HostMessage::default() };
        Self { facts: Some(facts), request, ..Self::default() }
    }

    /// The context of a byte stream.
    pub(super) fn of_session(session: &Session, seat: Seat<'_>) -> Self {
        let facts = Facts {
            client: session.client.clone(),
            client_address: session.client_address,
            version: http::Version::HTTP_11,
            request_id: None,
            server_name: session.server_name.clone(),
            proxy: seat.proxy().id.clone(),
            caller: session.identity.as_ref().map(|identity| identity.name.clone()),
            target: None,
            began: std::time::SystemTime::now(),
        };
        Self { facts: Some(facts), is_stream: true, ..Self::default() }
    }

    pub(super) fn side(&mut self, way: Direction) -> &mut HostMessage {
        match way {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    /// Has whoever waits for this context look at it again.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Host {
    /// Calls of this context that nobody has begun yet.
    pub(super) fn take_calls(&mut self, owner: u32) -> Vec<Call> {
        if self.calls.is_empty() {
            return Vec::new();
        }
        let (own, others) = std::mem::take(&mut self.calls).into_iter().partition(|call| call.owner == owner);
        self.calls = others;
        own
    }

    /// Ends a gRPC stream.
    pub(super) fn end_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.opening.retain(|other| *other != id);
        if let Some(context) = self.contexts.get_mut(&stream.owner) {
            context.streams.retain(|other| *other != id);
        }
    }

    /// A number for a call or stream.
    pub(super) fn number(&mut self) -> u32 {
        self.next_call = self.next_call.wrapping_add(1).max(1);
        self.next_call
    }

    /// The context whose data is worked with.
    pub(super) fn context(&mut self) -> Option<&mut Context> {
        self.contexts.get_mut(&self.effective)
    }
}
