//! What an access record says, under OpenTelemetry's names where it has one; and the ways to write it.

pub mod combined;
pub mod ecs;
mod headers;
mod layout;
pub mod logfmt;

use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use gateway_core::config::model::Traffic;
use gateway_core::http::exchange::{Client, Exchange, Field};
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::snapshot::ProxyState;
use gateway_core::snapshot::streams::target_address;
use gateway_core::trace::TraceContext;
use http::{HeaderName, Version};

use crate::json::JsonLine;
use crate::otlp::Attributes;
use crate::redact::{self, Secrets};
pub use layout::{Layout, Record};

/// Takes the fields of a record, one by one.
pub trait FieldVisitor {
    /// A text; any bytes.
    fn text(&mut self, key: &str, text: impl AsRef<[u8]>);

    /// A text that no format has to escape: letters, digits, and signs other than quotation marks, backslashes, spaces and `=`.
    fn word(&mut self, key: &str, word: &str) {
        self.text(key, word);
    }

    /// Something whose text never needs escaping: an address, a version.
    fn plain(&mut self, key: &str, value: impl Display);

    /// An address.
    fn address(&mut self, key: &str, address: IpAddr) {
        self.plain(key, address);
    }

    /// A whole number.
    fn number(&mut self, key: &str, number: u64);

    /// A fraction; one that is not finite is left out.
    fn fraction(&mut self, key: &str, number: f64);

    /// How long something took, in seconds.
    fn seconds(&mut self, key: &str, duration: Duration);

    /// A moment.
    fn time(&mut self, key: &str, time: SystemTime);

    /// A query, its secrets blanked out.
    fn query(&mut self, key: &str, query: &str, secrets: Secrets<'_>) {
        self.text(key, redact::plain(query, secrets));
    }
}

/// What is said beside the usual fields, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// Request headers with the names of their fields.
    pub request_headers: Box<[(HeaderName, Box<str>)]>,
    /// Response headers with the names of their fields.
    pub response_headers: Box<[(HeaderName, Box<str>)]>,
    /// Query parameters whose values are replaced, in lower case, beside the well-known ones.
    pub redact_query: Box<[Box<str>]>,
}

impl FieldVisitor for JsonLine<'_> {
    #[inline(always)]
    fn word(&mut self, key: &str, word: &str) {
        self.word(key, word);
    }

    #[inline(always)]
    fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.text(key, text);
    }

    fn plain(&mut self, key: &str, value: impl Display) {
        self.plain(key, value);
    }

    #[inline(always)]
    fn address(&mut self, key: &str, address: IpAddr) {
        self.address(key, address);
    }

    #[inline(always)]
    fn number(&mut self, key: &str, number: u64) {
        self.number(key, number);
    }

    fn fraction(&mut self, key: &str, number: f64) {
        if number.is_finite() {
            self.bare(key, number);
        }
    }

    #[inline(always)]
    fn seconds(&mut self, key: &str, duration: Duration) {
        self.seconds(key, duration);
    }

    fn time(&mut self, key: &str, time: SystemTime) {
        self.time(key, time);
    }

    fn query(&mut self, key: &str, query: &str, secrets: Secrets<'_>) {
        self.text_by(key, |out| redact::query(out, query, secrets));
    }
}

impl FieldVisitor for Attributes<'_, '_, '_> {
    fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.text(key, text);
    }

    fn word(&mut self, key: &str, word: &str) {
        self.str(key, word);
    }

    fn plain(&mut self, key: &str, value: impl Display) {
        self.text(key, value.to_string());
    }

    fn address(&mut self, key: &str, address: IpAddr) {
        self.address(key, address);
    }

    fn number(&mut self, key: &str, number: u64) {
        self.int(key, number);
    }

    fn fraction(&mut self, key: &str, number: f64) {
        self.double(key, number);
    }

    fn seconds(&mut self, key: &str, duration: Duration) {
        self.double(key, duration.as_secs_f64());
    }

    fn time(&mut self, _key: &str, _time: SystemTime) {
        // A record of OTLP has its time in a field of its own.
    }
}

/// Leaves out the fields that were not chosen.
pub struct Chosen<'c, V> {
    /// The names of those that were.
    pub fields: &'c [Box<str>],
    /// Who gets them.
    pub visit: &'c mut V,
}

impl<V> Chosen<'_, V> {
    fn has(&self, key: &str) -> bool {
        // Headers are only there where they were asked for.
        let is_header = |key: &str| {
            key.starts_with("http.request.header.") && key != "http.request.header.referer"
                || key.starts_with("http.response.header.")
        };
        self.fields.iter().any(|field| **field == *key) || is_header(key)
    }
}

