//! Spans as OTLP has them, under OpenTelemetry's names.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::model::{PathPattern, Proxy, TargetRules, Traffic};
use gateway_core::http::credentials::redact_field;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::Seat;
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::snapshot::ProxyState;
use gateway_core::snapshot::streams::target_address;
use gateway_core::trace::{SpanId, TraceContext, Waited};
use gateway_telemetry::context::baggage_value;
use gateway_telemetry::otlp::{Attributes, Encoder, Encoding, Field, Signal};
use gateway_telemetry::redact::{self, Secrets};
use http::{Method, Version};
use tokio::time::Instant;

use super::sampler;
use super::{Addressee, CANCELLED, OtelTracing, Trace, Try};

const TRACE_ID: Field = Field(1, "traceId");
const SPAN_ID: Field = Field(2, "spanId");
const TRACE_STATE: Field = Field(3, "traceState");
const PARENT_SPAN_ID: Field = Field(4, "parentSpanId");
const NAME: Field = Field(5, "name");
const KIND: Field = Field(6, "kind");
const START: Field = Field(7, "startTimeUnixNano");
const END: Field = Field(8, "endTimeUnixNano");
const ATTRIBUTES: Field = Field(9, "attributes");
const STATUS: Field = Field(15, "status");
const FLAGS: Field = Field(16, "flags");
const STATUS_MESSAGE: Field = Field(2, "message");
const STATUS_CODE: Field = Field(3, "code");

/// Kinds of spans.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;
/// The status `error`.
const ERROR: u32 = 2;
/// Bits of the flags: whether the parent is another process's is known, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Turns the gateway's moments into times of day.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    now: Instant,
    nanos: u64,
}

impl Clock {
    pub(super) fn now() -> Self {
        Self::at_moment(Instant::now())
    }

    /// At the end of an exchange, which is now: its record has read one clock already.
    pub(super) fn at_end(record: &ExchangeRecord<'_>) -> Self {
        Self::at_moment(record.exchange.started + record.duration)
    }

    fn at_moment(now: Instant) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { now, nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }

    fn at(self, moment: Instant) -> u64 {
        let before = self.now.saturating_duration_since(moment).as_nanos();
        self.nanos.saturating_sub(u64::try_from(before).unwrap_or(u64::MAX))
    }
}

/// What every span has.
struct Head<'s> {
    context: TraceContext,
    parent: Option<(SpanId, bool)>,
    state: &'s str,
    name: &'s str,
    kind: u32,
    times: (u64, u64),
}

impl Head<'_> {
    fn write(&self, span: &mut Encoder<'_>) {
        span.id(TRACE_ID, &self.context.trace.0);
        span.id(SPAN_ID, &self.context.span.0);
        span.text(TRACE_STATE, self.state);
        let mut flags = u32::from(self.context.sampled) | HAS_IS_REMOTE;
        if let Some((parent, is_remote)) = self.parent {
            span.id(PARENT_SPAN_ID, &parent.0);
            flags |= if is_remote { IS_REMOTE } else { 0 };
        }
        span.text(NAME, self.name);
        span.number(KIND, self.kind);
        span.fixed(START, self.times.0);
        span.fixed(END, self.times.1.max(self.times.0));
        span.flags(FLAGS, flags);
    }
}

fn failed(span: &mut Encoder<'_>, message: Option<&str>) {
    span.message(STATUS, |status| {
        if let Some(message) = message {
            status.text(STATUS_MESSAGE, message);
        }
        status.number(STATUS_CODE, ERROR);
    });
}

