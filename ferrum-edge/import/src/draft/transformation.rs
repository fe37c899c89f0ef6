//! Plugins that change requests and responses on their way.

use serde_json::Value;

use super::settings::{Amount, Any, Flag, List, Number, One, Text, Texts, draft, settings};

settings! {
    Rewrite: "rewrite" { path: Text, regex: List<Replaced>, query: One<QueryChanges>, host: Text }
    /// Changes to the query of what the target is asked.
    QueryChanges: "rewrite/query" { remove_all: Flag, add: List<Parameter> }
    /// A parameter of a query.
    Parameter: "rewrite/query/add" { name: Text, value: Text }
    /// Replaces what a regex finds in the path.
    Replaced: "rewrite/regex" { from: Text, to: Text, all: Flag }
    RequestTransformer: "request_transformer" { rules: List<HeaderRule> }
    ResponseTransformer: "response_transformer" { rules: List<HeaderRule>, cookies: List<CookieRule>, of: Text, statuses: Texts }
    /// Changes a header field.
    HeaderRule: "request_transformer/rules" {
        operation: Text, target: Text, key: Text, value: Any, new_key: Text, replacements: List<Replacement>,
    }
    /// Replaces a part of a header field.
    Replacement: "request_transformer/rules/replacements" { equals: Text, prefix: Text, pattern: Text, with: Text }
    /// Changes the attributes of cookies.
    CookieRule: "response_transformer/cookies" {
        pattern: Text, domains: List<Replacement>, paths: List<Replacement>, secure: Flag, http_only: Flag, same_site: Text,
    }
    TextReplacement: "text_replacement" {
        replacements: List<TextPair>, once: Flag, ignore_case: Flag, content_types: Texts, keep_last_modified: Flag,
    }
    /// A text in bodies, and what stands in its place.
    TextPair: "text_replacement/replacements" { find: Text, with: Text }
    Compression: "compression" {
        algorithms: Texts, min_content_length: Amount, content_types: Texts, gzip_level: Number,
    }
    GrpcWeb: "grpc_web" {}
    CorrelationId: "correlation_id" { header_name: Text, echo_downstream: Flag }
    OtelTracing: "otel_tracing" { exporter: One<SpanExporter> }
    /// Where traces go.
    SpanExporter: "otel_tracing/exporter" { endpoint: Text }
}

/// Changes of header fields, each for the requests that a condition means.
pub(crate) type CasedRules = Vec<(Option<Value>, HeaderRule)>;

impl HeaderRule {
    /// A rule that gives a header field a value.
    pub(crate) fn field(operation: &str, name: impl Text, value: impl Any) -> Self {
        draft!(HeaderRule { operation, target: "header", key: name, value })
    }

    /// A rule that removes a header field.
    pub(crate) fn no_field(name: impl Text) -> Self {
        draft!(HeaderRule { operation: "remove", target: "header", key: name })
    }
}
