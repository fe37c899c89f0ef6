//! JSON under the names of the Elastic Common Schema 8; what it has no name for keeps its own.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use super::FieldVisitor;
use crate::json::JsonLine;

/// A line that is being written.
pub struct Ecs<'l, 'b> {
    line: &'l mut JsonLine<'b>,
}

impl<'l, 'b> Ecs<'l, 'b> {
    /// Writes into this line.
    pub fn new(line: &'l mut JsonLine<'b>) -> Self {
        line.text("ecs.version", "8.11.0");
        line.text("event.kind", "event");
        line.text("event.dataset", "ferrum-edge.access");
        Self { line }
    }
}

/// The schema's name of a field.
fn name(key: &str) -> &str {
    match key {
        "timestamp" => "@timestamp",
        "kind" => "network.application",
        "server.address" => "url.domain",
        "server.port" => "url.port",
        "http.request.body.size" => "http.request.body.bytes",
        "http.response.body.size" => "http.response.body.bytes",
        "network.protocol.version" => "http.version",
        "client.address" => "client.ip",
        "network.peer.address" => "source.ip",
        "network.peer.port" => "source.port",
        "network.local.port" => "server.port",
        "tls.protocol.name" => "tls.version_protocol",
        "tls.protocol.version" => "tls.version",
        "trace_id" => "trace.id",
        "span_id" => "span.id",
        "http.request.header.referer" => "http.request.referrer",
        "enduser.id" => "user.name",
        "upstream.address" => "destination.address",
        "session.bytes_up" => "client.bytes",
        "session.bytes_down" => "server.bytes",
        "reply.reason" | "session.end" => "event.reason",
        other => other,
    }
}

impl FieldVisitor for Ecs<'_, '_> {
    fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.line.text(name(key), text);
    }

    fn plain(&mut self, key: &str, value: impl Display) {
        self.line.plain(name(key), value);
    }

    fn number(&mut self, key: &str, number: u64) {
        self.line.number(name(key), number);
    }

    fn fraction(&mut self, key: &str, number: f64) {
        if number.is_finite() {
            self.line.bare(name(key), number);
        }
    }

    fn seconds(&mut self, key: &str, duration: Duration) {
        match key {
            // In nanoseconds, as the schema has it.
            "http.server.request.duration" | "session.duration" => {
                self.line.number("event.duration", u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
            }
            _ => self.line.seconds(name(key), duration),
        }
    }

    fn time(&mut self, key: &str, time: SystemTime) {
        self.line.time(name(key), time);
    }
}