/// Writes one span behind what is in the buffer.
fn span(out: &mut Vec<u8>, encoding: Encoding, write: impl FnOnce(&mut Encoder<'_>)) {
    Encoder::new(out, encoding).item(Signal::Traces.item(), write);
}

/// The span of the exchange.
pub(super) fn exchange(
    out: &mut Vec<u8>,
    plugin: &OtelTracing,
    clock: Clock,
    trace: &Trace,
    record: &ExchangeRecord<'_>,
) {
    let exchange = record.exchange;
    let route = record.route.and_then(|proxy| route(&proxy.proxy));
    // Where no proxy serves it, the path may be anything, a gRPC method too: names of spans are few.
    let name = match record.route {
        Some(_) => name(exchange, route),
        None => shown(exchange.method()).into(),
    };
    span(out, plugin.encoding, |span| {
        let parent = trace.parent.as_ref().and_then(|parent| Some((parent.span?, true)));
        let state = trace.parent.as_ref().map_or("", |parent| parent.state.as_str());
        let times = (clock.at(exchange.started), clock.nanos);
        Head { context: trace.context, parent, state, name: &name, kind: SERVER, times }.write(span);
        span.attributes(ATTRIBUTES, |all| {
            method(all, exchange.method());
            all.str("url.scheme", exchange.scheme());
            all.str("url.path", exchange.uri().path());
            if let Some(query) = exchange.uri().query() {
                all.text("url.query", redact::plain(query, Secrets::of(record.route, &plugin.redact_query)));
            }
            if let Some(authority) = exchange.authority() {
                address(all, authority.rsplit_once('@').map_or(authority, |(_, host)| host));
            }
            if let Some(route) = route {
                all.str("http.route", route);
            }
            all.int("http.response.status_code", record.status);
            if let Some(reason) = record.reason.filter(|_| record.is_error) {
                all.str("error.type", reason);
            } else if record.status >= 500 {
                all.text("error.type", record.status.to_string());
            }
            all.int("http.request.body.size", record.request_bytes);
            all.int("http.response.body.size", record.response_bytes);
            all.str("network.protocol.name", "http");
            all.str("network.protocol.version", version(exchange.version()));
            all.address("client.address", exchange.client_address);
            all.address("network.peer.address", exchange.client.peer.ip());
            all.int("network.peer.port", exchange.client.peer.port());
            if let Some(tls) = &exchange.client.tls {
                all.str("tls.protocol.version", tls.version.trim_start_matches("TLSv"));
                all.str("tls.cipher", tls.cipher);
            }
            rpc(all, exchange);
            if let Some(code) = record.grpc_status {
                all.int("rpc.grpc.status_code", code);
            }
            identity(all, record.route, exchange.identity.as_deref().map(|identity| &*identity.name));
            if record.attempts > 0 {
                all.int("ferrum.attempts", record.attempts);
            }
            add_request_headers(all, plugin, exchange, record.route);
        });
        if sampler::is_failure(record) {
            failed(span, record.failure.map(ToString::to_string).as_deref());
        }
    });
}

/// Header fields and baggage that were asked for.
fn add_request_headers(
    all: &mut Attributes<'_, '_, '_>,
    plugin: &OtelTracing,
    exchange: &Exchange,
    route: Option<&ProxyState>,
) {
    let headers = &exchange.request.headers;
    if let Some(agent) = headers.get(http::header::USER_AGENT) {
        all.text("user_agent.original", agent);
    }
    for (name, attribute) in &plugin.headers {
        if headers.contains_key(name) {
            let is_credential = route.is_some_and(|route| route.plugins.read_credential_in(name));
            let values = headers.get_all(name).iter().map(|value| {
                if is_credential {
                    return b"REDACTED".to_vec();
                }
                let mut shown = Vec::new();
                redact_field(&mut shown, name, value.as_bytes());
                shown
            });
            all.texts(attribute, values);
        }
    }
    for (key, attribute) in &plugin.baggage {
        if let Some(value) = baggage_value(headers, key) {
            all.text(attribute, value);
        }
    }
}

/// The span of one attempt.
pub(super) fn attempt(
    out: &mut Vec<u8>,
    plugin: &OtelTracing,
    clock: Clock,
    trace: &Trace,
    tried: &Try,
    record: &ExchangeRecord<'_>,
    seat: Seat<'_>,
) {
    let exchange = record.exchange;
    let ended = tried.ended.map_or(clock.nanos, |ended| clock.at(ended));
    // One that was cut off was never told its end.
    let cut = record.reason.filter(|_| tried.ended.is_none());
    let error = tried.error.or(cut);
    // Only the last one was answered for good.
    let mut latest = trace.attempts.iter().rev();
    let taken = latest.find(|tried| tried.error != Some(CANCELLED));
    let is_taken = taken.is_some_and(|taken| taken.number == tried.number);
    let code = record.grpc_status.filter(|_| is_taken && tried.error.is_none());
    let is_latest = trace.attempts.last().is_some_and(|last| last.number == tried.number);
    let (authority, rules) = match (&tried.target, record.target.filter(|_| is_latest)) {
        (Some(Addressee { authority, rules }), _) => (Some(&**authority), Some(&**rules)),
        (None, target) => (target.map(|it| &**it.authority()), target.map(|it| &*it.rules)),
    };
    span(out, plugin.encoding, |span| {
        let context = TraceContext { span: tried.span.unwrap_or_else(SpanId::random), ..trace.context };
        let state = trace.parent.as_ref().map_or("", |parent| parent.state.as_str());
        let parent = Some((trace.context.span, false));
        let times = (clock.at(tried.began), ended);
        let name = shown(exchange.method());
        Head { context, parent, state, name, kind: CLIENT, times }.write(span);
        span.attributes(ATTRIBUTES, |all| {
            method(all, exchange.method());
            if let (Some(authority), Some(rules)) = (authority, rules) {
                all.str("url.full", &url(plugin, exchange, authority, rules, seat));
                address(all, authority);
            }
            if let Some(status) = tried.status {
                all.int("http.response.status_code", status);
            }
            if let Some(error) = error {
                all.str("error.type", error);
            } else if let Some(status) = tried.status.filter(|status| *status >= 400) {
                all.text("error.type", status.to_string());
            }
            if tried.number > 1 {
                all.int("http.request.resend_count", tried.number - 1);
            }
            if let Some(reused) = tried.reused {
                all.bool("ferrum.connection.reused", reused);
            }
            let own = seat.proxy().backend.upstream.id.as_str();
            all.str("ferrum.upstream.id", exchange.upstream().map_or(own, |chosen| &**chosen));
            rpc(all, exchange);
            if let Some(code) = code {
                all.int("rpc.grpc.status_code", code);
            }
        });
        let is_refused = code.is_some_and(|code| code != 0);
        if error.is_some() || is_refused || tried.status.is_some_and(|status| status >= 400) {
            failed(span, tried.message.as_deref());
        }
    });
}

/// The whole URL of an attempt, without the query's secrets.
fn url(
    plugin: &OtelTracing,
    exchange: &Exchange,
    authority: &str,
    rules: &TargetRules,
    seat: Seat<'_>,
) -> String {
    let path = exchange.path_for(rules, seat);
    let (path, query) = path.split_once('?').map_or((&*path, None), |(path, query)| (path, Some(query)));
    let mut url = [seat.proxy().backend.scheme.as_str(), "://", authority, path].concat();
    if let Some(query) = query {
        url.push('?');
        url.push_str(&redact::plain(query, Secrets::of(Some(seat.state()), &plugin.redact_query)));
    }
    url
}

/// The span of a plugin that waited.
pub(super) fn wait(
    out: &mut Vec<u8>,
    plugin: &OtelTracing,
    clock: Clock,
    trace: &Trace,
    waited: &Waited,
    seat: Seat<'_>,
) {
    let config = seat.state().plugins.at(waited.place);
    let name = config.map_or("plugin", |config| &*config.plugin_name);
    span(out, plugin.encoding, |span| {
        let context = TraceContext { span: SpanId::random(), ..trace.context };
        let parent = Some((trace.context.span, false));
        let times = (clock.at(waited.began), clock.at(waited.ended));
        Head { context, parent, state: "", name, kind: INTERNAL, times }.write(span);
        span.attributes(ATTRIBUTES, |all| {
            all.str("ferrum.plugin.hook", waited.hook);
            if let Some(config) = config {
                all.str("ferrum.plugin.config", config.id.as_str());
            }
        });
    });
}

/// The span of a session.
pub(super) fn session(
    out: &mut Vec<u8>,
    plugin: &OtelTracing,
    clock: Clock,
    trace: &Trace,
    record: &SessionRecord<'_>,
    seat: Seat<'_>,
) {
    let session = record.session;
    // A WebSocket's session goes on below the span of the exchange it began as.
    let below = trace.session.map(|span| (span, trace.context.span));
    let name = match record.protocol {
        "websocket" => "websocket session",
        "udp" => "udp session",
        "dtls" => "dtls session",
        _ => "tcp session",
    };
    span(out, plugin.encoding, |span| {
        let context =
            TraceContext { span: below.map_or(trace.context.span, |(own, _)| own), ..trace.context };
        let parent = below.map(|(_, parent)| (parent, false));
        let kind = if parent.is_some() { INTERNAL } else { SERVER };
        let times = (clock.at(session.started), clock.nanos);
        Head { context, parent, state: "", name, kind, times }.write(span);
        span.attributes(ATTRIBUTES, |all| {
            all.text(
                "network.transport",
                if matches!(record.protocol, "udp" | "dtls") { "udp" } else { "tcp" },
            );
            all.text("network.protocol.name", record.protocol);
            all.address("client.address", session.client_address);
            all.address("network.peer.address", session.client.peer.ip());
            all.int("network.peer.port", session.client.peer.port());
            if let Some(name) = &session.server_name {
                all.text("server.address", &**name);
            }
            if let Some(target) = record.target {
                let address = target_address(target, record.route, session.client.port);
                all.text("ferrum.target", &*address);
            }
            all.text("ferrum.session.end", record.reason);
            all.int("ferrum.session.bytes_up", record.bytes_up);
            all.int("ferrum.session.bytes_down", record.bytes_down);
            if sampler::is_session_failure(record.reason) {
                all.text("error.type", record.reason);
            }
            identity(all, Some(seat.state()), session.identity.as_deref().map(|identity| &*identity.name));
        });
        if sampler::is_session_failure(record.reason) {
            failed(span, None);
        }
    });
}

fn identity(all: &mut Attributes<'_, '_, '_>, proxy: Option<&ProxyState>, caller: Option<&str>) {
    if let Some(proxy) = proxy {
        all.str("ferrum.proxy.id", proxy.proxy.id.as_str());
    }
    if let Some(name) = caller {
        all.str("enduser.id", name);
    }
}

/// Service and method of a gRPC call.
fn rpc(all: &mut Attributes<'_, '_, '_>, exchange: &Exchange) {
    if exchange.dialect != Dialect::Grpc {
        return;
    }
    all.str("rpc.system", "grpc");
    if let Some((service, method)) = exchange.path().trim_start_matches('/').rsplit_once('/') {
        all.str("rpc.service", service);
        all.str("rpc.method", method);
    }
}

fn method(all: &mut Attributes<'_, '_, '_>, method: &Method) {
    all.str("http.request.method", if shown(method) == "HTTP" { "_OTHER" } else { method.as_str() });
    if shown(method) == "HTTP" {
        all.str("http.request.method_original", method.as_str());
    }
}

/// A well-known method, or `HTTP`: names of spans are few.
fn shown(method: &Method) -> &str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    if KNOWN.contains(&method.as_str()) { method.as_str() } else { "HTTP" }
}

