//! What is around spans, records and metrics: who sends them.

use super::encoder::{Encoder, Encoding, Field};

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics.
    Metrics,
}

/// Attributes of the resource: who sends.
const ATTRIBUTES: Field = Field(1, "attributes");
const RESOURCE: Field = Field(1, "resource");
const SCOPE: Field = Field(1, "scope");

impl Signal {
    /// The word in paths and variables: `traces`, `logs` or `metrics`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }

    /// The path of the gRPC method.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }

    /// The field of an item in its scope, by which items are encoded one by one.
    pub fn item(self) -> Field {
        match self {
            Self::Traces => Field(2, "spans"),
            Self::Logs => Field(2, "logRecords"),
            Self::Metrics => Field(2, "metrics"),
        }
    }

    fn resources(self) -> Field {
        match self {
            Self::Traces => Field(1, "resourceSpans"),
            Self::Logs => Field(1, "resourceLogs"),
            Self::Metrics => Field(1, "resourceMetrics"),
        }
    }

    fn scopes(self) -> Field {
        match self {
            Self::Traces => Field(2, "scopeSpans"),
            Self::Logs => Field(2, "scopeLogs"),
            Self::Metrics => Field(2, "scopeMetrics"),
        }
    }

    /// The request that sends these items, which were encoded one by one.
    pub fn request(self, encoding: Encoding, resource: &[(String, String)], items: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(items.len() + 1024);
        Encoder::root(&mut out, encoding, |request| {
            request.list_by(self.resources(), |all| all.item(|one| self.resource(one, resource, items)));
        });
        out
    }

    fn resource(self, one: &mut Encoder<'_>, resource: &[(String, String)], items: &[u8]) {
        one.message(RESOURCE, |about| {
            about.attributes(ATTRIBUTES, |attributes| {
                resource.iter().for_each(|(key, value)| attributes.text(key, value));
            });
        });
        one.list_by(self.scopes(), |scopes| scopes.item(|scope| self.scope(scope, items)));
    }

    fn scope(self, scope: &mut Encoder<'_>, items: &[u8]) {
        scope.message(SCOPE, |about| {
            about.text(Field(1, "name"), "ferrum-edge");
            about.text(Field(2, "version"), env!("CARGO_PKG_VERSION"));
        });
        scope.list_of(self.item(), items);
    }
}

/// Attributes of the resource: the service, the gateway's own, and others; the last one of a name counts.
pub fn resource(service: &str, others: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut all = vec![
        ("telemetry.sdk.name".to_owned(), "ferrum-edge".to_owned()),
        ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (key, value) in others.into_iter().chain([("service.name".to_owned(), service.to_owned())]) {
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = value,
            None => all.push((key, value)),
        }
    }
    all
}
