//! Plugins that change requests and responses on their way.

use super::settings::{Amount, Any, Flag, List, Number, One, Text, Texts, settings};

settings! {
    Rewrite: "rewrite" { path: Text, prefix: One<Replaced>, regex: List<Replaced>, query: Any, host: Text }
    /// What becomes what.
    Replaced: "rewrite/regex" { from: Text, to: Text }
    RequestTransformer: "request_transformer" { rules: List<HeaderRule> }
    ResponseTransformer: "response_transformer" { rules: List<HeaderRule>, cookies: Any, of: Text, statuses: Texts }
    /// What becomes of a field.
    HeaderRule: "request_transformer/rules" {
        operation: Text, target: Text, key: Text, value: Any, new_key: Text, replacements: List<Replacement>,
    }
    /// What becomes of a part of a field.
    Replacement: "request_transformer/rules/replacements" { equals: Text, prefix: Text, pattern: Text, with: Text }
    TextReplacement: "text_replacement" {
        replacements: Any, once: Flag, ignore_case: Flag, content_types: Texts, keep_last_modified: Flag, of: Text,
    }
    Compression: "compression" {
        algorithms: Texts, min_content_length: Amount, content_types: Texts, gzip_level: Number,
    }
    GrpcWeb: "grpc_web" {}
    CorrelationId: "correlation_id" { header_name: Text, echo_downstream: Flag }
    OtelTracing: "otel_tracing" { exporter: One<SpanExporter> }
    /// Where traces go.
    SpanExporter: "otel_tracing/exporter" { endpoint: Text }
}
