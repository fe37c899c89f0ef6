//! What a record says in the access log, under OpenTelemetry's names where it has one.

use std::time::SystemTime;

use gateway_core::config::model::Traffic;
use gateway_core::config::snapshot::Route;
use gateway_core::http::exchange::{Client, Exchange, Field};
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::trace::TraceContext;
use http::Version;
use http::header::{HeaderName, REFERER, USER_AGENT};

use gateway_telemetry::json::Line;
use gateway_telemetry::redact;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An exchange's line.
pub(crate) fn exchange(line: &mut Line<'_>, record: &ExchangeRecord<'_>) {
    let exchange = record.exchange;
    begin(line, "http", record.duration);
    line.text("http.request.method", exchange.method().as_str());
    target(line, exchange);
    line.number("http.response.status_code", record.status);
    if let Some(reason) = record.reason {
        // What a plugin answers on purpose is no error, and still has a reason.
        line.text(if record.is_error { "error.type" } else { "reply.reason" }, reason);
    }
    if let Some(failure) = record.failure {
        line.text("error.message", failure.to_string());
    }
    if exchange.early {
        line.number("tls.early_data", 1_u8);
    }
    line.seconds("http.server.request.duration", record.duration);
    line.number("http.request.body.size", record.request_bytes);
    line.number("http.response.body.size", record.response_bytes);
    line.plain("network.protocol.version", version(exchange.version()));
    line.plain("client.address", exchange.client_address);
    client(line, &exchange.client);
    headers(line, exchange);
    fields(line, exchange.fields());
    if let Some(identity) = &exchange.identity {
        line.text("enduser.id", &*identity.name);
    }
    if let Some(route) = record.route {
        proxy(line, route);
    }
    if let Some(target) = record.target {
        line.text("upstream.address", &*target.authority);
        line.number("upstream.attempts", record.attempts);
    }
    if let Some(first_byte) = record.first_byte {
        line.seconds("http.client.request.duration", first_byte);
    }
}

/// A session's line.
pub(crate) fn session(line: &mut Line<'_>, record: &SessionRecord<'_>) {
    begin(line, record.protocol, record.duration);
    line.text("session.end", record.reason);
    line.seconds("session.duration", record.duration);
    line.number("session.bytes_up", record.bytes_up);
    line.number("session.bytes_down", record.bytes_down);
    line.plain("client.address", record.session.client_address);
    client(line, &record.session.client);
    if let Some(head) = &record.session.head {
        line.text("http.request.method", head.method.as_str());
        line.text("url.path", head.uri.path());
        if let Some(query) = head.uri.query() {
            line.text_by("url.query", |out| redact::query(out, query));
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
        proxy(line, route);
    }
    if let Some(target) = record.target {
        line.text("upstream.address", &*target.authority);
    }
}

fn begin(line: &mut Line<'_>, kind: &'static str, lasted: std::time::Duration) {
    let now = SystemTime::now();
    // The moment it began, as other parties' logs have it.
    line.time("timestamp", now.checked_sub(lasted).unwrap_or(now));
    line.text("kind", kind);
}

/// The request's target. Of its query, secrets are blanked out; user information in an absolute target is left out.
fn target(line: &mut Line<'_>, exchange: &Exchange) {
    let uri = exchange.uri();
    line.text("url.scheme", exchange.client.scheme());
    line.text("url.path", uri.path());
    if let Some(query) = uri.query() {
        line.text_by("url.query", |out| redact::query(out, query));
    }
    if let Some(authority) = exchange.authority() {
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        line.text("server.address", host);
    }
}

fn client(line: &mut Line<'_>, client: &Client) {
    line.plain("network.peer.address", client.peer.ip());
    line.number("network.peer.port", client.peer.port());
    if let Some(tls) = &client.tls {
        line.text("tls.protocol.version", tls.version);
        line.text("tls.cipher", tls.cipher);
        if let Some(name) = &tls.server_name {
            line.text("tls.client.server_name", &**name);
        }
    }
}

/// Fields that plugins added.
fn fields(line: &mut Line<'_>, fields: &[(&'static str, Field)]) {
    for (name, value) in fields {
        match value {
            Field::Text(text) => line.text(name, &**text),
            Field::Number(number) => line.number(name, *number),
            Field::Fraction(number) if number.is_finite() => line.plain(name, number),
            Field::Fraction(_) => {}
            Field::Flag(flag) => line.number(name, u8::from(*flag)),
        }
    }
}

/// The few headers that are logged; none that may carry a credential.
fn headers(line: &mut Line<'_>, exchange: &Exchange) {
    let headers = &exchange.request.headers;
    // The id that a plugin gave goes before one that the client sent.
    if let Some(id) = exchange.request_id().or_else(|| headers.get(REQUEST_ID)) {
        line.text("http.request.id", id);
    }
    if let Some(context) = exchange.trace {
        trace(line, context);
    } else if let Some(trace) = headers.get(TRACEPARENT).and_then(|value| trace_id(value.as_bytes())) {
        line.text("trace_id", trace);
    }
    if let Some(agent) = headers.get(USER_AGENT) {
        line.text("user_agent.original", agent);
    }
    if let Some(referer) = headers.get(REFERER) {
        // Its query is somebody else's, with secrets of unknown names.
        let referer = referer.as_bytes();
        let end = memchr::memchr2(b'?', b'#', referer).unwrap_or(referer.len());
        line.text("http.request.header.referer", &referer[..end]);
    }
}

/// Where it is in its trace.
fn trace(line: &mut Line<'_>, context: TraceContext) {
    line.plain("trace_id", context.trace);
    line.plain("span_id", context.span);
}

fn proxy(line: &mut Line<'_>, route: &Route) {
    line.text("proxy.id", route.proxy.id.as_str());
    line.text("upstream.id", route.proxy.backend.upstream.id.as_str());
    if let Traffic::Http(_) = route.proxy.traffic {
        line.text("upstream.scheme", route.proxy.backend.scheme.as_str());
    }
}

/// The trace id of a W3C traceparent, if it is well-formed: `version-trace-parent-flags`.
fn trace_id(value: &[u8]) -> Option<&[u8]> {
    let mut parts = value.split(|byte| *byte == b'-');
    let (_version, trace) = (parts.next()?, parts.next()?);
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (trace.len() == 32 && trace.iter().all(is_hex) && trace.iter().any(|byte| *byte != b'0')).then_some(trace)
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
    use super::trace_id;

    #[test]
    fn takes_the_trace_of_a_wellformed_traceparent_only() {
        let good = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace_id(good), Some(&b"0af7651916cd43dd8448eb211c80319c"[..]));
        for bad in [
            &b"00-00000000000000000000000000000000-b7ad6b7169203331-01"[..],
            b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            b"00-0af7-b7ad-01",
            b"",
            b"\"-",
        ] {
            assert_eq!(trace_id(bad), None);
        }
    }
}