impl<V: FieldVisitor> FieldVisitor for Chosen<'_, V> {
    fn word(&mut self, key: &str, word: &str) {
        if self.has(key) {
            self.visit.word(key, word);
        }
    }

    fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        if self.has(key) {
            self.visit.text(key, text);
        }
    }

    fn plain(&mut self, key: &str, value: impl Display) {
        if self.has(key) {
            self.visit.plain(key, value);
        }
    }

    fn address(&mut self, key: &str, address: IpAddr) {
        if self.has(key) {
            self.visit.address(key, address);
        }
    }

    fn number(&mut self, key: &str, number: u64) {
        if self.has(key) {
            self.visit.number(key, number);
        }
    }

    fn fraction(&mut self, key: &str, number: f64) {
        if self.has(key) {
            self.visit.fraction(key, number);
        }
    }

    fn seconds(&mut self, key: &str, duration: Duration) {
        if self.has(key) {
            self.visit.seconds(key, duration);
        }
    }

    fn time(&mut self, key: &str, time: SystemTime) {
        if self.has(key) {
            self.visit.time(key, time);
        }
    }

    fn query(&mut self, key: &str, query: &str, secrets: Secrets<'_>) {
        if self.has(key) {
            self.visit.query(key, query, secrets);
        }
    }
}

/// What is said of an exchange.
pub fn exchange(line: &mut impl FieldVisitor, record: &ExchangeRecord<'_>, extras: &Extras) {
    let exchange = record.exchange;
    begin(line, "http", record.duration);
    line.word("http.request.method", exchange.method().as_str());
    target(line, exchange, Secrets::of(record.route, &extras.redact_query));
    line.number("http.response.status_code", u64::from(record.status));
    if let Some(status) = record.grpc_status {
        line.number("rpc.grpc.status_code", u64::from(status));
    }
    if let Some(reason) = record.reason {
        // What a plugin answers on purpose is no error, and still has a reason.
        line.word(if record.is_error { "error.type" } else { "reply.reason" }, reason);
    }
    if let Some(failure) = record.failure {
        line.text("error.message", failure.to_string());
    }
    if let Some(decided) = record.decided.filter(|_| record.is_error) {
        line.text("error.setting", decided.name);
        if let Some(limit) = decided.limit {
            line.text("error.limit", limit.to_string());
        }
    }
    if let Some(config) = record.plugin_config {
        line.text("plugin_config.id", config);
    }
    if exchange.early {
        line.number("tls.early_data", 1);
    }
    line.seconds("http.server.request.duration", record.duration);
    line.number("http.request.body.size", record.request_bytes);
    line.number("http.response.body.size", record.response_bytes);
    line.word("network.protocol.version", version(exchange.version()));
    line.address("client.address", exchange.client_address);
    client(line, &exchange.client);
    headers::usual(line, exchange);
    headers::visit_configured(line, exchange, extras, record.route);
    fields(line, exchange.fields());
    if let Some(identity) = &exchange.identity {
        line.text("enduser.id", &*identity.name);
    }
    if let Some(route) = record.route {
        proxy(line, route, exchange.upstream().map(|chosen| &**chosen));
    }
    if let Some(target) = record.target {
        line.text("upstream.address", &**target.authority());
        line.number("upstream.attempts", u64::from(record.attempts));
        let hedged = exchange.hedged();
        if hedged.sent > 0 {
            line.number("upstream.hedges", u64::from(hedged.sent));
        }
        if let Some(attempt) = hedged.won {
            line.number("upstream.hedge.won", u64::from(attempt));
        }
    }
    if let Some(first_byte) = record.first_byte {
        line.seconds("http.client.request.duration", first_byte);
    }
    if let Some(last_byte) = record.last_byte {
        line.seconds("upstream.response.duration", last_byte);
    }
    let phases = exchange.phases().unwrap_or_default();
    for (name, duration) in [
        ("upstream.queue.duration", exchange.queued()),
        ("upstream.dns.duration", phases.dns),
        ("upstream.connect.duration", phases.connect),
        ("upstream.tls.duration", phases.tls),
    ] {
        if let Some(duration) = duration {
            line.seconds(name, duration);
        }
    }
}

