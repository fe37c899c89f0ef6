//! Where spans, records and metrics of OpenTelemetry go, as written: in plugins' settings and in the access log's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Millis;

/// An OpenTelemetry collector or another OTLP receiver. The environment's `OTEL_EXPORTER_OTLP_*` variables are the
/// defaults.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExporterSettings {
    /// URL of the collector, such as `http://collector:4318`; over HTTP, `/v1/traces` (or `logs`, `metrics`) is
    /// appended if it is missing. Default `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://localhost:4318` (gRPC: 4317).
    pub endpoint: Option<String>,
    /// Export protocol. Default `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http/protobuf`.
    pub protocol: Option<Protocol>,
    /// Header fields of each export request. Default `OTEL_EXPORTER_OTLP_HEADERS`, if the endpoint is the
    /// environment's: no other server receives the environment's headers and client certificate.
    #[schemars(extend("format" = "secret"))]
    pub headers: Option<BTreeMap<String, String>>,
    /// Sent as `Authorization: Bearer …`. Default none.
    #[schemars(extend("format" = "secret"))]
    pub bearer_token: Option<String>,
    /// Time limit for one export request. Default `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// Compression of export requests. Default `OTEL_EXPORTER_OTLP_COMPRESSION`, else `none`.
    pub compression: Option<Compression>,
    /// PEM file with the only trusted roots for the collector's certificate. Default `OTEL_EXPORTER_OTLP_CERTIFICATE`,
    /// else the public roots.
    #[schemars(extend("format" = "path"))]
    pub ca_path: Option<PathBuf>,
    /// PEM file with the client certificate chain. Default `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and
    /// `OTEL_EXPORTER_OTLP_CLIENT_KEY`.
    #[schemars(extend("format" = "path"))]
    pub client_cert_path: Option<PathBuf>,
    /// PEM file with the key of `client_cert_path`.
    #[schemars(extend("format" = "path"))]
    pub client_key_path: Option<PathBuf>,
}

/// Export protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[serde(rename = "http/json")]
    HttpJson,
    /// gRPC over HTTP/2.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Compression of export requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// It is not sent.
    None,
    /// gzip.
    Gzip,
}

impl fmt::Debug for ExporterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its headers and token may be secrets.
        f.debug_struct("ExporterSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