/// Host and port apart.
fn address(all: &mut Attributes<'_, '_, '_>, authority: &str) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()) => {
            (host, Some(port))
        }
        _ => (authority, None),
    };
    all.str("server.address", host.trim_start_matches('[').trim_end_matches(']'));
    if let Some(port) = port.and_then(|port| port.parse::<u16>().ok()) {
        all.int("server.port", port);
    }
}

/// What the proxy's path stands for, which is the same for all its requests.
fn route(proxy: &Proxy) -> Option<&str> {
    let Traffic::Http(rules) = &proxy.traffic else { return None };
    let [only] = &*rules.matches else { return None };
    Some(match &only.path {
        PathPattern::HostOnly => return None,
        PathPattern::Exact(path) | PathPattern::Prefix(path) => path,
        PathPattern::Template(template) => template.as_str(),
        PathPattern::Regex(regex) => regex.as_str(),
    })
}

/// `GET /shop`, or a gRPC method.
fn name<'e>(exchange: &'e Exchange, route: Option<&str>) -> Cow<'e, str> {
    if exchange.dialect == Dialect::Grpc {
        return exchange.path().trim_start_matches('/').into();
    }
    let method = shown(exchange.method());
    route.map_or(Cow::Borrowed(method), |route| [method, " ", route].concat().into())
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}