/// What is said of a session.
pub fn session(line: &mut impl FieldVisitor, record: &SessionRecord<'_>, extras: &Extras) {
    begin(line, record.protocol, record.duration);
    line.word("session.end", record.reason);
    line.seconds("session.duration", record.duration);
    line.number("session.bytes_up", record.bytes_up);
    line.number("session.bytes_down", record.bytes_down);
    if record.dropped > 0 {
        line.number("session.datagrams_dropped", record.dropped);
    }
    line.address("client.address", record.session.client_address);
    client(line, &record.session.client);
    line.number("network.local.port", u64::from(record.session.client.local.port()));
    if let (None, Some(name)) = (&record.session.client.tls, &record.session.server_name) {
        line.text("tls.client.server_name", &**name);
    }
    if let Some(head) = &record.session.head {
        line.text("http.request.method", head.method.as_str());
        line.text("url.path", head.uri.path());
        if let Some(query) = head.uri.query() {
            line.query("url.query", query, Secrets::of(record.route, &extras.redact_query));
        }
    }
    if let Some(context) = record.session.trace {
        trace(line, context);
    }
    fields(line, &record.session.fields);
    if let Some(identity) = &record.session.identity {
        line.text("enduser.id", &*identity.name);
    }
    if let Some(route) = record.route {
        proxy(line, route, None);
    }
    if let Some(target) = record.target {
        let address = target_address(target, record.route, record.session.client.port);
        line.text("upstream.address", &*address);
    }
}

fn begin(line: &mut impl FieldVisitor, kind: &'static str, lasted: Duration) {
    let now = SystemTime::now();
    // The moment it began, as other parties' logs have it.
    line.time("timestamp", now.checked_sub(lasted).unwrap_or(now));
    line.word("kind", kind);
}

/// The request's target. Of its query, secrets are blanked out; user information in an absolute target is left out.
fn target(line: &mut impl FieldVisitor, exchange: &Exchange, secrets: Secrets<'_>) {
    let uri = exchange.uri();
    line.word("url.scheme", exchange.scheme());
    line.text("url.path", uri.path());
    if let Some(query) = uri.query() {
        line.query("url.query", query, secrets);
    }
    if let Some(authority) = exchange.authority() {
        let host = split_last(authority, b'@').map_or(authority, |(_, host)| host);
        let (name, port) = host_and_port(host);
        line.text("server.address", name);
        if let Some(port) = port {
            line.number("server.port", u64::from(port));
        }
    }
}

/// The host without the brackets of an address, and the port where there is one.
fn host_and_port(authority: &str) -> (&str, Option<u16>) {
    let split = split_last(authority, b':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    // The last group of an address without brackets is no port.
    let (host, port) = match split {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
}

/// As `str::rsplit_once`, for a text of a few bytes, in which looking at each is cheaper.
fn split_last(text: &str, at: u8) -> Option<(&str, &str)> {
    let place = text.bytes().rposition(|byte| byte == at)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

fn client(line: &mut impl FieldVisitor, client: &Client) {
    line.address("network.peer.address", client.peer.ip());
    line.number("network.peer.port", u64::from(client.peer.port()));
    if let Some(tls) = &client.tls {
        // The number alone, as OpenTelemetry has it.
        let (name, version) = match tls.version.strip_prefix("DTLSv") {
            Some(version) => ("dtls", version),
            None => ("tls", tls.version.trim_start_matches("TLSv")),
        };
        line.word("tls.protocol.name", name);
        line.text("tls.protocol.version", version);
        // DTLS does not say which one it uses.
        if !tls.cipher.is_empty() {
            line.text("tls.cipher", tls.cipher);
        }
        if let Some(name) = &tls.server_name {
            line.text("tls.client.server_name", &**name);
        }
    }
}

/// Fields that plugins added.
fn fields(line: &mut impl FieldVisitor, fields: &[(&'static str, Field)]) {
    for (name, value) in fields {
        match value {
            Field::Text(text) => line.text(name, &**text),
            Field::Number(number) => line.number(name, *number),
            Field::Fraction(number) => line.fraction(name, *number),
            Field::Flag(flag) => line.number(name, u64::from(*flag)),
        }
    }
}

/// Where it is in its trace.
fn trace(line: &mut impl FieldVisitor, context: TraceContext) {
    line.word("trace_id", std::str::from_utf8(&context.trace.hex()).unwrap_or_default());
    line.word("span_id", std::str::from_utf8(&context.span.hex()).unwrap_or_default());
}

/// The proxy, and the upstream: its own, unless a plugin chose another one.
fn proxy(line: &mut impl FieldVisitor, route: &ProxyState, chosen: Option<&str>) {
    line.word("proxy.id", route.proxy.id.as_str());
    line.word("upstream.id", chosen.unwrap_or(route.proxy.backend.upstream.id.as_str()));
    if let Traffic::Http(_) = route.proxy.traffic {
        line.word("upstream.scheme", route.proxy.backend.scheme.as_str());
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn a_port_is_parted_from_its_host() {
        for (authority, host, port) in [
            ("a.test", "a.test", None),
            ("a.test:8443", "a.test", Some(8443)),
            ("[2001:db8::1]:80", "2001:db8::1", Some(80)),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("2001:db8::1", "2001:db8::1", None),
            ("a.test:", "a.test:", None),
            ("a.test:99999", "a.test:99999", None),
        ] {
            assert_eq!(host_and_port(authority), (host, port), "{authority}");
        }
    }
}
